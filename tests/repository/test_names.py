#!/usr/bin/env python3
"""Holds the names that ctest knows tests by: each is the same in every run and every build.

test_names.py BUILD   a build folder, whose files *_tests.cmake gtest_discover_tests() wrote

gtest prints a parameter that it has no words for as its bytes, and a pointer as an address; where programs are loaded
differs from run to run. So no name holds an address, bytes, or what gtest says of a parameter at all: a suite with
parameters has a function that names them. Prints each name that does. Exit 1 where there is any.
"""

import re
import sys
from pathlib import Path

# add_test([=[Suite.Test/case]=] program ...
NAME = re.compile(r"^add_test\(\[(=*)\[(.*?)\]\1\]", re.M)
UNSTEADY = (
    (re.compile(r"0x[0-9a-fA-F]{8,}"), "an address"),
    (re.compile(r"-byte object <"), "the bytes of an object"),
    (re.compile(r"GetParam\(\)"), "what gtest prints of a parameter"),
)


def names(build):
    for path in sorted(build.rglob("*_tests.cmake")):
        for found in NAME.finditer(path.read_text(errors="replace")):
            yield found[2]


def unsteady(all_names):
    """Lines, each a name that another run might not have."""
    for name in all_names:
        what = next((what for pattern, what in UNSTEADY if pattern.search(name)), None)
        if what:
            yield f"{name}: the name of a test holds {what}; name the suite's parameters"


def main(arguments):
    if len(arguments) != 1:
        sys.exit(__doc__)
    all_names = list(names(Path(arguments[0])))
    if not all_names:
        sys.exit(f"{arguments[0]}: no tests were discovered there")
    found = list(unsteady(all_names))
    print(*found, f"{len(all_names)} names, {len(found)} of them unsteady", sep="\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
