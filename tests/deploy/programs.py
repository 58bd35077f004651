"""Terrace's programs as processes of a test."""

import contextlib
import subprocess
import tempfile
import time

import support

START_SECONDS = 60
STOP_SECONDS = 30


class Process:
    """A program with its stderr in a file, ended with the `with` block."""

    def __init__(self, command, **options):
        self._log = tempfile.NamedTemporaryFile("w+", prefix="terrace-", suffix=".log")
        self._process = subprocess.Popen(
            [str(word) for word in command], stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log, **options
        )

    def log(self):
        with open(self._log.name, encoding="utf-8") as text:
            return text.read()

    def wait_for(self, words, also=""):
        """The rest of the line that begins with `words` (and has `also` in it), once it is there."""
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until:
            for line in self.log().splitlines(keepends=True):
                if line.startswith(words) and also in line and line.endswith("\n"):
                    return line[len(words) :].strip()
            if self._process.poll() is not None:
                break
            time.sleep(0.02)
        raise AssertionError(f"no line '{words}...' from {self._process.args}:\n{self.log()}")

    def stop(self, signal_number):
        """Sends the signal; the exit code."""
        self._process.send_signal(signal_number)
        return self._process.wait(timeout=STOP_SECONDS)

    def end(self):
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait(timeout=STOP_SECONDS)
        self._log.close()


@contextlib.contextmanager
def running(command, *lines, **options):
    """A process that is ended with the block; it has said each of the lines, and `.said` has what stood behind them."""
    process = Process(command, **options)
    try:
        process.said = [process.wait_for(line) for line in lines]
        yield process
    finally:
        process.end()


@contextlib.contextmanager
def node(*flags, before=(), **options):
    """A running terrace-node on a free port; `.address` is its control address."""
    command = [*before, support.program("terrace-node"), "--listen", "127.0.0.1:0", *flags]
    with running(command, "listening on ", **options) as process:
        (process.address,) = process.said
        yield process


@contextlib.contextmanager
def server(*flags, before=(), **options):
    """A running terrace serve with the demo model loaded, on a free port; `.url` is http://HOST:PORT."""
    command = [*before, support.program("terrace"), "serve", "--port", "0", "--slots", "2", "--log-json", *flags]
    with running(command, "listening on ", **options) as process:
        process.url = process.said[0].rstrip("/")
        process.wait_for('{"time"', "ready: ")
        yield process
