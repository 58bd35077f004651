#!/usr/bin/env bash
# Unpacks promtool out of Debian's package into build/test-tools, for tests/deploy. The package itself is not installed:
# it would start a service.
set -euo pipefail
cd "$(dirname "$0")/../.."
[ -x build/test-tools/usr/bin/promtool ] && exit 0
mkdir -p build/test-tools
cd build/test-tools
apt-get download -qq prometheus
dpkg-deb --fsys-tarfile prometheus_*.deb | tar -x ./usr/bin/promtool
rm prometheus_*.deb
