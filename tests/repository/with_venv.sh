#!/usr/bin/env bash
# Runs a Python script with the packages of build/venv, or with the system's Python where there is no venv; a script
# that misses a package exits with 77 (skipped).
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
python=$root/build/venv/bin/python
[ -x "$python" ] || python=python3
exec "$python" -B "$@"
