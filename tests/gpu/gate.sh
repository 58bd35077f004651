#!/usr/bin/env bash
# The placement gate on a card: wherever routed experts are computed (CPU, card, card and CPU together, loopback nodes
# with and without a card), tokens, the hashes of the logits and those of the experts' int64 sums of every layer are the
# same. Run by run.sh --stage gate.
#
# usage: gate.sh DEMO_MODEL [LARGE_MODEL]      LARGE_MODEL: of Qwen3-30B-A3B's shape, 24 GB of card memory; another file
#                                              of random weights is made here
set -uo pipefail
cd "$(dirname "$0")"

demo=${1:?the demo model}
large=${2:-}
work=$(mktemp -d)
nodes=()
trap 'for pid in "${nodes[@]}"; do kill "$pid" 2>/dev/null; done; wait; rm -rf "$work"' EXIT
failures=0
fail() {
  echo "gate: FAILED: $*"
  failures=$((failures + 1))
}

tokens=24
# generate NAME FLAGS...: a greedy run of $model; its tokens and hashes, and a line for each leg.
generate() {
  local name=$1
  shift
  if ! timeout 240 ./terrace generate --model "$model" --prompt-file "$work/prompt" --max-tokens "$tokens" --temperature 0 \
    --json "$@" >"$work/$name.json" 2>"$work/$name.err"; then
    fail "$name: $(tail -c 400 "$work/$name.err")"
    return
  fi
  grep -o '"tokens":\[[^]]*\]\|"logits_xxh3":\[[^]]*\]' "$work/$name.json" >"$work/$name.answer"
  grep -o '"sums_xxh3":\[[^]]*\]' "$work/$name.json" >"$work/$name.sums"
  grep -o '"name":"[^"]*","kind":"[^"]*","state":"[^"]*","experts":[0-9]*,"batches":[0-9]*,"rows":[0-9]*,"pairs":[0-9]*' \
    "$work/$name.json" | tr -d '"' | sed "s/^/  $name: /" | tee "$work/$name.legs"
}

# same NAME: its answer is the reference's.
same() {
  if [ -s "$work/$1.answer" ] && cmp -s "$work/cpu.answer" "$work/$1.answer"; then
    echo "  $1: same tokens and logits"
  else
    fail "$1: other tokens or logits than all on the CPU"
  fi
}

# generate_both NAME FLAGS...: as users run it, and once more with the sums hashed, for which a card's steps come back
# layer by layer. Tokens, logits and sums are the reference's.
generate_both() {
  local name=$1
  shift
  generate "$name" "$@"
  same "$name"
  generate "$name-by-layers" --sums "$@"
  same "$name-by-layers"
  if [ -s "$work/$name-by-layers.sums" ] && cmp -s "$work/cpu.sums" "$work/$name-by-layers.sums"; then
    echo "  $name: same int64 sums in every layer"
  else
    fail "$name: other sums than all on the CPU"
  fi
}

# worked NAME KIND...: a leg of each kind computed pairs.
worked() {
  local name=$1 kind
  shift
  for kind in "$@"; do
    grep -q "kind:$kind,state:ok,.*pairs:[1-9]" "$work/$name.legs" || fail "$name: no leg of kind $kind computed anything"
  done
}

# start_node NAME FLAGS...: its address in $address.
start_node() {
  local name=$1 i
  shift
  ./terrace-node --listen 127.0.0.1:0 "$@" 2>"$work/$name.log" &
  nodes+=($!)
  address=
  for ((i = 0; i < 300; ++i)); do
    address=$(sed -n 's/^listening on //p' "$work/$name.log")
    [ -n "$address" ] && return
    sleep 0.1
  done
  fail "$name does not listen: $(head -c 400 "$work/$name.log")"
}

# trunk_on_card NAME
trunk_on_card() {
  grep -q "the trunk too" "$work/$1.err" || fail "$1: the trunk is not on the card: $(grep trunk "$work/$1.err")"
}

# in_parts NAME PARTS: the trunk is on the card, and steps of many rows go in so many parts.
in_parts() {
  trunk_on_card "$1"
  grep -q "overlap: .* in $2 parts" "$work/$1.err" || fail "$1: not in $2 parts: $(grep overlap "$work/$1.err")"
}

# placements VRAM NODE_VRAM LITTLE_RAM TRUNK_VRAM: those of one model; with VRAM of the card a part of the experts is on
# the CPU, and the trunk too; with TRUNK_VRAM and steps of 64 rows the trunk is on the card and not all of the experts.
# LITTLE_RAM holds a session and no model: a node that serves all of it with that serves it from its card.
placements() {
  local vram=$1 node_vram=$2 little_ram=$3 trunk_vram=$4 cpu_node gpu_node
  generate cpu --batch 512 --sums
  generate_both card --gpu 0 --vram 2G
  worked card card && trunk_on_card card
  for batch in 1 7 64; do
    generate "card-batch-$batch" --gpu 0 --vram 2G --batch "$batch"
    same "card-batch-$batch" && trunk_on_card "card-batch-$batch"
  done
  generate_both trunk-and-host --gpu 0 --vram "$trunk_vram" --batch 64
  worked trunk-and-host card host && trunk_on_card trunk-and-host
  generate_both parts-and-host --gpu 0 --vram "$trunk_vram" --batch 64 --overlap on
  worked parts-and-host card host && in_parts parts-and-host 2
  generate_both card-and-host --gpu 0 --vram "$vram"
  worked card-and-host card host
  grep -q "the trunk stays on the CPU" "$work/card-and-host.err" || fail "card-and-host: the trunk is on the card too"
  if [ "$(nvidia-smi --list-gpus | wc -l)" -ge 2 ]; then
    generate two-cards --gpu 0,1 --vram "$trunk_vram,$vram" --batch 64
    same two-cards && trunk_on_card two-cards
    grep -q 'name:card1,kind:card,state:ok,.*pairs:[1-9]' "$work/two-cards.legs" || fail "two-cards: card1 computed nothing"
    generate second-card-first --gpu 1,0 --vram "$vram,$node_vram"
    same second-card-first && worked second-card-first card host
  fi
  start_node cpu-node
  cpu_node=$address
  if [ "$(nvidia-smi --list-gpus | wc -l)" -ge 2 ]; then
    generate_both two-cards-in-parts --gpu 0,1 --vram "$trunk_vram,$node_vram" --batch 64 --overlap on --node "$cpu_node"
    worked two-cards-in-parts card node && in_parts two-cards-in-parts 3
  fi
  start_node gpu-node --gpu 0 --vram "$node_vram"
  gpu_node=$address
  generate_both gpu-node --node "$gpu_node" --share "$gpu_node=$all"
  worked gpu-node node
  start_node card-only-node --gpu 0 --vram 2G --ram "$little_ram" --threads 2
  generate card-only-node --node "$address" --share "$address=$all"
  same card-only-node && worked card-only-node node
  start_node no-card-node --ram "$little_ram" --threads 2
  if ./terrace generate --model "$model" --prompt a --max-tokens 1 --quiet --node "$address" --share "$address=$all" \
    >/dev/null 2>"$work/no-card"; then
    fail "a node of $little_ram RAM holds the model without a card: the one with a card proves nothing"
  fi
  generate_both everywhere --gpu 0 --vram "$node_vram" --node "$cpu_node" --node "$gpu_node"
  worked everywhere card host node
  generate_both trunk-everywhere --gpu 0 --vram "$trunk_vram" --batch 64 --node "$cpu_node" --node "$gpu_node"
  worked trunk-everywhere card node && trunk_on_card trunk-everywhere
  generate_both parts-everywhere --gpu 0 --vram "$trunk_vram" --batch 64 --overlap on --node "$cpu_node" --node "$gpu_node"
  worked parts-everywhere card node && in_parts parts-everywhere 3
  [ "$(grep -c 'kind:node,state:ok,.*pairs:[1-9]' "$work/everywhere.legs")" = 2 ] || fail "everywhere: a node had no pairs"
  ./terrace status --node "$gpu_node" | sed -n 's/^card/  gpu-node: card/p'
  end_nodes
}

end_nodes() {
  for pid in "${nodes[@]}"; do kill "$pid"; done
  wait
  nodes=()
}

# Of a model that is large: all on the card, and half of the experts there beside CPU and nodes that have the file.
large_placements() {
  local cpu_node gpu_node
  generate cpu --batch 512 --sums
  generate_both card --gpu 0 --vram 24G
  worked card card && trunk_on_card card
  start_node cpu-node --model "$model"
  cpu_node=$address
  start_node gpu-node --model "$model" --gpu 0 --vram 12G
  gpu_node=$address
  generate_both trunk-everywhere --gpu 0 --vram 9G --batch 64 --node "$cpu_node" --node "$gpu_node" \
    --share "host=0-79,$cpu_node=80-95,$gpu_node=96-127"
  worked trunk-everywhere card host node && trunk_on_card trunk-everywhere
  [ "$(grep -c 'kind:node,state:ok,.*pairs:[1-9]' "$work/trunk-everywhere.legs")" = 2 ] ||
    fail "trunk-everywhere: a node had no pairs"
  end_nodes
}

echo "== gate: the demo model"
model=$demo all=0-31
head -c 2600 "$(dirname "$demo")/corpus/fairy_tales.txt" >"$work/prompt"
placements 16M 6M 48M 36M

echo "== gate: what is not the same is seen"
cp "$work/cpu.answer" "$work/kept"
sed -i '1s/0/1/' "$work/cpu.answer"
cmp -s "$work/cpu.answer" "$work/card.answer" && fail "a changed answer passes for the same"
cp "$work/kept" "$work/cpu.answer"
sed 's/\["./["x/' "$work/cpu.sums" | cmp -s - "$work/card-by-layers.sums" && fail "a changed sum passes for the same"

echo "== gate: random weights"
model=$work/random.gguf all=0-63
./terrace-random-model --arch qwen3moe --layers 8 --d-model 1024 --heads 16 --kv-heads 4 --head-dim 64 --experts 64 \
  --top-k 8 --ff 512 --vocab 32000 --context 4096 --type q4_k_m --seed 7 --out "$model" || fail "no random model"
placements 256M 96M 320M 512M

if [ -n "$large" ]; then
  echo "== gate: the shape of Qwen3-30B-A3B"
  model=$large tokens=8
  head -c 1200 "$(dirname "$demo")/corpus/fairy_tales.txt" >"$work/prompt"
  large_placements
fi

# What a user of score and serve gets: the CPU's answers.
# score_of NAME FLAGS...
score_of() {
  local name=$1
  shift
  timeout 240 ./terrace score --model "$model" --text "$work/text" --quiet "$@" >"$work/score-$name" 2>"$work/score-$name.err" ||
    fail "score $name: $(tail -c 400 "$work/score-$name.err")"
}
# ask METHOD PATH BODY: the response of the server at $port.
ask() {
  exec 3<>"/dev/tcp/127.0.0.1/$port" || return 1
  printf '%s %s HTTP/1.1\r\nHost: 127.0.0.1:%s\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: %s\r\n\r\n%s' \
    "$1" "$2" "$port" "${#3}" "$3" >&3
  cat <&3
  exec 3>&-
}
# answer_of NAME FLAGS...: what a server says to two requests at once, and to a request to save a slot.
answer_of() {
  local name=$1 i
  shift
  mkdir -p "$work/slots"
  ./terrace serve --model "$model" --port 0 --slots 2 --slot-save-path "$work/slots" "$@" 2>"$work/serve-$name.err" &
  nodes+=($!)
  port=
  for ((i = 0; i < 300; ++i)); do
    port=$(sed -n 's/^listening on .*:\([0-9]*\).*$/\1/p' "$work/serve-$name.err")
    [ -n "$port" ] && ask GET /health '' | grep -q '^HTTP/1.1 200' && break
    sleep 0.1
  done
  local body='{"prompt": "Once upon a time", "max_tokens": 24, "temperature": 0}'
  ask POST /v1/completions "$body" >"$work/beside" &
  local beside=$!
  ask POST /v1/completions "$body" | grep -o '"text": *"[^"]*"' >"$work/serve-$name"
  wait "$beside"
  grep -o '"text": *"[^"]*"' "$work/beside" >>"$work/serve-$name"
  ask POST '/slots/0?action=save' '{"filename": "a"}' >"$work/saved-$name"
  end_nodes
}

echo "== gate: score and serve"
head -c 6000 "$(dirname "$demo")/corpus/fairy_tales.txt" >"$work/text"
# All experts on the card, and some on the CPU beside it.
for placed in "demo 2G $demo" "random 512M $work/random.gguf"; do
  read -r name vram model <<<"$placed"
  score_of "cpu-$name"
  answer_of "cpu-$name"
  [ "$(wc -l <"$work/serve-cpu-$name")" = 2 ] || fail "serve: no answers of the CPU: $(tail -c 400 "$work/serve-cpu-$name.err")"
  score_of "card-$name" --gpu 0 --vram "$vram" --batch 64
  answer_of "card-$name" --gpu 0 --vram "$vram" --batch 64
  for what in score serve; do
    if [ -s "$work/$what-card-$name" ] && cmp -s "$work/$what-cpu-$name" "$work/$what-card-$name"; then
      echo "  $what --gpu 0 --vram $vram: the CPU's answer"
    else
      fail "$what --vram $vram: $(head -c 200 "$work/$what-card-$name") $(tail -c 400 "$work/$what-card-$name.err")"
    fi
  done
  grep -q "the trunk too" "$work/serve-card-$name.err" ||
    fail "serve --vram $vram: $(grep trunk "$work/serve-card-$name.err")"
  grep -q "leave out --gpu to save slots" "$work/saved-card-$name" ||
    fail "serve --vram $vram: saving a slot says $(tail -c 200 "$work/saved-card-$name")"
done

echo "== gate: refusals"
refused() {
  local name=$1 expected=$2
  shift 2
  if ./terrace generate --model "$demo" --prompt a --max-tokens 1 --quiet "$@" >/dev/null 2>"$work/refused"; then
    fail "$name: was not refused"
  else
    grep -q "$expected" "$work/refused" || fail "$name: says $(cat "$work/refused")"
    sed 's/^/  /' "$work/refused"
  fi
}
refused "more memory than there is" "are free" --gpu 0 --vram 900T
refused "a card that is not there" "there is no card" --gpu 99
refused "a second card that is not there" "there is no card 99" --gpu 0,99 --vram 16M

[ "$failures" = 0 ] && echo "gate: passed" || echo "gate: $failures failures"
exit "$((failures != 0))"
