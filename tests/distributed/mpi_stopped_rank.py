"""A process that hangs: the others give up at the deadline, name rank and instruction, and the
whole job ends, the hanging process included."""

import os
import signal
import tempfile
import time

import _mpi

DEADLINE = 3


def main():
    _mpi.skip_without_mpi()
    with tempfile.TemporaryDirectory(prefix="bayplan_stopped_") as directory:
        job = _mpi.MpiJob(4, directory, ["--pp", "2", "--dp", "2", "--zero", "1", "--steps", "1000000",
                                         "--deadline", f"{DEADLINE}s"])
        job.wait_for_steps(5)
        os.kill(job.ranks()[1], signal.SIGSTOP)
        start = time.monotonic()
        code = job.wait(timeout=DEADLINE + 60)
        text = job.stderr()
        assert code != 0, text
        assert time.monotonic() - start >= DEADLINE - 0.5, f"gave up early:\n{text}"
        lines = [line for line in text.splitlines() if line.startswith("bayplan: rank ")]
        assert any("gave up waiting at step " in line for line in lines), text
        # Somebody waited for the stopped rank itself; others may have waited for those.
        assert any("nothing came from rank " in line for line in lines), text
        print(*lines, sep="\n")


if __name__ == "__main__":
    main()
