#!/usr/bin/env bash
# clang-tidy over the product's .cpp files, with the compile commands of a build folder.
# usage: run_tidy.sh build/release [FILE...]
set -euo pipefail
cd "$(dirname "$0")/../.."

build=$1
shift
if ! command -v clang-tidy >/dev/null; then
  echo "skipped: clang-tidy is not installed"
  exit 77
fi
if [ $# -eq 0 ]; then
  mapfile -t files < <(find common kernels coordinator tier_node tools -name '*.cpp' | sort)
  set -- "${files[@]}"
fi
printf '%s\n' "$@" | xargs -P "$(nproc)" -n 4 clang-tidy --quiet -p "$build"
