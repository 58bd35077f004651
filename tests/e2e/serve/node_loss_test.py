"""A node that dies while `terrace serve` answers: every stream says what it says alone, nobody gets an error, and the
node is used again once it is back."""
import json
import signal
import threading
import unittest

import server
import support

STREAMS = 8
TOKENS = 1000  # of each stream: the node dies and is back well before the first one ends
PIECES_BEFORE = 10  # of each stream, before the node dies
PIECES_AFTER = 50  # of each stream, from there on that the loss is known
PROMPTS = ["Once upon a time", "The dog", "Lily went to the park", "One day", "Tom had a red ball", "A big bear",
           "In the forest", "My friend"]  # fmt: skip


def request(prompt, n_predict, **options):
    return {"prompt": prompt, "temperature": 0, "ignore_eos": True, "n_predict": n_predict, **options}


class Stream(threading.Thread):
    """One streamed reply, read to its end."""

    def __init__(self, served, prompt):
        super().__init__()
        self.prompt = prompt
        self.pieces = []
        self.begun = threading.Event()
        self.wrong = "it has no last event"
        self._connection = served.connect()
        self.start()

    def run(self):
        try:
            with self._connection as connection:
                body = request(self.prompt, TOKENS, stream=True)
                connection.sendall(server.http_post("/completion", body, "Connection: close\r\n"))
                with connection.makefile("r", encoding="utf-8", newline="\n") as lines:
                    self._read(lines)
        except (OSError, ValueError, KeyError) as error:
            self.wrong = repr(error)
        self.begun.set()

    def _read(self, lines):
        for line in lines:
            if line.startswith("error:") or '"error"' in line:
                self.wrong = line
                return
            if line.startswith("data: {"):
                event = json.loads(line[6:])
                self.pieces.append(event["content"])
                if event["stop"]:
                    self.wrong = None
            if len(self.pieces) >= PIECES_BEFORE:
                self.begun.set()

    @property
    def text(self):
        return "".join(self.pieces)


class NodeLoss(unittest.TestCase):
    def setUp(self):
        first = self.enterContext(server.programs.node("--threads", "1", "--data-port", "0"))
        self.address = first.address
        self.other = self.enterContext(server.programs.node("--threads", "1")).address
        self.first = first
        self.served = self.enterContext(
            server.serve("--slots", str(STREAMS), "--log-json", "--node", self.address, "--node", self.other)
        )

    def leg(self):
        legs = self.served.get("/tiers")[1]["legs"]
        return next(leg for leg in legs if leg["name"] == self.address)

    def streams(self):
        streams = [Stream(self.served, prompt) for prompt in PROMPTS]
        for stream in streams:
            self.assertTrue(stream.begun.wait(server.PATIENCE))
        return streams

    def restart_node(self):
        command = [support.program("terrace-node"), "--listen", self.address, "--data-port", "0", "--threads", "1"]
        self.enterContext(server.programs.running(command, "listening on "))

    def read_to_the_end(self, streams):
        for stream in streams:
            stream.join(4 * server.PATIENCE)
            self.assertFalse(stream.is_alive())
            self.assertIsNone(stream.wrong)

    def expect_what_each_says_alone(self, streams):
        with server.serve("--slots", "1", "--quiet") as alone:
            for stream in streams:
                answer = alone.post("/completion", request(stream.prompt, TOKENS))[1]
                self.assertEqual(answer["tokens_predicted"], TOKENS)
                self.assertEqual(stream.text, answer["content"])

    def expect_both_in_the_log(self):
        """With --log-json each line is an object; but for the one that programs wait for (cli.md)."""
        lines = [line for line in self.served.log().splitlines() if not line.startswith("listening on ")]
        events = [json.loads(line) for line in lines]
        for begins in (f"{self.address}: the node is lost", f"{self.address}: back after "):
            found = [event for event in events if event["text"].startswith(begins)]
            self.assertEqual([event["level"] for event in found], ["warning"], events)

    def test_node_killed_and_restarted_while_8_streams_run(self):
        self.assertEqual(self.served.get("/health")[1], {"status": "ok"})
        streams = self.streams()
        pairs = self.leg()["pairs"]
        self.assertGreater(pairs, 0)
        self.assertTrue(all(stream.is_alive() for stream in streams))
        self.first.stop(signal.SIGKILL)
        server.wait_until(lambda: self.served.get("/health")[1].get("nodes_lost") == 1)
        status, health, _ = self.served.get("/health")
        self.assertEqual((status, health["status"], health["nodes"]), (200, "degraded", 2))
        self.assertEqual(self.leg()["state"], "lost")
        self.assertIn("the node is lost", self.leg()["reason"])
        server.wait_until(lambda: self.leg()["experts"] == 0)
        told = [len(stream.pieces) for stream in streams]
        server.wait_until(lambda: all(len(s.pieces) > n + PIECES_AFTER for s, n in zip(streams, told)))

        self.restart_node()
        server.wait_until(lambda: self.served.get("/health")[1] == {"status": "ok"})
        leg = self.leg()
        self.assertEqual((leg["state"], leg["losses"], leg["rejoins"]), ("ok", 1, 1))
        server.wait_until(lambda: self.leg()["pairs"] > leg["pairs"])
        self.assertTrue(all(stream.is_alive() for stream in streams), "the node came back too late")
        self.read_to_the_end(streams)
        self.expect_what_each_says_alone(streams)

        metrics = self.served.get("/metrics")[1]
        labels = f'{{leg="{self.address}",kind="node"}}'
        for line in (
            f"terrace_leg_up{labels} 1",
            f"terrace_leg_losses_total{labels} 1",
            f"terrace_leg_rejoins_total{labels} 1",
        ):
            self.assertIn(line, metrics)
        self.assertIn("terrace_steps_failed_total 0", metrics)
        self.expect_both_in_the_log()

    def test_node_killed_while_nobody_asks(self):
        body = request(PROMPTS[0], 20)
        before = self.served.post("/completion", body)[1]["content"]
        self.first.stop(signal.SIGKILL)
        server.wait_until(lambda: self.served.get("/health")[1].get("nodes_lost") == 1)
        self.assertEqual(self.served.post("/completion", body)[1]["content"], before)
        self.restart_node()
        server.wait_until(lambda: self.served.get("/health")[1] == {"status": "ok"})
        self.assertEqual(self.served.post("/completion", {**body, "cache_prompt": False})[1]["content"], before)
        self.assertEqual(self.leg()["rejoins"], 1)


if __name__ == "__main__":
    support.main()
