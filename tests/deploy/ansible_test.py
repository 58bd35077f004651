"""deploy/ansible: by ansible's own checks, and by a run against a copy of this machine's file system."""

import json
import os
import shutil
import stat
import sys
import tempfile
import unittest
from pathlib import Path

import support
import units

ANSIBLE = support.DEPLOY / "ansible"


def environment(home):
    """Ansible's tools side by side, their files in `home`; systemctl as in an image that is not booted."""
    return {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "ANSIBLE_HOME": home,
        "ANSIBLE_LOCAL_TEMP": f"{home}/local",
        "ANSIBLE_REMOTE_TEMP": f"{home}/remote",
        "ANSIBLE_NOCOLOR": "1",
        "SYSTEMD_OFFLINE": "1",
        "LC_ALL": "C.UTF-8",
    }


def stage(folder):
    """What `cmake --install` puts into terrace_stage, of this build."""
    (folder / "bin").mkdir(parents=True)
    for name in ("terrace", "terrace-node"):
        shutil.copy(support.program(name), folder / "bin")
    (folder / "share/terrace").mkdir(parents=True)
    shutil.copy(support.DEPLOY / "demo/LICENSE.md", folder / "share/terrace")


class Lint(unittest.TestCase):
    def test_ansible_lint_finds_nothing_in_its_strictest_profile(self):
        with tempfile.TemporaryDirectory() as home:
            done = support.run(
                support.tool("ansible-lint"),
                "--offline",
                "--profile",
                "production",
                "--nocolor",
                "site.yml",
                "roles",
                "inventory.example.yml",
                cwd=ANSIBLE,
                env=environment(home),
            )
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_playbook_passes_the_syntax_check(self):
        with tempfile.TemporaryDirectory() as home:
            done = support.run(
                support.tool("ansible-playbook"),
                "-i",
                "inventory.example.yml",
                "--syntax-check",
                "site.yml",
                cwd=ANSIBLE,
                env=environment(home),
            )
        self.assertEqual(done.returncode, 0, done.stdout)


class Role(unittest.TestCase):
    def play(self, home, runs, **variables):
        """Plays site.yml so often with the example's inventory, all in one layer; /etc/terrace and the units lie
        in home/result afterwards. What was said and the exit code."""
        playbook = support.tool("ansible-playbook")
        home = Path(home)
        stage(home / "stage")
        (home / "extra.json").write_text(
            json.dumps(
                {
                    "ansible_connection": "local",
                    "ansible_python_interpreter": "/usr/bin/python3",
                    "terrace_stage": str(home / "stage"),
                    "terrace_api_keys": ["0123456789abcdef"],
                    "terrace_secret": "5a" * 32,
                    **variables,
                }
            )
        )
        play = f"{playbook} -i inventory.example.yml -e @{home}/extra.json site.yml"
        # Ansible looks at this file to see that the package lists are young; the test needs no network.
        script = "set -e; mkdir -p /var/lib/apt/periodic; touch /var/lib/apt/periodic/update-success-stamp; "
        script += f"cd {ANSIBLE}; " + "; ".join([play] * runs)
        script += "; cp -a /etc/terrace /etc/systemd/system /result"
        (home / "result").mkdir()
        enter = 'for each in dev proc sys; do mount --rbind "/$each" "$root/$each"; done; chroot "$root" bash -c "$0"'
        command = [support.OVERLAY, home / "result", "bash", "-ec", enter, script]
        done = support.run(*command, env=environment(str(home)), timeout=560)
        if done.returncode == support.SKIPPED:
            self.skipTest(f"no overlay file system here: {done.stdout}")
        return done

    def test_both_services_are_installed_and_a_second_run_changes_nothing(self):
        with tempfile.TemporaryDirectory() as home:
            done = self.play(home, 2)
            self.assertEqual(done.returncode, 0, done.stdout)
            recaps = [line for line in done.stdout.splitlines() if "changed=" in line]
            self.assertNotIn("changed=0 ", recaps[0], done.stdout)
            self.assertIn("changed=0 ", recaps[1], done.stdout)
            self.assertNotIn("5a5a5a5a", done.stdout)
            self.look_at(Path(home) / "result")

    def look_at(self, result):
        system = result / "system"
        for unit in units.NAMES:
            self.assertEqual((system / unit).read_text(), (units.SYSTEMD / unit).read_text())
            drop_in = system / f"{unit}.d/hardening.conf"
            self.assertEqual(drop_in.read_text(), (units.SYSTEMD / "hardening.conf").read_text())
            self.assertTrue((system / "multi-user.target.wants" / unit).is_symlink(), unit)
        keys = result / "terrace/api-keys"
        self.assertEqual(keys.read_text(), "0123456789abcdef\n")
        self.assertEqual(stat.S_IMODE(keys.stat().st_mode), 0o600)
        secret = result / "terrace/secret"
        self.assertEqual(secret.read_text(), "5a" * 32 + "\n")
        self.assertEqual(stat.S_IMODE(secret.stat().st_mode), 0o600)

    def test_an_option_that_the_program_does_not_know_is_never_installed(self):
        with tempfile.TemporaryDirectory() as home:
            done = self.play(home, 1, terrace_node_options={"lisen": "127.0.0.1:9000"})
            self.assertNotEqual(done.returncode, 0)
            self.assertRegex(done.stdout, r"lisen.*listen")

    def test_a_secret_that_is_none_is_never_installed(self):
        with tempfile.TemporaryDirectory() as home:
            done = self.play(home, 1, terrace_secret="the secret")
            self.assertNotEqual(done.returncode, 0)
            self.assertFalse((Path(home) / "result/terrace/secret").exists())


if __name__ == "__main__":
    support.main()
