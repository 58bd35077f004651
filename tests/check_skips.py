#!/usr/bin/env python3
"""Holds what ctest skipped against tests/skips.txt.

check_skips.py LOG...   what ctest printed in a run of tests

A test that the list names is skipped exactly where this machine lacks a capability (tests/capability.sh) that the list
says it needs; no other test is skipped. One that needs "itself" finds out more than can be asked before, and may also say
so. Prints both differences, and entries of the list that name no test. Exit 1 where
there is any.
"""

import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
# "  12/2345 Test   #12: Name ......   Passed    0.01 sec".
RESULT = re.compile(r"^\s*\d+/\d+ Test\s+#\d+: (.+?) \.*\s*(\*\*\*)?([A-Z][A-Za-z ]*?)\s+(?:[\d.]+ sec)?\s*$")


def read_list(path):
    """[(line number, pattern, {capability})]"""
    entries = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        words = line.split("#", 1)[0].split()
        if not words:
            continue
        if len(words) != 2:
            sys.exit(f"{path}:{number}: not a pattern and its capabilities: {line}")
        entries.append((number, re.compile(words[0]), set(words[1].split(","))))
    return entries


def results(logs):
    """{test: skipped}, of the last run of each."""
    tests = {}
    for log in logs:
        for line in log.read_text(errors="replace").splitlines():
            found = RESULT.match(line)
            if found:
                tests[found[1]] = found[3] == "Skipped"
    return tests


def lacking(names):
    lacks = {}
    for name in sorted(names):
        asked = subprocess.run([HERE / "capability.sh", name], stdout=subprocess.PIPE, text=True, check=False)
        if asked.returncode not in (0, 1):
            sys.exit(f"skips.txt: capability.sh does not know '{name}'")
        if asked.returncode == 1:
            lacks[name] = asked.stdout.strip()
    return lacks


def differences(entries, tests, lacks):
    """Lines, each a difference between the list and the run."""
    listed = {}  # test -> capabilities that it lacks; empty: it should have run
    free = set()
    for number, pattern, needs in entries:
        named = [test for test in tests if pattern.fullmatch(test)]
        if not named and not needs & lacks.keys() & {"card", "cards2"}:  # tests on a card exist only where nvcc is
            yield f"skips.txt:{number}: no test has the name {pattern.pattern}"
        for test in named:
            listed.setdefault(test, set()).update(needs & lacks.keys())
            if "itself" in needs:
                free.add(test)
    for test, skipped in sorted(tests.items()):
        missing = listed.get(test)
        if skipped and missing is None:
            yield f"skipped, and tests/skips.txt does not name it: {test}"
        elif skipped and not missing and test not in free:
            yield f"skipped, though this machine has what tests/skips.txt says it needs: {test}"
        elif missing and not skipped:
            yield f"ran, though tests/skips.txt says that it needs {', '.join(sorted(missing))}: {test}"


def main(arguments):
    if not arguments:
        sys.exit(__doc__)
    entries = read_list(HERE / "skips.txt")
    tests = results([Path(argument) for argument in arguments])
    if not tests:
        sys.exit("no results of tests in " + " ".join(arguments))
    lacks = lacking(set().union(*(needs for _, _, needs in entries)))
    for name, why in lacks.items():
        print("this machine lacks", why or name)
    found = list(differences(entries, tests, lacks))
    print(f"{sum(tests.values())} of {len(tests)} tests skipped, {len(found)} differences to tests/skips.txt")
    for line in found:
        print(" ", line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
