"""`terrace serve` over plain sockets: loading and stopping, keys, limits, leaving clients, the shapes of answers."""
import functools
import json
import re
import resource
import signal
import unittest

import server  # first: it finds programs and support
import support

ROUTES = (
    ("GET", "/v1/models"),
    ("GET", "/models"),
    ("GET", "/props"),
    ("GET", "/slots"),
    ("GET", "/metrics"),
    ("GET", "/tiers"),
    ("POST", "/v1/chat/completions"),
    ("POST", "/v1/completions"),
    ("POST", "/completion"),
    ("POST", "/completions"),
    ("POST", "/v1/responses"),
    ("POST", "/v1/messages"),
    ("POST", "/v1/messages/count_tokens"),
    ("POST", "/tokenize"),
    ("POST", "/detokenize"),
    ("POST", "/apply-template"),
    ("POST", "/slots/0?action=erase"),
    ("POST", "/v1/embeddings"),
    ("GET", "/nosuch"),
)
GREEDY = {"prompt": "Once upon a time", "temperature": 0}
ENDLESS = {"prompt": "Once", "ignore_eos": True, "n_predict": -1}  # ends with the context at the earliest


def read_first_event(connection):
    """Of a stream: its head and what came until a first event is there."""
    received = b""
    while b"data: " not in received:
        piece = connection.recv(65536)
        if not piece:
            raise AssertionError(f"the stream ended: {received}")
        received += piece
    return received


def read_all(connection):
    received = b""
    while piece := connection.recv(65536):
        received += piece
    return received


class Life(unittest.TestCase):
    def test_stop_ends_a_stream_with_an_event_and_the_program_with_0(self):
        with server.serve("--stop-timeout", "200ms") as one, one.connect() as connection:
            connection.sendall(server.http_post("/completion", {**ENDLESS, "stream": True}))
            received = read_first_event(connection)
            self.assertEqual(one.stop(signal.SIGTERM), 0, one.log())
            received += read_all(connection)
            # Nothing is lost of the framing; the last event is the stop's own, or the context was full first.
            self.assertTrue(received.endswith(b"0\r\n\r\n"), received[-300:])
            last = json.loads(received[received.rindex(b"data: ") + 6 : received.rindex(b"\n\n")])
            self.assertTrue(last.get("truncated") or last["error"]["type"] == "unavailable_error", last)

    def test_stop_lets_a_short_request_finish(self):
        with server.serve() as one, one.connect() as connection:
            connection.sendall(server.http_post("/v1/completions", {**GREEDY, "max_tokens": 200, "stream": True}))
            received = read_first_event(connection)
            self.assertEqual(one.stop(signal.SIGTERM), 0, one.log())
            received += read_all(connection)
            self.assertIn(b"data: [DONE]", received)

    def test_stop_without_requests_ends_with_0(self):
        with server.serve() as one:
            self.assertEqual(one.stop(signal.SIGTERM), 0, one.log())

    def test_beyond_this_machine_a_key_is_asked_for(self):
        done = support.run(support.program("terrace"), "serve", "--host", "0.0.0.0", "--port", "0")
        self.assertEqual(done.returncode, 2, done.stdout)
        self.assertIn("--api-key-file", done.stdout)
        self.assertIn("--no-api-key", done.stdout)

    def test_port_in_use_is_named(self):
        with server.serve() as one:
            port = one.address[1]
            done = support.run(support.program("terrace"), "serve", "--port", port, "--model", server.MODEL)
            self.assertEqual(done.returncode, 1, done.stdout)
            self.assertIn(str(port), done.stdout)


class OpenFiles(unittest.TestCase):
    """A class of its own: only one that is skipped whole is a skipped test of ctest's."""

    def test_limit_of_open_files_is_raised_to_what_connections_need(self):
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        if hard != resource.RLIM_INFINITY and hard < 2048:
            self.skipTest(f"this process may not open 2,048 files but {hard}")
        few = functools.partial(resource.setrlimit, resource.RLIMIT_NOFILE, (64, 2048))
        with server.serve("--max-connections", "300", preexec_fn=few) as one:
            connections = [one.connect() for _ in range(200)]
            self.assertEqual(one.get("/health")[0], 200)
            for connection in connections:
                connection.close()
        with server.serve("--max-connections", "3000", preexec_fn=few) as one:
            self.assertIn("--max-connections 3000 needs 3512 open files and the system allows 2048", one.log())


class Keys(unittest.TestCase):
    def test_each_route_but_health_and_the_page_needs_one(self):
        with server.write_keys("sk-one", "sk-two") as keys, server.serve("--api-key-file", keys.name) as one:
            for method, path in ROUTES:
                body = {} if method == "POST" else None
                for headers in ({}, {"Authorization": "Bearer wrong"}, {"X-Api-Key": "sk-onetwo"}):
                    status, answer, _ = one.ask(method, path, body, headers)
                    self.assertEqual(status, 401, (method, path, headers))
                    error = answer["error"]
                    self.assertEqual(error["type"], "authentication_error", path)
                for headers in ({"Authorization": "Bearer sk-one"}, {"X-Api-Key": "sk-two"}):
                    self.assertNotEqual(one.ask(method, path, body, headers)[0], 401, (method, path))
            for path in ("/", "/health", "/v1/health", "/health/live", "/health/ready"):
                self.assertEqual(one.get(path)[0], 200, path)
            self.assertNotIn("sk-one", one.log())


class Clients(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(server.serve("--slots", "2", "--queue", "1", "--max-body", "64K"))

    def test_client_that_leaves_frees_its_slot(self):
        for _ in range(5):
            with self.server.connect() as connection:
                connection.sendall(server.http_post("/completion", {**ENDLESS, "stream": True}))
                self.assertIn(b"200 OK", read_first_event(connection))
            server.wait_until(lambda: self.server.slots_in_use() == 0)

    def test_client_that_leaves_before_its_answer_frees_its_slot(self):
        for _ in range(5):
            with self.server.connect() as connection:
                connection.sendall(server.http_post("/completion", ENDLESS))
                server.wait_until(lambda: self.server.slots_in_use() == 1)
            server.wait_until(lambda: self.server.slots_in_use() == 0)

    def test_malformed_requests_leave_the_server_well(self):
        for junk, status in (
            (b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\r\n\r\n", b"400"),
            (b"GET / HTTP/1.1\r\n\r\n", b"400"),
            (b"POST /completion HTTP/1.1\r\nHost: localhost\r\nContent-Length: 70000\r\n\r\n", b"413"),
            (b"POST /completion HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n", b"400"),
            (b"GET /health HTTP/1.1\r\nHost: localhost\r\nA: " + b"a" * 20000 + b"\r\n\r\n", b"431"),
        ):
            with self.server.connect() as connection:
                connection.sendall(junk)
                self.assertTrue(connection.recv(65536).startswith(b"HTTP/1.1 " + status), junk[:60])
        for body in (b"", b"{", b"[" * 60000, b"null", b'"text"', b"\xff\xfe", b'{"prompt":' + b'"' + b"a" * 50000):
            status, _, _ = self.raw_post("/completion", body)
            self.assertEqual(status, 400, body[:40])
        self.assertEqual(self.server.get("/health")[0], 200)

    def raw_post(self, path, body):
        with self.server.connect() as connection:
            head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
            connection.sendall(head.encode() + body)
            received = read_all(connection)
        head, _, body = received.partition(b"\r\n\r\n")
        return int(head.split()[1]), body, head

    def test_full_queue_is_503_with_a_time_to_come_back(self):
        connections = [self.server.connect() for _ in range(12)]  # two run, one waits
        refused = 0
        try:
            for connection in connections:
                connection.sendall(server.http_post("/completion", {**ENDLESS, "stream": True}))
            for connection in connections:
                answer = connection.recv(65536)
                if answer.startswith(b"HTTP/1.1 503 "):
                    refused += 1
                    self.assertRegex(answer, rb"\r\nRetry-After: [1-9]")
                    self.assertIn(b'"unavailable_error"', answer)
                else:
                    self.assertTrue(answer.startswith(b"HTTP/1.1 200 "), answer)
                connection.close()
        finally:
            for connection in connections:
                connection.close()
        self.assertGreater(refused, 0)
        server.wait_until(lambda: self.server.slots_in_use() == 0)

    def test_request_id_is_in_the_answer_and_in_the_log(self):
        _, _, headers = self.server.get("/v1/models", headers={"X-Request-Id": "mine-42"})
        self.assertEqual(headers["x-request-id"], "mine-42")
        server.wait_until(lambda: "mine-42" in self.server.log())

    def test_metrics_are_prometheus_text(self):
        self.server.post("/completion", {"prompt": "Once", "n_predict": 3})
        _, text, headers = self.server.get("/metrics")
        self.assertTrue(headers["Content-Type"].startswith("text/plain; version=0.0.4"))
        started = re.search(r"(?m)^process_start_time_seconds (\S+)", text).group(1)
        self.assertLessEqual(abs(float(started) - float(headers["Process-Start-Time-Unix"])), 1)
        self.assertRegex(text, r"(?m)^llamacpp:tokens_predicted_total [1-9]")

    def test_slots_are_refused_by_name_without_a_folder(self):
        status, answer, _ = self.server.post("/slots/0?action=save", {"filename": "talk"})
        self.assertEqual(status, 501)
        self.assertIn("--slot-save-path", answer["error"]["message"])


def shape(value):
    """Keys and types of a JSON value; of a list its first element."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return "number" if isinstance(value, (int, float)) and not isinstance(value, bool) else type(value).__name__


class Recorded(unittest.TestCase):
    """Against the answers that a llama-server gave: status, content type, and the keys and types of the JSON."""

    # name of the record: what is sent. Each error, and the informing routes whose keys are all ours too.
    REQUESTS = {
        "health": ("GET", "/health", None),
        "health_v1": ("GET", "/v1/health", None),
        "not_found": ("GET", "/nosuch", None),
        "wrong_method": ("GET", "/completion", None),
        "embeddings_off": ("POST", "/v1/embeddings", {"input": "x"}),
        "props_post_off": ("POST", "/props", {}),
        "tokenize": ("POST", "/tokenize", {"content": "the house"}),
        "slots": ("GET", "/slots", None),
        "err_context_overflow": ("POST", "/completion", {"prompt": "word " * 4000, "n_predict": 4}),
    }

    @classmethod
    def setUpClass(cls):
        cls.folder = server.recorded_answers()
        cls.server = cls.enterClassContext(server.serve("--slots", "1"))

    def test_answers_have_the_recorded_shape(self):
        for name, (method, path, body) in self.REQUESTS.items():
            with self.subTest(name):
                text = (self.folder / f"{name}.txt").read_text(encoding="utf-8")
                head, _, recorded = text[text.index("HTTP/1.1") :].partition("\n\n")
                status, answer, headers = self.server.ask(method, path, body)
                self.assertEqual(status, int(head.split()[1]), answer)
                content_type = re.search(r"(?m)^Content-Type: (.*)$", head).group(1)
                self.assertEqual(headers["Content-Type"], content_type)
                self.assertEqual(shape(answer), shape(json.loads(recorded)))


if __name__ == "__main__":
    support.main()
