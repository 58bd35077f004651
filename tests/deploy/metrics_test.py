"""Metrics of both programs: as Prometheus reads them, as docs/operations.md lists them, and who may ask."""
import re
import signal
import socket
import unittest
import urllib.error
import urllib.request

import metrics_table
import programs
import support

PATIENCE = 30


def get(url, method="GET"):
    """(status, headers, body)."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=PATIENCE) as answer:
            return answer.status, answer.headers, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, ""


def emitted(text):
    """Name -> type of each family in Prometheus's text."""
    return dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.M))


def value(text, sample):
    return float(re.search(rf"^{re.escape(sample)} (\S+)$", text, re.M).group(1))


def promtool(*words, **options):
    return support.run(support.tool("promtool"), *words, **options)


class Node(unittest.TestCase):
    def setUp(self):
        context = programs.node("--metrics", "127.0.0.1:0")
        self.node = context.__enter__()  # pylint: disable=unnecessary-dunder-call
        self.addCleanup(context.__exit__, None, None, None)
        self.url = re.search(r"metrics on (http://\S+)", self.node.log()).group(1)

    def test_table_of_the_documents_is_what_is_emitted(self):
        self.assertEqual(emitted(get(self.url)[2]), metrics_table.of("terrace-node"))

    def test_prometheus_own_linter_finds_nothing(self):
        done = promtool("check", "metrics", input=get(self.url)[2])
        self.assertEqual((done.returncode, done.stdout), (0, ""))

    def test_counts_outlive_the_session_that_was_counted(self):
        done = support.run(
            support.program("terrace"), "generate", "--prompt", "Once", "--max-tokens", "3", "--node", self.node.address
        )
        self.assertEqual(done.returncode, 0, done.stdout)
        text = get(self.url)[2]
        self.assertEqual(value(text, "terrace_node_sessions"), 0)
        self.assertEqual(value(text, 'terrace_node_sessions_ended_total{outcome="closed"}'), 1)
        for name in ("batches", "rows", "pairs", "sent_bytes", "received_bytes"):
            self.assertGreater(value(text, f"terrace_node_{name}_total"), 0, name)

    def test_nothing_but_the_page_is_answered(self):
        host = self.url.removesuffix("/metrics")
        for path in ("/", "/x", "/%2e%2e/etc/passwd", "/etc/passwd"):
            self.assertEqual(get(host + path)[0], 404, path)
        for method in ("POST", "PUT", "DELETE", "MKCOL", "PROPFIND"):
            self.assertIn(get(self.url, method)[0], (404, 405), method)

    def test_mute_clients_hold_up_neither_a_scrape_nor_the_end(self):
        host, port = self.url.split("/")[2].rsplit(":", 1)
        mute = [socket.create_connection((host, int(port)), PATIENCE) for _ in range(12)]
        self.assertEqual(get(self.url)[0], 200)
        self.assertEqual(self.node.stop(signal.SIGTERM), 0, self.node.log())
        for connection in mute:
            connection.close()


class Listening(unittest.TestCase):
    def test_node_binds_the_address_it_was_given_and_only_that(self):
        with programs.node("--metrics", "127.0.0.9:0") as node:
            port = re.search(r"metrics on http://127\.0\.0\.9:(\d+)/", node.log()).group(1)
            with self.assertRaises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", int(port)), PATIENCE)

    def test_node_refuses_to_show_metrics_beyond_loopback(self):
        done = support.run(support.program("terrace-node"), "--listen", "127.0.0.1:0", "--metrics", "0.0.0.0:9102")
        self.assertEqual(done.returncode, 1)
        self.assertIn("--metrics 0.0.0.0:9102: 0.0.0.0 is not loopback", done.stdout)

    def test_node_without_the_flag_has_no_such_port(self):
        with programs.node() as node:
            self.assertNotIn("metrics", node.log())


if __name__ == "__main__":
    support.main()
