"""What the command-line tests share: running the program and reading what it says.

Each test is a plain script: exit code 0 passed, 1 failed, 77 skipped.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import traceback

BIN = os.environ.get("BAYPLAN_BIN", "build/bin/bayplan")

# Variables of launchers and user folders would change what a plain call does.
CLEAN = {k: v for k, v in os.environ.items()
         if not k.startswith(("OMPI_", "PMI", "SLURM_", "XDG_"))
         and k not in ("RANK", "WORLD_SIZE", "HOME")}


class Skip(Exception):
    """This machine or build cannot show it."""


class Result:
    def __init__(self, done):
        self.code = done.returncode
        self.out = done.stdout
        self.err = done.stderr

    def json(self):
        return json.loads(self.out)


def run(*arguments, env=None, cwd=None, timeout=300):
    done = subprocess.run([os.path.abspath(BIN), *map(str, arguments)], capture_output=True, text=True,
                          env={**CLEAN, **(env or {})}, cwd=cwd, timeout=timeout, check=False,
                          stdin=subprocess.DEVNULL)
    return Result(done)


def ok(*arguments, **options):
    result = run(*arguments, **options)
    check(result.code == 0, f"{arguments}: exit {result.code}\n{result.err}\n{result.out[-2000:]}")
    return result


def check(condition, message):
    if not condition:
        raise AssertionError(message)


def equal(got, expected, what=""):
    check(got == expected, f"{what}: got {got!r}, expected {expected!r}")


def error_of(*arguments, exit_code=2, **options):
    """The error object of a call with --json, after checking both forms of the error."""
    spoken = run(*arguments, **options)
    equal(spoken.code, exit_code, f"exit code of {arguments}: {spoken.out[-500:]} {spoken.err}")
    check(spoken.err.startswith("bayplan: error: "), f"{arguments}: {spoken.err!r}")
    result = run(*arguments, "--json", **options)
    equal(result.code, exit_code, f"exit code of {arguments} --json")
    equal(result.err, "", f"stderr of {arguments} --json")
    error = result.json()
    equal(sorted(error), ["code", "hint", "message", "schema", "where"], f"keys of {arguments}")
    equal(error["schema"], "bayplan.error/1")
    for key in ("code", "message", "where"):
        check(error[key], f"{arguments}: '{key}' is empty: {error}")
    return error


class Folder:
    """A temporary folder that is the working directory of nobody and is removed at the end."""

    def __enter__(self):
        self.path = tempfile.mkdtemp(prefix="bayplan-cli-")
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.path, ignore_errors=True)

    def file(self, name, content=None):
        path = os.path.join(self.path, name)
        if content is not None:
            with open(path, "wb" if isinstance(content, bytes) else "w") as f:
                f.write(content)
        return path


def need_executor():
    with Folder() as folder:
        plan = folder.file("p.json")
        ok("plan", "gpt:hidden=32,layers=1,heads=2,vocab=64,seq=16", "localhost:1", "-o", plan)
        result = run("run", plan, "--synthetic", "--json")
        if result.code == 1 and result.json()["code"] == "no-executor":
            raise Skip("this build has no executor")


def main(tests):
    failed = 0
    for test in tests:
        try:
            test()
            print(f"ok      {test.__name__}")
        except Skip as reason:
            print(f"skipped {test.__name__}: {reason}")
            sys.exit(77)
        except Exception:
            failed += 1
            print(f"FAILED  {test.__name__}")
            traceback.print_exc()
    sys.exit(1 if failed else 0)
