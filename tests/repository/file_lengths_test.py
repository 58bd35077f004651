"""file_lengths.py names each file that is too long, and each exception that is none any more."""

import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import file_lengths  # noqa: E402

FILES = {
    "common/base/result.h": 500,
    "coordinator/app/main.cpp": 501,
    "tests/data/list.py": 700,
    "tests/data/tokens.json": 9000,
    "tests/unit/short_test.cpp": 3,
}


class Lengths(unittest.TestCase):
    def test_each_long_file_and_each_idle_exception_is_named(self):
        exceptions = {"tests/data/list.py": "a list", "tests/unit/short_test.cpp": "was one"}
        with tempfile.TemporaryDirectory() as folder:
            for name, n_lines in FILES.items():
                path = Path(folder) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text("\n" * n_lines)
            told = [line.split(":")[0] for line in file_lengths.violations(Path(folder), exceptions)]
        self.assertEqual(told, ["coordinator/app/main.cpp", "tests/unit/short_test.cpp"])


if __name__ == "__main__":
    unittest.main()
