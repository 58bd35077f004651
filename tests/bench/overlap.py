"""The rows of tests/bench/overlap.sh: what a link costs a step, term by term, against its bound; exit 1: missed."""

import json
import sys


def load(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def middle(out, name, rounds):
    """Of each test the round with the middle rate."""
    tests = zip(*(load(f"{out}/{name}-{n + 1}.json") for n in range(rounds)))
    return [sorted(test, key=lambda row: row["tokens_per_second"])[(rounds - 1) // 2] for test in tests]


def exposed(row, near, measured, repeats):
    """One test over the link (`row`) and over loopback (`near`): all times in seconds."""
    tokens = row["n_prompt"] or row["n_gen"]
    batch_rows = min(row["n_prompt"], 512) or 1
    steps = tokens / batch_rows * repeats
    step = batch_rows / row["tokens_per_second"]
    host, nodes = row["legs"][0], row["legs"][1:]
    # Every layer of a prompt has pairs of every leg; one of decoding may have none of a node: no round trip then.
    trips = max(leg["batches"] for leg in nodes) / steps
    links = {leg["name"]: leg for leg in measured["legs"][1:]}
    wire = trip = size = 0.0
    for leg in nodes:
        link = links[leg["name"]]
        each = (leg["bytes_sent"] + leg["bytes_received"]) / max(leg["batches"], 1)
        seconds = link["round_trip_us"] / 1e6 + (each / link["bytes_per_second"] if link["bytes_per_second"] else 0)
        if seconds >= wire:
            wire, trip, size = seconds, link["round_trip_us"] / 1e6, each
    own = host["compute_us"] / 1e6 / max(host["batches"], 1)
    terms = trips * max(0.0, wire - own)
    bound = 1.3 * terms + 0.03 * step
    cost = step - batch_rows / near["tokens_per_second"]
    print(f"{row['test']:>6} in {row['parts']}  step {step * 1e3:9.3f} ms, over loopback "
          f"{(step - cost) * 1e3:9.3f}: the link costs {cost * 1e3:8.3f}, bound {bound * 1e3:8.3f} = 1.3 x {trips:.1f} x "
          f"max(0, trip {trip * 1e6:.0f} us + {size:.0f} B / rate = {wire * 1e6:.0f} us - own {own * 1e6:.0f} us) + 3 %"
          f"  {'ok' if cost <= bound else 'MISSED'}; of what the plan predicted: "
          f"{row['tokens_per_second'] / row['predicted_tokens_per_second']:.3f}")
    return cost <= bound


def main():
    out, name, rounds, repeats = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    measured = load(f"{out}/plan-{name}.json")["prediction"]["measured"]
    rows, near = middle(out, f"link-{name}", rounds), middle(out, f"loopback-{name}", rounds)
    rate, n, share = name.split("-")
    print(f"{rate}, {n} node{'s' if n != '1' else ''}, experts: {share}")
    good = True
    for row, other in zip(rows, near):
        good = exposed(row, other, measured, repeats) and good
    prompt, whole = rows[0], load(f"{out}/whole-{name}.json")[0]
    limits = ", ".join(f"{name} {value:.1f}" for name, value in prompt["prompt_limits"].items())
    share = prompt["share_of_least_limit"]
    each_alone = min(value for name, value in prompt["prompt_limits"].items() if name != "trunk and host")
    print(f"  prompt {prompt['tokens_per_second']:.1f} tok/s, {share:.3f} of the least of {limits}"
          f" ({prompt['tokens_per_second'] / each_alone:.3f} where trunk and host had threads of their own)"
          f"  {'ok' if share >= 0.85 else 'MISSED'}; with --overlap off {whole['tokens_per_second']:.1f}")
    return 0 if good and share >= 0.85 else 1


if __name__ == "__main__":
    sys.exit(main())
