#!/usr/bin/env bash
# What `terrace plan --probe` predicts against what `terrace bench` then measures (docs/planning.md, 4).
#
#   tests/bench/prediction.sh [BIN] [OUT]        BIN: build/release/bin; OUT: a new folder for plans and results
#
# Hosts are network namespaces, links are veth pairs shaped by tbf in both directions. For each rate and number of nodes
# the plan file, which holds the prediction, is complete before the run begins that it is compared with. Prints a row for
# each, and exits 1 where one is further than 15 % off. Needs root, ip, tc and python3, and a quiet machine: what else
# runs is in the figures. MODEL, RATES ("1gbit 2500mbit 10gbit"), NODES ("1 2"), REPEATS, HOST_FLAGS (such as
# --cpu-list), NODE_FLAGS and NODE_CPUS (a list of processors for each node: "4-7 8-11") may be set.
set -euo pipefail

bin=${1:-build/release/bin}
out=${2:-$(mktemp -d)}
rates=${RATES:-10gbit 2500mbit 1gbit}
node_counts=${NODES:-1 2}
repeats=${REPEATS:-3}
. "$(dirname "$0")/hosts.sh"
need ip tc python3
two_nodes_and_a_model
for i in 1 2; do
  # shellcheck disable=SC2086
  start_node "$i" "10.77.$i.2:9000" "$out/node$i.log" "${secret[@]}" $(node_flags "$i")
done

conditions | tee "$out/conditions"
printf '%-9s %5s  %12s %12s %6s   %12s %12s %6s\n' link nodes "decode said" measured ratio "prompt said" measured ratio
bad=0
for rate in $rates; do
  for i in 1 2; do
    set_rate "$rate" c "tc$i"
    set_rate "$rate" "$i" "tn$i"
  done
  for n in $node_counts; do
    nodes=()
    for i in $(seq "$n"); do nodes+=(--node "10.77.$i.2:9000"); done
    plan=$out/plan-$rate-$n.json
    # shellcheck disable=SC2086
    on c "$bin/terrace" plan --quiet -m "$model" "${nodes[@]}" "${secret[@]}" ${HOST_FLAGS:-} --probe --explain \
      --out "$plan" >"$out/plan-$rate-$n.txt"
    # shellcheck disable=SC2086
    on c "$bin/terrace" bench --quiet -m "$model" --plan "$plan" "${secret[@]}" ${HOST_FLAGS:-} -p 512 -n 64 \
      -r "$repeats" --json >"$out/bench-$rate-$n.json"
    python3 - "$rate" "$n" "$out/bench-$rate-$n.json" <<'PY' || bad=1
import json, sys
rate, n, path = sys.argv[1:]
prompt, decode = json.load(open(path))
ratio = lambda row: row["tokens_per_second"] / row["predicted_tokens_per_second"]
columns = [v for row in (decode, prompt)
           for v in (row["predicted_tokens_per_second"], row["tokens_per_second"], ratio(row))]
print("%-9s %5s  %12.2f %12.2f %6.3f   %12.2f %12.2f %6.3f" % (rate, n, *columns))
sys.exit(0 if all(0.85 <= ratio(row) <= 1.15 for row in (decode, prompt)) else 1)
PY
  done
done
load | tee -a "$out/conditions"
echo "plans and results are in $out"
exit $bad
