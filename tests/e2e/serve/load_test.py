"""Many clients at once, some of which leave: no stuck slot, no wrong token, nothing left over.

TERRACE_TEST_LOAD_SECONDS says for how long; tests/run.sh --full sets minutes."""
import json
import os
import random
import re
import threading
import time
import unittest

import server
import support

CLIENTS = 64
SECONDS = float(os.environ.get("TERRACE_TEST_LOAD_SECONDS", "5"))
SEED = 20261130
PROMPTS = ["Once upon a time", "The dog", "Lily went to the park", "One day", "Tom had a red ball", "A big bear"]
TOKENS = 24
# Ways to ask: plain, held by a grammar that all its streams share, and with random tokens of a fixed seed.
WAYS = [{}, {"grammar": 'root ::= [a-z .,]+ "!"'}, {"temperature": 1, "seed": 7}]
# What a server that has run for a while may still grow by: allocators keep what they were given.
MAX_GROWTH = 96 << 20  # bytes


def request(prompt, **options):
    return {"prompt": prompt, "temperature": 0, "n_predict": TOKENS, **options}


class Load(unittest.TestCase):
    def setUp(self):
        self.server = self.enterContext(server.serve("--slots", "8", "--queue", str(8 * CLIENTS), "--quiet"))
        self.alone = self.answers()
        self.wrong = []
        self.done = 0
        self.left = 0
        self.lock = threading.Lock()

    def answers(self):
        """What each prompt is answered in each way, alone."""
        return {
            (prompt, way): self.server.post("/completion", request(prompt, **WAYS[way]))[1]["content"]
            for prompt in PROMPTS
            for way in range(len(WAYS))
        }

    def gauge(self, name):
        text = self.server.get("/metrics")[1]
        return float(re.search(rf"^{name} (\S+)$", text, re.MULTILINE).group(1))

    def client(self, number):
        rng = random.Random(SEED + number)
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            asked = rng.choice(PROMPTS), rng.randrange(len(WAYS))
            leaves_after = rng.choice([None, None, 0, 1, 300, 2000])  # bytes of the answer
            try:
                self.ask_once(asked, leaves_after)
            except (OSError, ValueError) as error:
                with self.lock:
                    self.wrong.append(f"client {number}, {asked!r}: {error!r}")

    def ask_once(self, asked, leaves_after):
        prompt, way = asked
        with self.server.connect() as connection:
            body = request(prompt, stream=True, **WAYS[way])
            connection.sendall(server.http_post("/completion", body, "Connection: close\r\n"))
            received = b""
            while leaves_after is None or len(received) < leaves_after:
                piece = connection.recv(65536)
                if not piece:
                    break
                received += piece
        if leaves_after is not None:
            with self.lock:
                self.left += 1
            return
        if not received.startswith(b"HTTP/1.1 200 "):
            raise ValueError(received)
        text = "".join(
            json.loads(line[6:])["content"] for line in received.decode().splitlines() if line.startswith("data: {")
        )
        with self.lock:
            self.done += 1
            if text != self.alone[asked]:
                self.wrong.append(f"{asked!r}: {text!r}, alone: {self.alone[asked]!r}")

    def test_64_clients_with_random_cancels(self):
        files = self.gauge("process_open_fds")
        warm = None  # bytes, once a quarter of the time is over
        begin = time.monotonic()
        threads = [threading.Thread(target=self.client, args=(i,)) for i in range(CLIENTS)]
        for thread in threads:
            thread.start()
        healthy = 0
        while any(thread.is_alive() for thread in threads):
            self.assertEqual(self.server.get("/health")[0], 200)
            self.assertEqual(self.server.get("/metrics")[0], 200)
            healthy += 1
            if warm is None and time.monotonic() - begin > SECONDS / 4:
                warm = self.gauge("process_resident_memory_bytes")
            time.sleep(0.2)
        for thread in threads:
            thread.join()
        self.assertEqual(self.wrong[:5], [], f"seed {SEED}")
        self.assertGreater(self.done, 0)
        self.assertGreater(self.left, 0)
        server.wait_until(lambda: self.server.slots_in_use() == 0)
        self.assertEqual(self.answers(), self.alone)
        server.wait_until(lambda: self.gauge("terrace_http_open_requests") == 1)  # the one that asks
        server.wait_until(lambda: self.gauge("process_open_fds") <= files)
        self.assertLess(self.gauge("process_resident_memory_bytes") - warm, MAX_GROWTH)
        print(f"{self.done} answers, {self.left} clients left, {healthy} looks at /health; seed {SEED}")


if __name__ == "__main__":
    support.main()
