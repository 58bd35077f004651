#!/usr/bin/env bash
# What a killed node costs those who wait for tokens, and how good the speeds are that `plan` printed for its loss.
#
#   tests/bench/losses.sh [BIN] [OUT]        BIN: build/release/bin; OUT: a new folder for plans, traces and results
#
# Hosts are network namespaces, links are veth pairs shaped by tbf in both directions. With the plan written before, a
# run decodes (`bench --trace`: token times are the program's own) while one of two nodes is killed by SIGKILL, stays
# away, and is started again. Judged, each term printed (losses.py):
#
#   - one token at most is late, by no more than a soft limit + the backstop time that the plan says for the layers left
#     + 50 ms;
#   - two seconds after the kill the speed is within 10 % of what the plan says for that loss while no bytes have moved:
#     in ALONE runs nodes have no room for more than their share, so that nobody takes over what was lost (mean of the
#     repeats);
#   - in REPEATS runs the other node takes it over: bytes to move / measured rate + 5 s after the kill the speed is within
#     10 % of what the plan says for that (likewise);
#   - after the node is back: within 10 % of the plan's, bytes of its share / measured rate + 5 s later (likewise);
#   - of some 10,000 batches over the idle link less than 0.1 % were hedged for nothing;
#   - sealing and opening, both ends counted, take no more than 5 % of a decode step of a model with batches of 5 KB out
#     and 15 KB back (where terrace-bench-sealing was built: SEALING says where).
#
# Exits 1 where one is missed. Needs root, ip, tc and python3, and a quiet machine with cores for three programs. MODEL,
# RATE (10gbit), ALONE (2), REPEATS (2), COLD (of these, the last so many: what of the file is not in use leaves memory
# before the kill), AFTER (seconds with the node again), SILENT (seconds for which it is stopped before it is killed: as a
# process is silent while much memory of it is freed), HOST_FLAGS (such as --cpu-list), NODE_FLAGS and NODE_CPUS (a list of
# processors for each node: "4-7 8-11") may be set.
set -euo pipefail

bin=${1:-build/release/bin}
out=${2:-$(mktemp -d)}
rate=${RATE:-10gbit}
alone=${ALONE:-2}
repeats=${REPEATS:-2}
cold=${COLD:-1}
after=${AFTER:-8}
before=2.5
here=$(dirname "$0")
sealing=${SEALING:-$bin/../tests/terrace-bench-sealing}
. "$here/hosts.sh"
need ip tc python3
two_nodes_and_a_model
start() {  # I: node I, its process in started[I]
  # shellcheck disable=SC2086
  start_node "$1" "10.77.$1.2:9000" "$out/node$1.log" "${secret[@]}" $(node_flags "$1") "${room[@]}"
  started[$1]=$node
}
end() {  # I
  kill "${started[$1]}"
  { wait "${started[$1]}" || true; } 2>/dev/null
}
started=()
room=()
for i in 1 2; do
  set_rate "$rate" c "tc$i"
  set_rate "$rate" "$i" "tn$i"
  start "$i"
done
host() {  # SUBCOMMAND FLAGS...
  # shellcheck disable=SC2086
  ip netns exec "$tag-c" "$bin/terrace" "$1" --quiet -m "$model" "${secret[@]}" ${HOST_FLAGS:-} "${@:2}"
}
monotonic() { python3 -c 'import time; print(time.monotonic_ns() // 1000)'; }

plan() {  # FILE
  host plan --node 10.77.1.2:9000 --node 10.77.2.2:9000 --probe --explain --out "$1.json" >"$1.txt"
}
# lose N PLAN COLD: the N-th run, by that plan, of which one node or the other is lost.
lose() {
  local n=$1 plan=$2 lost=$((($1 % 2) + 1)) away runs run killed back
  away=$(python3 "$here/losses.py" away "$plan")
  runs=$(python3 "$here/losses.py" runs "$out/idle.json" "$before" "$away" "$after")
  host bench --plan "$plan" --audit 0 -p 0 -n 64 -r "$runs" --trace "$out/trace-$n.json" --json \
    >"$out/run-$n.json" 2>"$out/run-$n.log" &
  run=$!
  python3 "$here/losses.py" await "$out/trace-$n.json" 100
  sleep "$before"
  if [ "$3" = 1 ]; then
    dd "of=$model" oflag=nocache conv=notrunc,fdatasync count=0 status=none
    echo "the file's pages have left memory"
  fi
  killed=$(python3 "$here/losses.py" kill "${started[$lost]}" "${SILENT:-0}")
  { wait "${started[$lost]}" || true; } 2>/dev/null
  sleep "$away"
  start "$lost"
  back=$(monotonic)
  wait "$run" || { cat "$out/run-$n.log" >&2; bad=1; return; }
  python3 "$here/losses.py" loss "$out/trace-$n.json" "$plan" "10.77.$lost.2:9000" "$killed" "$back" \
    "$out/run-$n.json" "$out/rows.jsonl" || bad=1
}

measure_sealing() {
  local model=$out/wide.gguf
  [ -x "$sealing" ] || { echo "sealing: not measured, $sealing was not built"; return; }
  echo "sealing, a model with batches of 5 KB out and 15 KB back"
  "$sealing" --benchmark_filter=BM_DecodeLayer --benchmark_repetitions=5 --benchmark_format=json \
    --benchmark_report_aggregates_only=true >"$out/sealing.json" 2>/dev/null
  [ -e "$model" ] || "$bin/terrace-random-model" --arch qwen3moe --layers 4 --d-model 5120 --heads 40 --kv-heads 8 \
    --head-dim 128 --experts 16 --top-k 8 --ff 512 --vocab 4096 --context 4096 --type q4_k_m --seed 1 --out "$model"
  host bench --node 10.77.1.2:9000 --audit 0 -p 0 -n 64 -r 5 --json >"$out/wide.json"
  python3 "$here/losses.py" sealing "$out/wide.json" "$out/sealing.json" 4 || bad=1
}

conditions | tee "$out/conditions"
: >"$out/rows.jsonl"
plan "$out/plan"
bad=0
echo "false hedges, and the speed with all nodes"
host bench --plan "$out/plan.json" --audit 0 -p 0 -n 64 -r "$(python3 "$here/losses.py" repeats "$out/plan.json" 10000)" \
  --json >"$out/idle.json"
python3 "$here/losses.py" hedges "$out/idle.json" "$out/plan.json" || bad=1

measure_sealing

for n in $(seq "$repeats"); do
  lose "$n" "$out/plan.json" $((n > repeats - cold))
done
if [ "$alone" -gt 0 ]; then
  room=(--ram "$(python3 "$here/losses.py" ram "$out/plan.json")")
  for i in 1 2; do end "$i" && start "$i"; done
  plan "$out/plan-alone"
  for n in $(seq $((repeats + 1)) $((repeats + alone))); do lose "$n" "$out/plan-alone.json" 0; done
fi
python3 "$here/losses.py" speeds "$out/rows.jsonl" || bad=1

load | tee -a "$out/conditions"
echo "plans, traces and results are in $out"
exit $bad
