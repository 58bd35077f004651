"""docs/operations.md: its commands are ones that the programs take, and what it names exists. docs/performance.md: each
section says how its figures were made."""

import re
import unittest

import commands
import support
import units

TEXT = (support.ROOT / "docs/operations.md").read_text()
SUBCOMMANDS = ("generate", "serve", "plan", "status", "selftest")


def code_blocks():
    return re.findall(r"^```\n(.*?)^```$", TEXT, re.M | re.S)


class Operations(unittest.TestCase):
    def test_each_command_of_ours_is_one_that_its_program_takes(self):
        found = [words for block in code_blocks() for words in commands.in_shell(block)]
        found += [
            words
            for inline in re.findall(r"`(terrace(?:-node)? -?[^`]+)`", TEXT)
            for words in commands.in_shell(inline)
        ]
        self.assertGreater(len(found), 5)
        for words in found:
            if words[1:] not in ([command] for command in SUBCOMMANDS):  # only named, not called
                commands.check(self, words, "docs/operations.md")

    def test_each_flag_of_ours_exists(self):
        known = support.help_of("terrace-node")
        known += "".join(support.help_of("terrace", command) for command in SUBCOMMANDS)
        for flag in re.findall(r"`(--[a-z][a-z-]+)", TEXT):
            self.assertRegex(known, rf"{flag}\b", flag)

    def test_the_commands_that_are_said_to_have_a_flag_have_it_and_no_other_has(self):
        said = re.search(r"`--trace FILE` of `terrace (\w+)`((?:, `\w+`)*) and `(\w+)`", TEXT)
        self.assertTrue(said)
        commands_said = {said[1], *re.findall(r"\w+", said[2]), said[3]}
        every = re.findall(r"^  (\w+) +[A-Z]", support.help_of("terrace"), re.M)
        self.assertGreater(len(every), 10)
        self.assertEqual(commands_said, {one for one in every if "--trace" in support.help_of("terrace", one)})

    def test_each_file_of_the_tree_exists(self):
        named = set(re.findall(r"(?<![\w/])((?:deploy|tests|docs)/[\w./-]*\w)", TEXT))
        self.assertGreater(len(named), 10)
        for path in named:
            self.assertTrue(
                (support.ROOT / path).exists() or path.endswith("/api-keys") or "inventory.yml" in path, path
            )

    def test_each_alert_says_what_to_do_and_each_advice_has_its_alert(self):
        alerts = re.findall(r"alert: (\w+)", (support.DEPLOY / "prometheus/alerts.yml").read_text())
        self.assertEqual(re.findall(r"^\| (Terrace\w+) \|", TEXT, re.M), alerts)

    def test_times_to_stop_are_those_of_the_units(self):
        said = f"({units.stop_seconds('terrace-node')} s for a node, {units.stop_seconds('terrace')} s for the server)"
        self.assertIn(said, TEXT)


class Performance(unittest.TestCase):
    def test_each_section_begins_with_machine_command_date_and_commit(self):
        text = (support.ROOT / "docs/performance.md").read_text()
        machines, *sections = re.split(r"^## ", text, flags=re.M)[1:]
        named = re.findall(r"^\| (M\d) \|", machines, re.M)
        self.assertGreater(len(sections), 10)
        for section in sections:
            heading, _, body = section.partition("\n\n")
            rows = re.match(
                r"\| \| \|\n\|---\|---\|\n\| Machine \| (\w+).*\n\| Command \| .+\n"
                r"\| Date \| \d{4}-\d\d-\d\d.*\n\| Commit \| .+\n",
                body,
            )
            self.assertTrue(rows, heading)
            self.assertIn(rows[1], [*named, "any"], heading)


if __name__ == "__main__":
    support.main()
