#!/usr/bin/env bash
# Every source file is as clang-format 14 (Debian 12's) with the root's .clang-format writes it. Other versions break
# lines elsewhere, so they are not asked. Exit 77: skipped.
set -euo pipefail
cd "$(dirname "$0")/../.."

formatter=${CLANG_FORMAT:-clang-format}
version=$("$formatter" --version 2>/dev/null | sed -n 's/.*version \([0-9]*\).*/\1/p' || true)
if [ "$version" != 14 ]; then
  echo "skipped: clang-format 14 is not installed (found: ${version:-none})"
  exit 77
fi
find common kernels coordinator tier_node tools tests -path tests/data -prune -o \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' \) -print0 |
  xargs -0 "$formatter" --dry-run -Werror
echo "every file is formatted"
