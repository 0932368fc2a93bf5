"""What the tests under mpirun share: a tiny job, starting it, and finding its processes."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

SKIPPED = 77
BAYPLAN = os.environ.get("BAYPLAN_BIN", "build/bin/bayplan")
MODEL = "gpt:hidden=64,layers=4,heads=4,vocab=97,seq=32,tied=no"
JOB = ["--global-batch", "8", "--micro-batch", "1", "--dropout", "0.1", "--synthetic"]
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe"]


def skip_without_mpi():
    if shutil.which("mpirun") is None:
        print("mpirun is not installed")
        sys.exit(SKIPPED)


def run_json(command, timeout=300):
    """Runs to the end; returns the JSON object on stdout."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, f"exit {done.returncode}: {' '.join(command)}\n{done.stderr}"
    return json.loads(done.stdout)


class MpiJob:
    """A job of `ranks` processes that runs in the background and writes to `directory`."""

    def __init__(self, ranks, directory, options):
        self.directory = pathlib.Path(directory)
        self.out = self.directory / "out"
        self.stderr_path = self.directory / "stderr"
        command = MPIRUN + ["-np", str(ranks), BAYPLAN, "run", MODEL, f"localhost:{ranks}",
                            *JOB, "--out", str(self.out), *options]
        with open(self.stderr_path, "w") as stderr, open(self.directory / "stdout", "w") as stdout:
            self.process = subprocess.Popen(command, stdout=stdout, stderr=stderr)

    def wait_for_steps(self, steps, timeout=120):
        """Returns once that many steps are in metrics.jsonl."""
        end = time.monotonic() + timeout
        metrics = self.out / "metrics.jsonl"
        while time.monotonic() < end:
            if metrics.exists() and metrics.read_text().count("\n") >= steps:
                return
            assert self.process.poll() is None, f"ended early:\n{self.stderr()}"
            time.sleep(0.05)
        self.end()
        raise AssertionError(f"no {steps} steps within {timeout} s:\n{self.stderr()}")

    def ranks(self):
        """{rank: process id} of the processes that are alive."""
        found = {}
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                arguments = (entry / "cmdline").read_bytes().split(b"\0")
                if arguments[0].endswith(b"mpirun") or str(self.out).encode() not in arguments:
                    continue
                environment = (entry / "environ").read_bytes().split(b"\0")
            except OSError:
                continue  # it has just ended
            for variable in environment:
                if variable.startswith(b"OMPI_COMM_WORLD_RANK="):
                    found[int(variable.split(b"=")[1])] = int(entry.name)
        return found

    def wait(self, timeout):
        """Exit code; fails when the job is not over in time, or leaves processes behind."""
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            left = self.ranks()
            self.end()
            raise AssertionError(f"still running after {timeout} s, ranks {left}:\n{self.stderr()}")
        end = time.monotonic() + 10
        while self.ranks() and time.monotonic() < end:
            time.sleep(0.1)
        left = self.ranks()
        self.end()
        assert not left, f"processes left behind: {left}"
        return code

    def end(self):
        for pid in self.ranks().values():
            try:
                os.kill(pid, 9)
            except ProcessLookupError:
                pass
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def stderr(self):
        return self.stderr_path.read_text(errors="replace")
