"""deploy/grafana, deploy/prometheus: every metric exists, every expression is one, every alert fires on its fault."""

import json
import re
import shutil
import tempfile
import unittest
from pathlib import Path

import metrics_table
import support
from metrics_test import promtool

DASHBOARD = support.DEPLOY / "grafana/terrace.json"
PROMETHEUS = support.DEPLOY / "prometheus"
# What Prometheus makes itself: of a histogram, and of every scrape.
SERIES_OF_HISTOGRAM = ("_bucket", "_sum", "_count")
OWN = {"up"}


def known_series():
    series = set(OWN)
    for program in ("terrace serve", "terrace-node"):
        for name, kind in metrics_table.of(program).items():
            series |= {name + ending for ending in SERIES_OF_HISTOGRAM} if kind == "histogram" else {name}
    return series


def named_in(expression):
    """The series that a PromQL expression reads: words that are neither functions, nor labels, nor in quotes."""
    bare = re.sub(r'"[^"]*"', "", expression)
    bare = re.sub(r"\b(by|on|group_left|group_right|without|ignoring)\s*\([^)]*\)", "", bare)
    bare = re.sub(r"\{[^}]*\}|\[[^\]]*\]", "", bare)
    return set(re.findall(r"\b([a-z_][\w:]*)\b(?!\s*\()", bare)) - {"and", "or", "unless", "bool", "offset"}


def panels():
    return [panel for panel in json.loads(DASHBOARD.read_text())["panels"] if panel["type"] != "row"]


def expressions():
    return [(panel["title"], target["expr"]) for panel in panels() for target in panel["targets"]]


class Dashboard(unittest.TestCase):
    def test_each_series_is_one_that_the_programs_show(self):
        known = known_series()
        for title, expression in expressions():
            self.assertTrue(named_in(expression), expression)
            self.assertLessEqual(named_in(expression), known, title)

    def test_each_metric_of_the_http_server_has_a_panel(self):
        shown = set().union(*(named_in(expression) for _, expression in expressions()))
        http = {name for name in metrics_table.of("terrace serve") if name.startswith("terrace_http_")}
        self.assertTrue(http)
        self.assertLessEqual(http, shown)

    def test_prometheus_parses_each_expression(self):
        rules = [
            {"record": f"panel:{i}", "expr": expression.replace("$__rate_interval", "5m")}
            for i, (_, expression) in enumerate(expressions())
        ]
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump({"groups": [{"name": "dashboard", "rules": rules}]}, file)
            file.flush()
            done = promtool("check", "rules", file.name)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn(f"{len(rules)} rules found", done.stdout)

    def test_panels_have_ids_of_their_own_and_do_not_overlap(self):
        every = json.loads(DASHBOARD.read_text())["panels"]
        self.assertEqual(len({panel["id"] for panel in every}), len(every))
        taken = {}
        for panel in every:
            place = panel["gridPos"]
            self.assertLessEqual(place["x"] + place["w"], 24, panel["title"])
            for x in range(place["x"], place["x"] + place["w"]):
                for y in range(place["y"], place["y"] + place["h"]):
                    self.assertIsNone(taken.get((x, y)), (panel["title"], taken.get((x, y))))
                    taken[x, y] = panel["title"]

    def test_every_panel_says_what_it_shows_and_asks_the_chosen_source(self):
        for panel in panels():
            self.assertTrue(panel["description"], panel["title"])
            for target in panel["targets"]:
                self.assertEqual(target["datasource"]["uid"], "${datasource}", panel["title"])


class Prometheus(unittest.TestCase):
    def test_each_alert_reads_series_that_the_programs_show(self):
        rules = support.module("yaml").safe_load((PROMETHEUS / "alerts.yml").read_text())["groups"][0]["rules"]
        known = known_series()
        for rule in rules:
            self.assertLessEqual(named_in(rule["expr"]), known, rule["alert"])

    def test_each_alert_fires_on_its_fault_and_only_then(self):
        rules = support.module("yaml").safe_load((PROMETHEUS / "alerts.yml").read_text())["groups"][0]["rules"]
        tests = (support.ROOT / "tests/deploy/alerts_test.yml").read_text()
        for rule in rules:
            self.assertEqual(tests.count(f"alertname: {rule['alert']}"), 2, rule["alert"])
        with tempfile.TemporaryDirectory() as folder:
            shutil.copy(PROMETHEUS / "alerts.yml", folder)
            (Path(folder) / "tests.yml").write_text(tests)
            done = promtool("test", "rules", "tests.yml", cwd=folder)
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_scrape_configuration_is_one(self):
        done = promtool("check", "config", "--syntax-only", PROMETHEUS / "prometheus.yml")
        self.assertEqual(done.returncode, 0, done.stdout)


if __name__ == "__main__":
    support.main()
