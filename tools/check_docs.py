#!/usr/bin/env python3
"""Runs every shell snippet of README.md and docs/*.md, and checks that relative links exist and that
docs/plan-format.md names every field of a plan file.

A snippet is a fenced block marked `sh`. The blocks of one file run in order in one fresh folder with
`bayplan` on the PATH and TEXT naming a text file; any non-zero exit fails. `tools/quickstart` and
`tools/test` are left out, since they run this check. Exits 77 without a built program.
Usage: check_docs.py [--bin build/bin]
"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.realpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
SNIPPET = re.compile(r"^```sh\n(.*?)^```", re.M | re.S)
LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")


def documents() -> list[str]:
    found = [os.path.join(ROOT, "README.md")]
    for folder, _, names in os.walk(os.path.join(ROOT, "docs")):
        found += [os.path.join(folder, n) for n in sorted(names) if n.endswith(".md")]
    return found


def broken_links(path: str, text: str) -> list[str]:
    targets = [t for t in LINK.findall(text) if "://" not in t]
    return [t for t in targets if not os.path.exists(os.path.join(os.path.dirname(path), t))]


def run_snippets(text: str, binaries: str) -> str | None:
    """None, or the output of the first snippet that fails."""
    snippets = [s for s in SNIPPET.findall(text)]
    with tempfile.TemporaryDirectory() as folder:
        sample = os.path.join(folder, "text.txt")
        with open(sample, "w", encoding="ascii") as f:
            f.write("It was a bright cold day in April, and the clocks were counting. " * 400)
        env = dict(os.environ, PATH=binaries + os.pathsep + os.environ["PATH"], TEXT=sample)
        for snippet in snippets:
            lines = [l for l in snippet.splitlines() if not l.startswith(("tools/quickstart", "tools/test"))]
            script = "set -e\n" + "\n".join(lines)
            done = subprocess.run(["bash", "-c", script], cwd=folder, env=env, capture_output=True, text=True, timeout=300)
            if done.returncode != 0:
                return f"{script}\nexit code {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
    return None


def fields(value) -> set[str]:
    if isinstance(value, list):
        return set().union(*map(fields, value))
    return set(value).union(*map(fields, value.values())) if isinstance(value, dict) else set()


def undocumented_fields(binaries: str) -> list[str]:
    with open(os.path.join(ROOT, "docs", "plan-format.md"), encoding="utf-8") as f:
        named = set(re.findall(r"`(\w+)`", f.read()))
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "plan.json")
        subprocess.run([os.path.join(binaries, "bayplan"), "plan", "gpt:hidden=32,layers=1,heads=2,vocab=64,seq=16",
                        "localhost:1", "-o", path], check=True, capture_output=True)
        with open(path, encoding="utf-8") as f:
            return sorted(fields(json.load(f)) - named)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", default=os.path.join(ROOT, "build", "bin"))
    binaries = os.path.abspath(parser.parse_args().bin)
    if not os.path.exists(os.path.join(binaries, "bayplan")):
        sys.exit(77)
    failed = 0
    for path in documents():
        name = os.path.relpath(path, ROOT)
        with open(path, encoding="utf-8") as f:
            text = f.read()
        for target in broken_links(path, text):
            print(f"{name}: link to {target}, which does not exist")
            failed += 1
        problem = run_snippets(text, binaries)
        if problem:
            print(f"{name}: snippet fails\n{problem}")
            failed += 1
    for field in undocumented_fields(binaries):
        print(f"docs/plan-format.md: does not name the field `{field}`")
        failed += 1
    print("ok" if failed == 0 else f"{failed} problems")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
