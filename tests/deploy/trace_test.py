"""terrace --trace: a file that Perfetto reads, with steps and legs as they were."""

import collections
import json
import subprocess
import tempfile
import unittest
from pathlib import Path

import programs
import support

TOLERANCE_US = 0.0015  # times have three decimals


def generated(*flags):
    """The JSON report of a short run of the demo model."""
    words = ["generate", "--prompt", "Once upon a time", "--max-tokens", "5", "--json"]
    done = support.run(support.program("terrace"), *words, *flags, stderr=subprocess.PIPE)
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return json.loads(done.stdout)


def traced(*flags):
    """(events by track name, the JSON report) of the same with --trace."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trace.json"
        # Audits are batches of their own, which a trace does not show.
        report = generated("--audit", "0", "--trace", file, *flags)
        events = json.loads(file.read_text())
    names = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    tracks = collections.defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            tracks[names[event["tid"]]].append(event)
    return tracks, report


def end(event):
    return event["ts"] + event["dur"]


class Trace(unittest.TestCase):
    def test_tracks_are_the_steps_and_the_legs_and_count_what_the_report_counts(self):
        with programs.node() as node:
            tracks, report = traced("--node", node.address)
        self.assertEqual(sorted(tracks), sorted(["steps", "host", node.address]))
        # The first step is the prompt's, each further token but the last is one.
        self.assertEqual(len(tracks["steps"]), len(report["tokens"]))
        for leg in report["legs"]:
            batches = [event for event in tracks[leg["name"]] if event["name"] == "batch"]
            self.assertEqual(len(batches), leg["batches"])
            self.assertEqual(sum(event["args"]["pairs"] for event in batches), leg["pairs"])

    def test_spans_of_a_track_nest_and_batches_lie_within_steps(self):
        tracks, _ = traced()
        for name, events in tracks.items():
            open_spans = []
            for event in sorted(events, key=lambda e: (e["ts"], -e["dur"])):
                while open_spans and end(open_spans[-1]) <= event["ts"] + TOLERANCE_US:
                    open_spans.pop()
                if open_spans:
                    self.assertLessEqual(end(event), end(open_spans[-1]) + TOLERANCE_US, (name, event))
                open_spans.append(event)
        for batch in (event for event in tracks["host"] if event["name"] == "batch"):
            self.assertTrue(
                any(step["ts"] <= batch["ts"] and end(batch) <= end(step) + TOLERANCE_US for step in tracks["steps"])
            )

    def test_the_text_is_the_same_with_and_without(self):
        _, report = traced()
        self.assertEqual(report["logits_xxh3"], generated()["logits_xxh3"])

    def test_a_file_that_cannot_be_written_is_an_error_before_anything_is_loaded(self):
        done = support.run(
            support.program("terrace"), "generate", "--prompt", "x", "--trace", "/nonexistent/trace.json"
        )
        self.assertEqual(done.returncode, 1)
        self.assertIn("/nonexistent/trace.json: the trace cannot be written there", done.stdout)

    def test_a_full_disk_is_an_error(self):
        done = support.run(support.program("terrace"), "generate", "--prompt", "x", "--trace", "/dev/full")
        self.assertEqual(done.returncode, 1)
        self.assertIn("/dev/full: the trace could not be written whole", done.stdout)


if __name__ == "__main__":
    support.main()
