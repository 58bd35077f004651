#!/usr/bin/env bash
# What `terrace plan --probe` predicts against what `terrace bench` then measures (docs/planning.md, 4).
#
#   tests/bench/prediction.sh [BIN] [OUT]        BIN: build/release/bin; OUT: a new folder for plans and results
#
# Hosts are network namespaces, links are veth pairs shaped by tbf in both directions. For each rate and number of nodes
# the plan file, which holds the prediction, is complete before the run begins that it is compared with. Prints a row for
# each, and exits 1 where one is further than 15 % off. Needs root, ip, tc, nft and python3, and a quiet machine: what else
# runs is in the figures. MODEL, RATES ("1gbit 2500mbit 10gbit"), NODES ("1 2"), REPEATS, NODE_FLAGS and HOST_FLAGS (such as
# --cpu-list) may be set.
set -euo pipefail

bin=${1:-build/release/bin}
out=${2:-$(mktemp -d)}
rates=${RATES:-10gbit 2500mbit 1gbit}
node_counts=${NODES:-1 2}
repeats=${REPEATS:-3}
tag=terrace-$$
pids=()

cleanup() {
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  wait 2>/dev/null || true
  for i in c 1 2; do ip netns del "$tag-$i" 2>/dev/null || true; done
}
trap cleanup EXIT

for tool in ip tc nft python3; do
  command -v "$tool" >/dev/null || { echo "prediction.sh: $tool is missing" >&2; exit 2; }
done
[ "$(id -u)" = 0 ] || { echo "prediction.sh: network namespaces need root" >&2; exit 2; }
mkdir -p "$out"

model=${MODEL:-$out/model.gguf}
if [ ! -e "$model" ]; then
  "$bin/terrace-random-model" --arch qwen3moe --layers 12 --d-model 1024 --heads 16 --kv-heads 4 --head-dim 64 \
    --experts 64 --top-k 8 --ff 512 --vocab 32000 --context 40960 --type q4_k_m --seed 1 --out "$model"
fi

# Where links beyond loopback are authenticated the nodes have their veth addresses; else a node listens on its own
# loopback, and packets for 127.0.1.N go to it.
secret=()
if "$bin/terrace" secret --help >/dev/null 2>&1; then
  (umask 077; "$bin/terrace" secret new >"$out/secret")
  secret=(--secret-file "$out/secret")
fi

burst_of() { case $1 in 10gbit) echo 4m ;; 2500mbit) echo 512k ;; *) echo 256k ;; esac; }
in_ns() { ip netns exec "$tag-$1" "${@:2}"; }

ip netns add "$tag-c"
in_ns c ip link set lo up
for i in 1 2; do
  ip netns add "$tag-$i"
  ip link add "tc$i" netns "$tag-c" type veth peer name "tn$i" netns "$tag-$i"
  in_ns c ip addr add "10.77.$i.1/24" dev "tc$i"
  in_ns "$i" ip addr add "10.77.$i.2/24" dev "tn$i"
  in_ns c ip link set "tc$i" up
  in_ns "$i" ip link set "tn$i" up
  in_ns "$i" ip link set lo up
  [ ${#secret[@]} -gt 0 ] && continue
  in_ns c sysctl -qw net.ipv4.conf.all.route_localnet=1
  in_ns "$i" sysctl -qw net.ipv4.conf.all.route_localnet=1
  in_ns c nft -f - <<NFT
table ip to$i {
  chain out { type nat hook output priority -100; ip daddr 127.0.1.$i tcp dport { 9000, 9001 } dnat to 10.77.$i.2; }
  chain post { type nat hook postrouting priority 100; oifname "tc$i" masquerade; }
}
NFT
  in_ns "$i" nft -f - <<NFT
table ip here {
  chain pre { type nat hook prerouting priority -100; iifname "tn$i" tcp dport { 9000, 9001 } dnat to 127.0.0.1; }
}
NFT
done
address() { if [ ${#secret[@]} -gt 0 ]; then echo "10.77.$1.2:9000"; else echo "127.0.1.$1:9000"; fi; }
for i in 1 2; do
  listen=127.0.0.1:9000
  [ ${#secret[@]} -gt 0 ] && listen=10.77.$i.2:9000
  # shellcheck disable=SC2086
  in_ns "$i" "$bin/terrace-node" --listen "$listen" "${secret[@]}" ${NODE_FLAGS:-} 2>"$out/node$i.log" &
  pids+=($!)
done
for i in 1 2; do
  for _ in $(seq 600); do grep -qs "listening on" "$out/node$i.log" && break; sleep 0.1; done
  grep -q "listening on" "$out/node$i.log" || { cat "$out/node$i.log" >&2; exit 1; }
done

{ date -u; uname -rm; nproc; "$bin/terrace" --version; echo "load $(cat /proc/loadavg)"; } | tee "$out/conditions"
printf '%-9s %5s  %12s %12s %6s   %12s %12s %6s\n' link nodes "decode said" measured ratio "prompt said" measured ratio
bad=0
for rate in $rates; do
  for i in 1 2; do
    shape=(root tbf rate "$rate" burst "$(burst_of "$rate")" latency 20ms)
    in_ns c tc qdisc replace dev "tc$i" "${shape[@]}"
    in_ns "$i" tc qdisc replace dev "tn$i" "${shape[@]}"
  done
  for n in $node_counts; do
    nodes=()
    for i in $(seq "$n"); do nodes+=(--node "$(address "$i")"); done
    plan=$out/plan-$rate-$n.json
    # shellcheck disable=SC2086
    in_ns c "$bin/terrace" plan --quiet -m "$model" "${nodes[@]}" "${secret[@]}" ${HOST_FLAGS:-} --probe --explain \
      --out "$plan" >"$out/plan-$rate-$n.txt"
    # shellcheck disable=SC2086
    in_ns c "$bin/terrace" bench --quiet -m "$model" --plan "$plan" "${secret[@]}" ${HOST_FLAGS:-} -p 512 -n 64 \
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
echo "load $(cat /proc/loadavg)" | tee -a "$out/conditions"
echo "plans and results are in $out"
exit $bad
