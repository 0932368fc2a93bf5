#!/usr/bin/env python3
"""run: trains for real, says what it measured, and refuses bad data and outputs."""
import json
import os

from _bayplan import Folder, check, equal, error_of, main, need_executor, ok, run

TINY = "gpt:hidden=32,layers=2,heads=2,vocab=256,seq=16,tied=no"


def run_says_what_scripts_read():
    answer = ok("run", TINY, "localhost:2", "--synthetic", "--steps", "3", "--json").json()
    equal(answer["schema"], "bayplan.run/1")
    for key in ("fingerprint", "losses", "eval_losses", "grad_norms", "step_s", "tokens_per_second", "state_hash",
                "memory", "wire", "rss_bytes", "timeline", "checkpoint"):
        check(key in answer, key)
    equal(len(answer["losses"]), 3)
    equal(len(answer["grad_norms"]), 3)
    equal((answer["timeline"], answer["checkpoint"]), (None, None))
    check(0 < answer["step_s"]["min"] <= answer["step_s"]["median"], str(answer["step_s"]))
    check(len(answer["state_hash"]) == 32, answer["state_hash"])
    # The fixed defaults of MODEL CLUSTER.
    layout, job = answer["layout"], answer["job"]
    equal([layout[k] for k in ("pp", "dp", "micro_batch", "zero", "schedule")], [1, 2, 1, 0, "1f1b"])
    equal((job["global_batch"], job["learning_rate"], job["weight_decay"], job["clip_norm"], job["dropout"], job["seed"],
           job["precision"]), (2, 1e-3, 0.1, 1.0, 0.0, 0, "fp32"))
    for memory in answer["memory"]:
        equal(memory["measured_bytes"], memory["predicted_bytes"], str(memory))
        check(memory["workspace_used_bytes"] <= memory["workspace_declared_bytes"], str(memory))
    check(answer["wire"], "nothing was sent between two replicas")
    for wire in answer["wire"]:
        equal(sorted(wire), ["collective", "predicted_bytes", "purpose", "rank", "sent_bytes"])
        equal(wire["sent_bytes"], wire["predicted_bytes"], str(wire))


def layouts_agree_bitwise():
    def result(*layout):
        return ok("run", TINY, layout[0], *layout[1:], "--global-batch", "4", "--dropout", "0.1", "--synthetic",
                  "--steps", "3", "--json").json()

    one = result("localhost:1")
    for layout in (["localhost:2", "--pp", "2", "--schedule", "gpipe"], ["localhost:2", "--pp", "2"],
                   ["localhost:4", "--pp", "4"], ["localhost:2", "--pp", "2", "--vp", "2"],
                   ["localhost:2", "--pp", "2", "--schedule", "zb-h2"],
                   ["localhost:2", "--pp", "2", "--schedule", "zbv"]):
        other = result(*layout)
        equal(other["losses"], one["losses"], str(layout))
        equal(other["state_hash"], one["state_hash"], str(layout))
    with Folder() as folder:
        # A table brings its pipeline ranks, and the plan keeps the table.
        table = folder.file("t.csv", "0F0,0F1,0F2,0F3,,0I0,0I1,0W0,0W1,0B2,0B3\n,1F0,1B0,1F1,1B1,1F2,1B2,1F3,1B3\n")
        other = result("localhost:2", "--schedule", table)
        equal(other["state_hash"], one["state_hash"], "table")
        plan = folder.file("p.json")
        ok("plan", TINY, "localhost:2", "--global-batch", "4", "--dropout", "0.1", "--schedule", table, "--micro-batch",
           "1", "-o", plan)
        os.remove(table)
        again = ok("run", plan, "--synthetic", "--steps", "3", "--json").json()
        equal(again["state_hash"], one["state_hash"], "table in the plan")
    for recompute in ("selective", "full", "units=1", "units=1-2"):
        other = result("localhost:2", "--pp", "2", "--recompute", recompute)
        equal(other["state_hash"], one["state_hash"], recompute)
    for offload in ("optimizer", "activations=1", "optimizer@host,activations"):
        other = result("localhost:2", "--pp", "2", "--offload", offload)
        equal(other["state_hash"], one["state_hash"], offload)
        check(any(m["tier"] == "host" and m["measured_bytes"] > 0 for m in other["memory"]), offload)
        for entry in other["memory"]:
            equal(entry["measured_bytes"], entry["predicted_bytes"], offload)
    two = result("localhost:2", "--dp", "2")
    sharded = result("localhost:2", "--dp", "2", "--zero", "1")
    equal(sharded["losses"], two["losses"])
    equal(sharded["state_hash"], two["state_hash"])
    each = result("localhost:2", "--dp", "2", "--grad-reduce", "micro-batch")
    for options in (["--zero", "2"], ["--zero", "3"], ["--zero", "3", "--reshard-after-forward", "no"],
                    ["--zero", "3", "--prefetch", "0", "--persistence-threshold", "4KiB"]):
        sharded = result("localhost:2", "--dp", "2", *options)
        equal(sharded["state_hash"], each["state_hash"], str(options))
        for entry in sharded["memory"]:
            equal(entry["measured_bytes"], entry["predicted_bytes"], str(options))
        for entry in sharded["wire"]:
            equal(entry["sent_bytes"], entry["predicted_bytes"], str(options))
    equal(result("localhost:2", "--dp", "2", "--zero", "3", "--grad-reduce", "step")["state_hash"], two["state_hash"])


def optimizers_train_and_keep_their_own_state():
    with Folder() as folder:
        hashes = set()
        text = folder.file("text.txt", "in the beginning was the word. " * 400)
        for optimizer, rate, kinds in [("adamw", 0.01, {"moment1", "moment2", "step", "weights"}),
                                       ("adam", 0.01, {"moment1", "moment2", "step", "weights"}),
                                       ("sgd", 0.1, {"step", "weights"}),
                                       ("sgd-momentum", 0.1, {"moment1", "step", "weights"})]:
            state = folder.file("state.safetensors")
            arguments = ("run", TINY, "localhost:2", "--optimizer", optimizer, "--lr", rate, "--data", text, "--steps", "10",
                         "--json")
            whole = ok(*arguments, "--dump-state", state).json()
            equal(whole["job"]["optimizer"], optimizer)
            check(whole["losses"][-1] < whole["losses"][0], f"{optimizer}: {whole['losses']}")
            equal(ok(*arguments, "--zero", "1").json()["state_hash"], whole["state_hash"], optimizer)
            hashes.add(whole["state_hash"])
            with open(state, "rb") as f:
                header = json.loads(f.read(int.from_bytes(f.read(8), "little")))
            equal({name.split("/")[0] for name in header if name != "__metadata__"}, kinds, optimizer)
        equal(len(hashes), 4, "four optimizers, four results")


def learning_rates_follow_the_schedule():
    with Folder() as folder:
        plan, out = folder.file("p.json"), folder.file("out")
        ok("plan", TINY, "localhost:2", "--pp", "2", "--steps", "6", "--lr", "0.008", "--lr-schedule", "linear",
           "--warmup-steps", "2", "-o", plan)
        whole = ok("run", plan, "--synthetic", "--out", out, "--json").json()
        with open(os.path.join(out, "metrics.jsonl")) as f:
            rates = [json.loads(line)["learning_rate"] for line in f]
        # Up by a half of 0.008 twice, then down by a quarter of it from step 2 on.
        for got, expected in zip(rates, [0.004, 0.008, 0.008, 0.006, 0.004, 0.002], strict=True):
            check(abs(got - expected) < 1e-12, f"{got} is not {expected}")
        # The schedule is that of the plan: a shorter run is its beginning, a longer one is refused.
        short = ok("run", plan, "--synthetic", "--steps", "4", "--json").json()
        equal(short["losses"], whole["losses"][:4])
        error = error_of("run", plan, "--synthetic", "--steps", "7")
        equal((error["code"], error["where"]), ("bad-learning-rate", "--steps"))
        # It is used: another schedule of the same first rate trains alike for one step only.
        arguments = ("run", TINY, "localhost:1", "--synthetic", "--steps", "4", "--json")
        constant = ok(*arguments).json()
        cosine = ok(*arguments, "--lr-schedule", "cosine").json()
        equal(cosine["losses"][:2], constant["losses"][:2])
        check(cosine["losses"][2] != constant["losses"][2], str(cosine["losses"]))


def out_folder_holds_the_run():
    with Folder() as folder:
        text = folder.file("text.txt", "in the beginning was the word. " * 400)
        plan, out = folder.file("p.json"), folder.file("out")
        ok("plan", TINY, "localhost:4", "--pp", "2", "--global-batch", "4", "-o", plan)
        arguments = ("run", plan, "--data", text, "--steps", "4", "--eval-samples", "8", "--eval-every", "2")
        answer = ok(*arguments, "--out", out, "--json").json()
        check(set(os.listdir(out)) >= {"plan.json", "timeline.json", "trace.json", "metrics.jsonl"}, str(os.listdir(out)))
        equal(answer["timeline"], os.path.join(out, "timeline.json"))
        check(os.path.exists(answer["checkpoint"]), str(answer["checkpoint"]))
        check(answer["losses"][-1] < answer["losses"][0], "it learns")
        check(len(answer["eval_losses"]) >= 2, str(answer["eval_losses"]))
        with open(os.path.join(out, "metrics.jsonl")) as f:
            metrics = [json.loads(line) for line in f]
        equal([m["loss"] for m in metrics if "loss" in m][:4], answer["losses"])
        compared = ok("compare", plan, out, "--json").json()
        check(compared["step"]["measured_s"] > 0, str(compared["step"]))
        equal(compared["fingerprint"], answer["fingerprint"])
        # The plan in the folder is the plan that ran.
        again = ok("run", os.path.join(out, "plan.json"), "--data", text, "--steps", "4", "--eval-samples", "8", "--json")
        equal(again.json()["state_hash"], answer["state_hash"])
        error = error_of(*arguments, "--out", out)
        equal((error["code"], error["where"]), ("output-in-use", out))


def bad_data_and_outputs():
    with Folder() as folder:
        plan = folder.file("p.json")
        ok("plan", TINY, "localhost:1", "-o", plan)
        for arguments, code in [
                (["--synthetic", "--data", "x"], "usage"),
                ([], "usage"),
                (["--data", folder.file("none")], "data-not-readable"),
                (["--data", folder.file("empty", b"")], "data-empty"),
                (["--data", folder.file("short", b"abc")], "data-too-short"),
                (["--synthetic", "--eval-every", "2"], "usage"),
                (["--synthetic", "--eval-samples", "8", "--held-out", "0"], "usage"),
                (["--synthetic", "--steps", "0"], "out-of-range"),
                (["--synthetic", "--deadline", "0"], "out-of-range"),
                (["--synthetic", "--deadline", "soon"], "bad-quantity"),
                (["--synthetic", "--launch", "mpi"], "not-launched"),
                (["--synthetic", "--launch", "ssh"], "unknown-value"),
                (["--synthetic", "--lr", "1"], "usage"),
                (["--synthetic", "--dump-state", os.path.join(folder.path, "no", "s")], "unwritable-output"),
                (["--synthetic", "--out", "/proc/none"], "output-not-writable"),
        ]:
            equal(error_of("run", plan, *arguments)["code"], code, str(arguments))
        error = error_of("run", plan, "--synthetic", env={"RANK": "0", "WORLD_SIZE": "2"})
        equal(error["code"], "no-rendezvous")
        check("mpirun -np N" in error["hint"], str(error))
        equal(error_of("run", plan, "--synthetic", env={"SLURM_PROCID": "0"})["code"], "no-rendezvous")
        equal(error_of("run", plan, "--synthetic", env={"OMPI_COMM_WORLD_SIZE": "3"})["code"], "world-size")


def what_does_not_fit_is_not_started():
    with Folder() as folder:
        plan = folder.file("p.json")
        ok("plan", TINY, "localhost:1", "-o", plan)
        equal(error_of("run", plan, "--set", "memory=1KiB", "--synthetic", exit_code=3)["code"], "does-not-fit")


def dumped_state_is_safetensors():
    with Folder() as folder:
        path = folder.file("state.safetensors")
        ok("run", TINY, "localhost:1", "--synthetic", "--dump-state", path)
        with open(path, "rb") as f:
            header = json.loads(f.read(int.from_bytes(f.read(8), "little")))
        check(any("attention" in name for name in header), str(list(header)[:5]))


def dumped_states_are_compared():
    with Folder() as folder:
        one, piped, other = (folder.file(name) for name in ("one", "piped", "other"))
        arguments = ("--synthetic", "--global-batch", "2", "--steps", "2", "--precision", "bf16")
        ok("run", TINY, "localhost:1", *arguments, "--dump-state", one)
        ok("run", TINY, "localhost:2", "--pp", "2", *arguments, "--dump-state", piped)
        ok("run", TINY, "localhost:1", *arguments, "--seed", "1", "--dump-state", other)
        answer = ok("compare-state", one, piped, "--json").json()
        equal((answer["equal"], answer["only_in_a"], answer["only_in_b"]), (True, [], []))
        equal({t["name"].split("/")[0] for t in answer["tensors"]}, {"weights", "master", "moment1", "moment2", "step"})
        result = run("compare-state", one, other, "--json")
        equal(result.code, 1)
        differ = {t["name"].split("/")[0] for t in result.json()["tensors"] if t["max_abs"] > 0}
        equal(differ, {"weights", "master", "moment1", "moment2"}, "the step is the same")


need = [need_executor]
main(need + [run_says_what_scripts_read, layouts_agree_bitwise,
             optimizers_train_and_keep_their_own_state,
             learning_rates_follow_the_schedule, out_folder_holds_the_run, bad_data_and_outputs,
             what_does_not_fit_is_not_started, dumped_state_is_safetensors,
             dumped_states_are_compared])
