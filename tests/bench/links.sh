#!/usr/bin/env bash
# What links of a rate do to weights and decode batches, beside iperf3 on the same link.
#
#   tests/bench/links.sh [BIN]        BIN: build/release/bin; needs terrace-bench-round-trips beside it in ../tests
#
# A host is a network namespace, its link a veth pair shaped by tbf in both directions. For each rate: iperf3 over the
# link; weights sent to a node there, sealed and verified by it; round trips of decode batches with and without weights on
# the way. Exits 1 where weights have less than 90 % of what iperf3 has. Needs root, ip, tc, iperf3 and python3, and a
# quiet machine: what else runs is in the figures. RATES ("1gbit 2500mbit 10gbit"), SOCKETS ("1"), TRIPS and MODEL may be
# set; with the model's slabs weights travel for a second or more at the highest rate. With eight CPUs or more the hosts
# share none, as real ones do not: NODE_CPUS ("0-7" of 16) and HOST_CPUS ("8-15").
set -euo pipefail

bin=${1:-build/release/bin}
bench=$bin/../tests/terrace-bench-round-trips
rates=${RATES:-1gbit 2500mbit}
sockets=${SOCKETS:-1}
cpus=$(nproc)
if [ "$cpus" -ge 8 ]; then
  NODE_CPUS=${NODE_CPUS:-0-$((cpus / 2 - 1))}
  HOST_CPUS=${HOST_CPUS:-$((cpus / 2))-$((cpus - 1))}
fi
trips=${TRIPS:-10000}
out=$(mktemp -d)
. "$(dirname "$0")/hosts.sh"
trap 'end_hosts; rm -rf "$out"' EXIT
need ip tc iperf3 python3 ${HOST_CPUS:+taskset} "$bench" "$bin/terrace-node"

make_model --layers 4 --d-model 2048 --heads 8 --kv-heads 2 --head-dim 64 --experts 32 --top-k 4 --ff 768 \
  --vocab 1000 --context 64 --type q8_0
make_secret
add_host c
add_host n
add_link c lc 10.78.1.1 n ln 10.78.1.2

conditions
bad=0
for rate in $rates; do
  set_rate "$rate" c lc
  set_rate "$rate" n ln

  ip netns exec "$tag-n" iperf3 -s -1 >/dev/null &
  pids+=($!)
  sleep 1
  on c iperf3 -c 10.78.1.2 -t 4 -O 1 -J >"$out/iperf.json"
  iperf=$(python3 -c 'import json,sys; print(json.load(open(sys.argv[1]))["end"]["sum_received"]["bits_per_second"] / 8e6)' "$out/iperf.json")

  # A node of its own for each rate: what it was sent once is there the next time.
  # shellcheck disable=SC2046  # flags are words
  start_node n 10.78.1.2:9000 "$out/node.log" "${secret[@]}" $(node_flags 1)
  echo "== $rate, iperf3 $iperf MB/s"
  on c ${HOST_CPUS:+taskset -c "$HOST_CPUS"} "$bench" --node 10.78.1.2:9000 --model "$model" "${secret[@]}" \
    --sockets "$sockets" --trips "$trips" | tee "$out/bench.txt" || bad=1
  kill "$node"
  wait "$node" 2>/dev/null || true
  python3 - "$iperf" "$out/bench.txt" <<'PY' || bad=1
import re, sys
iperf = float(sys.argv[1])
weights = float(re.search(r"weights: .*?, ([\d.]+) MB/s", open(sys.argv[2]).read()).group(1))
print("  weights / iperf3 %35s %6.2f   at least 0.90: %s" % ("", weights / iperf, "yes" if weights >= 0.9 * iperf else "NO"))
sys.exit(0 if weights >= 0.9 * iperf else 1)
PY
done
load
exit $bad
