#!/usr/bin/env bash
# in_overlay.sh RESULT COMMAND...: runs the command as root in this machine's own file system with an empty layer above
# it, so that nothing outside changes. What the command leaves in /result comes back as the folder RESULT. Exit code 77:
# this machine does not let its user mount such a layer.
set -euo pipefail
result=$1
shift
if [ -z "${TERRACE_IN_OVERLAY:-}" ]; then
  [ "$(id -u)" -eq 0 ] || { echo "in_overlay: only root may mount"; exit 77; }
  TERRACE_IN_OVERLAY=1 exec unshare --mount --propagation private "$0" "$result" "$@"
fi
layers=$(mktemp -d)
trap 'umount -R "$layers"; rmdir "$layers"' EXIT
mount -t tmpfs terrace "$layers"
mkdir "$layers"/{upper,work,root}
mount -t overlay terrace -o "lowerdir=/,upperdir=$layers/upper,workdir=$layers/work" "$layers/root" || exit 77
for kernel in dev proc sys; do mount --rbind "/$kernel" "$layers/root/$kernel"; done
mkdir "$layers/root/result"
chroot "$layers/root" "$@" || exit
cp -a "$layers/root/result/." "$result"
