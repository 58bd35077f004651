"""The rows of tests/bench/losses.sh, every term beside its limit; exit 1: one is missed.

Token times are the spans `step` of the program's own trace, put beside the kill by CLOCK_MONOTONIC (its event `began`).
"""

import bisect
import json
import math
import os
import signal
import sys
import time

GEN = 64  # tokens of one run of `bench`
LEAST_SLACK_MS = 5.0  # of a soft limit, coordinator/legs/soft_limit.h: what is less is not late
SETTLE_S = 2.0  # from a loss on, without moving bytes
MOVE_S = 5.0  # beside bytes / rate, with them
WINDOW_S = 2.0  # of which a speed is taken
STEPS = 32  # whose pairs tell who owns what: some thousand of them
NEAR = 0.10
NEAR_WHOLE = 0.15  # where nothing is lost: as tests/bench/prediction.sh


def load(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def layers_of(plan):
    """Layers with experts: slabs of all legs over experts of a layer, whether or not all layers are shared alike."""
    return round(sum(leg["slabs"] for leg in plan["legs"] if leg["kind"] != "card") / plan_experts(plan))


def plan_experts(plan):
    """Experts of a layer, as the first entry of the share names them."""
    total = 0
    for experts in plan["layers"][0].values():
        for part in filter(None, experts.split(",")):
            first, _, last = part.partition("-")
            total += int(last or first) - int(first) + 1
    return total


def verdict(good):
    return "yes" if good else "NO"


def events_of(path):
    """Of a trace, also of one that is still being written."""
    events = []
    with open(path, encoding="utf-8") as file:
        for line in file:
            try:
                events.append(json.loads(line.strip().lstrip("[").rstrip(",]")))
            except json.JSONDecodeError:
                continue
    return events


class Trace:
    def __init__(self, path):
        events = events_of(path)
        began = next(e["args"]["monotonic_us"] for e in events if e["name"] == "began")
        self.tracks = {e["args"]["name"]: e["tid"] for e in events if e["name"] == "thread_name"}
        spans = [e for e in events if e["ph"] == "X"]
        for span in spans:
            span["begin"] = span["ts"] + began
            span["end"] = span["begin"] + span["dur"]
        self.steps = [s for s in spans if s["name"] == "step"]
        self.batches = [s for s in spans if s["name"] == "batch"]

    def steps_in(self, begin, end):
        return [s for s in self.steps if begin <= s["begin"] and s["end"] <= end]

    def speed(self, begin_us, end_us=math.inf):
        """Tokens a second, and of how many; of whole steps within the window."""
        steps = self.steps_in(begin_us, min(begin_us + WINDOW_S * 1e6, end_us))
        return len(steps) / max(sum(s["dur"] for s in steps) / 1e6, 1e-9), len(steps)

    def pairs_of_steps(self, steps, names=None):
        """[steps] pairs of these legs, or of all."""
        tracks = {self.tracks[name] for name in names or self.tracks}
        begins = [s["begin"] for s in steps]
        pairs = [0] * len(steps)
        for batch in self.batches:
            at = bisect.bisect_right(begins, batch["begin"]) - 1
            if at >= 0 and batch["begin"] < steps[at]["end"] and batch["tid"] in tracks:
                pairs[at] += batch["args"]["pairs"]
        return pairs

    def taken_over(self, killed, names, share):
        """When the first of STEPS steps began of whose pairs these legs had more than that share; None: never."""
        before, steps = self.steps_in(0, killed), self.steps_in(killed, math.inf)
        enough = share * STEPS * sum(self.pairs_of_steps(before)) / max(len(before), 1)
        pairs = self.pairs_of_steps(steps, names)
        found = (i for i in range(len(steps) - STEPS + 1) if sum(pairs[i : i + STEPS]) > enough)
        return next((steps[i]["begin"] for i in found), None)


class Loss:
    """What the plan says of one node's loss."""

    def __init__(self, plan, name):
        prediction = plan["prediction"]
        self.entry = next(entry for entry in prediction["lost"] if entry["node"] == name)
        self.settled = self.entry["decode_settled"] or self.entry["decode"]
        self.moving_s = self.entry["seconds_to_move"]
        heirs = [] if self.entry.get("experts_stay", False) else self.entry["heirs"]
        self.heirs = [heir["node"] for heir in heirs]
        self.inherited = sum(heir["experts"] for heir in heirs)
        slabs = {leg["name"]: leg["slabs"] for leg in plan["legs"]}
        own = sum(slabs[heir] for heir in self.heirs)
        # Of all pairs, half-way between what the heirs have before and after.
        self.heirs_share = (own + self.inherited / 2) / sum(slabs.values())

    def seconds_away(self):
        """Until its speeds are known: without moving bytes, or, where others take over, once they have."""
        return (self.moving_s + MOVE_S if self.heirs else SETTLE_S) + WINDOW_S + 0.5


def await_steps(path, n):
    for _ in range(1200):
        time.sleep(0.1)
        try:
            if sum(e.get("name") == "step" for e in events_of(path)) >= n:
                return True
        except FileNotFoundError:
            continue
    sys.exit(f"{path}: no {n} steps within two minutes")


def told(name, measured, n, said):
    """A speed beside what the plan says; their ratio, nothing where there was none."""
    ratio = measured / said if n else None
    print(f"  {name}: {measured:.1f} tok/s ({n} steps), the plan says {said:.1f}"
          + (f": {ratio:.3f} of it" if n else ""))
    return ratio


def near(name, ratios, limit):
    mean = sum(ratios) / len(ratios) if ratios and None not in ratios else 0.0
    good = abs(mean - 1) <= limit
    print(f"  {name}: {mean:.3f} of what the plan says ({', '.join('-' if r is None else '%.3f' % r for r in ratios)}), "
          f"limit {1 - limit:.2f} to {1 + limit:.2f}: {verdict(good)}")
    return good


def survivors(trace, loss, killed, row):
    """Speeds without the node: while its experts are here, and once others have them."""
    begin = killed + SETTLE_S * 1e6
    taken = trace.taken_over(killed, loss.heirs, loss.heirs_share) if loss.heirs else None
    if taken is None or taken > begin + WINDOW_S * 1e6 / 4:
        row["here"] = told(f"{SETTLE_S:.0f} s after it, nothing moved", *trace.speed(begin, taken or math.inf),
                           loss.settled["tokens_per_second"])
    if not loss.heirs:
        print("  its experts stay here, by the plan")
        return True
    if taken is None:
        print("  no other node took its experts over: NO")
        return False
    print(f"  others had {loss.inherited} of its experts {(taken - killed) / 1e6:.2f} s after it; "
          f"{loss.entry['bytes_to_move'] / 1e6:.1f} MB at their measured rates take {loss.moving_s:.2f} s")
    row["moved"] = told(f"{loss.moving_s + MOVE_S:.2f} s after it, with others",
                        *trace.speed(killed + (loss.moving_s + MOVE_S) * 1e6),
                        loss.entry["decode_moved"]["tokens_per_second"])
    return True


def late_tokens(trace, plan, lost, name, killed, settled_ms):
    """At most one token is late, and by no more than what the plan allows for where it was."""
    n_layers = layers_of(plan)
    late = [s for s in trace.steps if s["end"] > killed and s["begin"] < killed + SETTLE_S * 1e6
            and s["dur"] / 1e3 - settled_ms > LEAST_SLACK_MS]
    usual = sorted(s["dur"] / 1e3 for s in trace.steps_in(killed - WINDOW_S * 1e6, killed))
    worst = usual[-1] if usual else 0.0
    leg = next(leg for leg in plan["prediction"]["decode"]["legs"] if leg["name"] == name)
    soft_ms = (leg["round_trip_us"] + leg["wire_us"] + leg["compute_us"]) / 1e3 + LEAST_SLACK_MS
    if not trace.steps or trace.steps[-1]["end"] < killed:
        print("  the run had ended before the kill: NO")
        return False
    # The layer of the last batch that the node was sent in that step is the one in which it was found.
    step = max(late, key=lambda s: s["dur"], default=next(s for s in trace.steps if s["end"] > killed))
    asked = [b["args"]["layer"] for b in trace.batches
             if b["tid"] == trace.tracks[name] and step["begin"] <= b["begin"] <= step["end"]]
    left = n_layers - (max(asked) if asked else 0)
    backstop_ms = lost["decode"]["layers_ms"] / n_layers * left
    bound_ms = soft_ms + backstop_ms + 50
    delay_ms = max((s["dur"] / 1e3 - settled_ms for s in late), default=0.0)
    print(f"  tokens late by more than {LEAST_SLACK_MS:.0f} ms: {len(late)}, limit 1: {verdict(len(late) <= 1)}"
          f"  (each: {', '.join('%.1f' % (s['dur'] / 1e3) for s in late[:8])} ms; the worst of {len(usual)} before the "
          f"kill {worst:.1f})")
    print(f"  the latest by {delay_ms:.1f} ms, limit {bound_ms:.1f} = soft {soft_ms:.1f} + backstop {backstop_ms:.1f} "
          f"({left} layers of {n_layers} left, {lost['decode']['layers_ms']:.1f} ms for all) + 50: "
          f"{verdict(delay_ms <= bound_ms)}")
    return len(late) <= 1 and delay_ms <= bound_ms


def kill(pid, silent):
    """Says when, as late as it can be said. A process of much memory is silent while that is freed: its sockets go last."""
    at = time.monotonic_ns() // 1000
    if float(silent) > 0:
        os.kill(int(pid), signal.SIGSTOP)
        time.sleep(float(silent))
    os.kill(int(pid), signal.SIGKILL)
    print(at)
    return True


def loss(trace_path, plan_path, name, killed, back, run_path, rows_path):
    trace, plan, run = Trace(trace_path), load(plan_path), load(run_path)
    killed, back = int(killed), int(back)
    prediction, lost = plan["prediction"], Loss(plan, name)
    leg = next(leg for leg in run[0]["legs"] if leg["name"] == name)
    link = next(leg for leg in prediction["measured"]["legs"] if leg["name"] == name)
    # A share at the start, and again with each rejoin.
    moved, rate = leg["weight_bytes_sent"] / (leg["rejoins"] + 1), link["weights_bytes_per_second"]
    moving_s = moved / rate if rate else 0.0
    print(f"{name} killed")
    whole = prediction["decode"]["tokens_per_second"]
    row = {"before": told("before the kill", *trace.speed(killed - WINDOW_S * 1e6), whole)}
    good = late_tokens(trace, plan, lost.entry, name, killed, lost.settled["step_ms"])
    good = survivors(trace, lost, killed, row) and good
    again = next((b["begin"] for b in trace.batches if b["tid"] == trace.tracks[name] and b["begin"] > back), None)
    found = "never" if again is None else f"{(again - back) / 1e6:.2f} s after it listened again"
    print(f"  asked again {found}; {moved / 1e6:.1f} MB sent, at {rate / 1e6:.1f} MB/s {moving_s:.2f} s")
    row["back"] = told(f"{moving_s + MOVE_S:.2f} s after it listened again",
                       *trace.speed(back + (moving_s + MOVE_S) * 1e6), whole)
    with open(rows_path, "a", encoding="utf-8") as rows:
        print(json.dumps(row), file=rows)
    return good


def speeds(rows_path):
    """Means over the repeats: a shared machine's speed moves by itself."""
    with open(rows_path, encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    good = True
    for name, key, limit in (("before the kill", "before", NEAR_WHOLE), ("with the node lost, nothing moved", "here", NEAR),
                             ("once others have its experts", "moved", NEAR), ("with the node back", "back", NEAR)):
        ratios = [row[key] for row in rows if key in row]
        if ratios:
            good = near(name, ratios, limit) and good
    return good


def hedges(idle_path, plan_path):
    row, plan = load(idle_path)[0], load(plan_path)
    nodes = [leg for leg in row["legs"] if leg["kind"] == "node"]
    batches, false, hedged, late = (sum(leg[key] for leg in nodes)
                                    for key in ("batches", "false_hedges", "hedges", "late"))
    good = batches > 0 and false / batches < 0.001
    print(f"  {batches} batches to nodes, {late} late, {hedged} hedged, of them {false} answered first by the node: "
          f"{100 * false / max(batches, 1):.4f} %, limit 0.1 %: {verdict(good)}")
    said = plan["prediction"]["decode"]["tokens_per_second"]
    told("all nodes there", row["tokens_per_second"], row["n_gen"], said)
    return good


def sealing(run_path, sealing_path, n_layers):
    row = load(run_path)[0]
    leg = next(leg for leg in row["legs"] if leg["kind"] == "node")
    layer_us = 1e6 / row["tokens_per_second"] / int(n_layers)
    out, back = (leg[key] / max(leg["batches"], 1) for key in ("bytes_sent", "bytes_received"))
    good = True
    for entry in load(sealing_path)["benchmarks"]:
        if entry.get("aggregate_name") != "median":
            continue
        unit = {"ns": 1e-3, "us": 1.0, "ms": 1e3}[entry["time_unit"]]
        cost_us = entry["real_time"] * unit
        share = cost_us / layer_us
        cipher = entry["run_name"].split("/")[-1]
        judged = cipher.startswith("aes")
        print(f"  {cipher}: {cost_us:.1f} us a layer, both ends, of {layer_us:.1f} us (batches of {out:.0f} B out, "
              f"{back:.0f} B back; {row['tokens_per_second']:.1f} tok/s, {n_layers} layers): {100 * share:.2f} %"
              + (f", limit 5 %: {verdict(share <= 0.05)}" if judged else " (for machines without AES instructions)"))
        good = good and (not judged or share <= 0.05)
    return good


def main():
    verb, args = sys.argv[1], sys.argv[2:]
    if verb == "repeats":  # of GEN tokens, for so many batches to every node
        plan = load(args[0])
        print(math.ceil(float(args[1]) / (GEN * layers_of(plan))))
        return 0
    if verb == "runs":  # of GEN tokens, for so many seconds, some of them slow
        rate = load(args[0])[0]["tokens_per_second"]
        print(math.ceil(1.2 * sum(float(seconds) for seconds in args[1:]) * rate / GEN))
        return 0
    if verb == "away":  # seconds, long enough for either node
        plan = load(args[0])
        print(max(Loss(plan, entry["node"]).seconds_away() for entry in plan["prediction"]["lost"]))
        return 0
    if verb == "ram":  # bytes that hold what either node needs, and nothing more to speak of
        print(max(leg["needs_bytes"] for leg in load(args[0])["legs"] if leg["kind"] == "node") + (4 << 20))
        return 0
    if verb == "await":
        return 0 if await_steps(args[0], int(args[1])) else 1
    judge = {"loss": loss, "hedges": hedges, "sealing": sealing, "kill": kill, "speeds": speeds}[verb]
    return 0 if judge(*args) else 1


if __name__ == "__main__":
    sys.exit(main())
