#!/usr/bin/env python3
"""Holds source files to a length that a reader keeps in mind: 500 lines.

file_lengths.py ROOT   of the repository

Where a file outgrows that, ask who owns what: the answer is the split. Prints each file that is longer, and each exception
that is none any more. Exit 1 where there is any.
"""

import sys
from pathlib import Path

FOLDERS = ("cmake", "common", "coordinator", "deploy", "kernels", "proto", "tests", "tier_node", "tools")
SUFFIXES = {".cpp", ".h", ".cu", ".cuh", ".py", ".sh", ".js", ".css", ".html", ".cmake", ".proto"}
MOST = 500

# Lists, which nobody reads from one end to the other.
EXCEPTIONS = {
    "tests/data/contract/contract.py": "a scalar reference of every weight type, one after the other",
    "tests/data/gguf/make_hostile.py": "a function for each hostile file",
}


def lengths(root):
    """{path below the root: lines}"""
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in SUFFIXES and path.is_file():
                yield path.relative_to(root).as_posix(), len(path.read_text(errors="replace").splitlines())


def violations(root, exceptions=None):
    left = dict(EXCEPTIONS if exceptions is None else exceptions)
    for name, n_lines in lengths(root):
        if n_lines > MOST and left.pop(name, None) is None:
            yield f"{name}: {n_lines} lines, at most {MOST}: ask who owns what, the answer is the split"
    for name in left:
        yield f"{name}: an exception of file_lengths.py that is not longer than {MOST} lines"


def main(arguments):
    if len(arguments) != 1:
        sys.exit(__doc__)
    found = list(violations(Path(arguments[0])))
    print(*found, sep="\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
