#!/usr/bin/env python3
"""deploy/nftables: what nft itself makes of the rule, in a network namespace of the test's own."""

import re
import shutil
import unittest

import support

RULES = support.DEPLOY / "nftables/terrace-ucx.nft"


class Firewall(unittest.TestCase):
    def setUp(self):
        self.nft = support.tool(shutil.which("nft", path="/usr/sbin:/sbin:/usr/bin:/bin") or "nft")
        support.needs("root", "nft")

    def load(self, *more):
        return support.run("unshare", "-n", "sh", "-ec", f"{self.nft} -f {RULES}; {'; '.join(more)}")

    def test_rule_loads_and_loads_again(self):
        done = self.load(f"{self.nft} -f {RULES}", f"{self.nft} list ruleset")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual(done.stdout.count("drop"), 1, done.stdout)

    def test_ports_are_those_of_the_programs(self):
        default = re.search(r"--ucx-ports.*?(\d+-\d+)", support.help_of("terrace-node"), re.S).group(1)
        self.assertIn(f"define ucx_ports = {default}\n", RULES.read_text())


if __name__ == "__main__":
    support.main()
