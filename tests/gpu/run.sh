#!/usr/bin/env bash
# Runs what tests/gpu/pack.sh packed, on a machine with a card. Needs nothing but this folder and a driver.
#
# usage: run.sh [--stage checksums|tests|sanitizer|bench]      all of them without --stage
#
# Test programs run in as many parts at once as there are cores: the scalar reference is what takes the time.
# Exit 0 only if every stage passed and no test was skipped for want of a card.
set -uo pipefail
cd "$(dirname "$0")"

tests=(gpu_device_test gpu_ops_test gpu_attention_test gpu_expert_test gpu_gemv_test)
stage=all
case "${1:-}" in
  "") ;;
  --stage) stage=${2:?a stage} ;;
  *) echo "run.sh: unknown argument '$1' (--stage checksums|tests|sanitizer|bench)" >&2; exit 2 ;;
esac
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
failed=0

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
  local program status=0
  for program in "${tests[@]}"; do in_parts "$(nproc)" "$program" || status=1; done
  return $status
}

# Large shapes are left out: under the sanitizer each takes minutes, and small ones take the same paths.
run_sanitizer() {
  local tool program status=0
  for tool in memcheck racecheck synccheck; do
    for program in "${tests[@]}"; do
      compute-sanitizer --tool "$tool" --error-exitcode 9 "./$program" \
        --gtest_filter='-*LargeModel*:*EveryDepth*:*ALayersPairs*:*AddAndSilu*:*IsRefused*:CardDevice.ACard*:CardDevice.AnEvent*' \
        >"$logs/sanitizer" 2>&1 && ! grep -q 'ERROR SUMMARY: [1-9]' "$logs/sanitizer" ||
        { status=1; grep -E '=========|Failure' "$logs/sanitizer" | head -20; }
      echo "$tool $program: $(grep -E 'SUMMARY' "$logs/sanitizer" | tail -1) $(grep -E '^\[  PASSED' "$logs/sanitizer")"
    done
  done
  return $status
}

run_bench() {
  ./terrace_gpu_bench
}

echo "commit $(cat commit), $(date -u +%Y-%m-%dT%H:%MZ), $(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | head -1)"
for one in checksums tests sanitizer bench; do
  [ "$stage" = all ] || [ "$stage" = "$one" ] || continue
  echo "== $one"
  "run_$one" || { failed=1; echo "== $one FAILED"; }
done
exit $failed
