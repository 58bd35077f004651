# shellcheck shell=bash disable=SC2154  # bin and out are the scripts'
# Hosts for the scripts of this folder: network namespaces, links between them that have a rate, nodes on them. To be
# sourced, with $bin (the folder of the programs) set. What is begun here ends with the script.

tag=terrace-$$
pids=()
hosts=()

end_hosts() {
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  wait 2>/dev/null || true
  for host in "${hosts[@]}"; do ip netns del "$tag-$host" 2>/dev/null || true; done
}
trap end_hosts EXIT
trap 'exit 143' TERM INT  # or the shell ended without what is to be done at its exit

# need TOOL...: ends the script where one is missing, or namespaces are not allowed.
need() {
  local tool me
  me=$(basename "$0")
  for tool in "$@"; do
    command -v "$tool" >/dev/null || { echo "$me: $tool is missing" >&2; exit 2; }
  done
  [ "$(id -u)" = 0 ] || { echo "$me: network namespaces need root" >&2; exit 2; }
}

# add_host NAME: of one short word.
add_host() {
  ip netns add "$tag-$1"
  hosts+=("$1")
  on "$1" ip link set lo up
}

# on HOST COMMAND...
on() { ip netns exec "$tag-$1" "${@:2}"; }

# add_link HOST DEVICE ADDRESS OTHER ITS_DEVICE ITS_ADDRESS
add_link() {
  ip link add "$2" netns "$tag-$1" type veth peer name "$5" netns "$tag-$4"
  on "$1" ip addr add "$3/24" dev "$2"
  on "$4" ip addr add "$6/24" dev "$5"
  on "$1" ip link set "$2" up
  on "$4" ip link set "$5" up
}

# set_rate RATE HOST DEVICE: of what leaves by the device; 10gbit, 2500mbit, 1gbit.
set_rate() {
  local burst=256k
  case $1 in 10gbit) burst=4m ;; 2500mbit) burst=512k ;; esac
  on "$2" tc qdisc replace dev "$3" root tbf rate "$1" burst "$burst" latency 20ms
}

# start_node HOST ADDRESS LOG [FLAGS...]: returns once it listens; $node is its process.
start_node() {
  # Not by on(), or $! were a shell's, and the node went on when that is killed.
  ip netns exec "$tag-$1" "$bin/terrace-node" --listen "$2" "${@:4}" 2>"$3" &
  node=$!
  pids+=("$node")
  for _ in $(seq 600); do grep -qs "listening on" "$3" && return; sleep 0.1; done
  cat "$3" >&2
  exit 1
}

# node_flags I: flags of node I, from 1: NODE_FLAGS, and its part of NODE_CPUS ("4-7 8-11") as --cpu-list.
node_flags() {
  local lists
  read -ra lists <<<"${NODE_CPUS:-}"
  echo "${NODE_FLAGS:-}" ${lists[$1 - 1]:+--cpu-list "${lists[$1 - 1]}"}
}

# Where and on what the figures come about.
conditions() { date -u; uname -rm; nproc; "$bin/terrace" --version; load; }
load() { echo "load $(cat /proc/loadavg)"; }

# make_model FLAGS...: $model is MODEL, or one of random weights in $out.
make_model() {
  model=${MODEL:-$out/model.gguf}
  [ -e "$model" ] || "$bin/terrace-random-model" --arch qwen3moe "$@" --seed 1 --out "$model"
}

# The host c with links to hosts 1 and 2, 10.77.N.2 by tcN, for what compares one node with two; the model of
# docs/performance.md in $out unless MODEL names another, with embeddings that make its rows choose their experts as
# evenly as the plan counts on (without, twelve of a layer's experts get nearly all rows), and a secret for all.
two_nodes_and_a_model() {
  mkdir -p "$out"
  make_model --layers 12 --d-model 1024 --heads 16 --kv-heads 4 --head-dim 64 --experts 64 --top-k 8 --ff 512 \
    --vocab 32000 --context 40960 --type q4_k_m --embedding-scale 256
  make_secret
  add_host c
  local i
  for i in 1 2; do
    add_host "$i"
    add_link c "tc$i" "10.77.$i.1" "$i" "tn$i" "10.77.$i.2"
  done
}

make_secret() {
  [ -e "$out/secret" ] || (umask 077; "$bin/terrace" secret new >"$out/secret")
  secret=(--secret-file "$out/secret")
}
