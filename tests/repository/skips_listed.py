#!/usr/bin/env python3
"""Holds the sources of tests against tests/skips.txt: a test that may skip itself has an entry there.

skips_listed.py ROOT   of the repository

check_skips.py sees what was skipped on one machine; a test that runs there and is skipped elsewhere is found here. A
place in the sources is named by the test around it, or by the suite where it stands in a fixture; an entry's pattern must
name that test, or the suite. Prints each place without an entry. Exit 1 where there is any.
"""

import re
import sys
from pathlib import Path

CPP_SKIP = re.compile(r"GTEST_SKIP\(\)|^\s*(\w*RUN_ON_DISK)\(", re.M)
CPP_TEST = re.compile(r"^TEST(?:_F|_P)?\((\w+),\s*(\w+)\)", re.M)
CPP_CLASS = re.compile(r"^class (\w+)\b[^;]*\{", re.M)
PYTHON_SKIP = re.compile(r"skipTest\(|SkipTest\(|support\.(?:tool|module|needs)\(|recorded_answers\(\)")
PYTHON_CLASS = re.compile(r"^class (\w+)\(.*TestCase", re.M)
# Under AddressSanitizer alone (tests/skips.txt says why).
SANITIZER = re.compile(r"#ifdef __SANITIZE_ADDRESS__\s*$")


def last(pattern, text, end):
    found = None
    for found in pattern.finditer(text, 0, end):
        pass
    return found


def places_of_cpp(text):
    """(suite, test or None) of each place that skips."""
    for skip in CPP_SKIP.finditer(text):
        before = text[: skip.start()]
        if before.rstrip(" ").endswith("// ") or SANITIZER.search(before.rstrip()):
            continue
        if re.search(r"(#define[^\n]*(\\\n[^\n]*)*|//[^\n]*)$", before):
            continue  # a macro, whose uses count, or a comment
        test, fixture = last(CPP_TEST, text, skip.start()), last(CPP_CLASS, text, skip.start())
        if test and (not fixture or test.start() > fixture.start()):
            yield test[1], test[2]
        elif fixture:
            yield fixture[1], None


def places_of_python(text):
    for skip in PYTHON_SKIP.finditer(text):
        around = last(PYTHON_CLASS, text, skip.start())
        if around:
            yield around[1], None


def matches(pattern, name):
    """Whether this part of an entry is a pattern, and one of the whole name."""
    try:
        return re.fullmatch(pattern, name) is not None
    except re.error:
        return False  # half of a group


def is_listed(suite, test, patterns):
    """Of ctest's "Prefix/Suite.Test/parameter" and, of Python's classes, "Serve.Class" the source has the middle."""
    word = re.compile(rf"(?<![A-Za-z]){re.escape(suite)}(?![A-Za-z])")
    for pattern in patterns:
        middle = re.sub(r"^[\w.*]+/", "", pattern)
        if test is None:
            parts = middle.split(r"\.")
            if word.search(pattern) or matches(parts[parts[0] in ("Serve", "Deploy")], suite):
                return True
        elif matches(middle, f"{suite}.{test}") or matches(middle.rpartition("/")[0], f"{suite}.{test}"):
            return True
    return False


def heirs_of(suite, texts):
    """Fixtures that have this one's SetUp()."""
    return [name for text in texts for name in re.findall(rf"^class (\w+) [^;{{]*\b{suite}\b", text, re.M)]


def unlisted(root):
    """Lines, each a place that skips and has no entry."""
    lines = (root / "tests/skips.txt").read_text().splitlines()
    patterns = [line.split()[0] for line in lines if line.split("#", 1)[0].split()]
    texts = {
        path: path.read_text()
        for path in sorted((root / "tests").rglob("*"))
        if path.suffix in (".cpp", ".h", ".py") and path.parent.name != "repository"
    }
    for path, text in texts.items():
        for suite, test in (places_of_python if path.suffix == ".py" else places_of_cpp)(text):
            around = texts.values() if path.suffix == ".h" else [text]
            is_base = test is None and path.suffix != ".py" and not re.search(rf"^TEST_[FP]\({suite},", text, re.M)
            for each in heirs_of(suite, around) if is_base else [suite]:
                if not is_listed(each, test, patterns):
                    yield f"{path.relative_to(root)}: {each}.{test or '*'} skips, and tests/skips.txt does not name it"


def main(arguments):
    if len(arguments) != 1:
        sys.exit(__doc__)
    found = sorted(set(unlisted(Path(arguments[0]))))
    print(*found, sep="\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
