#!/usr/bin/env python3
"""fit, plan and simulate: the keys that scripts read, and that they agree with each other."""
import json

from _bayplan import Folder, check, equal, main, ok, run

TINY = "gpt:hidden=64,layers=4,heads=4,vocab=97,seq=32,tied=no"
TERMS = ["parameters", "gradients", "master", "moments", "activations", "logits", "recompute", "communication",
         "workspace", "context", "fragmentation", "gathered_parameters", "unit_gradients"]
RANK_KEYS = ["rank", "stage", "moment", "allocated_bytes", "reserved_bytes", "device_bytes", "capacity_bytes", "terms"]


def check_answer(answer, schema):
    equal(answer["schema"], schema)
    for key in ("verdict", "probability_fits", "model", "job", "layout", "cluster", "peak", "ranks", "host", "nvme",
                "step", "fixes", "warnings", "assumptions"):
        check(key in answer, f"{schema} has no '{key}'")
    check(answer["verdict"] in ("fits", "tight", "does_not_fit"), answer["verdict"])
    equal(answer["verdict"] == "tight", 0.1 < answer["probability_fits"] < 0.9)
    for key in ("name", "parameters", "active_parameters", "trainable_parameters"):
        check(key in answer["model"], key)
    for rank in [answer["peak"], *answer["ranks"]]:
        for key in RANK_KEYS:
            check(key in rank, f"a rank has no '{key}'")
        equal(sorted(rank["terms"]), sorted(TERMS))
        equal(sum(rank["terms"].values()), rank["device_bytes"], "terms add up")
        check(rank["moment"] in ("load", "first_step", "steady", "save"), rank["moment"])
        check(rank["allocated_bytes"] <= rank["reserved_bytes"] <= rank["device_bytes"], str(rank))
    check(answer["peak"] in answer["ranks"], "the peak is one of the ranks")
    equal(sum(r["count"] for r in answer["ranks"]), answer["cluster"]["devices"])
    for key in ("per_node_bytes", "pinned_bytes", "peak_moment"):
        check(key in answer["host"], key)
    check("per_node_bytes" in answer["nvme"], "nvme")
    step = answer["step"]
    low, mid, high = (step["seconds"][k] for k in ("low", "mid", "high"))
    check(0 < low <= mid <= high, str(step))
    parts = step["breakdown"]
    equal(sorted(parts), sorted(["compute", "exposed_communication", "bubble", "optimizer", "offload", "launch"]))
    check(abs(sum(parts.values()) - mid) <= 1e-6 * mid, f"breakdown {parts} of {mid}")
    tokens = answer["job"]["global_batch"] * answer["job"]["seq"]
    check(abs(step["tokens_per_second"] * mid - tokens) <= 1e-6 * tokens, "tokens per second")
    for key in ("mfu", "hfu"):
        check(0 <= step[key] <= 1, key)
    for assumption in answer["assumptions"]:
        equal(sorted(assumption), ["source", "value", "what"])
        check(assumption["source"] in ("specification", "calibrated", "measured", "default"), str(assumption))


def fit_says_what_scripts_read():
    answer = ok("fit", "gpt2", "4xh100-sxm-80gb", "--global-batch", "8", "--precision", "bf16", "--json").json()
    check_answer(answer, "bayplan.fit/1")
    equal(answer["verdict"], "fits")
    equal(answer["model"]["parameters"], 124439808)  # the published GPT-2
    equal(answer["fixes"], [])
    job = answer["job"]
    equal((job["seq"], job["global_batch"], job["precision"]), (1024, 8, "bf16"))
    layout = answer["layout"]
    equal(layout["pp"] * layout["dp"] * layout["tp"] * layout["cp"], 4)


def what_is_given_is_fixed():
    layout = ok("fit", TINY, "4xh200", "--pp", "2", "--micro-batch", "2", "--zero", "1", "--schedule", "gpipe",
                "--global-batch", "8", "--json").json()["layout"]
    equal([layout[k] for k in ("pp", "dp", "micro_batch", "zero", "schedule", "micro_batches")],
          [2, 2, 2, 1, "gpipe", 2])


def what_does_not_fit_exits_3_with_fixes():
    # gpt2-xl in fp32: 16 bytes x 1.56e9 parameters = 24.9 GB before activations; 8 samples of
    # 1,024 tokens do not fit beside them on 40 GB, 1 does.
    result = run("fit", "gpt2-xl", "a100-sxm-40gb", "--global-batch", "8", "--micro-batch", "8", "--json")
    equal(result.code, 3)
    answer = result.json()
    check_answer(answer, "bayplan.fit/1")
    equal(answer["verdict"], "does_not_fit")
    peak = answer["peak"]["device_bytes"]
    check(peak > answer["peak"]["capacity_bytes"], str(answer["peak"]))
    check(answer["fixes"], "no fixes")
    for fix in answer["fixes"]:
        for key in ("change", "kind", "exactness", "peak_bytes", "step_ratio"):
            check(key in fix, key)
        check(fix["exactness"] in ("exact", "stale", "lossy", "model-changing", "different-optimizer"), str(fix))
        check(fix["peak_bytes"] < peak, str(fix))
    # The first is a smaller micro-batch, and it does what it says.
    first = answer["fixes"][0]
    equal((first["kind"], first["exactness"]), ("micro-batch", "exact"))
    option, value = first["change"].split()
    again = ok("fit", "gpt2-xl", "a100-sxm-40gb", "--global-batch", "8", option, value, "--json").json()
    equal(again["peak"]["device_bytes"], first["peak_bytes"])
    ratio = again["step"]["seconds"]["mid"] / answer["step"]["seconds"]["mid"]
    check(abs(ratio - first["step_ratio"]) < 1e-9, f"{ratio} against {first['step_ratio']}")
    text = run("fit", "gpt2-xl", "a100-sxm-40gb", "--global-batch", "8", "--micro-batch", "8")
    equal(text.code, 3)
    check("--micro-batch" in text.out and "does_not_fit" in text.out, text.out)


def capacity_decides_the_verdict():
    arguments = ("fit", TINY, "h200", "--global-batch", "1")
    peak = ok(*arguments, "--json").json()["peak"]["device_bytes"]
    # The overhead interval of a GPU process is -200 MiB .. +800 MiB: far above it fits, far below
    # it does not, in between nobody knows.
    for memory, verdict in ((peak + (2 << 30), "fits"), (peak + (300 << 20), "tight"), (peak - (500 << 20), "does_not_fit")):
        result = run(*arguments, "--set", f"memory={max(memory, 1)}B", "--json")
        equal(result.json()["verdict"], verdict, f"{memory} bytes for {peak}")
        equal(result.code, 3 if verdict == "does_not_fit" else 0)
    # CPU arenas are exact: one byte decides.
    arguments = ("fit", TINY, "localhost:1", "--calibration", "none")
    peak = ok(*arguments, "--json").json()["peak"]["device_bytes"]
    equal(run(*arguments, "--set", f"memory={peak}B", "--json").json()["probability_fits"], 0.99)
    equal(run(*arguments, "--set", f"memory={peak - 1}B", "--json").json()["probability_fits"], 0.01)


def plan_is_the_fastest_of_what_fits():
    with Folder() as folder:
        path = folder.file("plan.json")
        answer = ok("plan", TINY, "4xh200", "--global-batch", "8", "-o", path, "--json").json()
        check_answer(answer, "bayplan.plan-result/1")
        equal(sorted(answer["search"]), ["best", "evaluated", "gap", "lower_bound", "seconds", "space"])
        equal(answer["search"]["gap"], None)
        equal(answer["search"]["evaluated"], 115)  # counted by hand in the search's own test
        equal(answer["output"], path)
        for pp in (1, 2, 4):
            other = ok("plan", TINY, "4xh200", "--global-batch", "8", "--pp", pp, "--json").json()
            check(other["search"]["best"] >= answer["search"]["best"], f"pp {pp} is faster")
        verified = ok("verify", path, "--json").json()
        equal((verified["verified"], verified["findings"]), (True, []))
        equal(verified["fingerprint"], answer["fingerprint"])
        simulated = ok("simulate", path, "--json").json()
        check_answer(simulated, "bayplan.simulate/1")
        for key in ("fingerprint", "verdict", "peak", "ranks", "layout", "job", "model"):
            equal(simulated[key], answer[key], key)
        equal(simulated["step"]["seconds"]["mid"], answer["search"]["best"])
        # A slower network changes times, not the program.
        other = ok("simulate", path, "4xa100-sxm-40gb", "--json").json()
        equal(other["fingerprint"], answer["fingerprint"])
        check(other["step"]["seconds"]["mid"] > simulated["step"]["seconds"]["mid"], "an A100 is slower than an H200")


def verify_prints_the_whole_program_on_request():
    with Folder() as folder:
        path = folder.file("plan.json")
        ok("plan", TINY, "4xh200", "--pp", "2", "--global-batch", "8", "-o", path)
        silent = ok("verify", path)
        check("send_act" not in silent.out, "no text without --text")
        text = ok("verify", path, "--text", "--json").json()["text"]
        equal(ok("verify", path, "--text").out, text + silent.out)
        # Every counted instruction is a line "i5 ..." of the text.
        lines = [line for line in text.splitlines() if line.startswith("i")]
        equal(len(lines), ok("verify", path, "--json").json()["instructions"])
        check(any(" send_act " in line for line in lines), "stage 0 sends its activations")
        equal("text" in ok("verify", path, "--json").json(), False)


def nothing_is_written_without_o_nor_when_nothing_fits():
    with Folder() as folder:
        ok("plan", TINY, "h200", cwd=folder.path)
        path = folder.file("p.json")
        result = run("plan", "gpt2-xl", "h200", "--set", "memory=1GiB", "-o", path, "--json", cwd=folder.path)
        equal(result.code, 3)
        equal(result.json()["output"], None)
        with_nothing = run("verify", path)
        equal(with_nothing.code, 2)


def output_is_the_same_every_time():
    def once(name, folder):
        path = folder.file(name)
        ok("plan", TINY, "2x2xa100-sxm-80gb", "--global-batch", "8", "-o", path)
        with open(path) as f:
            return f.read()

    with Folder() as folder:
        equal(once("a.json", folder), once("b.json", folder))
        first = ok("simulate", folder.file("a.json"), "--timeline", folder.file("1"), "--trace", folder.file("2"))
        second = ok("simulate", folder.file("a.json"), "--timeline", folder.file("3"), "--trace", folder.file("4"))
        equal(first.out.replace("/1", "/3").replace("/2", "/4"), second.out)
        for a, b in (("1", "3"), ("2", "4")):
            with open(folder.file(a)) as x, open(folder.file(b)) as y:
                equal(x.read(), y.read())


def trace_and_compare():
    with Folder() as folder:
        plan, timeline, trace = folder.file("p.json"), folder.file("t.json"), folder.file("trace.json")
        ok("plan", TINY, "4xh200", "--pp", "2", "--global-batch", "8", "--schedule", "1f1b", "-o", plan)
        step = ok("simulate", plan, "--timeline", timeline, "--trace", trace, "--json").json()["step"]["seconds"]["mid"]
        with open(trace) as f:
            events = json.load(f)
        events = events["traceEvents"] if isinstance(events, dict) else events
        for phase in ("X", "C", "M", "s", "f"):
            check(any(e["ph"] == phase for e in events), f"no event of phase {phase}")
        compared = ok("compare", plan, timeline, "--json").json()
        equal(compared["schema"], "bayplan.compare/1")
        equal(compared["step"]["ratio"], 1.0)
        check(abs(compared["step"]["predicted_s"] - step) < 1e-9, str(compared["step"]))
        check({r["name"] for r in compared["kinds"]} >= {"forward", "backward", "send_activation"}, "kinds")
        equal(len(compared["ranks"]), 4)
        ok("compare", timeline, timeline)
        # Another program cannot be compared.
        other = folder.file("o.json")
        ok("plan", TINY, "4xh200", "--pp", "4", "--global-batch", "8", "-o", other)
        result = run("compare", other, timeline, "--json")
        equal((result.code, result.json()["code"]), (2, "different-programs"))
        result = run("compare", plan, folder.path, "--json")
        equal((result.code, result.json()["code"]), (2, "file-not-found"))


main([fit_says_what_scripts_read, what_is_given_is_fixed, what_does_not_fit_exits_3_with_fixes,
      capacity_decides_the_verdict, plan_is_the_fastest_of_what_fits, verify_prints_the_whole_program_on_request,
      nothing_is_written_without_o_nor_when_nothing_fits, output_is_the_same_every_time, trace_and_compare])
