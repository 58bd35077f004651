#!/usr/bin/env bash
# Shows Terrace at work on this machine: builds it, starts two tier nodes on loopback, and has two stories told with the
# demo model's experts spread over this process and both nodes. One node is killed in the middle of the first story and
# started again: that story goes on without it, the second one is told with it. Both are compared with the stories told
# without nodes.
# The first run installs packages and builds (minutes); later ones take seconds.
#
#   deploy/demo.sh                  all of this
#   deploy/demo.sh --built FOLDER   installs and builds nothing: the programs are in the folder
set -euo pipefail
built=
case "${1-}" in
  "") ;;
  --built) built=$(realpath "${2?"demo: --built needs the folder of the programs"}") ;;
  *) echo "demo: unknown argument '$1' (--built FOLDER)" >&2; exit 2 ;;
esac
cd "$(dirname "$0")/.."

model=deploy/demo/demo-story-42m-q4_k_m.gguf
first="Tell me a story about a penguin named Momo and a lost kite."
second="Tell me another story about Momo."
chat=(chat --model "$model" --max-tokens 400 --temperature 0.7 --seed 11)
bin=${built:-build/release/bin}
work=$(mktemp -d)
patience=300 # tenths of a second for whatever must happen soon
node_pids=()
trap 'stop_nodes; rm -rf "$work"' EXIT

stop_nodes() {
  local pid
  for pid in "${node_pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  for pid in "${node_pids[@]}"; do wait "$pid" 2>/dev/null || true; done
}

fail() { # what, the log that says more
  echo "demo: $1" >&2
  [ ! -e "${2-}" ] || cat "$2" >&2
  exit 1
}

build() {
  deploy/install_deps.sh
  echo "demo: building (log: build/demo-build.log)"
  mkdir -p build
  { cmake --preset release && cmake --build --preset release --target terrace terrace-node terrace_docs; } >build/demo-build.log 2>&1 ||
    { tail -n 30 build/demo-build.log >&2; echo "demo: the build failed" >&2; exit 1; }
}

# Starts node $1 at the address $2 and leaves where it listens in $address. It has no end of the conversation.
start_node() {
  local log="$work/node$1.log"
  : >"$log"
  "$bin/terrace-node" --listen "$2" --data-port 0 --ram 256M --threads 1 2>"$log" 3>&- 4<&- &
  node_pids[$1]=$!
  for _ in $(seq "$patience"); do
    address=$(sed -n 's/^listening on //p' "$log")
    [ -n "$address" ] && return
    jobs -rp | grep -qx "${node_pids[$1]}" || break
    sleep 0.1
  done
  fail "node $1 did not start:" "$log"
}

# Waits for a line of the coordinator that has $1 in it.
wait_for_line() {
  for _ in $(seq "$patience"); do
    ! grep -qF "$1" "$work/spread.log" || return 0
    sleep 0.1
  done
  fail "no line '$1' came:" "$work/spread.log"
}

# Shows the next $1 characters of the conversation as they come, and keeps them.
show() {
  local text
  read -r -t 120 -N "$1" -u 4 text || fail "the coordinator ended, or says no more:" "$work/spread.log"
  printf '%s' "$text" | tee -a "$work/spread.txt"
}

[ -n "$built" ] || build
printf '%s\n%s\n' "$first" "$second" | "$bin/terrace" "${chat[@]}" --quiet >"$work/alone.txt"
first_length=$(printf '%s\n' "$first" | "$bin/terrace" "${chat[@]}" --quiet | wc -m)
second_length=$(($(wc -m <"$work/alone.txt") - first_length))

start_node 1 127.0.0.1:0; node1=$address
start_node 2 127.0.0.1:0; node2=$address
mkfifo "$work/said" "$work/told"
"$bin/terrace" "${chat[@]}" --node "$node1" --node "$node2" --share "host=0-15,$node1=16-23,$node2=24-31" \
  <"$work/said" >"$work/told" 2>"$work/spread.log" &
coordinator=$!
exec 3>"$work/said" 4<"$work/told"

echo
echo "demo: a story, experts 0-15 of each layer in this process, 16-23 on $node1, 24-31 on $node2"
echo
printf '%s\n' "$first" >&3
show $((first_length / 2))
kill -9 "${node_pids[2]}"
printf ' [demo: kill -9 %s] ' "$node2"
{ wait "${node_pids[2]}" || true; } 2>/dev/null
start_node 2 "$node2"
show $((first_length - first_length / 2))
echo
wait_for_line "$node2: back after"
echo "demo: the coordinator's log so far, with $node2 started again"
grep -vF 'kernels:' "$work/spread.log"
echo
echo "demo: another story, with it"
echo
printf '%s\n' "$second" >&3
show "$second_length"
echo
echo "demo: what $node2 did for it"
"$bin/terrace" status --node "$node2" | sed -n '/^sessions/,$p'
exec 3>&-
wait "$coordinator" || fail "the coordinator failed:" "$work/spread.log"
echo
if cmp -s "$work/alone.txt" "$work/spread.txt"; then
  echo "demo: both texts equal those told without any node, byte for byte"
else
  echo "demo: THE TEXTS DIFFER:" >&2
  diff "$work/alone.txt" "$work/spread.txt" >&2
  exit 1
fi
