"""deploy/demo.sh as a newcomer calls it, with the programs as they are built."""

import re
import unittest

import support


class Demo(unittest.TestCase):
    def test_a_node_killed_half_way_changes_no_byte_and_comes_back(self):
        done = support.run(support.DEPLOY / "demo.sh", "--built", support.program("terrace").parent, timeout=500)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertRegex(done.stdout, r" \[demo: kill -9 127\.0\.0\.1:\d+\] ")
        self.assertRegex(done.stdout, r"127\.0\.0\.1:\d+: back after")
        # The table of sessions: its head, and one row whose columns are as far from the end as the head's.
        table = re.search(r"did for it\nsessions\n.* pairs +sent +received +compute +data links\n(.*)\n\n", done.stdout)
        self.assertIsNotNone(table, done.stdout)
        self.assertGreater(int(table[1].split()[-6]), 0, table[1])
        last = done.stdout.splitlines()[-1]
        self.assertEqual(last, "demo: both texts equal those told without any node, byte for byte")


if __name__ == "__main__":
    support.main()
