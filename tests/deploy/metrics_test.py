"""Metrics of both programs: as Prometheus reads them, as docs/operations.md lists them, and who may ask."""

import json
import re
import signal
import socket
import tempfile
import unittest
import urllib.error
import urllib.request

import metrics_table
import programs
import support

PATIENCE = 30


def get(url, method="GET", key=None, body=None):
    """(status, headers, body)."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    request = urllib.request.Request(url, method=method, headers=headers, data=body)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
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


class Server(unittest.TestCase):
    def setUp(self):
        with tempfile.NamedTemporaryFile("w", suffix=".keys") as keys:
            keys.write("the-key\n")
            keys.flush()
            context = programs.server("--api-key-file", keys.name)
            self.server = context.__enter__()  # pylint: disable=unnecessary-dunder-call
        self.addCleanup(context.__exit__, None, None, None)

    def scrape(self):
        status, headers, text = get(f"{self.server.url}/metrics", key="the-key")
        self.assertEqual(status, 200)
        self.assertTrue(headers["Content-Type"].startswith("text/plain; version=0.0.4"), headers["Content-Type"])
        return text

    def complete(self):
        body = json.dumps({"prompt": "Once upon a time", "n_predict": 8}).encode()
        status, headers, text = get(f"{self.server.url}/completion", "POST", "the-key", body)
        self.assertEqual(status, 200, text)
        return headers

    def test_table_of_the_documents_is_what_is_emitted(self):
        self.assertEqual(emitted(self.scrape()), metrics_table.of("terrace serve"))

    def test_prometheus_own_linter_finds_nothing_in_our_names(self):
        # llama-server's names have a colon, which the linter keeps for recording rules.
        done = promtool("check", "metrics", input=self.scrape())
        ours = [line for line in done.stdout.splitlines() if not line.startswith("llamacpp:")]
        self.assertEqual(ours, [])

    def test_a_request_is_counted_once_in_each_place(self):
        self.complete()
        text = self.scrape()
        for sample, expected in {
            "terrace_requests_total": 1,
            'terrace_requests_ended_total{outcome="complete"}': 1,
            "terrace_tokens_total": 8,
            "llamacpp:tokens_predicted_total": 8,
            "terrace_first_token_seconds_count": 1,
            'terrace_first_token_seconds_bucket{le="+Inf"}': 1,
            "terrace_token_seconds_count": 7,
            'terrace_http_requests_total{route="/completion",status="200"}': 1,
        }.items():
            self.assertEqual(value(text, sample), expected, sample)
        self.assertGreater(value(text, 'terrace_leg_pairs_total{leg="host",kind="host"}'), 0)

    def test_who_has_no_key_sees_no_metrics(self):
        self.assertEqual(get(f"{self.server.url}/metrics")[0], 401)

    def test_lines_of_a_request_carry_the_id_that_its_client_got(self):
        request = self.complete()["x-request-id"]
        lines = [json.loads(line) for line in self.server.log().splitlines() if line.startswith("{")]
        self.assertTrue([line for line in lines if line.get("request") == request], self.server.log())


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
