#!/usr/bin/env bash
# How much of the wire a step waits for (docs/adr/0025), and how near a prompt comes to its slowest part.
#
#   tests/bench/overlap.sh [BIN] [OUT]        BIN: build/release/bin; OUT: a new folder for plans and results
#
# Hosts are network namespaces, links are veth pairs shaped by tbf in both directions. For each rate, number of nodes and
# way to share the experts one plan is made over the links. Each test then runs by that plan over the links, and by the
# same plan (shares, parts of a prompt: only the nodes' addresses differ) over loopback, on nodes that have the same
# cores; in ROUNDS turns, every second one the other way round, so that what drifts on the machine meets both, and each
# has the middle of its rounds. What the link costs must not be more than
#
#   1.3 x sum over layers of max(0, round trip + bytes / rate - own) + 3 % of the step
#
# where round trip and rate are what `terrace plan --probe` has measured of the slowest link, bytes are the
# transport's, and own is what the coordinator's own leg computed. Prompts are also compared with their least limit
# (`bench` names it) and with --overlap off, and each test with what the plan predicted of it (prediction.sh judges
# that). Exits 1 where a term is missed. Needs root, ip, tc and python3, and a quiet machine. MODEL (and EXPERTS, how
# many a layer of it has), RATES ("1gbit 2500mbit 10gbit"), NODES ("1 2"), SHARES ("even": this machine takes a part of
# the experts like each node; "nodes": they have all), ROUNDS, REPEATS (of a round), HOST_FLAGS (such as --cpu-list),
# NODE_FLAGS and NODE_CPUS (a list of processors for each node: "4-7 8-11") may be set.
set -euo pipefail

bin=${1:-build/release/bin}
out=${2:-$(mktemp -d)}
rates=${RATES:-10gbit 2500mbit 1gbit}
node_counts=${NODES:-1 2}
shares=${SHARES:-even nodes}
experts=${EXPERTS:-64}
rounds=${ROUNDS:-3}
repeats=${REPEATS:-3}
. "$(dirname "$0")/hosts.sh"
need ip tc python3
two_nodes_and_a_model
for i in 1 2; do
  # shellcheck disable=SC2086
  start_node "$i" "10.77.$i.2:9000" "$out/node$i.log" "${secret[@]}" $(node_flags "$i")
  # shellcheck disable=SC2086
  start_node c "127.0.0.1:91${i}0" "$out/loopback$i.log" "${secret[@]}" $(node_flags "$i")
done

conditions | tee "$out/conditions"
bench() {  # result, plan, further flags
  # shellcheck disable=SC2086
  on c "$bin/terrace" bench --quiet -m "$model" "${secret[@]}" ${HOST_FLAGS:-} -r "$repeats" --audit 0 --json \
    --plan "$2" "${@:3}" >"$out/$1.json"
}
# plan_flags SHARE N: the nodes, and who owns what.
plan_flags() {
  local i each=$((experts / $2)) last spec=
  for i in $(seq "$2"); do
    echo --node "10.77.$i.2:9000"
    last=$((i == $2 ? experts - 1 : i * each - 1))
    spec+=${spec:+,}10.77.$i.2:9000=$(((i - 1) * each))-$last
  done
  [ "$1" = even ] || echo --share "$spec"
}
bad=0
for n in $node_counts; do
  for rate in $rates; do
    for i in $(seq "$n"); do
      set_rate "$rate" c "tc$i"
      set_rate "$rate" "$i" "tn$i"
    done
    for share in $shares; do
      name=$rate-$n-$share
      plan=$out/plan-$name.json
      # shellcheck disable=SC2046,SC2086
      on c "$bin/terrace" plan --quiet -m "$model" $(plan_flags "$share" "$n") "${secret[@]}" ${HOST_FLAGS:-} --probe \
        --explain --out "$plan" >"$out/plan-$name.txt"
      near=$out/plan-$name-loopback.json
      sed -E 's/10\.77\.([12])\.2:9000/127.0.0.1:91\10/g' "$plan" >"$near"
      for round in $(seq "$rounds"); do
        turn=(loopback link)
        ((round % 2)) || turn=(link loopback)
        for where in "${turn[@]}"; do
          [ "$where" = link ] && by=$plan || by=$near
          bench "$where-$name-$round" "$by" -p 512 -n 64
        done
      done
      bench "whole-$name" "$plan" -p 512 -n 0 --overlap off
      python3 "$(dirname "$0")/overlap.py" "$out" "$name" "$rounds" "$repeats" || bad=1
    done
  done
done
load | tee -a "$out/conditions"
echo "plans and results are in $out"
exit $bad
