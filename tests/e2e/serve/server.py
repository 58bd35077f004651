"""A running `terrace serve` with the demo model, and the plain ways to ask it: urllib's JSON, and bytes on a socket."""
import contextlib
import json
import os
import socket
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests/deploy"))
import programs  # noqa: E402  (the tests of deploy/ have the process, the skips and the names)
import support  # noqa: E402

MODEL = ROOT / "deploy/demo/demo-story-42m-q4_k_m.gguf"
PATIENCE = 60  # seconds until something that must happen is given up


def wait_until(true_at_last):
    until = time.monotonic() + PATIENCE
    while not true_at_last():
        if time.monotonic() > until:
            raise AssertionError(f"not in {PATIENCE} seconds")
        time.sleep(0.02)


def write_keys(*keys):
    """A key file; it is removed when it is closed."""
    file = tempfile.NamedTemporaryFile("w", prefix="terrace-keys-")
    file.write("\n".join(keys) + "\n")
    file.flush()
    return file


class Server(programs.Process):
    def __init__(self, *flags, **options):
        command = [support.program("terrace"), "serve", "--model", MODEL, "--port", "0", "--threads", "1", *flags]
        super().__init__(command, **options)
        self.url = self.wait_for("listening on ")
        host, port = self.url.removeprefix("http://").rsplit(":", 1)
        self.address = (host.strip("[]"), int(port))

    def wait_until_ready(self):
        wait_until(lambda: self.get("/health")[0] == 200)
        return self

    def ask(self, method, path, body=None, headers=None):
        """Status, body (parsed where it is JSON) and headers."""
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(self.url + path, data, headers or {}, method=method)
        if data is not None:
            request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                status, text, got = answer.status, answer.read().decode(), answer.headers
        except urllib.error.HTTPError as error:
            status, text, got = error.code, error.read().decode(), error.headers
        is_json = "json" in (got.get("Content-Type") or "")
        return status, json.loads(text) if is_json and text else text, got

    def get(self, path, **options):
        return self.ask("GET", path, **options)

    def post(self, path, body, **options):
        return self.ask("POST", path, body, **options)

    def connect(self):
        connection = socket.create_connection(self.address, timeout=PATIENCE)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def slots_in_use(self, headers=None):
        return sum(slot["is_processing"] for slot in self.get("/slots", headers=headers)[1])


@contextlib.contextmanager
def serve(*flags, ready=True, **options):
    server = Server(*flags, **options)
    try:
        yield server.wait_until_ready() if ready else server
    finally:
        server.end()


def http_post(path, body, headers=""):
    """The bytes of a request."""
    data = json.dumps(body).encode()
    return f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n{headers}\r\n".encode() + data


def recorded_answers():
    """Folder of a llama-server's recorded answers; the test is skipped by name where it is absent."""
    vectors = Path(os.environ.get("TERRACE_TEST_VECTORS", ROOT.parent / "shared"))
    for folder in (vectors / "facts/http_shapes", vectors / "http_shapes"):
        if folder.is_dir():
            return folder
    raise unittest.SkipTest(f"no recorded answers in {vectors}/facts/http_shapes")
