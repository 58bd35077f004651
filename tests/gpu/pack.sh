#!/usr/bin/env bash
# Builds the programs, the kernels' tests and their benchmark here and packs them for a machine that has a card and a
# driver but none of our packages: build/gpu-pack with binaries, the shared objects they need beyond the C library (run
# path $ORIGIN/lib), and run.sh; the same as build/gpu-pack.tar.xz. No card is needed to pack.
#
# usage: tests/gpu/pack.sh [--any-commit] [ARCHITECTURE]
#   ARCHITECTURE    the card's, as in TERRACE_CUDA_ARCHITECTURES; 90a by default
#   --any-commit    exit 0 also where the commit is unknown or something was changed since: such a pack makes no record
set -euo pipefail
cd "$(dirname "$0")/../.."

any_commit=
[ "${1:-}" != --any-commit ] || { any_commit=1; shift; }
architecture=${1:-90a}
build=build/release
pack=build/gpu-pack
most_bytes=$((20 << 20)) # of the archive
tests=(gpu_device_test gpu_gemv_test gpu_ops_test gpu_attention_test gpu_expert_test gpu_executor_test gpu_trunk_ops_test gpu_trunk_test terrace_gpu_bench
       terrace_gpu_kernels terrace_gpu_trunk_bench terrace_gpu_load_bench)
programs=(terrace terrace-node terrace-random-model)

command -v patchelf >/dev/null || { echo "pack: patchelf is missing (Debian's package of that name)" >&2; exit 1; }
cmake --preset release -DTERRACE_CUDA=ON -DTERRACE_CUDA_ARCHITECTURES="$architecture" >/dev/null
cmake --build --preset release -j "${JOBS:-$(nproc)}" --target "${tests[@]}" "${programs[@]}"

rm -rf "$pack" "$pack.tar.xz"
mkdir -p "$pack/lib"
# needed FILE: the shared objects that must travel. The C library and what belongs to it are the other machine's own.
needed() {
  ldd "$1" | awk '$3 ~ /^\// { print $3 }' |
    grep -vE '/(libc|libm|libdl|librt|libpthread|ld-linux[-a-z0-9]*)\.so' || true
}
for binary in "${tests[@]/#/$build/tests/}" "${programs[@]/#/$build/bin/}"; do
  strip -o "$pack/$(basename "$binary")" "$binary"
  for library in $(needed "$binary"); do
    cp -nL "$library" "$pack/lib/"
  done
done
strip "$pack"/lib/*
# Only the older of the two kinds of run path counts for what a library needs. It names that folder and no other: an empty
# part of it would be whatever folder the programs are started in.
for binary in "${tests[@]}" "${programs[@]}"; do patchelf --force-rpath --set-rpath '$ORIGIN/lib' "$pack/$binary"; done
cp tests/gpu/run.sh tests/gpu/gate.sh "$pack/"
git describe --always --dirty --abbrev=12 --exclude='*' >"$pack/commit" 2>/dev/null || echo unknown >"$pack/commit"

# What travels starts by itself, with the objects that travel and an empty library path.
for binary in "${tests[@]}" "${programs[@]}"; do
  [ "$(patchelf --print-rpath "$pack/$binary")" = '$ORIGIN/lib' ] || { echo "pack: $binary has another run path" >&2; exit 1; }
  outside=$(env -i ldd "$pack/$binary" | awk '$3 ~ /^\// { print $3 }' | grep -v "/$pack/lib/" |
    grep -vE '/(libc|libm|libdl|librt|libpthread)\.so' || true)
  if [ -n "$outside" ]; then
    echo "pack: $binary would take these from the machine: $outside" >&2
    exit 1
  fi
  case $binary in
    *_test) env -i "$pack/$binary" --gtest_list_tests >/dev/null ;;
    terrace | terrace-node | terrace-random-model) env -i "$pack/$binary" --help >/dev/null ;;
    *) # a benchmark takes the number of a card; anything else is answered with its usage, before a card is looked for
      status=0
      env -i "$pack/$binary" --help >/dev/null 2>&1 || status=$?
      [ "$status" -eq 2 ] || { echo "pack: $binary does not start (exit $status)" >&2; exit 1; }
      ;;
  esac
done
"$pack/run.sh" --stage lists
tar -C build -cf - gpu-pack | xz -T2 -6 >"$pack.tar.xz"
bytes=$(stat -c %s "$pack.tar.xz")
echo "pack: $(du -sh "$pack" | cut -f1) in $pack, $bytes bytes in $pack.tar.xz, commit $(cat "$pack/commit"), sm_$architecture"
if [ "$bytes" -gt "$most_bytes" ]; then
  echo "pack: the archive has more than $most_bytes bytes" >&2
  exit 1
fi
commit=$(cat "$pack/commit")
if [ -z "$any_commit" ] && [[ $commit == unknown || $commit == *-dirty ]]; then
  echo "pack: the commit is $commit, so that run.sh --stage bench will write no record; pack a clean checkout, or with --any-commit" >&2
  exit 1
fi
