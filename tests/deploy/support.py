"""What the tests of deploy/ share: where things are, the programs, and how one test is run and skipped by name."""

import importlib
import os
import re
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
OVERLAY = ROOT / "tests/deploy/in_overlay.sh"
SKIPPED = 77  # SKIP_RETURN_CODE of each of these tests


def program(name):
    """The built program of that name; ctest says where they are, a script run by hand takes the release build."""
    return Path(os.environ.get("TERRACE_TEST_BINARIES", ROOT / "build/release/bin")) / name


def tool(name):
    """Path of a tool that a machine may lack; the test is skipped by name where it does. Tools of the test's own Python
    environment and of build/test-tools (tests/deploy/fetch_tools.sh) come first."""
    own = [Path(sys.executable).parent, ROOT / "build/test-tools/usr/bin"]
    found = shutil.which(name, path=os.pathsep.join(map(str, own))) or shutil.which(name)
    if found is None:
        raise unittest.SkipTest(f"{name} is not installed")
    return found


def needs(*capabilities):
    """What tests/capability.sh must find; the test is skipped by name where the machine lacks one."""
    asked = run(ROOT / "tests/capability.sh", *capabilities)
    if asked.returncode == 1:
        raise unittest.SkipTest(asked.stdout)
    if asked.returncode != 0:
        raise AssertionError(asked.stdout)


def module(name):
    """A package of tests/requirements.txt; the test is skipped by name where it is missing."""
    try:
        return importlib.import_module(name)
    except ImportError as missing:
        raise unittest.SkipTest(f"the Python package {missing.name} is not installed") from missing


def run(*command, timeout=120, **options):
    """Runs a command to its end; its output is text, both streams together unless said otherwise."""
    options.setdefault("stderr", subprocess.STDOUT)
    return subprocess.run(
        [str(word) for word in command], stdout=subprocess.PIPE, text=True, timeout=timeout, check=False, **options
    )


def help_of(program_name, command=None):
    """What --help of the program, or of a subcommand, prints."""
    words = [program(program_name)] + ([command] if command else []) + ["--help"]
    done = run(*words)
    if done.returncode != 0:
        raise AssertionError(f"{program_name} {command or ''} --help: {done.stdout}")
    return done.stdout


def main():
    """`script.py Class.method`: one test, so that ctest shows each by its name. Exits with SKIPPED where it was."""
    unittest_program = unittest.main(module="__main__", exit=False, verbosity=2)
    result = unittest_program.result
    if len(result.skipped) >= max(result.testsRun, 1):  # of a class that is skipped whole no test has run
        sys.exit(SKIPPED)
    sys.exit(0 if result.wasSuccessful() else 1)
