#!/usr/bin/env bash
# Builds the kernels' tests and benchmark here and packs them for a machine that has a card and a driver but none of
# our packages: build/gpu-pack with programs, the shared objects they need beyond the C library (run path $ORIGIN/lib),
# and run.sh. No card is needed to pack.
#
# usage: tests/gpu/pack.sh [ARCHITECTURE]      90a by default: the card's, as in TERRACE_CUDA_ARCHITECTURES
set -euo pipefail
cd "$(dirname "$0")/../.."

architecture=${1:-90a}
build=build/release
pack=build/gpu-pack
programs=(gpu_device_test gpu_gemv_test gpu_ops_test gpu_attention_test gpu_expert_test terrace_gpu_bench)

cmake --preset release -DTERRACE_CUDA=ON -DTERRACE_CUDA_ARCHITECTURES="$architecture" >/dev/null
cmake --build --preset release -j "${JOBS:-$(nproc)}" --target "${programs[@]}"

rm -rf "$pack"
mkdir -p "$pack/lib"
# needed FILE: the shared objects that must travel. The C library and what belongs to it are the other machine's own.
needed() {
  ldd "$1" | awk '$3 ~ /^\// { print $3 }' |
    grep -vE '/(libc|libm|libdl|librt|libpthread|ld-linux[-a-z0-9]*)\.so' || true
}
for program in "${programs[@]}"; do
  strip -o "$pack/$program" "$build/tests/$program"
  for library in $(needed "$build/tests/$program"); do
    cp -nL "$library" "$pack/lib/"
  done
done
cp tests/gpu/run.sh "$pack/"
git describe --always --dirty --abbrev=12 --exclude='*' >"$pack/commit" 2>/dev/null || echo unknown >"$pack/commit"

# What travels starts by itself, with the objects that travel.
for program in "${programs[@]}"; do
  outside=$(env -i ldd "$pack/$program" | awk '$3 ~ /^\// { print $3 }' | grep -v "/$pack/lib/" |
    grep -vE '/(libc|libm|libdl|librt|libpthread)\.so' || true)
  if [ -n "$outside" ]; then
    echo "pack: $program would take these from the machine: $outside" >&2
    exit 1
  fi
  case $program in *_test) env -i "$pack/$program" --gtest_list_tests >/dev/null ;; esac
done
echo "pack: $(du -sh "$pack" | cut -f1) in $pack, commit $(cat "$pack/commit"), sm_$architecture"
