"""test_names.py reads what gtest_discover_tests() writes and names each test that another run might not have."""

import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import test_names  # noqa: E402

DISCOVERED = """
add_test([=[Plain.Runs]=]  /build/tests/plain_test [==[--gtest_filter=Plain.Runs]==] --gtest_also_run_disabled_tests)
set_tests_properties([=[Plain.Runs]=]  PROPERTIES WORKING_DIRECTORY /build/tests LABELS release)
add_test([=[All/Cases.Hold/of_0x10_bytes]=]  /build/tests/cases_test [==[--gtest_filter=All/Cases.Hold/0]==])
add_test([==[All/Cases.Hold/16-byte object <28-91 7F-52 E0-55 00-00]==]  /build/tests/cases_test)
add_test([=[All/Names.Hold/(0x5607872b1116 pointing to "q4_k_m", 1)]=]  /build/tests/cases_test)
add_test([=[All/Flags.Hold/On  # GetParam() = true]=]  /build/tests/cases_test)
"""


class Names(unittest.TestCase):
    def test_each_unsteady_name_is_told(self):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "tests").mkdir()
            (Path(folder) / "tests" / "cases_test[1]_tests.cmake").write_text(DISCOVERED)
            names = list(test_names.names(Path(folder)))
        self.assertEqual(len(names), 5)
        told = [line.split(": the name of a test holds ") for line in test_names.unsteady(names)]
        self.assertEqual(
            [(name[:15], what.split(";")[0]) for name, what in told],
            [
                ("All/Cases.Hold/", "the bytes of an object"),
                ("All/Names.Hold/", "an address"),
                ("All/Flags.Hold/", "what gtest prints of a parameter"),
            ],
        )


if __name__ == "__main__":
    unittest.main()
