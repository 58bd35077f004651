#!/usr/bin/env bash
# All that docs/performance.md and docs/planning.md say of links, nodes and losses, measured in one go.
#
#   tests/bench/run.sh [BIN] [OUT] [PART...]        BIN: build/release/bin; OUT: a new folder, a text for each part
#
# Parts, in this order unless some are named: trips plain links losses silent overlap prediction. Each runs for at most LIMIT
# seconds (300) and is ended then; what it printed is in OUT all the same. Where there are twelve CPUs the coordinator has 0-3
# and the nodes 4-7 and 8-11, as the documents have it; HOST_FLAGS and NODE_CPUS say otherwise. One model serves all parts
# that take one of twelve layers. The last lines name the machine and what each part came to. Exits 1 where one was missed.
# Needs what the parts need: root, ip, tc, iperf3, python3; ninja -C build/release terrace-bench-round-trips
# terrace-bench-sealing terrace-random-model.
set -euo pipefail

bin=${1:-build/release/bin}
out=${2:-$(mktemp -d)}
limit=${LIMIT:-300}
parts=("${@:3}")
[ "${#parts[@]}" -gt 0 ] || parts=(trips plain links losses silent overlap prediction)
here=$(dirname "$0")
trips=$bin/../tests/terrace-bench-round-trips
model=${MODEL:-$out/model.gguf}  # made by the first part that takes it
mkdir -p "$out"
if [ "$(nproc)" -ge 12 ]; then
  export HOST_FLAGS=${HOST_FLAGS:---cpu-list 0-3} NODE_CPUS=${NODE_CPUS:-4-7 8-11}
fi

# part NAME: its command.
part() {
  case $1 in
    trips) "$trips" --trips 5000 ;;
    plain) "$trips" --trips 5000 --plain ;;
    # Both halves of the machine, which links.sh chooses itself.
    links) env -u NODE_CPUS -u HOST_FLAGS -u MODEL "$here/links.sh" "$bin" ;;
    losses) MODEL=$model "$here/losses.sh" "$bin" "$out/losses" ;;
    silent) MODEL=$model SILENT=1 ALONE=0 REPEATS=1 "$here/losses.sh" "$bin" "$out/silent" ;;
    overlap) MODEL=$model "$here/overlap.sh" "$bin" "$out/overlap" ;;
    prediction) MODEL=$model "$here/prediction.sh" "$bin" "$out/prediction" ;;
    *) echo "run.sh: no part '$1'" >&2; return 2 ;;
  esac
}
export -f part
export bin out here trips model

missed=0
summary=()
running=
# A part is no child of the terminal's: timeout makes a process group of it.
trap '[ -z "$running" ] || kill -TERM "$running"; wait; exit 130' INT TERM
for name in "${parts[@]}"; do
  echo "== $name"
  begin=$SECONDS status=0
  # TERM reaches the script's own shell, which takes its hosts down; KILL only who does not mind it.
  timeout --kill-after=20 "$limit" bash -euo pipefail -c "part $name" >"$out/$name.txt" 2>&1 &
  running=$!
  wait "$running" || status=$?
  running=
  cat "$out/$name.txt"
  case $status in
    0) what=held ;;
    1) what="missed, or failed: its text says which" ;;
    124 | 137) what="ended after $limit s" ;;
    *) what="could not run ($status)" ;;
  esac
  [ "$status" -eq 0 ] || missed=1
  summary+=("$(printf '%-11s %4d s  %s' "$name" $((SECONDS - begin)) "$what")")
done
echo "== $(nproc) CPUs of $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), Linux $(uname -r), $(date +%F)," \
  "$("$bin/terrace" --version | head -1)"
printf '%s\n' "${summary[@]}"
exit "$missed"
