#!/usr/bin/env python3
"""compare-state: differences, exit codes and bad files; needs no executor."""
import json
import struct

from _bayplan import Folder, check, equal, error_of, main, ok, run


def tensors(**values):
    """A safetensors file of fp32 vectors."""
    header, data = {}, b""
    for name, vector in values.items():
        start = len(data)
        data += struct.pack(f"<{len(vector)}f", *vector)
        header[name] = {"dtype": "F32", "shape": [len(vector)], "data_offsets": [start, len(data)]}
    return with_header(json.dumps(header), data)


def with_header(header, data=b""):
    return struct.pack("<Q", len(header)) + header.encode() + data


def equal_files_are_equal():
    with Folder() as folder:
        a = folder.file("a", tensors(w=[1.0, 2.0], v=[0.5]))
        b = folder.file("b", tensors(v=[0.5], w=[1.0, 2.0]))
        answer = ok("compare-state", a, b, "--json").json()
        equal(answer, {"schema": "bayplan.compare-state/1", "equal": True,
                       "tensors": [{"name": "v", "dtype": "F32", "shape": [1], "max_abs": 0.0, "max_rel": 0.0},
                                   {"name": "w", "dtype": "F32", "shape": [2], "max_abs": 0.0, "max_rel": 0.0}],
                       "only_in_a": [], "only_in_b": []})
        check("2 tensors in both, 0 differ" in ok("compare-state", a, b).out, "text")


def differences_decide_by_the_tolerance():
    with Folder() as folder:
        a = folder.file("a", tensors(w=[1.0, 2.0], v=[0.5]))
        b = folder.file("b", tensors(w=[1.0, 2.25], v=[0.5]))
        result = run("compare-state", a, b, "--json")
        equal(result.code, 1)
        answer = result.json()
        # |2 - 2.25| = 0.25, over 2.25: 1/9.
        equal((answer["equal"], answer["tensors"][1]["max_abs"]), (False, 0.25))
        check(abs(answer["tensors"][1]["max_rel"] - 1 / 9) < 1e-15, str(answer))
        equal(run("compare-state", a, b, "--tolerance", "0.24").code, 1)
        text = ok("compare-state", a, b, "--tolerance", "0.25").out
        check("2.500e-01" in text and "1 differ" in text and "equal within 0.25" in text, text)
        error = error_of("compare-state", a, b, "--tolerance", "-1")
        equal((error["code"], error["where"]), ("out-of-range", "--tolerance"))


def the_worst_twenty_come_first():
    with Folder() as folder:
        a = folder.file("a", tensors(**{f"t{i:02}": [0.0] for i in range(30)}))
        b = folder.file("b", tensors(**{f"t{i:02}": [float(i)] for i in range(30)}))
        result = run("compare-state", a, b)
        equal(result.code, 1)
        rows = [line.split()[0] for line in result.out.splitlines() if line.startswith("t") and "F32" in line]
        equal(rows, [f"t{i:02}" for i in range(29, 9, -1)])
        # t00 is equal, twenty of the other 29 are shown.
        check("and 9 more" in result.out and "30 tensors in both, 29 differ" in result.out, result.out)


def tensors_of_one_file_only():
    with Folder() as folder:
        a = folder.file("a", tensors(w=[1.0], gone=[1.0]))
        b = folder.file("b", tensors(w=[1.0], new=[1.0]))
        result = run("compare-state", a, b, "--json")
        equal(result.code, 1)
        answer = result.json()
        equal((answer["only_in_a"], answer["only_in_b"], answer["equal"]), (["gone"], ["new"], False))
        check(f"only in {a}: gone" in run("compare-state", a, b).out, "text")


def not_finite_is_null():
    with Folder() as folder:
        a = folder.file("a", tensors(w=[float("nan"), 1.0]))
        equal(ok("compare-state", a, a, "--json").json()["equal"], True)
        b = folder.file("b", tensors(w=[1.0, 1.0]))
        result = run("compare-state", a, b, "--json", "--tolerance", "1e9")
        equal((result.code, result.json()["tensors"][0]["max_abs"]), (1, None))


def bad_files():
    with Folder() as folder:
        good = folder.file("good", tensors(w=[1.0]))
        one = '{"w": {"dtype": "F32", "shape": [1], "data_offsets": %s}}'
        for content, code in [
                (b"", "truncated-safetensors"),
                (b"{}", "truncated-safetensors"),
                (b"this is a text, not tensors", "bad-safetensors"),
                (struct.pack("<Q", 1 << 62) + b"{}", "bad-safetensors"),
                (struct.pack("<Q", 64) + b'{"w": {"dtype"', "truncated-safetensors"),
                (with_header('{"w": {"dtype"'), "truncated-json"),
                (with_header("{w}"), "malformed-json"),
                (with_header(one % "[0, 4]"), "bad-safetensors"),
                (with_header(one % "[4, 8]", b"\0" * 4), "bad-safetensors"),
                (with_header(one % "[0, 9223372036854775807]", b"\0" * 4), "bad-safetensors"),
                (with_header(one % "[0, 99999999999999999999]", b"\0" * 4), "out-of-range"),
                (with_header('{"w": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}', b"\0"),
                 "unsupported-dtype"),
                (tensors(w=[1.0, 2.0]), "different-tensor"),
        ]:
            bad = folder.file("bad", content)
            error = error_of("compare-state", good, bad)
            equal(error["code"], code, str(error))
            check(error["where"].startswith(bad), str(error))
            check(error["hint"], str(error))
        equal(error_of("compare-state", good, folder.path)["code"], "not-a-file")
        equal(error_of("compare-state", good, good + ".none")["code"], "file-not-found")
        equal(error_of("compare-state", good)["code"], "usage")
        whole = tensors(w=[1.0])
        for length in range(len(whole)):
            equal(run("compare-state", good, folder.file("cut", whole[:length])).code, 2, f"{length} bytes")


main([equal_files_are_equal, differences_decide_by_the_tolerance, the_worst_twenty_come_first,
      tensors_of_one_file_only, not_finite_is_null, bad_files])
