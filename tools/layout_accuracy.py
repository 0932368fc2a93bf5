#!/usr/bin/env python3
"""Predicted against measured step time of the quickstart job under five layouts.

A shared machine changes its speed from minute to minute, so every round first calibrates (which never
runs a plan), then predicts and trains all layouts for some steps. Prints the medians over the rounds
and the median and range of each round's error, the largest error and whether the predicted ranking is
the measured one. Reports; asserts nothing.
Usage: layout_accuracy.py [--bayplan build/bin/bayplan] [--steps N] [--rounds N] [--markdown]
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
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--markdown", action="store_true")
    args = parser.parse_args()
    predicted, measured = ([[] for _ in LAYOUTS] for _ in range(2))
    with tempfile.TemporaryDirectory() as folder:
        calibration = os.path.join(folder, "calibration.json")
        for _ in range(args.rounds):
            call([args.bayplan, "calibrate", "-o", calibration, "--json"])
            for i, (_, ranks, micro_batch, layout) in enumerate(LAYOUTS):
                plan = os.path.join(folder, f"plan{i}.json")
                call([args.bayplan, "plan", MODEL, f"localhost:{ranks}", *JOB, "--micro-batch", str(micro_batch), *layout,
                      "--calibration", calibration, "-o", plan, "--json"])
                simulated = call([args.bayplan, "simulate", plan, "--calibration", calibration, "--json"])
                run = call([args.bayplan, "run", plan, "--synthetic", "--steps", str(args.steps), "--json"])
                predicted[i].append(simulated["step"]["seconds"]["mid"])
                measured[i].append(run["step_s"]["median"])
    errors = [[p / m - 1 for p, m in zip(*both)] for both in zip(predicted, measured)]
    predicted, measured = ([statistics.median(times) for times in all_times] for all_times in (predicted, measured))
    error = [statistics.median(e) for e in errors]
    rows = [["layout", "predicted", "measured", "error", "its range"]]
    if args.markdown:
        rows.append(["---"] * len(rows[0]))
    for (name, *_), p, m, e, all_e in zip(LAYOUTS, predicted, measured, error, errors):
        rows.append([name, f"{p * 1e3:.1f} ms", f"{m * 1e3:.1f} ms", f"{e:+.0%}", f"{min(all_e):+.0%} to {max(all_e):+.0%}"])
    for row in rows:
        print("| " + " | ".join(row) + " |" if args.markdown else f"{row[0]:38}{row[1]:>10}{row[2]:>11}{row[3]:>8}{row[4]:>16}")
    worst = max(map(abs, error))
    pairs = [(i, j) for i in range(len(LAYOUTS)) for j in range(i)]
    tied = [(i, j) for i, j in pairs if abs(predicted[i] / predicted[j] - 1) < TIE]
    wrong = [p for p in pairs if p not in tied and (predicted[p[0]] < predicted[p[1]]) != (measured[p[0]] < measured[p[1]])]
    print(f"\nlargest error {worst:.0%}; of {len(pairs)} pairs {len(pairs) - len(tied) - len(wrong)} are ranked as measured, "
          f"{len(wrong)} are not, {len(tied)} are predicted to tie (within {TIE:.0%})")


if __name__ == "__main__":
    main()
