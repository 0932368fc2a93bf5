"""A killed process: the launcher's exit code stands, the survivors say whom they waited for, and
nothing is left behind."""

import os
import signal
import tempfile

import _mpi


def main():
    _mpi.skip_without_mpi()
    with tempfile.TemporaryDirectory(prefix="bayplan_killed_") as directory:
        job = _mpi.MpiJob(4, directory, ["--pp", "2", "--dp", "2", "--steps", "1000000",
                                         "--deadline", "20s"])
        job.wait_for_steps(5)
        os.kill(job.ranks()[3], signal.SIGKILL)
        code = job.wait(timeout=60)
        text = job.stderr()
        assert code != 0, text
        reports = [line for line in text.splitlines() if "bayplan: told to stop: rank " in line]
        assert reports, f"no survivor reported:\n{text}"
        for line in reports:
            assert " of train_step" in line or " of load" in line, line
            assert ", waiting for " in line, line
        assert any("instruction i" in line or "between instructions" in line for line in reports), text
        print("survivors:", *reports, sep="\n")


if __name__ == "__main__":
    main()
