"""deploy/systemd: the units as systemd reads them, and the programs under the units' system call filter."""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import unittest
import urllib.request
from pathlib import Path

import commands
import programs
import seccomp
import support
import units

HARDENING = units.SYSTEMD / "hardening.conf"

# `systemd-analyze security` counts what is left open, 0 to 10. What remains are sockets, the devices' short list, the
# host's root directory, and affinity and NUMA calls; a directive lost from hardening.conf is 0.1 or more.
MOST_EXPOSURE = 1.5


def lay_out(root):
    """The units as deploy/ansible installs them, below `root`, beside systemd's own and programs to start."""
    installed = root / "etc/systemd/system"
    binaries = root / "usr/local/bin"
    installed.mkdir(parents=True)
    binaries.mkdir(parents=True)
    for unit in units.NAMES:
        shutil.copy(units.SYSTEMD / unit, installed)
        drop_in = installed / f"{unit}.d"
        drop_in.mkdir()
        shutil.copy(HARDENING, drop_in)
    for name in ("terrace", "terrace-node"):
        shutil.copy("/bin/true", binaries / name)
    shutil.copytree("/usr/lib/systemd/system", root / "usr/lib/systemd/system", symlinks=True)


@contextlib.contextmanager
def laid_out():
    with tempfile.TemporaryDirectory() as folder:
        lay_out(Path(folder))
        yield Path(folder)


def exposure(root, unit):
    done = support.run(
        support.tool("systemd-analyze"), "security", "--no-pager", "--offline=true", f"--root={root}", unit
    )
    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", done.stdout)
    return float(found.group(1)), done.stdout


def verdicts(table):
    """The lines of `systemd-analyze security` as words: mark, directive, what it says, exposure."""
    return {tuple(line.split()) for line in table.splitlines() if line.startswith(("✗", "✓"))}


class Units(unittest.TestCase):
    def test_verify_finds_nothing(self):
        with laid_out() as root:
            for unit in units.NAMES:
                done = support.run(
                    support.tool("systemd-analyze"), "verify", "--man=no", f"--root={root}", unit, timeout=60
                )
                self.assertEqual((done.returncode, done.stdout), (0, ""), unit)

    def test_verify_finds_a_planted_fault(self):
        with laid_out() as root:
            unit = root / "etc/systemd/system/terrace-node.service"
            unit.write_text(unit.read_text().replace("RestartSec=", "RestartSecond="))
            done = support.run(support.tool("systemd-analyze"), "verify", "--man=no", f"--root={root}", unit.name)
            self.assertIn("RestartSecond", done.stdout)

    def test_exposure_is_at_most_the_threshold(self):
        with laid_out() as root:
            for unit in units.NAMES:
                level, table = exposure(root, unit)
                self.assertLessEqual(level, MOST_EXPOSURE, table)

    def test_a_lost_hardening_line_exceeds_the_threshold(self):
        with laid_out() as root:
            drop_in = root / "etc/systemd/system/terrace.service.d/hardening.conf"
            drop_in.write_text(drop_in.read_text().replace("ProtectKernelTunables=yes\n", ""))
            self.assertGreater(exposure(root, "terrace.service")[0], MOST_EXPOSURE)

    def test_the_drop_in_for_cards_gives_back_devices_alone(self):
        with laid_out() as root:
            for unit in units.NAMES:
                _, without = exposure(root, unit)
                shutil.copy(units.SYSTEMD / "with-gpu.conf", root / f"etc/systemd/system/{unit}.d")
                done = support.run(
                    support.tool("systemd-analyze"), "verify", "--man=no", f"--root={root}", unit, timeout=60
                )
                self.assertEqual((done.returncode, done.stdout), (0, ""), unit)
                _, with_card = exposure(root, unit)
                changed = {words[1] for words in verdicts(with_card) - verdicts(without)}
                self.assertEqual(changed, {"PrivateDevices=", "DeviceAllow="}, with_card)

    def test_stop_leaves_more_time_than_the_node_drains(self):
        source = (support.ROOT / "tier_node/app/node.cpp").read_text()
        drain_ms = int(re.search(r"kDrainTime\{([\d']+)\}", source).group(1).replace("'", ""))
        self.assertGreater(units.stop_seconds("terrace-node") * 1000, drain_ms)

    def test_each_unit_starts_a_command_that_its_program_takes(self):
        for name in units.NAMES:
            commands.check(self, units.command(name.removesuffix(".service")), name)


class Times(unittest.TestCase):
    def test_stop_leaves_more_time_than_requests_may_go_on(self):
        shown = re.search(r"--stop-timeout .*?default (\d+)s", support.help_of("terrace", "serve"), re.S).group(1)
        self.assertGreaterEqual(units.stop_seconds("terrace"), int(shown) + 10)


class Readiness(unittest.TestCase):
    """Type=notify, with this test as the manager."""

    @contextlib.contextmanager
    def manager(self):
        """(the manager's socket, the environment of a service that it starts)."""
        with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
            listening.bind(f"{folder}/notify")
            listening.settimeout(programs.START_SECONDS)
            yield listening, {**os.environ, "NOTIFY_SOCKET": f"{folder}/notify"}

    def test_node_says_when_it_serves_and_when_it_stops(self):
        self.assertEqual(units.setting("terrace-node", "Type"), "notify")
        with self.manager() as (manager, environment), programs.node(env=environment) as node:
            self.assertEqual(manager.recv(64), b"READY=1")
            done = support.run(support.program("terrace"), "status", "--node", node.address)
            self.assertEqual(done.returncode, 0, done.stdout)
            self.assertEqual(node.stop(signal.SIGTERM), 0, node.log())
            self.assertEqual(manager.recv(64), b"STOPPING=1")

    def test_server_says_when_it_serves_and_when_it_stops(self):
        self.assertEqual(units.setting("terrace", "Type"), "notify")
        with self.manager() as (manager, environment), programs.server(env=environment) as server:
            self.assertEqual(manager.recv(64), b"READY=1")
            with urllib.request.urlopen(f"{server.url}/health", timeout=programs.START_SECONDS) as answer:
                self.assertEqual(answer.status, 200)
            self.assertEqual(server.stop(signal.SIGTERM), 0, server.log())
            self.assertEqual(manager.recv(64), b"STOPPING=1")


class SystemCalls(unittest.TestCase):
    """No process 1 is needed: the same filter, put on by seccomp.py."""

    def under_filter(self, unit, *without):
        support.tool("systemd-analyze")
        words = ["--without", ",".join(without)] if without else []
        return [
            sys.executable,
            "-B",
            str(support.ROOT / "tests/deploy/seccomp.py"),
            *words,
            str(units.SYSTEMD / unit),
            str(HARDENING),
            "--",
        ]

    def story(self, *node_addresses, before=()):
        words = [
            *before,
            support.program("terrace"),
            "generate",
            "--prompt",
            "Once upon a time",
            "--max-tokens",
            "16",
            "--json",
        ]
        for address in node_addresses:
            words += ["--node", address]
        done = support.run(*words, stderr=subprocess.PIPE)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)["logits_xxh3"]

    def test_filter_refuses_what_it_does_not_name(self):
        program = [
            sys.executable,
            "-c",
            "import os\ntry:\n  os.chown('.', -1, -1)\nexcept PermissionError:\n  print('refused')",
        ]
        done = support.run(*self.under_filter("terrace-node.service"), *program)
        self.assertEqual(done.stdout, "refused\n")

    def test_both_programs_serve_a_model_under_the_units_filter(self):
        alone = self.story()
        with programs.node(before=self.under_filter("terrace-node.service")) as node:
            self.assertEqual(self.story(node.address, before=self.under_filter("terrace.service")), alone)
            self.assertEqual(node.stop(signal.SIGTERM), 0, node.log())

    def test_server_answers_under_the_units_filter(self):
        body = json.dumps({"prompt": "Once upon a time", "n_predict": 8}).encode()
        with programs.server(before=self.under_filter("terrace.service")) as server:
            with urllib.request.urlopen(f"{server.url}/completion", body, timeout=programs.START_SECONDS) as answer:
                self.assertEqual(json.load(answer)["tokens_predicted"], 8)
            self.assertEqual(server.stop(signal.SIGTERM), 0, server.log())

    def test_both_programs_work_where_a_container_denies_io_uring(self):
        denied = ("io_uring_setup", "io_uring_enter", "io_uring_register")
        alone = self.story()
        with programs.node(before=self.under_filter("terrace-node.service", *denied)) as node:
            self.assertEqual(self.story(node.address, before=self.under_filter("terrace.service", *denied)), alone)


if __name__ == "__main__":
    support.main()
