"""Ranks as processes give the same bits as ranks as threads, for each kind of layout."""

import _mpi

LAYOUTS = [
    (2, ["--pp", "2", "--schedule", "gpipe"]),
    (2, ["--dp", "2", "--zero", "1", "--precision", "bf16"]),
    (4, ["--pp", "4"]),
    (4, ["--pp", "2", "--dp", "2", "--zero", "0"]),
    (4, ["--pp", "2", "--dp", "2", "--zero", "1"]),
    (4, ["--pp", "2", "--dp", "2", "--zero", "2", "--schedule", "zbv"]),
    (8, ["--pp", "2", "--dp", "4", "--zero", "3"]),
]


def main():
    _mpi.skip_without_mpi()
    for ranks, layout in LAYOUTS:
        run = [_mpi.BAYPLAN, "run", _mpi.MODEL, f"localhost:{ranks}", *_mpi.JOB, *layout,
               "--steps", "20", "--json"]
        threads = _mpi.run_json(run + ["--launch", "local"])
        processes = _mpi.run_json(_mpi.MPIRUN + ["-np", str(ranks)] + run)
        for key in ("state_hash", "losses", "grad_norms", "fingerprint"):
            assert threads[key] == processes[key], f"{layout}: {key} differs"
        for key in ("memory", "wire"):
            assert threads[key] == processes[key], f"{layout}: {key} differs:\n{threads[key]}\n{processes[key]}"
        for entry in processes["memory"]:
            assert entry["measured_bytes"] == entry["predicted_bytes"], f"{layout}: {entry}"
        assert processes["wire"], "no bytes were counted"
        for entry in processes["wire"]:
            assert entry["sent_bytes"] == entry["predicted_bytes"], f"{layout}: {entry}"
        print("equal:", *layout)


if __name__ == "__main__":
    main()
