#!/usr/bin/env bash
# Installs what Terrace builds and tests with, from Debian 12's own packages. Idempotent: when nothing is missing
# it touches nothing and needs neither root nor a network.
#
#   deploy/install_deps.sh           everything to build with and to run most tests
#   deploy/install_deps.sh --tests   and the browser (160 MB) in which tests/e2e/serve/page_test.py opens the page
set -euo pipefail

packages=(
  # build
  g++ cmake ninja-build ccache pkg-config git
  # libraries
  libgrpc++-dev libprotobuf-dev protobuf-compiler protobuf-compiler-grpc libasio-dev libssl-dev
  libspdlog-dev libfmt-dev libcli11-dev libtomlplusplus-dev nlohmann-json3-dev libxxhash-dev libpcre2-dev
  libhwloc-dev libedit-dev prometheus-cpp-dev libboost-dev libucx-dev
  # tests and tools
  libgtest-dev libgmock-dev libbenchmark-dev clang-format clang-tidy python3 python3-venv xz-utils procps
  iproute2 nftables iperf3 util-linux e2fsprogs mount
)

case "${1:-}" in
  "") ;;
  --tests) packages+=(chromium chromium-driver) ;;
  *) echo "install_deps: unknown argument '$1' (--tests)" >&2; exit 2 ;;
esac

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$status" = installed ] || missing+=("$package")
done
if [ "${#missing[@]}" -eq 0 ]; then
  echo "install_deps: all ${#packages[@]} packages are installed"
  exit 0
fi

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { echo "install_deps: needs root to install: ${missing[*]}" >&2; exit 1; }
  as_root=(sudo)
fi
echo "install_deps: installing ${missing[*]}"
"${as_root[@]}" apt-get update -qq
# In front of apt-get itself: sudo drops the caller's environment.
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
echo "install_deps: done"
