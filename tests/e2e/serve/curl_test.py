"""The lines of curl in docs/http.md, run by curl as they stand, but for the server's port."""
import json
import re
import subprocess
import unittest

import server
import support

ADDRESS = "http://127.0.0.1:8080"


def transcript():
    """(command, what its answer has) of each line of the section."""
    text = (server.ROOT / "docs/http.md").read_text(encoding="utf-8")
    section = text[text.index("## With curl") :]
    block = section[section.index("```\n") + 4 :]
    lines = block[: block.index("```")].splitlines()
    return [re.fullmatch(r"(curl .*\S)\s+# (.+)", line).groups() for line in lines]


def without_spaces(text):
    """As JSON is written without spaces between its tokens."""
    return re.sub(r"(?<=[:,]) ", "", text)


class Curl(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        support.tool("curl")
        cls.server = cls.enterClassContext(server.serve("--slots", "2"))

    def test_each_line_of_the_documents_is_answered_as_they_say(self):
        lines = transcript()
        self.assertGreater(len(lines), 15)
        for command, has in lines:
            with self.subTest(command):
                self.assertIn(ADDRESS, command)
                command = command.replace(ADDRESS, self.server.url)
                done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=server.PATIENCE)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIn(without_spaces(has), without_spaces(done.stdout))
                if done.stdout.startswith("{"):
                    json.loads(done.stdout)

    def test_every_route_that_answers_json_has_a_line(self):
        said = " ".join(command for command, _ in transcript())
        for route in ("/health", "/v1/models", "/props", "/slots", "/metrics", "/v1/chat/completions", "/v1/completions",
                      "/completion", "/v1/responses", "/v1/messages", "/v1/messages/count_tokens", "/tokenize",
                      "/detokenize", "/apply-template"):
            self.assertIn(f"{ADDRESS}{route} ", said)


if __name__ == "__main__":
    support.main()
