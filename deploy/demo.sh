#!/usr/bin/env bash
# Shows Terrace at work on this machine: builds it, starts two tier nodes on loopback, writes a story with the demo
# model's experts spread over this process and both nodes, and compares it with the story told without nodes.
# The first run installs packages and builds (minutes); later ones take seconds.
set -euo pipefail
cd "$(dirname "$0")/.."

prompt=$'<|im_start|>user\nTell me a story about a penguin named Momo and a lost kite.<|im_end|>\n<|im_start|>assistant\n'
model=deploy/demo/demo-story-42m-q4_k_m.gguf
story=(--model "$model" --prompt "$prompt" --max-tokens 400 --temperature 0.7 --seed 11)
bin=build/release/bin
work=$(mktemp -d)
node_pids=()

stop_nodes() {
  local pid
  for pid in "${node_pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  for pid in "${node_pids[@]}"; do wait "$pid" 2>/dev/null || true; done
  node_pids=()
}
trap 'stop_nodes; rm -rf "$work"' EXIT

build() {
  deploy/install_deps.sh
  echo "demo: building (log: build/demo-build.log)"
  mkdir -p build
  { cmake --preset release && cmake --build --preset release --target terrace terrace-node terrace_docs; } >build/demo-build.log 2>&1 ||
    { tail -n 30 build/demo-build.log >&2; echo "demo: the build failed" >&2; exit 1; }
}

# Starts a node on a free port and leaves its address in $address.
start_node() {
  local log="$work/node$1.log" tries
  "$bin/terrace-node" --listen 127.0.0.1:0 --ram 256M --threads 1 2>"$log" &
  node_pids+=($!)
  for tries in $(seq 100); do
    address=$(sed -n 's/^listening on //p' "$log")
    [ -n "$address" ] && return
    jobs -rp | grep -qx "${node_pids[-1]}" || break
    sleep 0.1
  done
  echo "demo: node $1 did not start:" >&2
  cat "$log" >&2
  exit 1
}

build
start_node 1; node1=$address
start_node 2; node2=$address

echo
echo "demo: the story, experts 0-15 of each layer in this process, 16-23 on $node1, 24-31 on $node2"
echo
"$bin/terrace" generate "${story[@]}" --stream --node "$node1" --node "$node2" \
  --share "host=0-15,$node1=16-23,$node2=24-31" 2>"$work/spread.log" | tee "$work/spread.txt" ||
  { cat "$work/spread.log" >&2; exit 1; }
echo
cat "$work/spread.log"
stop_nodes
echo
echo "demo: nodes stopped; the same story without them"
"$bin/terrace" generate "${story[@]}" >"$work/alone.txt" 2>"$work/alone.log" ||
  { cat "$work/alone.log" >&2; exit 1; }
cat "$work/alone.log"
if cmp -s "$work/alone.txt" "$work/spread.txt"; then
  echo "demo: the text with two nodes equals the text without them, byte for byte"
else
  echo "demo: THE TEXTS DIFFER:" >&2
  diff "$work/alone.txt" "$work/spread.txt" >&2
  exit 1
fi
