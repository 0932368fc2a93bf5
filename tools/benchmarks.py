#!/usr/bin/env python3
"""Writes docs/benchmarks.md: what bayplan_bench and tools/layout_accuracy.py measure on this machine.

The machine should be idle. Every ratio is between contestants of the same run.
Usage: benchmarks.py [--bin build/bin] [--repetitions N] [--reference COMMAND] [-o docs/benchmarks.md]
  --reference COMMAND  another training program for the model of `training_step_f32`; it is run once
                       and its last JSON line's `step_s_median` is quoted (default: none is)
"""
import argparse
import datetime
import json
import os
import platform
import statistics
import subprocess
import sys

ROOT = os.path.realpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

# benchmark, counter, what it says, what is wanted
ROWS = [
    ("adamw_f32/threads:1", "vs_torch", "AdamW, fp32, 1 thread: bytes/s against `at::_fused_adamw_`", "0.97 x"),
    ("adamw_f32/threads:2", "vs_torch", "AdamW, fp32, 2 threads", "0.97 x"),
    ("adamw_bf16_weight/threads:1", "vs_torch", "AdamW with bf16 weights, 1 thread", "0.97 x"),
    ("adamw_bf16_weight/threads:2", "vs_torch", "AdamW with bf16 weights, 2 threads", "0.97 x"),
    ("adamw_f32/threads:1", "vs_copy", "AdamW, fp32, 1 thread: bytes/s against copying memory", None),
    ("training_step_f32", "vs_torch", "training step, fp32, one process, 2 threads, against torch autograd", "1.0 x"),
    ("lower_96_layers_1024_ranks", "ours_ms", "lowering 96 layers on 16 stages x 64 replicas, 64 micro-batches", "20 ms"),
    ("lower_96_layers_1024_ranks", "vs_per_rank", "the same against lowering each rank by itself", None),
    ("BM_Simulate", "instructions_per_second", "simulated instructions per second, one core", "2.0 M/s"),
    ("BM_Simulate", "vs_naive", "the same against a simulator that scans all ranks", None),
    ("BM_SimulateWithTimeline", "instructions_per_second", "the same, with a timeline kept", None),
    ("BM_SimulateSharedCores", "instructions_per_second", "the same, ranks that share cores", None),
]


def unit_of(counter: str) -> str:
    return {"ours_ms": "ms", "instructions_per_second": "M/s"}.get(counter, "x")


def shown(counter: str, value: float) -> str:
    scaled = value / 1e6 if counter == "instructions_per_second" else value
    return f"{scaled:.2f} {unit_of(counter)}" if scaled < 10 else f"{scaled:.1f} {unit_of(counter)}"


def bench(binaries: str) -> dict[str, dict]:
    command = [os.path.join(binaries, "bayplan_bench"), "--benchmark_format=json"]
    done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ, OMP_NUM_THREADS="2"))
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr}")
    return {b["name"].split("/iterations")[0]: b for b in json.loads(done.stdout)["benchmarks"]}


def output_of(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def machine() -> str:
    fields = dict(line.split(":", 1) for line in output_of("lscpu").splitlines() if ":" in line)
    cpu = {k.strip(): v.strip() for k, v in fields.items()}
    simd = [f for f in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if f in cpu.get("Flags", "").split()]
    with open("/proc/meminfo", encoding="ascii") as f:
        memory = int(f.readline().split()[1]) / 2**20
    torch = output_of(os.path.join(ROOT, ".venv/bin/python"), "-c", "import torch; print(torch.__version__)")
    compiler = output_of("c++", "-dumpfullversion")
    return (f"{cpu.get('Model name', platform.machine())} (family {cpu.get('CPU family')}, model {cpu.get('Model')}; "
            f"{', '.join(simd)}), {os.cpu_count()} cores of a shared virtual machine, {memory:.0f} GiB, "
            f"GCC {compiler}, torch {torch}, {datetime.date.today()}")


def table(runs: list[dict[str, dict]]) -> list[str]:
    lines = ["| what | median | range | wanted |", "|---|---|---|---|"]
    for name, counter, text, wanted in ROWS:
        values = [run[name][counter] for run in runs]
        lines.append(f"| {text} | {shown(counter, statistics.median(values))} | {shown(counter, min(values))} to "
                     f"{shown(counter, max(values))} | {wanted or ''} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=os.path.join(ROOT, "build", "bin"))
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--reference")
    parser.add_argument("-o", "--output", default=os.path.join(ROOT, "docs", "benchmarks.md"))
    args = parser.parse_args()
    runs = []
    for i in range(args.repetitions):
        print(f"bayplan_bench, run {i + 1} of {args.repetitions}", file=sys.stderr)
        runs.append(bench(args.bin))
    outside = ""
    if args.reference:
        done = subprocess.run(args.reference, shell=True, capture_output=True, text=True, check=True,
                              env=dict(os.environ, OMP_NUM_THREADS="2"))
        seconds = json.loads(done.stdout.strip().splitlines()[-1])["step_s_median"]
        ours = statistics.median(r["training_step_f32"]["ours_ms"] for r in runs) / 1e3
        outside = (f"\nFSDP2 in one process takes {seconds:.2f} s for the same training step, "
                   f"{seconds / ours:.1f} times ours.\n")
    print("layout_accuracy", file=sys.stderr)
    accuracy = output_of(sys.executable, os.path.join(ROOT, "tools/layout_accuracy.py"), "--bayplan",
                         os.path.join(args.bin, "bayplan"), "--markdown")
    rows, _, verdict = accuracy.partition("\n\n")
    with open(args.output, "w", encoding="utf-8") as f:
        print(f"""# Benchmarks
Written by `tools/benchmarks.py`. Each ratio is between contestants that take turns in one run, above 1 Bayplan
is faster; the range is over {args.repetitions} runs of `bayplan_bench`. Timings on a shared machine drift by
tens of percent, ratios by a few.

Machine: {machine()}.

""" + "\n".join(table(runs)) + f"""
{outside}
## Predicted and measured step time
`tools/layout_accuracy.py`: the quickstart job under five layouts after `bayplan calibrate`, which never runs a
plan. Medians over rounds that visit all layouts in turn.

{rows}

{verdict[0].upper()}{verdict[1:]}.""", file=f)
    print(f"written: {args.output}", file=sys.stderr)


if __name__ == "__main__":
    main()
