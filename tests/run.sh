#!/usr/bin/env bash
# Builds Terrace and runs its tests: everything that needs no accelerator.
#
#   tests/run.sh            the release build and every test; then address and undefined-behaviour sanitizers for
#                           common/, tier_node/, planted faults and the fuzz targets' corpora, the thread sanitizer for
#                           transport, legs, session and threads
#   tests/run.sh --quick    the release build and every test
#   tests/run.sh --full     all of the above, every test under both sanitizers, 1,000 generations with random faults and
#                           1,000 other schedules of the supervisor, the server's clients for minutes, 20 s of fuzzing a
#                           target, the kernels compiled for every card that they are for, headers that only their own
#                           folder includes compiled alone, and clang-tidy
#
# A test that fails beside others is run once more alone. If it passes then, the run passes, and the last lines name the
# test: it depends on how busy the machine is, which is a fault of the test to be mended.
#
# Ends with the minutes of each stage, the tests that failed, and ctest's closing line of the release run. Exit 0 only if
# every stage passed.
set -euo pipefail
cd "$(dirname "$0")/.."

mode=normal
case "${1:-}" in
  "") ;;
  --quick) mode=quick ;;
  --full) mode=full ;;
  -h | --help) sed -n '2,/^$/s/^# \{0,1\}//p' "$0"; exit 0 ;;
  *) echo "run.sh: unknown argument '$1' (--quick, --full)" >&2; exit 2 ;;
esac

jobs=$(nproc)
# One more than processors: many tests of whole programs wait, for a node that says nothing or a limit that is told.
test_jobs=$((jobs + 1))
log_dir=build/test-logs
mkdir -p "$log_dir"
timings=()
failed=()

# stage NAME COMMAND...: runs the command, shows and keeps its output, notes how long it took and whether it failed.
# Stages are tested for success, where "set -e" has no effect: each command below is one chain.
stage() {
  local name=$1 begin=$SECONDS status=0
  shift
  echo "== $name"
  "$@" 2>&1 | tee "$log_dir/$name.log" || status=${PIPESTATUS[0]}
  timings+=("$(awk -v s=$((SECONDS - begin)) -v n="$name" 'BEGIN { printf "%6.1f min  %s", s / 60, n }')")
  [ "$status" -eq 0 ] || failed+=("$name")
  return "$status"
}

install_packages() {
  deploy/install_deps.sh --tests
}

# Tools and packages that only tests use. Without them the tests that need them say "skipped", by name.
fetch_test_tools() {
  local list stamp
  tests/deploy/fetch_tools.sh || echo "not from Debian: promtool; the tests that need it are skipped"
  [ -x build/venv/bin/pip ] || python3 -m venv build/venv || return 0
  for list in tests/requirements.txt tests/deploy/requirements.txt; do
    stamp=build/venv/$(tr / - <<<"$list")
    cmp -s "$list" "$stamp" && continue
    if build/venv/bin/pip install --quiet --timeout 20 --retries 1 -r "$list"; then
      cp "$list" "$stamp"
    else
      echo "not from PyPI: $list; the tests that need it are skipped"
    fi
  done
}

# build PRESET TARGET...
build() {
  local preset=$1
  shift
  cmake --preset "$preset" && cmake --build --preset "$preset" -j "$jobs" --target "$@"
}

# run_tests PRESET [CTEST ARGUMENTS...]
run_tests() {
  local preset=$1 list="build/$1/Testing/Temporary/LastTestsFailed.log"
  shift
  export ASAN_OPTIONS=detect_leaks=1:allocator_may_return_null=1
  export LSAN_OPTIONS=suppressions=$PWD/tests/leak_suppressions.txt:print_suppressions=0
  export UBSAN_OPTIONS=print_stacktrace=1
  export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1
  # UCX's hooks of mmap() and munmap() do not go with sanitizers; it reads this when it is loaded.
  [ "$preset" = release ] || export UCX_MEM_EVENTS=n
  local arguments=(--test-dir "build/$preset" --output-on-failure --no-label-summary)
  rm -f "$list"
  ctest "${arguments[@]}" -j "$test_jobs" --no-tests=error "$@" && return 0
  cp "$list" "$log_dir/$preset.failed-beside-others" || return 1
  cp "$list" "$log_dir/$preset.failed-alone"
  [ "$(wc -l <"$list")" -lt 20 ] || return 1  # so many: no matter of a busy machine
  echo "== once more, each alone: what failed beside others"
  ctest "${arguments[@]}" -j 1 --rerun-failed && : >"$log_dir/$preset.failed-alone" && return 0
  cp "$list" "$log_dir/$preset.failed-alone"
  return 1
}

# report_tests PRESET: the names of the tests that failed. ctest's lists have lines "number:name", the last one unended.
report_tests() {
  local preset=$1 name
  [ -e "$log_dir/$preset.failed-beside-others" ] || return 0
  while IFS=: read -r _ name || [ -n "$name" ]; do
    if cut -d: -f2- "$log_dir/$preset.failed-alone" | grep -qxF -e "$name"; then
      echo "  $preset: failed: $name"
    else
      echo "  $preset: passed only alone: $name"
    fi
  done <"$log_dir/$preset.failed-beside-others"
}

# sanitize PRESET: builds and runs the tests that carry the preset's label, or all of them with --full.
sanitize() {
  local preset=$1
  if [ "$mode" = full ]; then
    stage "$preset-build" build "$preset" all && stage "$preset-tests" run_tests "$preset" -E '^(Repository|Deploy)\.'
  else
    stage "$preset-build" build "$preset" "tests_$preset" && stage "$preset-tests" run_tests "$preset" -L "$preset"
  fi
}

# The seed is another one each day, and printed: a run that fails is repeated by it (docs/hacking.md).
soak() {
  build/release/tests/terrace-soak --runs 1000 --seed "$(date +%Y%m%d)"
}

# The release build has kernels for one architecture; that the others compile is seen here. Without nvcc there is nothing
# to compile, and CMake says so.
every_card() {
  cmake --preset release -B build/every-card -DTERRACE_CUDA_ARCHITECTURES="86;90a;120;121" &&
    cmake --build build/every-card -j "$jobs" --target terrace_cuda_kernels
}

# Also the headers that only their own folder includes: each has to compile alone.
internal_headers() {
  cmake --preset release -B build/internal-headers -DTERRACE_VERIFY_INTERNAL_HEADERS=ON -DTERRACE_BUILD_TESTS=OFF &&
    cmake --build build/internal-headers -j "$jobs" --target all_verify_interface_header_sets
}

# Five times two hundred schedules that no other day has; what fails says how to run it again.
simulate() {
  local day n
  day=$(($(date +%s) / 86400 % 9999))
  for n in 1 2 3 4 5; do
    build/release/tests/fault_simulation_test --gtest_brief=1 --gtest_filter='Seeds/SupervisedSimulation.*' \
      --gtest_random_seed=$((day * 5 + n)) || return 1
  done
}

# What the release run skipped is what tests/skips.txt says that this machine has to skip.
check_skips() {
  tests/check_skips.py "$log_dir/release-tests.log"
}

report() {
  echo "== time"
  printf '%s\n' "${timings[@]}"
  local preset
  for preset in release asan tsan; do report_tests "$preset"; done
  [ "${#failed[@]}" -eq 0 ] || echo "FAILED: ${failed[*]} (see $log_dir/)"
  # ctest's closing line; absent when nothing could be built.
  grep -hE '^[0-9]+% tests passed' "$log_dir/release-tests.log" 2>/dev/null || true
  [ "${#failed[@]}" -eq 0 ]
}

rm -f "$log_dir"/*.log "$log_dir"/*.failed-*
if stage install install_packages && stage test-tools fetch_test_tools &&
  stage release-build build release all all_verify_interface_header_sets; then
  if [ "$mode" = full ]; then export TERRACE_TEST_LOAD_SECONDS=180; fi
  stage release-tests run_tests release || true
  stage skips check_skips || true
  if [ "$mode" != quick ]; then
    sanitize asan || true
    sanitize tsan || true
  fi
  if [ "$mode" = full ]; then stage soak soak || true; fi
  if [ "$mode" = full ]; then stage simulation simulate || true; fi
  if [ "$mode" = full ]; then stage fuzz tests/fuzz/run.sh 20 || true; fi
  if [ "$mode" = full ]; then stage every-card every_card || true; fi
  if [ "$mode" = full ]; then stage internal-headers internal_headers || true; fi
  if [ "$mode" = full ]; then stage clang-tidy tests/repository/run_tidy.sh build/release || true; fi
fi
report
