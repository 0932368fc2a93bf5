#!/usr/bin/env python3
"""Checks that includes follow the arrows of the architecture.

    check_layers.py [ROOT]

Prints "ok", or one line "file:line: reason" for each forbidden include, and then exits 1.
"""

import pathlib
import re
import sys

# What each layer may include besides itself. The longest matching path names a file's layer.
ALLOWED = {
    "planner/core": [],
    "planner/cost": ["planner/core"],
    "planner/schedule": ["planner/core"],
    "planner/program": ["planner/schedule", "planner/cost", "planner/core"],
    "planner/partition": ["planner/program", "planner/schedule", "planner/cost", "planner/core"],
    "planner/search": [
        "planner/partition", "planner/program", "planner/schedule", "planner/cost", "planner/core",
    ],
    "planner/formats": ["planner/program", "planner/schedule", "planner/cost", "planner/core"],
    "models": ["planner/core", "planner/formats"],
    "kernels": [],
    "simulator": ["planner/core", "planner/cost", "planner/program"],
    "executor": ["planner/core", "planner/cost", "planner/program", "planner/formats", "kernels"],
    "tools": ["planner", "models", "simulator", "executor", "kernels"],
    "tests": ["planner", "models", "simulator", "executor", "kernels", "tools"],
}

# Libraries that only some files may include: (name, pattern of the include, pattern of the files).
# The part of the executor that is not listed for torch is built and tested without it.
LIBRARIES = [
    ("torch", r"(torch|ATen|c10|caffe2)/",
     r"executor/(ops|launch)/|executor/.*torch[^/]*$|executor/comm/(mpi|nccl)[^/]*$"
     r"|executor/.*cuda[^/]*$|executor/.*\.cu$|tests/"),
    ("MPI", r"mpi\.h$", r"executor/comm/mpi[^/]*$|executor/launch/|tests/"),
    ("CUDA or NCCL", r"(cuda|nccl|cublas)[^/]*\.h$",
     r"kernels/cuda/|executor/comm/nccl[^/]*$|executor/.*(cuda|torch)[^/]*$|executor/.*\.cu$|tests/"),
    ("nlohmann", r"nlohmann/",
     r"planner/formats/|models/|simulator/report/|executor/(trace|checkpoint|data)/|tools/|tests/"),
    ("Boost", r"boost/", r"(?!planner/core/.*\.h$)(planner|models|simulator)/|tests/"),
]

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
SUFFIXES = {".h", ".cpp", ".cu", ".cuh"}


def layer_of(path):
    best = ""
    for layer in ALLOWED:
        if path.startswith(layer + "/") and len(layer) > len(best):
            best = layer
    return best


def reason_against(root, path, quoted, target):
    """Why the file `path` must not include `target`, or None."""
    if not quoted or not (root / target).exists():
        for name, include, files in LIBRARIES:
            if re.match(include, target) and not re.match(files, path):
                return f"{name} is not for this file: {target}"
        if quoted and not re.match(r"(torch|ATen|c10|caffe2)/", target):
            return f'"{target}" is no path from the repository root'
        return None
    own, other = layer_of(path), layer_of(target)
    if not other:
        return f"{target} is in no known layer"
    if own == other or any(other == a or other.startswith(a + "/") for a in ALLOWED[own]):
        return None
    return f"{own} must not include {other}: {target}"


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent)
    problems = []
    for top in sorted({layer.split("/")[0] for layer in ALLOWED}):
        for file in sorted((root / top).rglob("*")):
            if file.suffix not in SUFFIXES or not file.is_file():
                continue
            path = file.relative_to(root).as_posix()
            if not layer_of(path):
                problems.append(f"{path}:1: in no known layer")
                continue
            for number, line in enumerate(file.read_text(errors="replace").splitlines(), 1):
                match = INCLUDE.match(line)
                if match:
                    reason = reason_against(root, path, match[1] == '"', match[2])
                    if reason:
                        problems.append(f"{path}:{number}: {reason}")
    print("\n".join(problems) if problems else "ok")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
