#!/usr/bin/env python3
"""Predicted against measured step time of the quickstart job under five layouts.

For every layout: plan, simulate (with a calibration of this machine that never ran a plan), then train
for some steps and take the median. Prints a table, the largest error and whether the predicted
ranking is the measured one. Reports; asserts nothing.
Usage: layout_accuracy.py [--bayplan build/bin/bayplan] [--calibration FILE] [--steps N] [--markdown]
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

MODEL = "gpt:hidden=128,layers=4,heads=4,vocab=256,seq=64"
JOB = ["--seq", "64", "--global-batch", "32", "--micro-batch", "4"]
LAYOUTS = [
    ("pp2 x dp2, 1f1b, ZeRO 1 (quickstart)", 4, ["--pp", "2", "--dp", "2", "--zero", "1", "--schedule", "1f1b"]),
    ("one process", 1, ["--pp", "1", "--dp", "1", "--zero", "0", "--schedule", "1f1b"]),
    ("pp2, gpipe", 2, ["--pp", "2", "--dp", "1", "--zero", "0", "--schedule", "gpipe"]),
    ("dp2, ZeRO 0", 2, ["--pp", "1", "--dp", "2", "--zero", "0", "--schedule", "1f1b"]),
    ("pp4, 1f1b", 4, ["--pp", "4", "--dp", "1", "--zero", "0", "--schedule", "1f1b"]),
]


def call(command: list[str]) -> dict:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\nexit code {done.returncode}\n{done.stdout}{done.stderr}")
    return json.loads(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
    parser.add_argument("--bayplan", default=os.path.join(root, "build/bin/bayplan"))
    parser.add_argument("--calibration")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--markdown", action="store_true")
    args = parser.parse_args()
    calibration = ["--calibration", args.calibration] if args.calibration else []
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name, ranks, layout in LAYOUTS:
            plan = os.path.join(folder, "plan.json")
            call([args.bayplan, "plan", MODEL, f"localhost:{ranks}", *JOB, *layout, *calibration, "-o", plan, "--json"])
            simulated = call([args.bayplan, "simulate", plan, *calibration, "--json"])
            measured = call([args.bayplan, "run", plan, "--synthetic", "--steps", str(args.steps), "--json"])
            rows.append((name, simulated["step"]["seconds"]["mid"], measured["step_s"]["median"]))
    separator = " | " if args.markdown else "  "
    head = ["layout".ljust(38), "predicted", "measured", "error"]
    print(separator.join(head))
    if args.markdown:
        print("|".join(["---"] * len(head)))
    for name, predicted, measured in rows:
        error = predicted / measured - 1
        cells = [name.ljust(38), f"{predicted * 1e3:6.1f} ms", f"{measured * 1e3:5.1f} ms", f"{error:+.0%}"]
        print(separator.join(cells))
    worst = max(abs(p / m - 1) for _, p, m in rows)
    order = [sorted(range(len(rows)), key=lambda i, k=k: rows[i][k]) for k in (1, 2)]
    print(f"\nlargest error {worst:.0%}; ranking {'agrees' if order[0] == order[1] else 'differs'}")


if __name__ == "__main__":
    main()
