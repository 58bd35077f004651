#!/usr/bin/env bash
# Unpacks promtool and systemd-nspawn out of Debian's packages into build/test-tools, for tests/deploy. The packages
# themselves are not installed: one would start a service.
set -euo pipefail
cd "$(dirname "$0")/../.."
mkdir -p build/test-tools
cd build/test-tools

# unpack PACKAGE FILE
unpack() {
  [ -x "$2" ] && return
  apt-get download -qq "$1"
  dpkg-deb --fsys-tarfile "$1"_*.deb | tar -x "./$2"
  rm "$1"_*.deb
}
unpack prometheus usr/bin/promtool
unpack systemd-container usr/bin/systemd-nspawn
