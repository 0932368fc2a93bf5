#!/usr/bin/env python3
"""presets and help: everything that is known is listed, with sources, defaults and units."""
import csv
import os
import re

from _bayplan import Folder, check, equal, main, ok, run

COMMANDS = ["fit", "plan", "simulate", "run", "compare", "verify", "calibrate", "presets"]
DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "model_parameters.csv")


def published_parameter_counts():
    with open(DATA) as f:
        rows = list(csv.DictReader(line for line in f if not line.startswith("#")))
    check(len(rows) >= 20, "the table is short")
    listed = {m["name"]: m for m in ok("presets", "models", "--json").json()["models"]}
    for row in rows:
        equal(listed[row["name"]]["parameters"], int(row["parameters"]), row["name"])


def a_model_by_any_name():
    model = ok("presets", "models", "gpt2", "--json").json()
    for key in ("name", "family", "parameters", "active_parameters", "layers", "hidden"):
        check(key in model, key)
    equal((model["layers"], model["hidden"], model["parameters"]), (12, 768, 124439808))
    # 2 blocks of 12 h^2 + 13 h, embedding (97 + 16) h, final norm 2 h; tied. h = 32:
    # 2 * (12288 + 416) + 3616 + 64 = 29088
    equal(ok("presets", "models", "gpt:hidden=32,layers=2,heads=2,vocab=97,seq=16", "--json").json()["parameters"], 29088)
    with Folder() as folder:
        config = folder.file("config.json", '{"model_type": "gpt2", "n_embd": 32, "n_layer": 2, "n_head": 2, '
                                            '"vocab_size": 97, "n_positions": 16}')
        for name in (config, folder.path):
            equal(ok("presets", "models", name, "--json").json()["parameters"], 29088)


def hardware_has_sources():
    for device in ok("presets", "hardware", "--json").json()["hardware"]:
        for key in ("name", "device", "node", "inter_node", "sources"):
            check(key in device, key)
        check(device["sources"], device["name"])
    names = {d["name"] for d in ok("presets", "hardware", "--json").json()["hardware"]}
    check(names >= {"v100-sxm2-16gb", "v100-sxm2-32gb", "a100-sxm-40gb", "a100-sxm-80gb", "h100-sxm-80gb", "h200", "cpu"},
          str(names))


def every_kind_lists_and_describes():
    everything = ok("presets", "--json").json()
    for kind in ("models", "hardware", "runtimes", "schedules"):
        check(everything[kind], kind)
        ok("presets", kind)
        for name in everything[kind]:
            described = ok("presets", kind, name, "--json").json()
            equal(described["name"], name)
        ok("presets", kind, everything[kind][0])


def help_lists_every_option_with_its_default():
    text = ok("--help").out
    for command in COMMANDS:
        check(re.search(rf"^  {command}\b", text, re.M), f"{command} is not listed")
        one = ok(command, "--help").out
        options = re.findall(r"^  (--?[a-z][a-z-]*)( \S+)?", one, re.M)
        check(options, f"{command} has no options")
        plain = re.sub(r"\s+", " ", one)
        for name, value in options:
            if name in ("--help", "--json", "--synthetic", "--set", "--data") or not value:
                continue
            start = plain.index(f"{name}{value}")
            following = [m.start() for m in re.finditer(r" --?[a-z][a-z-]* [A-Z0-9a-z|]+ [A-Z]", plain) if m.start() > start]
            described = plain[start:following[0] if following else len(plain)]
            check("(default:" in described, f"{command} {name} says no default: {described}")
    check(ok("--version").out.startswith("bayplan "), "version")


def no_command_is_a_usage_error():
    result = run()
    equal((result.code, result.out), (2, ""))
    check("Usage" in result.err, result.err)


main([published_parameter_counts, a_model_by_any_name, hardware_has_sources, every_kind_lists_and_describes,
      help_lists_every_option_with_its_default, no_command_is_a_usage_error])
