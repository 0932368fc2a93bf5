#!/usr/bin/env python3
"""Entropy of the next byte given the current one, in nats, over the held-out part of a text.

No model that looks at one byte of context only can have a lower held-out loss, so a language model
below this figure uses attention. The split is the one of `bayplan run --held-out FRACTION`: samples
are seq+1 bytes at stride seq; the last ceil(fraction * samples) are held out.
Usage: bigram_entropy.py FILE --seq N --held-out FRACTION
"""
import argparse
import collections
import math


def held_out(data: bytes, seq: int, fraction: float) -> bytes:
    samples = (len(data) - 1) // seq
    first = samples - math.ceil(fraction * samples)
    return data[first * seq : samples * seq + 1]


def conditional_entropy(data: bytes) -> float:
    pairs = collections.Counter(zip(data, data[1:]))
    firsts = collections.Counter(data[:-1])
    total = len(data) - 1
    return -sum(n / total * math.log(n / firsts[a]) for (a, _), n in pairs.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file")
    parser.add_argument("--seq", type=int, required=True)
    parser.add_argument("--held-out", type=float, required=True)
    args = parser.parse_args()
    with open(args.file, "rb") as f:
        print(f"{conditional_entropy(held_out(f.read(), args.seq, args.held_out)):.6f}")


if __name__ == "__main__":
    main()
