#!/usr/bin/env python3
"""Predicted against measured step time of the quickstart job under five layouts.

For every layout: plan and simulate (with a calibration of this machine that never ran a plan), then
train for some steps in several rounds over all layouts, since a shared machine changes its speed
from minute to minute. Prints the median over the rounds, their range, the largest error and whether
the predicted ranking is the measured one. Reports; asserts nothing.
Usage: layout_accuracy.py [--bayplan build/bin/bayplan] [--calibration FILE] [--steps N]
                          [--rounds N] [--markdown]
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

MODEL = "gpt:hidden=128,layers=4,heads=4,vocab=256,seq=64"
JOB = ["--seq", "64", "--global-batch", "32"]
LAYOUTS = [
    ("pp2 x dp2, 1f1b, ZeRO 1 (quickstart)", 4, 4, ["--pp", "2", "--dp", "2", "--zero", "1", "--schedule", "1f1b"]),
    ("one process, two threads", 1, 4, ["--pp", "1", "--dp", "1"]),
    ("pp2, gpipe, 2 micro-batches", 2, 16, ["--pp", "2", "--dp", "1", "--schedule", "gpipe"]),
    ("dp4, ZeRO 0", 4, 8, ["--pp", "1", "--dp", "4", "--zero", "0"]),
    ("pp4, 1 micro-batch", 4, 32, ["--pp", "4", "--dp", "1", "--schedule", "1f1b"]),
]
TIE = 0.05


def call(command: list[str]) -> dict:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\nexit code {done.returncode}\n{done.stdout}{done.stderr}")
    return json.loads(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
    parser.add_argument("--bayplan", default=os.path.join(root, "build/bin/bayplan"))
    parser.add_argument("--calibration", help="default: measure this machine first")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--markdown", action="store_true")
    args = parser.parse_args()
    predicted, measured = [], [[] for _ in LAYOUTS]
    with tempfile.TemporaryDirectory() as folder:
        calibration = ["--calibration", args.calibration or os.path.join(folder, "calibration.json")]
        if not args.calibration:
            call([args.bayplan, "calibrate", "-o", calibration[1], "--json"])
        plans = [os.path.join(folder, f"plan{i}.json") for i in range(len(LAYOUTS))]
        for plan, (_, ranks, micro_batch, layout) in zip(plans, LAYOUTS):
            command = [args.bayplan, "plan", MODEL, f"localhost:{ranks}", *JOB, "--micro-batch", str(micro_batch)]
            call([*command, *layout, *calibration, "-o", plan, "--json"])
            simulated = call([args.bayplan, "simulate", plan, *calibration, "--json"])
            predicted.append(simulated["step"]["seconds"]["mid"])
        for _ in range(args.rounds):
            for i, plan in enumerate(plans):
                run = call([args.bayplan, "run", plan, "--synthetic", "--steps", str(args.steps), "--json"])
                measured[i].append(run["step_s"]["median"])
    medians = [statistics.median(m) for m in measured]
    separator = " | " if args.markdown else "  "
    head = ["layout".ljust(38), "predicted", "measured", "range over rounds", "error"]
    print(separator.join(head))
    if args.markdown:
        print("|".join(["---"] * len(head)))
    for (name, *_), p, m, all_rounds in zip(LAYOUTS, predicted, medians, measured):
        spread = f"{min(all_rounds) * 1e3:5.1f} to {max(all_rounds) * 1e3:5.1f} ms"
        cells = [name.ljust(38), f"{p * 1e3:6.1f} ms", f"{m * 1e3:5.1f} ms", spread.rjust(17), f"{p / m - 1:+.0%}"]
        print(separator.join(cells))
    worst = max(abs(p / m - 1) for p, m in zip(predicted, medians))
    pairs = [(i, j) for i in range(len(LAYOUTS)) for j in range(i)]
    tied = [(i, j) for i, j in pairs if abs(predicted[i] / predicted[j] - 1) < TIE]
    wrong = [p for p in pairs if p not in tied and (predicted[p[0]] < predicted[p[1]]) != (medians[p[0]] < medians[p[1]])]
    print(f"\nlargest error {worst:.0%}; of {len(pairs)} pairs {len(pairs) - len(tied) - len(wrong)} are ranked as measured, "
          f"{len(wrong)} are not, {len(tied)} are predicted to tie (within {TIE:.0%})")


if __name__ == "__main__":
    main()
