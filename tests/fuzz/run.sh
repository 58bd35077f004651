#!/usr/bin/env bash
# Fuzzes each target for SECONDS (default 20) with libFuzzer, from its committed corpus and from what earlier runs found.
#
#   tests/fuzz/run.sh [SECONDS] [TARGET...]
#
# An input that ends a target is left as build/fuzz/failed-<target>-...; exit 1 then, after the other targets have run.
set -euo pipefail
cd "$(dirname "$0")/../.."

seconds=${1:-20}
shift || true
targets=("$@")
[ "${#targets[@]}" -gt 0 ] || targets=($(ls tests/fuzz/corpus))

cmake --preset fuzz >/dev/null
cmake --build --preset fuzz -j "$(nproc)"
failed=()
for target in "${targets[@]}"; do
  echo "== $target, $seconds s"
  found=build/fuzz/corpus/$target
  mkdir -p "$found"
  corpora=("$found" "tests/fuzz/corpus/$target")
  [ "$target" != gguf ] || corpora+=(tests/data/gguf)
  # No decoder may set more aside than a few times its input: inputs are at most 64 KB here.
  "build/fuzz/tests/fuzz_$target" -max_total_time="$seconds" -max_len=65536 -timeout=5 -malloc_limit_mb=64 \
    -print_final_stats=1 -verbosity=0 -artifact_prefix="build/fuzz/failed-$target-" "${corpora[@]}" ||
    failed+=("$target")
done
[ "${#failed[@]}" -eq 0 ] || { echo "FAILED: ${failed[*]}"; exit 1; }
