#!/usr/bin/env bash
# in_overlay.sh RESULT COMMAND...: runs the command as root beside a copy of this machine's file system: $root is all
# of it with an empty layer above, so that nothing that is changed there changes here. What is left in $root/result
# comes back as the folder RESULT. Exit code 77: this machine does not let its user mount such a layer.
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
export root=$layers/root
mount -t overlay terrace -o "lowerdir=/,upperdir=$layers/upper,workdir=$layers/work" "$root" || exit 77
mkdir "$root/result"
"$@" || exit
cp -a "$root/result/." "$result"
