"""tests/check_skips.py reads what ctest prints and names each difference to the list."""

import re
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import check_skips  # noqa: E402

LOG = """
        Start    1: Plain.Runs
  1/6 Test    #1: Plain.Runs ..............................................   Passed    0.01 sec
  2/6 Test    #2: Isas/Dots.Equal/avx512 ..................................***Skipped   0.01 sec
  3/6 Test   #33: Card.Multiplies .........................................***Skipped   0.02 sec
  4/6 Test    #4: Names.MayBeSoLongThatNoDotFollows/AndASpace .............   Passed   12.01 sec
  5/6 Test    #5: Links.Over ..............................................***Failed    0.10 sec
  6/6 Test    #6: Disks.Full ..............................................   Passed    0.01 sec
"""


class Differences(unittest.TestCase):
    def results(self):
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder) / "log"
            log.write_text(LOG)
            return check_skips.results([log])

    def differences(self, entries, lacks):
        listed = [(n, re.compile(pattern), set(needs)) for n, (pattern, needs) in enumerate(entries, 1)]
        return list(check_skips.differences(listed, self.results(), lacks))

    def test_results_are_each_tests(self):
        tests = self.results()
        self.assertEqual(sorted(name for name, skipped in tests.items() if skipped), ["Card.Multiplies", "Isas/Dots.Equal/avx512"])
        self.assertEqual(len(tests), 6)
        self.assertIn("Names.MayBeSoLongThatNoDotFollows/AndASpace", tests)

    def test_list_and_run_agree(self):
        agreed = [("Isas/.*", ["avx512"]), (r"Card\..*", ["card"]), (r"CardLegs\..*", ["cards2"]),
                  (r"Disks\..*", ["mount"])]
        self.assertEqual(self.differences(agreed, {"avx512": "", "card": "", "cards2": ""}), [])

    def test_what_only_the_test_can_find_out_may_be_skipped(self):
        entries = [("Isas/.*", ["avx512"]), (r"Card\..*", ["tool:x", "itself"]), (r"Disks\..*", ["itself"])]
        self.assertEqual(self.differences(entries, {"avx512": ""}), [])

    def test_each_difference_is_named(self):
        self.assertEqual(
            self.differences([("Isas/.*", ["avx512"]), (r"Disks\..*", ["mount", "root"]), ("Gone", ["root"])],
                             {"mount": ""}),
            [
                "skips.txt:3: no test has the name Gone",
                "skipped, and tests/skips.txt does not name it: Card.Multiplies",
                "ran, though tests/skips.txt says that it needs mount: Disks.Full",
                "skipped, though this machine has what tests/skips.txt says it needs: Isas/Dots.Equal/avx512",
            ],
        )


if __name__ == "__main__":
    unittest.main()
