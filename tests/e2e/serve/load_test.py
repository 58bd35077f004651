"""Many clients at once, some of which leave: no stuck slot, no wrong token, nothing left over."""
import json
import os
import random
import threading
import time
import unittest

import server
import support

CLIENTS = 64
SECONDS = float(os.environ.get("TERRACE_TEST_LOAD_SECONDS", "8"))  # tests/run.sh --full: minutes
SEED = 20261130
PROMPTS = ["Once upon a time", "The dog", "Lily went to the park", "One day", "Tom had a red ball", "A big bear"]
TOKENS = 24


def request(prompt, **options):
    return {"prompt": prompt, "temperature": 0, "n_predict": TOKENS, **options}


class Load(unittest.TestCase):
    def setUp(self):
        self.server = self.enterContext(server.serve("--slots", "8", "--queue", str(8 * CLIENTS), "--quiet"))
        self.alone = {p: self.server.post("/completion", request(p))[1]["content"] for p in PROMPTS}
        self.wrong = []
        self.done = 0
        self.left = 0
        self.lock = threading.Lock()

    def client(self, number):
        rng = random.Random(SEED + number)
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            prompt = rng.choice(PROMPTS)
            leaves_after = rng.choice([None, None, 0, 1, 300, 2000])  # bytes of the answer
            try:
                self.ask_once(prompt, leaves_after)
            except (OSError, ValueError) as error:
                with self.lock:
                    self.wrong.append(f"client {number}, {prompt!r}: {error!r}")

    def ask_once(self, prompt, leaves_after):
        with self.server.connect() as connection:
            connection.sendall(server.http_post("/completion", request(prompt, stream=True), "Connection: close\r\n"))
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
            if text != self.alone[prompt]:
                self.wrong.append(f"{prompt!r}: {text!r}, alone: {self.alone[prompt]!r}")

    def test_64_clients_with_random_cancels(self):
        threads = [threading.Thread(target=self.client, args=(i,)) for i in range(CLIENTS)]
        for thread in threads:
            thread.start()
        healthy = 0
        while any(thread.is_alive() for thread in threads):
            self.assertEqual(self.server.get("/health")[0], 200)
            self.assertEqual(self.server.get("/metrics")[0], 200)
            healthy += 1
            time.sleep(0.2)
        for thread in threads:
            thread.join()
        self.assertEqual(self.wrong[:5], [], f"seed {SEED}")
        self.assertGreater(self.done, 0)
        self.assertGreater(self.left, 0)
        server.wait_until(lambda: self.server.slots_in_use() == 0)
        for prompt in PROMPTS:
            self.assertEqual(self.server.post("/completion", request(prompt))[1]["content"], self.alone[prompt])
        print(f"{self.done} answers, {self.left} clients left, {healthy} looks at /health; seed {SEED}")


if __name__ == "__main__":
    support.main()
