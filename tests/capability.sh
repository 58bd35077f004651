#!/usr/bin/env bash
# Whether this machine can do what some tests need: the names of tests/skips.txt.
#
#   tests/capability.sh NAME...    nothing and exit 0 where it has all of them; else a line for each that it lacks, exit 1
#
# Tests ask this script before they say "skipped", and tests/check_skips.py asks it again, so that both mean the same.
set -uo pipefail
cd "$(dirname "$0")/.."
PATH=$PATH:/usr/sbin:/sbin

# What is made in a namespace of its own goes with it.
in_network() { unshare -n -m sh -ec "$1"; }
link="ip link set lo up; ip link add a0 type veth peer name b0"
has_tool() { PATH=build/venv/bin:build/test-tools/usr/bin:$PATH command -v "$1"; }
has_flag() { grep -qwi "$1" <(sed -n '/^flags/{p;q}' /proc/cpuinfo); }
# A loop device with direct I/O over a file where tests have theirs.
loops() {
  local image device status
  image=$(mktemp) && truncate -s 4M "$image" &&
    device=$(losetup -f --show --direct-io=on --sector-size 4096 "$image") && losetup -d "$device"
  status=$?
  rm -f "$image"
  return $status
}
vectors=${TERRACE_TEST_VECTORS:-../shared}

has() {
  case $1 in
    never) false ;;   # no machine
    itself) true ;;   # only the test can find out
    root) [ "$(id -u)" = 0 ] ;;
    netns) in_network "$link; ip addr add fd77::1/64 dev a0 nodad; ip link set a0 up" ;;
    tbf) in_network "$link; tc qdisc add dev a0 root tbf rate 1gbit burst 256k latency 20ms" ;;
    nft) in_network "nft add table inet t; nft add chain inet t c; nft add rule inet t c numgen random mod 9 '<' 1 drop" ;;
    netem) in_network "$link; tc qdisc add dev a0 root netem delay 1ms" ;;
    mount) in_network "mount -t tmpfs -o size=64k none /mnt" ;;
    user-mount) unshare --user --map-root-user --mount mount -t tmpfs -o size=64k none /mnt ;;
    landlock) python3 -c 'import ctypes, sys; sys.exit(ctypes.CDLL(None).syscall(444, None, 0, 1) <= 0)' ;;
    throttle) [ -w /sys/fs/cgroup/blkio/blkio.throttle.read_bps_device ] && loops ;;
    ipv6) [ -e /proc/net/if_inet6 ] && grep -q ' lo$' /proc/net/if_inet6 ;;
    dev-full) [ -w /dev/full ] ;;
    files2048) [ "$(ulimit -H -n)" = unlimited ] || [ "$(ulimit -H -n)" -ge 2048 ] ;;
    cpus2) [ "$(nproc)" -ge 2 ] ;;
    cores2) [ "$(lscpu --parse=CORE | grep -v '^#' | sort -u | wc -l)" -ge 2 ] ;;
    avx2) has_flag avx2 ;;
    avx512-bytes) has_flag avx512bw ;;
    avx512-vnni) has_flag avx512_vnni ;;
    card) [ -e /dev/nvidia0 ] ;;
    cards2) [ -e /dev/nvidia0 ] && [ -e /dev/nvidia1 ] ;;
    vectors) [ -d "$vectors/golden" ] && [ -d "$vectors/facts/http_shapes" ] ;;
    python:*) tests/repository/with_venv.sh -c "import ${1#python:}" ;;
    clang-format-14) tool_version=$("${CLANG_FORMAT:-clang-format}" --version) && [[ $tool_version == *"version 14."* ]] ;;
    overlay) folder=$(mktemp -d) && tests/deploy/in_overlay.sh "$folder" true && rm -r "$folder" ;;
    nspawn) has_tool systemd-nspawn && build/test-tools/usr/bin/systemd-nspawn --version ;;
    tool:*) has_tool "${1#tool:}" ;;
    *) echo "capability.sh: nobody knows the capability '$1'" >&2; exit 64 ;;
  esac
}

lacking=0
for name in "$@"; do
  why=$(has "$name" 2>&1 >/dev/null) && continue
  [ $? -ne 64 ] || { echo "$why" >&2; exit 64; }
  why=${why##*$'\n'}
  echo "$name: ${why:-not here}"
  lacking=1
done
exit "$lacking"
