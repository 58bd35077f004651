#!/usr/bin/env bash
# Runs what tests/gpu/pack.sh packed, on a machine with a card. Needs nothing but this folder and a driver.
#
# usage: run.sh [--stage lists|checksums|tests|sanitizer|gate|kernels|bench|load] [--demo-model FILE]
#        all stages without --stage; `lists` needs no card
#
# The demo model is looked for in the checkout that the pack lies in (build/gpu-pack). Gate, bench and load share a file of
# random weights, 18 GB below TMPDIR, which stays there in the place of one that another generator made. Bench writes
# record.json, for docs/bench, anew after each of its programs: a run that is cut short leaves what it had, the record
# names what is missing, and the next `--stage bench` of the same commit goes on there. Tests and kernels that ran before
# count in it.
#
# OUT, where it is set, is a folder whose files a borrowed machine gives back: record.*, record.kernels and tests_run are
# copied there as soon as they are written. Put beside this script again they are what was done before.
#
# Test programs run in as many parts at once as there are cores, 24 at most, for each opens the card: the scalar reference
# is what takes the time.
# Exit 0 only if every stage passed and no test was skipped for want of a card.
set -uo pipefail
cd "$(dirname "$0")"

tests=(gpu_device_test gpu_ops_test gpu_attention_test gpu_expert_test gpu_executor_test gpu_gemv_test gpu_trunk_ops_test gpu_trunk_test)
stages=(lists checksums tests sanitizer gate kernels bench load)
stage=all
demo=../../deploy/demo/demo-story-42m-q4_k_m.gguf
while [ $# -gt 0 ]; do
  case "$1" in
    --stage) stage=${2:?a stage} ;;
    --demo-model) demo=${2:?a file} ;;
    *) echo "run.sh: unknown argument '$1' (--stage $(IFS='|'; echo "${stages[*]}"), --demo-model FILE)" >&2; exit 2 ;;
  esac
  shift 2
done
printf '%s\n' all "${stages[@]}" | grep -xF -e "$stage" >/dev/null ||
  { echo "run.sh: there is no stage '$stage' ($(IFS='|'; echo "${stages[*]}"))" >&2; exit 2; }
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
failed=0
if [ "$(nvidia-smi --list-gpus 2>/dev/null | wc -l)" -lt 2 ]; then
  export GTEST_FILTER='-*OnTwoCards*'
  echo "one card: what needs two is left out"
fi
most_seconds=480 # of a stage: what a borrowed machine gives a command
most_parts=24
# Seconds that the stage has left.
left() { echo $((most_seconds - (SECONDS - begin))); }
# within_time COMMAND...: ended with 124 when they are over.
within_time() {
  local seconds
  seconds=$(left)
  timeout -k 5 "$((seconds > 0 ? seconds : 1))" "$@" # 0 is no limit
}

# bring_back FILE...: what there is of them, to $OUT.
bring_back() {
  local file
  [ -n "${OUT:-}" ] || return 0
  for file in "$@"; do [ ! -s "$file" ] || cp "$file" "$OUT/" || return 1; done
}

# report PROGRAM LOG...: the summary lines of its parts, and all that failed.
report() {
  local program=$1
  shift
  local passed skipped bad
  passed=$(cat "$@" | grep -c '^\[       OK \]')
  skipped=$(cat "$@" | grep -c '^\[  SKIPPED \].*ms)')
  bad=$(cat "$@" | grep -c '^\[  FAILED  \].*ms)')
  echo "$program: $passed passed, $bad failed, $skipped skipped"
  cat "$@" | grep -A4 -E ': Failure$' | head -60
  [ "$passed" -gt 0 ] && [ "$bad" -eq 0 ] && [ "$skipped" -eq 0 ]
}

# in_parts PARTS PROGRAM [ARGUMENTS...]
in_parts() {
  local parts=$1 program=$2 i status=0 pids=()
  shift 2
  for ((i = 0; i < parts; ++i)); do
    GTEST_TOTAL_SHARDS=$parts GTEST_SHARD_INDEX=$i "./$program" "$@" >"$logs/$program.$i" 2>&1 &
    pids+=($!)
  done
  for i in "${pids[@]}"; do wait "$i" || status=1; done
  report "$program" "$logs/$program".* && [ "$status" -eq 0 ]
}

run_checksums() {
  in_parts 1 gpu_ops_test --gtest_filter='*Checksums*'
}

run_tests() {
  local program status=0 parts
  parts=$(nproc)
  [ "$parts" -le "$most_parts" ] || parts=$most_parts
  for program in "${tests[@]}"; do in_parts "$parts" "$program" || status=1; done
  cat "$logs"/gpu_*_test.* >"$logs/all"
  # A part without gtest's last line died in the middle of a test.
  local died=0 log
  for log in "$logs"/gpu_*_test.*; do grep -q '^\[==========\] .* ran\.' "$log" || died=$((died + 1)); done
  echo "$(grep -c '^\[       OK \]' "$logs/all") $(($(grep -c '^\[  FAILED  \].*ms)' "$logs/all") + died))" >tests_run
  bring_back tests_run || status=1
  [ "$died" -eq 0 ] || { echo "$died parts ended before their tests did"; status=1; }
  return $status
}

# What the sanitizer runs. Large shapes and long steps are left out: under it each takes minutes, and small ones take the
# same paths. So are kernels that wait for the host's flags: it may not return from a launch before its kernel has ended.
sanitized='-*Large*:*EveryDepth*:*SumsAndOutputs*:*ALayersPairs*:*AddAndSilu*:*IsRefused*:CardDevice.ACard*:CardDevice.AnEvent*:*HandedOver*:*BesideLegs*:*BesideThe*:*GivenUp*:*HalfOfTheExperts*:*InAStartedStep*:*LongSteps_*:*OnTwoCards*'

# Each program has tests for the sanitizer: one that never calls CUDA it takes for an error.
run_lists() {
  local program status=0
  for program in "${tests[@]}"; do
    [ "$("./$program" --gtest_list_tests --gtest_filter="$sanitized" | grep -c '^  ')" -gt 0 ] ||
      { echo "$program has no test for the sanitizer"; status=1; }
  done
  return $status
}

run_sanitizer() {
  local tool program status=0
  for tool in memcheck racecheck synccheck; do
    for program in "${tests[@]}"; do
      [ "$(left)" -gt 0 ] || { echo "$tool $program is left out: $most_seconds s are over"; status=1; continue; }
      within_time compute-sanitizer --tool "$tool" --error-exitcode 9 "./$program" \
        --gtest_filter="$sanitized" >"$logs/sanitizer" 2>&1 &&
        ! grep -q 'ERROR SUMMARY: [1-9]' "$logs/sanitizer" && grep -q '^\[  PASSED  \] [1-9]' "$logs/sanitizer" ||
        { status=1; grep -E '=========|Failure' "$logs/sanitizer" | head -20; }
      if grep -q 'Device not supported' "$logs/sanitizer"; then
        echo "$tool $program: this machine's sanitizer does not support its card; nothing more is tried"
        return 1
      fi
      echo "$tool $program: $(grep -E 'SUMMARY' "$logs/sanitizer" | tail -1) $(grep -E '^\[  PASSED' "$logs/sanitizer")"
    done
  done
  return $status
}

# The file of random weights in Qwen3-30B-A3B's shape, made once: stages and later runs of the same generator find it.
model_of=(--arch qwen3moe --layers 48 --d-model 2048 --heads 32 --kv-heads 4 --head-dim 128 --experts 128 --top-k 8 --ff 768
  --vocab 151936 --context 8192 --type q4_k_m --seed 1)
models=${TMPDIR:-/tmp}/terrace-random
model=$models-$({ echo "${model_of[*]}" && sha256sum <terrace-random-model; } | sha256sum | cut -c1-12).gguf
make_model() {
  [ -s "$model" ] && return
  rm -f "$models"-????????????.gguf "$models"-????????????.gguf.part
  ./terrace-random-model "${model_of[@]}" --out "$model.part" && mv "$model.part" "$model"
}

run_gate() {
  make_model && ./gate.sh "$demo" "$model"
}

run_kernels() {
  local status=0
  rm -f record.kernels
  if ./terrace_gpu_kernels 0 "$logs/kernels"; then cp "$logs/kernels" record.kernels; else status=1; fi
  bring_back record.kernels || status=1
  ./terrace_gpu_bench || status=1
  ./terrace_gpu_trunk_bench || status=1
  return $status
}

# is_done NAME: its rows are in record.rows.
is_done() { grep -qxF -e "$1" record.done; }

# goes_on NAME: there is time for it, and a record that may hold it.
goes_on() {
  [ -z "$no_record" ] || return 1
  [ "$(left)" -gt 0 ] || { echo "bench $1 is left out: $most_seconds s are over"; return 1; }
}

# bench_model NAME WHAT FLAGS...: terrace bench of the random weights; its rows go to record.rows, and the record is
# written with what there is. Rows of another commit end the stage: none of it could be kept.
bench_model() {
  local name=$1 what=$2
  shift 2
  is_done "$name" && return
  goes_on "$name" || return 1
  # shellcheck disable=SC2086 # words
  within_time ./terrace bench -m "$model" $what -r 3 -o json "$@" >"$logs/bench" 2>"$logs/bench.err" ||
    { echo "bench $name failed (exit $?): $(tail -3 "$logs/bench.err")"; return 1; }
  grep -hE ' loaded at |: the trunk |: overlap: ' "$logs/bench.err"
  is_of_this_commit "$logs/bench" || { no_record=1; return 1; }
  { sed -e 's/^\[//' -e 's/\]$//' "$logs/bench" && echo ,; } >>record.rows && echo "$name" >>record.done ||
    { echo "bench $name: its rows cannot be written here"; return 1; }
  write_record || return 1
  show_rows "$name" depth tokens_per_second parts wait_us compute_us round_trip_us
}

# bench_alone NAME FLAGS...: a token from depth 512, beside what trunk and legs take of it alone.
bench_alone() {
  local name=$1-alone
  shift
  is_done "$name" && return
  bench_model "$name" "-p 0 -n 64 -d 512 --legs-alone" "$@" || return 1
  sed -i 's/.*{"test": *"\([a-z0-9]*-alone\)"/{"test":"\1"/' "$logs/bench"
  show_rows "$name" name step_us trunk_us pairs alone_us compute_us longest_us sum_us step_over_sum
}

# show_rows NAME KEY...: those keys of $logs/bench, a line a test.
show_rows() {
  local name=$1 keys
  shift
  keys=$(printf '\\|%s' "$@")
  tr '\n' ' ' <"$logs/bench" |
    grep -o '"test": *"[-a-z0-9]*"\|"\('"${keys#??}"'\)": *[^],}]*' |
    tr -d '" ' | sed "s/^test:/$name /" | tr '\n' ' ' | sed "s/ $name /\n$name /g"
  echo
}

# start_bench_node FLAGS...: a loopback node with the random weights; its address in $address.
start_bench_node() {
  address=
  : >"$logs/node" # here: the new node's shell may open it later than the loop below looks for an address
  ./terrace-node --listen 127.0.0.1:0 --model "$model" "$@" 2>"$logs/node" &
  node=$!
  # It hashes the model first, which may take minutes.
  while [ "$(left)" -gt 0 ]; do
    address=$(sed -n 's/^listening on //p' "$logs/node")
    [ -n "$address" ] && return
    kill -0 "$node" 2>/dev/null || break
    sleep 0.1
  done
  echo "the node does not listen: $(head -c 400 "$logs/node")"
  end_bench_node
  return 1
}

end_bench_node() {
  kill "$node" 2>/dev/null
  wait "$node"
}

# bench_beside NAME SHARE FLAGS...: decoding beside the host's CPU and a loopback node of as many threads, and what trunk and
# legs take of the same rows alone; then a prompt. SHARE: of the host and the node, NODE standing for the latter.
bench_beside() {
  local name=$1 share=$2 half=$(($(nproc) / 2)) node address
  shift 2
  is_done "$name-alone" && is_done "$name-prompt" && return
  goes_on "$name" || return 1
  start_bench_node --threads "$half" --cpu-list "$half-$((2 * half - 1))" || return 1
  local flags=(--threads "$half" --cpu-list "0-$((half - 1))" --node "$address" --share "${share//NODE/$address}" "$@")
  bench_alone "$name" "${flags[@]}"
  local status=$?
  bench_model "$name-prompt" "-p 512 -n 0 -d 512" "${flags[@]}" || status=1
  end_bench_node
  return $status
}

# bench_gpu_node NAME WHAT FLAGS...: all experts with a loopback node of those flags.
bench_gpu_node() {
  local name=$1 what=$2 node address status=0
  shift 2
  is_done "$name" && return
  goes_on "$name" || return 1
  start_bench_node "$@" || return 1
  bench_model "$name" "$what" --node "$address" --share "$address=0-127" || status=1
  end_bench_node
  return $status
}

# All that a whole record has.
benches=(cpu card card-prompt card-4-threads half-card half-card-alone card-host-node-alone card-host-node-prompt gpu-node)

run_bench() {
  local status=0 no_record='' at_512="-p 512 -n 64 -d 512"
  if [ "$(cat record.commit 2>/dev/null)" != "$(cat commit)" ] || [ ! -e record.rows ] || [ ! -e record.done ]; then
    rm -f record.json
    : >record.rows
    : >record.done
    cp commit record.commit
  fi
  [ ! -s record.done ] || echo "done before: $(paste -sd' ' record.done)"
  make_model || return 1
  bench_model cpu "$at_512" || status=1
  bench_model card "$at_512" --gpu 0 --vram 24G || status=1
  bench_model card-prompt "-p 4096 -n 0 -d 0" --gpu 0 --vram 24G || status=1
  bench_model card-4-threads "$at_512" --gpu 0 --vram 24G --threads 4 || status=1
  bench_model half-card "$at_512" --gpu 0 --vram 9G || status=1
  bench_alone half-card --gpu 0 --vram 9G || status=1
  # Half of the experts on the card, a quarter each on CPU and node.
  bench_beside card-host-node "host=0-95,NODE=96-127" --gpu 0 --vram 11G || status=1
  bench_gpu_node gpu-node "$at_512" --gpu 0 --vram 24G || status=1
  [ -n "$no_record" ] || write_record || status=1
  return $status
}

# A page cache that holds the model, then the drive.
run_load() {
  local status=0
  make_model || return 1
  ./terrace_gpu_load_bench "$model" || status=1
  ./terrace_gpu_load_bench --cold "$model" || status=1
  return $status
}

# What the record lacks so far, as JSON's words.
missing() {
  { printf '%s\n' "${benches[@]}" | grep -vxFf record.done; [ -s record.kernels ] || echo kernels; } |
    sed 's/.*/"&"/' | paste -sd, -
}

# is_of_this_commit ROWS: a record is kept, so it must say what it was made of: one commit, with nothing changed since.
is_of_this_commit() {
  local made_of
  made_of=$(grep -o '"commit": *"[^"]*"' "$1" | sort -u | sed 's/.*"\([^"]*\)"$/\1/')
  [ "$made_of" = "$(cat commit)" ] && [[ $made_of != *dirty* ]] && return
  echo "no record: packed as $(cat commit), the programs say $made_of; pack a clean checkout that was built whole" >&2
  return 1
}

# Of cli.md's form.
write_record() {
  local passed=0 bad=0
  is_of_this_commit record.rows || return 1
  [ -s tests_run ] && read -r passed bad <tests_run
  {
    printf '{"device": "%s", "commit": "%s", "binary_sha256": "%s", "date": "%s", "tests_passed": %s, "tests_failed": %s, "missing": [%s], "results": [\n' \
      "$(nvidia-smi --query-gpu=name --format=csv,noheader | head -1)" "$(cat commit)" "$(sha256sum terrace | cut -d' ' -f1)" \
      "$(date -u +%Y-%m-%d)" "$passed" "$bad" "$(missing)"
    sed '$d' record.rows
    echo '], "kernels":'
    if [ -s record.kernels ]; then cat record.kernels; else echo null; fi
    echo '}'
  } >record.json.part
  mv record.json.part record.json
  bring_back record.json record.rows record.done record.commit
}

echo "commit $(cat commit), $(date -u +%Y-%m-%dT%H:%MZ), $(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | head -1)"
for one in "${stages[@]}"; do
  [ "$stage" = all ] || [ "$stage" = "$one" ] || continue
  echo "== $one"
  begin=$SECONDS
  "run_$one" || { failed=1; echo "== $one FAILED"; }
  echo "== $one took $((SECONDS - begin)) s"
  if [ $((SECONDS - begin)) -ge "$most_seconds" ]; then failed=1; echo "== $one FAILED: a stage has $most_seconds s"; fi
done
exit $failed
