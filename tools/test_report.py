#!/usr/bin/env python3
"""Adds up what tools/test ran and prints one closing line.

    test_report.py RESULTS

RESULTS/checks has one line "passed NAME" or "failed NAME" a check. Each RESULTS/ctest-PRESET.xml
is a JUnit file of ctest. A ctest entry that is a shard of a GoogleTest program counts as the
tests in its own XML file below build/PRESET/test_results. Exits 1 when anything failed or when
no test ran.
"""

import pathlib
import re
import sys
import xml.etree.ElementTree as ElementTree


class Totals:
    def __init__(self):
        self.passed = 0
        self.failed = 0
        self.skipped = 0
        self.failures = []  # (name, output)


def read_checks(path, totals):
    if not path.exists():
        return
    for line in path.read_text().splitlines():
        verdict, name = line.split(" ", 1)
        if verdict == "passed":
            totals.passed += 1
        else:
            totals.failed += 1
            totals.failures.append((name, ""))


def shard_file(name, test_results):
    """The XML file of a sharded GoogleTest program, or None for any other ctest entry."""
    match = re.fullmatch(r"bayplan_(\w+)_tests\.shard(\d+)", name)
    return test_results / f"{match[1]}_shard{match[2]}.xml" if match else None


def read_shard(path, entry_failed, output, name, totals):
    try:
        root = ElementTree.parse(path).getroot()
    except (OSError, ElementTree.ParseError):
        # The process ended before it could write its results. An empty shard writes none either.
        if entry_failed:
            totals.failed += 1
            totals.failures.append((name, output))
        return
    failed_here = 0
    for case in root.iter("testcase"):
        case_name = f"{case.get('classname')}.{case.get('name')}"
        messages = [failure.get("message") or "" for failure in case.findall("failure")]
        if messages:
            failed_here += 1
            totals.failures.append((case_name, "\n".join(messages)))
        elif case.find("skipped") is not None or case.get("status") == "notrun":
            totals.skipped += 1
        else:
            totals.passed += 1
    if entry_failed and failed_here == 0:
        failed_here = 1
        totals.failures.append((f"{name} (failed outside its tests)", output))
    totals.failed += failed_here


def read_ctest(path, test_results, totals):
    try:
        root = ElementTree.parse(path).getroot()
    except ElementTree.ParseError as error:
        totals.failed += 1
        totals.failures.append((path.name, str(error)))
        return
    for case in root.iter("testcase"):
        name = case.get("name")
        output = case.findtext("system-out") or ""
        skipped = case.find("skipped")
        deliberate = case.get("status") == "disabled" or (
            skipped is not None and (skipped.get("message") or "").startswith("SKIP_")
        )
        failed = not deliberate and case.get("status") != "run"
        shard = shard_file(name, test_results)
        if shard is not None:
            read_shard(shard, failed, output, name, totals)
        elif deliberate:
            totals.skipped += 1
        elif failed:
            totals.failed += 1
            reason = skipped.get("message") if skipped is not None else ""
            totals.failures.append((name, output or reason))
        else:
            totals.passed += 1


def main():
    results = pathlib.Path(sys.argv[1])
    totals = Totals()
    tests_before = 0
    for path in sorted(results.glob("ctest-*.xml")):
        preset = path.stem.removeprefix("ctest-")
        failures_before = len(totals.failures)
        read_ctest(path, results.parent / preset / "test_results", totals)
        totals.failures[failures_before:] = [
            (f"{preset}: {name}", output) for name, output in totals.failures[failures_before:]
        ]
        print(f"{preset}: {totals.passed + totals.failed + totals.skipped - tests_before} tests")
        tests_before = totals.passed + totals.failed + totals.skipped
    if tests_before == 0:
        totals.failed += 1
        totals.failures.append(("no test ran", ""))
    read_checks(results / "checks", totals)
    for name, output in totals.failures:
        print(f"\nFAILED {name}")
        for line in output.splitlines()[-60:]:
            print(f"    {line}")
    print(f"{totals.passed} passed, {totals.failed} failed, {totals.skipped} skipped")
    return 1 if totals.failed else 0


if __name__ == "__main__":
    sys.exit(main())
