#!/usr/bin/env python3
"""Every bad input is refused with exit 2 and says what, where and what to do."""
import json
import os

from _bayplan import Folder, check, equal, error_of, main, ok, run

TINY = "gpt:hidden=32,layers=2,heads=2,vocab=64,seq=16"


def bad_command_lines():
    # arguments, code, part of where, part of hint
    cases = [
        (["fti"], "unknown-command", "fti", "'fit'"),
        (["fit", "gpt2"], "usage", "fit", "--help"),
        (["fit", "gpt2", "h200", "h200"], "usage", "fit", "--help"),
        (["fit", "gpt2", "h200", "--sqe", "5"], "unknown-option", "--sqe", "'--seq'"),
        (["fit", "gpt2", "h200", "--seq", "1", "--seq", "2"], "usage", "fit", "--help"),
        (["fit", "gpt2", "h200", "--seq", "many"], "usage", "--seq", "digits"),
        (["fit", "gpt2", "h200", "--seq", "0"], "out-of-range", "--seq", "1"),
        (["fit", "gpt2", "h200", "--seq", "-5"], "out-of-range", "--seq", "1"),
        (["fit", "gpt2", "h200", "--seq", "99999999999999999999"], "out-of-range", "--seq", "1"),
        (["fit", "gpt2", "h200", "--global-batch", "0"], "out-of-range", "--global-batch", "1"),
        (["fit", "gpt2", "h200", "--dropout", "1"], "out-of-range", "--dropout", "0"),
        (["fit", "gpt2", "h200", "--clip", "0"], "out-of-range", "--clip", ""),
        (["presets", "modles"], "unknown-value", "presets", "'models'"),
        (["presets", "schedules", "1f1c"], "unknown-preset", "schedules", "'1f1b'"),
        (["presets", "runtimes", "bayplane"], "unknown-preset", "runtime", "'bayplan'"),
    ]
    for arguments, code, where, hint in cases:
        error = error_of(*arguments)
        equal(error["code"], code, f"{arguments}: {error}")
        check(where in error["where"], f"{arguments}: {error}")
        check(hint in error["hint"], f"{arguments}: {error}")


def unknown_presets_name_the_nearest():
    error = error_of("fit", "gpt2-larg", "h200")
    equal(error["code"], "unknown-preset")
    check("'gpt2-large'" in error["hint"], str(error))
    error = error_of("fit", "gpt2", "8xh100")
    equal(error["code"], "unknown-preset")
    check("'h100-sxm-80gb'" in error["hint"], str(error))
    error = error_of("presets", "hardware", "a100-sxm-8gb")
    check("'a100-sxm-80gb'" in error["hint"], str(error))


def shapes_that_cannot_be():
    for model, code in [
            ("gpt:hidden=65,layers=2,heads=4", "bad-shape"),
            ("gpt:hidden=64,layers=2,heads=4,kv_heads=3", "bad-shape"),
            ("gpt:hidden=64,layers=2", "bad-shape"),
            ("gpt:hidden=64,layers=2,heads=4,depth=3", "unknown-field"),
            ("gpt:hidden=9999999999999999999,layers=2,heads=4", "bad-shape"),
    ]:
        error = error_of("fit", model, "h200")
        equal(error["code"], code, model)
        check("MODEL" in error["where"], str(error))


def jobs_that_do_not_divide():
    equal(error_of("fit", "gpt2", "4xh200", "--global-batch", "6", "--dp", "4")["code"], "batch-not-divisible")
    equal(error_of("fit", "gpt2", "4xh200", "--global-batch", "8", "--micro-batch", "3")["code"], "batch-not-divisible")
    equal(error_of("fit", "gpt2", "4xh200", "--pp", "3")["code"], "world-size")
    equal(error_of("fit", "gpt2", "4xh200", "--pp", "2", "--dp", "4")["code"], "world-size")
    equal(error_of("run", "gpt2", "localhost:4", "--dp", "2", "--synthetic")["code"], "world-size")
    # 12 blocks, embedding and head are 14 units.
    error = error_of("plan", "gpt2", "16xh200", "--pp", "16")
    equal(error["code"], "too-many-stages")
    check("14" in error["message"], str(error))
    equal(error_of("plan", "gpt2", "h200", "--seq", "4096")["code"], "sequence-too-long")
    equal(error_of("plan", "mistral-7b-v0.1", "8xh200", "--seq", "8192")["code"], "unsupported")


def what_is_not_modelled_is_refused():
    for option in [("--tp", "2"), ("--cp", "2"), ("--ep", "2"),
                   ("--offload", "optimizer@nvme"), ("--offload", "params"), ("--offload", "activations=0.5"),
                   ("--recompute", "auto"), ("--optimizer", "lion"),
                   ("--precision", "fp16"), ("--precision", "fp8:tensorwise"), ("--grad-dtype", "bf16"),
                   ("--attention", "unfused"), ("--schedule", "zb-h3"),
                   ("--grad-reduce", "never"), ("--reshard-after-forward", "maybe"), ("--task", "lora:8"),
                   ("--runtime", "megatron-lm"),
                   ("--lr-schedule", "polynomial"), ("--zero-group", "4"), ("--sequence-parallel",),
                   ("--bucket", "25MB"), ("--overlap", "all"), ("--loss-scale", "1024")]:
        for command in (["fit", "gpt2", "8xh200"], ["run", TINY, "localhost:1", "--synthetic"]):
            error = error_of(*command, *option)
            equal(error["code"], "unsupported", str(option))
            equal(error["where"], option[0], str(option))
            check(error["hint"], str(option))
    equal(error_of("fit", "gpt2", "v100-sxm2-32gb", "--precision", "bf16")["code"], "unsupported-precision")
    equal(error_of("run", "gpt2", "h200", "--synthetic")["code"], "unsupported")
    equal(error_of("run", "llama-3.2-1b", "localhost:1", "--seq", "16", "--synthetic")["code"], "unsupported")
    equal(error_of("fit", "gpt2", "1xh200:4")["code"], "unsupported")


def learning_rate_schedules_that_contradict_themselves():
    for options, where, hint in [
            (["--lr-schedule", "cosine", "--steps", "10", "--warmup-steps", "10"], "--warmup-steps", "--steps"),
            (["--lr-schedule", "linear", "--steps", "10", "--decay-steps", "2"], "--decay-steps", "wsd"),
            (["--decay-steps", "2"], "--decay-steps", "wsd"),
            (["--lr-schedule", "wsd", "--steps", "10"], "--decay-steps", "--decay-steps N"),
            (["--lr-schedule", "wsd", "--steps", "10", "--warmup-steps", "4", "--decay-steps", "7"], "--decay-steps",
             "--steps"),
            (["--lr-min", "1e-4"], "--lr-min", "--lr-schedule"),
            (["--lr-schedule", "cosine", "--steps", "10", "--lr", "1e-4", "--lr-min", "1e-3"], "--lr-min", "--lr"),
    ]:
        error = error_of("fit", "gpt2", "h200", *options)
        equal((error["code"], error["where"]), ("bad-learning-rate", where), str(options))
        check(hint in error["hint"], str(error))
    equal(error_of("fit", "gpt2", "h200", "--warmup-steps", "-1")["code"], "out-of-range")
    ok("fit", "gpt2", "h200", "--warmup-steps", "100")


def default_values_of_restricted_options_are_accepted():
    ok("fit", TINY, "2xh200", "--recompute", "none", "--offload", "none", "--tp", "1", "--runtime", "bayplan",
       "--task", "pretrain", "--optimizer", "adamw", "--grad-reduce", "step", "--vp", "auto",
       "--lr-schedule", "constant", "--warmup-steps", "0")


def cluster_settings():
    error = error_of("fit", "gpt2", "h200", "--set", "host_memroy=1GiB")
    equal(error["code"], "unknown-path")
    check("'host_memory'" in error["hint"], str(error))
    equal(error_of("fit", "gpt2", "h200", "--set", "host_memory=1")["code"], "bad-quantity")
    equal(error_of("fit", "gpt2", "h200", "--set", "host_memory")["code"], "bad-setting")
    equal(error_of("fit", "gpt2", "h200", "--set", "memory=0GiB")["code"], "out-of-range")
    equal(error_of("fit", "gpt2", "2x8xh200@0Gbps")["code"], "out-of-range")


def broken_files():
    with Folder() as folder:
        truncated = folder.file("t.json", '{"model_type": "llama",\n "hidden_size": 64, ')
        error = error_of("presets", "models", truncated)
        equal(error["code"], "truncated-json")
        check(error["where"].startswith(truncated + ":2:"), str(error))
        malformed = folder.file("m.json", '{\n "model_type": llama}')
        error = error_of("fit", malformed, "h200")
        equal(error["code"], "malformed-json")
        equal(error["where"], malformed + ":2:16")
        equal(error_of("fit", folder.file("none.json"), "h200")["code"], "file-not-found")
        equal(error_of("fit", folder.path, "h200")["code"], "file-not-found")
        other = folder.file("o.json", '{"model_type": "mixtral"}')
        error = error_of("fit", other, "h200")
        equal(error["code"], "unsupported-family")
        check("mixtral" in error["message"] and "llama" in error["hint"], str(error))
        cluster = folder.file("c.json", '{"groups": [{"device": "h200", "nodess": 2}]}')
        error = error_of("fit", "gpt2", cluster)
        equal(error["code"], "unknown-field")
        check("'nodes'" in error["hint"] and error["where"].endswith("c.json:/groups/0"), str(error))
        bad_unit = folder.file("u.json", '{"groups": [{"device": "h200", "host_memory": "5"}]}')
        equal(error_of("fit", "gpt2", bad_unit)["where"], bad_unit + ":/groups/0/host_memory")
        equal(error_of("fit", TINY, "localhost:1", "--calibration", folder.file("x.json", "{}"))["code"], "missing-field")
        equal(error_of("fit", TINY, "h200", "--calibration", "x.json")["code"], "unsupported")


def plans():
    with Folder() as folder:
        path = folder.file("p.json")
        ok("plan", TINY, "4xh200", "--pp", "2", "--global-batch", "4", "-o", path)
        with open(path) as f:
            good = json.load(f)

        def changed(edit):
            plan = json.loads(json.dumps(good))
            edit(plan)
            return folder.file("changed.json", json.dumps(plan))

        def refused(edit, code, where=""):
            broken = changed(edit)
            for command in ("verify", "simulate"):
                error = error_of(command, broken)
                equal(error["code"], code, f"{command}: {error}")
                equal(error["where"], broken + where, str(error))

        refused(lambda p: p.update(layers=3), "unknown-field")
        refused(lambda p: p["job"].update(micro_bach=1), "unknown-field", ":/job")
        refused(lambda p: p["job"].update(seq="16"), "wrong-type", ":/job/seq")
        refused(lambda p: p["job"].update(global_batch=0), "out-of-range", ":/job/global_batch")
        refused(lambda p: p.pop("mesh"), "missing-field")
        refused(lambda p: p["hardware"]["groups"][0].update(host_memory="lots"), "bad-quantity",
                ":/hardware/groups/0/host_memory")
        refused(lambda p: p.update(model="gpt:hidden=64,layers=2,heads=2,vocab=64,seq=16"), "plan-for-another-model",
                ":/architecture")
        refused(lambda p: p["stages"][1].update(unit_count=1), "plan-for-another-model", ":/stages")
        refused(lambda p: p["mesh"].update(dp=4), "world-size", ":/mesh")
        refused(lambda p: p["job"].update(micro_batch=3), "batch-not-divisible", ":/job/global_batch")
        refused(lambda p: p["stages"][0].update(zero=4), "out-of-range", ":/stages/0/zero")
        refused(lambda p: p["job"].update(lr_schedule="linear", warmup_steps=1), "bad-learning-rate", ":/job/warmup_steps")
        # Hardware too slow for the clock ends in an error, not in a loop.
        slow = changed(lambda p: p["hardware"]["groups"][0]["device"].update(attention_efficiency=1e-320))
        equal(error_of("simulate", slow)["code"], "time-overflow")
        # A plan on another cluster of another size, and a file that is no plan.
        equal(error_of("simulate", path, "8xh200")["code"], "world-size")
        equal(error_of("verify", folder.file("none.json"))["code"], "file-not-found")
        equal(error_of("simulate", folder.file("e.json", ""))["code"], "truncated-json")
        equal(error_of("fit", path, "h200")["code"], "not-a-model")
        equal(error_of("fit", "gpt2", path)["code"], "not-a-cluster")
        # Names alone are enough, and every prefix of a plan is refused without a crash.
        names = changed(lambda p: (p.pop("architecture"), p.pop("hardware")))
        ok("verify", names)
        text = json.dumps(good)
        for length in range(0, len(text), 97):
            result = run("verify", folder.file("cut.json", text[:length]), "--json")
            equal(result.code, 2, f"prefix of {length} bytes")
            equal(result.json()["code"], "truncated-json", f"prefix of {length} bytes")


def recompute():
    for units in ("0", "3", "7", "2,1", "1,1"):  # TINY has the units embedding, two blocks, head
        equal(error_of("run", TINY, "localhost:1", "--synthetic", "--recompute", "units=" + units)["code"],
              "bad-recompute", units)
    for units in ("", "x", "1-", "2-1", "1,", "99999999999", "-1"):
        equal(error_of("run", TINY, "localhost:1", "--synthetic", "--recompute", "units=" + units)["code"],
              "usage", units)


def offload():
    for text in ("", "optimiser", "optimizer,", "optimizer,optimizer", "optimizer=0", "optimizer=2", "optimizer=x",
                 "optimizer@disk", "none,optimizer"):
        equal(error_of("run", TINY, "localhost:1", "--synthetic", "--offload", text)["code"], "usage", text)


def schedules():
    equal(error_of("run", TINY, "localhost:2", "--pp", "2", "--synthetic", "--vp", "2", "--schedule", "1f1b")["code"],
          "unsupported-chunks")
    equal(error_of("run", TINY, "localhost:2", "--pp", "2", "--synthetic", "--vp", "3")["code"], "too-many-stages")
    equal(error_of("run", TINY, "localhost:2", "--pp", "2", "--synthetic", "--schedule", "zbv", "--vp", "1")["code"],
          "unsupported-chunks")
    equal(error_of("run", TINY, "localhost:2", "--synthetic", "--schedule", "none.csv")["code"], "file-not-found")
    with Folder() as folder:
        def refused(lines, code, where, *options):
            path = folder.file("t.csv", "\n".join(lines))
            error = error_of("run", TINY, "localhost:2", "--synthetic", "--global-batch", "2", "--schedule", path,
                             *options)
            equal(error["code"], code, str(error))
            check(where in error["where"], str(error))

        good = ["0F0,0F1,0B0,0B1", "1F0,1B0,1F1,1B1"]
        refused(["0F0,0F1,0X0", good[1]], "bad-schedule-table", "t.csv, line 1")
        refused(good[:1] + ["1F0,1B0"], "schedule-incomplete", "--schedule")
        refused(["0F0,0B0,0F1,0B1", "1F1,1F0,1B0,1B1"], "schedule-deadlock", "--schedule")
        refused(["0F0,0F1,0B1,0B0", good[1]], "schedule-order", "--schedule")
        refused(good + ["2F0,2B0,2F1,2B1"], "world-size", "--pp")
        refused(good, "schedule-shape", "--pp", "--pp", "1")
        refused(good, "schedule-shape", "--vp", "--vp", "2")


def unwritable_outputs():
    with Folder() as folder:
        for path in (os.path.join(folder.path, "no", "such", "p.json"), folder.path):
            error = error_of("plan", TINY, "h200", "-o", path)
            equal(error["code"], "unwritable-output")
            equal(error["where"], path)
        path = folder.file("p.json")
        ok("plan", TINY, "h200", "-o", path)
        error = error_of("simulate", path, "--trace", os.path.join(folder.path, "no", "t.json"))
        equal(error["code"], "unwritable-output")
        equal(sorted(os.listdir(folder.path)), ["p.json"], "nothing is left behind")


main([bad_command_lines, unknown_presets_name_the_nearest, shapes_that_cannot_be, jobs_that_do_not_divide,
      what_is_not_modelled_is_refused, learning_rate_schedules_that_contradict_themselves,
      default_values_of_restricted_options_are_accepted, cluster_settings,
      broken_files, plans, recompute, offload, schedules, unwritable_outputs])
