"""deploy/systemd booted: systemd as process 1 of a container starts both units, with the sandbox that they describe."""

import json
import re
import shutil
import tempfile
import unittest
from pathlib import Path

import support
import units

# Runs in the container once both services are up. Each answer is a file of /result.
CHECK = r"""#!/bin/sh
cd /result
for unit in terrace terrace-node; do
  systemctl is-active $unit > $unit.active
  cat /proc/$(systemctl show -p MainPID --value $unit)/status > $unit.status
done
answer='curl -s -m 30 http://127.0.0.1:8080'
$answer/health > health
$answer/v1/models > without-key
$answer/v1/completions -H 'Authorization: Bearer the-key' -d '{"prompt":"Once upon a time","max_tokens":6}' > completion
$answer/metrics -H 'Authorization: Bearer the-key' > metrics
/usr/local/bin/terrace status --node 127.0.0.1:9000 > without-secret 2>&1
for unit in terrace terrace-node; do
  systemctl stop $unit
  systemctl show -p Result -p ExecMainStatus $unit > $unit.stopped
done
sed -i 's/^listen/lisen/' /etc/terrace/terrace-node.toml
systemctl start terrace-node
sleep 4
systemctl show -p ExecMainStatus -p NRestarts terrace-node > wrong-option
journalctl --no-pager -o cat -u terrace -u terrace-node > journal
"""
# $0: systemd-nspawn, $1: what is laid over the machine's files. Without a network but a loopback of its own.
BOOT = """
cp -a "$1/." "$root/"
timeout 120 "$0" --quiet --register=no --keep-unit --private-network --machine=terrace-test --directory="$root" \\
  --boot systemd.unit=terrace-check.target </dev/null || true
"""
FILES = {
    "terrace-booted.service": """
[Unit]
DefaultDependencies=no
After=basic.target
[Service]
Type=oneshot
ExecStart=/usr/bin/touch /result/booted
""",
    "terrace-check.service": """
[Unit]
DefaultDependencies=no
After=terrace.service terrace-node.service
[Service]
Type=oneshot
ExecStart=/usr/local/bin/terrace-check
ExecStopPost=/usr/bin/systemctl poweroff --no-block
""",
    "terrace-check.target": """
[Unit]
Requires=basic.target
After=basic.target
Wants=terrace-booted.service terrace.service terrace-node.service terrace-check.service
""",
}


def lay_out(folder):
    """What the operations page tells to install, and the check."""
    system, binaries, options = folder / "etc/systemd/system", folder / "usr/local/bin", folder / "etc/terrace"
    for place in (system, binaries, options):
        place.mkdir(parents=True)
    for unit in units.NAMES:
        shutil.copy(units.SYSTEMD / unit, system)
        (system / f"{unit}.d").mkdir()
        shutil.copy(units.SYSTEMD / "hardening.conf", system / f"{unit}.d")
    for name, text in FILES.items():
        (system / name).write_text(text)
    # No network to be online in here.
    (system / "network-online.target").symlink_to("/dev/null")
    for name in ("terrace", "terrace-node"):
        shutil.copy(support.program(name), binaries)
    (binaries / "terrace-check").write_text(CHECK)
    (binaries / "terrace-check").chmod(0o755)
    shutil.copytree(
        support.DEPLOY / "demo", folder / "usr/local/share/terrace", ignore=shutil.ignore_patterns("corpus")
    )
    shutil.copy(support.DEPLOY / "config/terrace-node.toml", options)
    text = (support.DEPLOY / "config/terrace.toml").read_text()
    (options / "terrace.toml").write_text(re.sub(r"^# node = .*", 'node = ["127.0.0.1:9000"]', text, flags=re.M))
    (options / "api-keys").write_text("the-key\n")
    (options / "secret").write_text("5a" * 32 + "\n")
    for name in ("api-keys", "secret"):
        (options / name).chmod(0o600)


class Boot(unittest.TestCase):
    def test_both_units_start_serve_confined_and_stop(self):
        nspawn = support.tool("systemd-nspawn")
        support.tool("curl")
        if support.run(nspawn, "--version").returncode != 0:
            self.skipTest("systemd-nspawn does not fit this machine's systemd")
        with tempfile.TemporaryDirectory() as home:
            folder, result = Path(home) / "tree", Path(home) / "result"
            folder.mkdir()
            result.mkdir()
            lay_out(folder)
            done = support.run(support.OVERLAY, result, "bash", "-ec", BOOT, nspawn, folder, timeout=200)
            self.answers = {file.name: file.read_text() for file in result.iterdir()}
        if "booted" not in self.answers:
            self.skipTest(f"systemd does not boot here: {done.stdout[-2000:]}")
        self.assertIn("journal", self.answers, "the services did not come up in time")
        for unit in ("terrace", "terrace-node"):
            self.look_at_unit(unit)
        self.look_at_service()

    def look_at_unit(self, unit):
        self.assertEqual(self.answers[f"{unit}.active"], "active\n", self.answers["journal"])
        status = dict(re.findall(r"^(\w+):\s+(\S+)", self.answers[f"{unit}.status"], re.M))
        self.assertGreaterEqual(int(status["Uid"]), 61184)  # of systemd's own range
        self.assertEqual(int(status["CapBnd"], 16), 0)
        self.assertEqual(status["NoNewPrivs"], "1")
        self.assertEqual(status["Seccomp"], "2")
        self.assertEqual(set(self.answers[f"{unit}.stopped"].split()), {"Result=success", "ExecMainStatus=0"})

    def look_at_service(self):
        self.assertEqual(json.loads(self.answers["health"]), {"status": "ok"})
        self.assertEqual(json.loads(self.answers["without-key"])["error"]["code"], 401)
        self.assertEqual(json.loads(self.answers["completion"])["usage"]["completion_tokens"], 6)
        pairs = re.search(r'terrace_leg_pairs_total\{leg="127.0.0.1:9000",kind="node"\} (\d+)', self.answers["metrics"])
        self.assertGreater(int(pairs.group(1)), 0)
        self.assertEqual(set(self.answers["wrong-option"].split()), {"ExecMainStatus=2", "NRestarts=0"})
        self.assertIn("did you mean listen", self.answers["journal"])
        # The node takes who has the secret, and the journal does not have it.
        self.assertIn("coordinators need the same secret", self.answers["journal"])
        self.assertIn("--secret-file", self.answers["without-secret"])
        self.assertNotIn("5a5a5a5a", self.answers["journal"])


if __name__ == "__main__":
    support.main()
