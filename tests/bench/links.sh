#!/usr/bin/env bash
# What links of a rate do to weights and decode batches, beside iperf3 on the same link.
#
#   tests/bench/links.sh [BIN]        BIN: build/release/bin; needs terrace-bench-round-trips beside it in ../tests
#
# A host is a network namespace, its link a veth pair shaped by tbf in both directions. For each rate: iperf3 over the
# link; weights sent to a node there, sealed and verified by it; round trips of decode batches with and without weights on
# the way. Exits 1 where weights have less than 90 % of what iperf3 has. Needs root, ip, tc, iperf3 and python3, and a
# quiet machine: what else runs is in the figures. RATES ("1gbit 2500mbit 10gbit"), SOCKETS ("1"), TRIPS and MODEL may be
# set; with the model's slabs weights travel for a second or more at the highest rate.
set -euo pipefail

bin=${1:-build/release/bin}
bench=$bin/../tests/terrace-bench-round-trips
rates=${RATES:-1gbit 2500mbit}
sockets=${SOCKETS:-1}
trips=${TRIPS:-3000}
out=$(mktemp -d)
tag=terrace-links-$$
pids=()

cleanup() {
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  wait 2>/dev/null || true
  for end in c n; do ip netns del "$tag-$end" 2>/dev/null || true; done
  rm -rf "$out"
}
trap cleanup EXIT

for tool in ip tc iperf3 python3 "$bench" "$bin/terrace-node"; do
  command -v "$tool" >/dev/null || { echo "links.sh: $tool is missing" >&2; exit 2; }
done
[ "$(id -u)" = 0 ] || { echo "links.sh: network namespaces need root" >&2; exit 2; }

model=${MODEL:-$out/model.gguf}
[ -e "$model" ] || "$bin/terrace-random-model" --arch qwen3moe --layers 4 --d-model 2048 --heads 8 --kv-heads 2 \
  --head-dim 64 --experts 32 --top-k 4 --ff 768 --vocab 1000 --context 64 --type q8_0 --seed 1 --out "$model"
(umask 077; "$bin/terrace" secret new >"$out/secret")

in_ns() { ip netns exec "$tag-$1" "${@:2}"; }
for end in c n; do
  ip netns add "$tag-$end"
  in_ns "$end" ip link set lo up
done
ip link add lc netns "$tag-c" type veth peer name ln netns "$tag-n"
in_ns c ip addr add 10.78.1.1/24 dev lc
in_ns n ip addr add 10.78.1.2/24 dev ln
in_ns c ip link set lc up
in_ns n ip link set ln up

burst_of() { case $1 in 10gbit) echo 4m ;; 2500mbit) echo 512k ;; *) echo 256k ;; esac; }

{ date -u; uname -rm; nproc; "$bin/terrace" --version; echo "load $(cat /proc/loadavg)"; }
bad=0
for rate in $rates; do
  shape=(root tbf rate "$rate" burst "$(burst_of "$rate")" latency 20ms)
  in_ns c tc qdisc replace dev lc "${shape[@]}"
  in_ns n tc qdisc replace dev ln "${shape[@]}"

  ip netns exec "$tag-n" iperf3 -s -1 >/dev/null &
  pids+=($!)
  sleep 1
  in_ns c iperf3 -c 10.78.1.2 -t 4 -O 1 -J >"$out/iperf.json"
  iperf=$(python3 -c 'import json,sys; print(json.load(open(sys.argv[1]))["end"]["sum_received"]["bits_per_second"] / 8e6)' "$out/iperf.json")

  # A node of its own for each rate: what it was sent once is there the next time.
  # Not by in_ns, or $! were a shell's.
  ip netns exec "$tag-n" "$bin/terrace-node" --listen 10.78.1.2:9000 --secret-file "$out/secret" 2>"$out/node.log" &
  node=$!
  pids+=("$node")
  for _ in $(seq 600); do grep -qs "listening on" "$out/node.log" && break; sleep 0.1; done
  grep -q "listening on" "$out/node.log" || { cat "$out/node.log" >&2; exit 1; }
  echo "== $rate, iperf3 $iperf MB/s"
  in_ns c "$bench" --node 10.78.1.2:9000 --model "$model" --secret-file "$out/secret" --sockets "$sockets" \
    --trips "$trips" | tee "$out/bench.txt" || bad=1
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
echo "load $(cat /proc/loadavg)"
exit $bad
