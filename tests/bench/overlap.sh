#!/usr/bin/env bash
# How much of the wire a step waits for (docs/adr/0025), and how near a prompt comes to its slowest part.
#
#   tests/bench/overlap.sh [BIN] [OUT]        BIN: build/release/bin; OUT: a new folder for plans and results
#
# Hosts are network namespaces, links are veth pairs shaped by tbf in both directions. Each test runs over the link and, with
# the same shares, over loopback, on nodes that have the same cores. What the link costs must not be more than
#
#   1.3 x sum over layers of max(0, round trip + bytes / rate - own) + 3 % of the step
#
# where round trip and rate are what `terrace plan --probe` has measured of the slowest link, bytes are the transport's, and own is what
# the coordinator's own leg computed. Prompts are also compared with their least limit (`bench` names it) and with
# --overlap off. Exits 1 where a term is missed. Needs root, ip, tc and python3, and a quiet machine. MODEL, RATES
# ("1gbit 2500mbit 10gbit"), NODES ("1 2"), REPEATS, NODE_FLAGS and HOST_FLAGS (such as --cpu-list) may be set.
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

for tool in ip tc python3; do
  command -v "$tool" >/dev/null || { echo "overlap.sh: $tool is missing" >&2; exit 2; }
done
[ "$(id -u)" = 0 ] || { echo "overlap.sh: network namespaces need root" >&2; exit 2; }
mkdir -p "$out"

model=${MODEL:-$out/model.gguf}
if [ ! -e "$model" ]; then
  "$bin/terrace-random-model" --arch qwen3moe --layers 12 --d-model 1024 --heads 16 --kv-heads 4 --head-dim 64 \
    --experts 64 --top-k 8 --ff 512 --vocab 32000 --context 40960 --type q4_k_m --seed 1 --out "$model"
fi
[ -e "$out/secret" ] || (umask 077; "$bin/terrace" secret new >"$out/secret")
secret=(--secret-file "$out/secret")

burst_of() { case $1 in 10gbit) echo 4m ;; 2500mbit) echo 512k ;; *) echo 256k ;; esac; }
in_ns() { ip netns exec "$tag-$1" "${@:2}"; }
start_node() {  # namespace, address, log
  # shellcheck disable=SC2086
  in_ns "$1" "$bin/terrace-node" --listen "$2" "${secret[@]}" ${NODE_FLAGS:-} 2>"$out/$3.log" &
  pids+=($!)
  for _ in $(seq 600); do grep -qs "listening on" "$out/$3.log" && return; sleep 0.1; done
  cat "$out/$3.log" >&2
  exit 1
}

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
  start_node "$i" "10.77.$i.2:9000" "node$i"
  start_node c "127.0.0.1:91${i}0" "loopback$i"
done

{ date -u; uname -rm; nproc; "$bin/terrace" --version; echo "load $(cat /proc/loadavg)"; } | tee "$out/conditions"
bench() {  # result, further flags
  # shellcheck disable=SC2086
  in_ns c "$bin/terrace" bench --quiet -m "$model" "${secret[@]}" ${HOST_FLAGS:-} -r "$repeats" --audit 0 --json \
    "${@:2}" >"$out/$1.json"
}
bad=0
for n in $node_counts; do
  near=()
  for i in $(seq "$n"); do near+=(--node "127.0.0.1:91${i}0"); done
  bench "loopback-$n" "${near[@]}" -p 512 -n 64
  for rate in $rates; do
    far=()
    for i in $(seq "$n"); do
      shape=(root tbf rate "$rate" burst "$(burst_of "$rate")" latency 20ms)
      in_ns c tc qdisc replace dev "tc$i" "${shape[@]}"
      in_ns "$i" tc qdisc replace dev "tn$i" "${shape[@]}"
      far+=(--node "10.77.$i.2:9000")
    done
    name=$rate-$n
    # shellcheck disable=SC2086
    in_ns c "$bin/terrace" plan --quiet -m "$model" "${far[@]}" "${secret[@]}" ${HOST_FLAGS:-} --probe \
      --out "$out/plan-$name.json" >"$out/plan-$name.txt"
    bench "link-$name" --plan "$out/plan-$name.json" -p 512 -n 64
    bench "whole-$name" --plan "$out/plan-$name.json" -p 512 -n 0 --overlap off
    python3 "$(dirname "$0")/overlap.py" "$out" "$rate" "$n" "$repeats" || bad=1
  done
done
echo "load $(cat /proc/loadavg)" | tee -a "$out/conditions"
echo "plans and results are in $out"
exit $bad
