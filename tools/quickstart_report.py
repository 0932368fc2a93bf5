#!/usr/bin/env python3
"""Table of predicted and measured step time and memory, and the verdict on the held-out loss.

Usage: quickstart_report.py SIMULATED.json RUN.json BIGRAM_ENTROPY
Exits 1 when the held-out loss is not below the entropy: then the model has learned nothing that needs
attention.
"""
import json
import sys


def main() -> None:
    with open(sys.argv[1], encoding="utf-8") as f:
        simulated = json.load(f)
    with open(sys.argv[2], encoding="utf-8") as f:
        run = json.load(f)
    entropy = float(sys.argv[3])
    predicted, measured = simulated["step"]["seconds"], run["step_s"]["median"]
    print(f"{'':24}{'predicted':>14}{'measured':>14}")
    print(
        f"{'step time':24}{predicted['mid'] * 1e3:11.1f} ms{measured * 1e3:11.1f} ms   "
        f"ratio {predicted['mid'] / measured:.2f}, predicted range {predicted['low'] * 1e3:.1f} to {predicted['high'] * 1e3:.1f} ms"
    )
    for m in run["memory"]:
        label = f"peak, rank {m['rank']}, {m['tier']}"
        equal = "equal" if m["predicted_bytes"] == m["measured_bytes"] else "DIFFERENT"
        print(f"{label:24}{m['predicted_bytes']:12d} B{m['measured_bytes']:12d} B   {equal}")
    loss = run["eval_losses"][-1]
    print(
        f"\ntraining loss {run['losses'][0]:.3f} -> {run['losses'][-1]:.3f} nats per byte; held-out {loss:.3f}, "
        f"bigram entropy of the held-out text {entropy:.3f}"
    )
    if not loss < entropy:
        sys.exit("the held-out loss is not below the bigram entropy")


if __name__ == "__main__":
    main()
