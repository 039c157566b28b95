#!/usr/bin/env python3
"""Models and inputs that cannot be used end in one clear message and status 2, and leave nothing behind."""

import json
import pathlib
import sys
import tempfile

import files
from support import CANNOT_RUN, CLEAN, DEFECT, ROOT, Tally, compare, is_there

BAD = ROOT / "tests" / "models" / "bad"


def refused(run, words: list[str]) -> list[str]:
    """Status 2, one line on standard error with the words, nothing on standard output, no files."""
    faults = run.leftovers()
    if run.status != CANNOT_RUN:
        faults.append(f"not status {CANNOT_RUN}: {run.describe()}")
    lines = run.stderr.splitlines()
    if len(lines) != 1 or not lines[0].startswith("opdiff: "):
        faults.append(f"not one message: {run.stderr!r}")
    faults += [f"{word!r} is not in: {run.stderr.strip()}" for word in words if word not in run.stderr]
    if run.stdout:
        faults.append(f"standard output: {run.stdout[:200]!r}")
    if run.out.exists():
        faults.append(f"made {[str(path) for path in run.out.rglob('*')]}")
    return faults


def known_to_a_backend(folder: pathlib.Path) -> Tally:
    """An operator without a reference does not stop the run."""
    tally = Tally("operators without a reference")
    model = files.onnx(
        folder / "erf.onnx",
        [("relu", "Relu", ["x"], "positive"), ("sinh", "Sinh", ["positive"], "e"), ("sum", "Add", ["e", "x"], "y")],
        {"x": [4, 8]},
        {"y": [4, 8]},
    )
    if not is_there("onnxruntime"):
        print("onnxruntime is not set up")
        return tally
    with compare(model, "--backends", "onnxruntime") as run:
        faults = run.leftovers()
        if run.status != CLEAN or run.result is None or run.result["status"] != "clean":
            faults.append(run.describe())
        elif run.result["unproven"] != ["sinh"]:
            faults.append(f"unproven: {run.result['unproven']}")
        elif "unproven" not in run.stdout:
            faults.append("the report does not say so")
        tally.case("Sinh on onnxruntime", faults)
    # What they give is of a type that nobody declares: an importing backend infers it, each node alone and in segments.
    models = {
        "QuantizeLinear": (
            [
                ("relu", "Relu", ["x"], "r"),
                ("odd", "QuantizeLinear", ["r", "step", "zero"], "q"),
                ("back", "DequantizeLinear", ["q", "step", "zero"], "d"),
                ("sum", "Add", ["d", "x"], "y"),
            ],
            {"x": [4, 8], "step": [], "zero": ("|u1", [])},
            {"y": [4, 8]},
        ),
        "NonZero": (
            [("relu", "Relu", ["x"], "r"), ("odd", "NonZero", ["r"], "n"), ("turn", "Transpose", ["n"], "t"), ("size", "Size", ["t"], "y")],
            {"x": [4, 8]},
            {"y": ("<i8", [])},
        ),
        "If": (
            [
                ("relu", "Relu", ["x"], "r"),
                ("twice", "Add", ["r", "r"], "a"),
                ("odd", "If", ["choice"], "i",
                 files.subgraph("then_branch", [("left", "Add", ["a", "x"], "l")], {"l": [4, 8]}),
                 files.subgraph("else_branch", [("right", "Mul", ["a", "r"], "m")], {"m": [4, 8]})),
                ("sum", "Add", ["i", "x"], "y"),
            ],
            {"x": [4, 8], "choice": ("|b1", [])},
            {"y": [4, 8]},
        ),
    }  # fmt: skip
    for operator, (nodes, inputs, outputs) in models.items():
        path = files.onnx(folder / f"{operator}.onnx", nodes, inputs, outputs)
        with compare(path, "--backends", "onnxruntime") as run:
            faults = run.leftovers()
            if run.status != CLEAN or "odd" not in (run.result or {}).get("unproven", []):
                faults.append(run.describe())
            elif any(node["backends"]["onnxruntime"]["outcome"] != "ok" for node in run.result["nodes"]):
                faults.append(f"{[node['backends']['onnxruntime'] for node in run.result['nodes']]}")
            tally.case(f"{operator} on onnxruntime", faults)
        with compare(path, "--backends", "onnxruntime,faulty:base=onnxruntime,node=relu,fault=scale,size=2") as run:
            faults = run.leftovers()
            named = [culprit["nodes"] for culprit in run.result["culprits"]] if run.result else None
            if run.status != DEFECT or named != [["relu"]] or not run.result["culprits"][0]["proven"]:
                faults.append(f"{named}: {run.describe()}")
            tally.case(f"{operator} behind a fault", faults)
    with compare(model, "--backends", "onnxruntime,faulty:base=onnxruntime,node=sinh,fault=scale,size=1") as run:
        named = [culprit["nodes"] for culprit in run.result["culprits"]] if run.result else None
        right = named == [["sinh"]] and run.result["unproven"] == ["sinh"] and run.result["culprits"][0]["proven"]
        faults = run.leftovers() + ([] if right and run.status == DEFECT else [run.describe()])
        tally.case("Sinh on onnxruntime and a faulty one", faults)
    return tally


def bad_models() -> Tally:
    tally = Tally("models that cannot be used")
    for path, expected in sorted(json.loads((BAD / "expected.json").read_text()).items()):
        arguments = [BAD / path, "--backends", "reference"]
        with compare(*arguments) as run:
            open_dimension = "--dim batch=N" in run.stderr
        with compare(*arguments, *(["--dim", "batch=2"] if open_dimension else [])) as run:
            # One that would be unproven is so when a backend computes it (known_to_a_backend); here none does.
            tally.case(f"{path}: {expected['why']}", refused(run, [pathlib.Path(path).name, *expected["mentions"]]))
    return tally


def bad_inputs(folder: pathlib.Path) -> Tally:
    tally = Tally("inputs and specs that cannot be used")
    model = files.small_model(folder)
    good = ("<f4", [4, 8], [0.5] * 32)
    right = files.npz(folder / "right.npz", x=good)
    with compare(model, "--backends", "reference", "--inputs", right) as run:
        tally.case("a right input is taken", run.leftovers() + ([] if run.status == CLEAN else [run.describe()]))
    truncated = folder / "truncated.npz"
    truncated.write_bytes(right.read_bytes()[:100])
    empty = folder / "empty.npz"
    empty.write_bytes(b"")
    free = files.onnx(folder / "free.onnx", [("sum", "Add", ["a", "b"], "c")], {"a": [2], "b": [2]}, {"c": [2]})
    two = ("<f4", [2], [1, 2])
    cases = [
        ("missing input", model, ["--inputs", files.npz(folder / "missing.npz", z=good)], ["missing.npz", "'x'", "z"]),
        ("one of two inputs", free, ["--inputs", files.npz(folder / "one.npz", a=two)], ["one.npz", "'b'"]),
        ("shape", model, ["--inputs", files.npz(folder / "shape.npz", x=("<f4", [8, 4], [0.5] * 32))], ["'x'", "[8,4]", "[4,8]"]),
        ("rank", model, ["--inputs", files.npz(folder / "rank.npz", x=("<f4", [32], [0.5] * 32))], ["'x'", "[32]"]),
        ("dtype", model, ["--inputs", files.npz(folder / "dtype.npz", x=("<f8", [4, 8], [0.5] * 32))], ["'x'", "double", "float"]),
        ("no such file", model, ["--inputs", folder / "nowhere.npz"], ["nowhere.npz"]),
        ("truncated .npz", model, ["--inputs", truncated], ["truncated.npz"]),
        ("empty .npz", model, ["--inputs", empty], ["empty.npz"]),
        ("no such model", folder / "nowhere.onnx", [], ["nowhere.onnx"]),
        ("a folder for a model", folder, [], [str(folder)]),
        ("unknown dimension", model, ["--dim", "batch=4"], ["batch"]),
        ("no number", model, ["--dim", "batch=four"], ["four"]),
        ("unknown rung", model, ["--fail-on", "terrible"], ["terrible"]),
        ("unknown node", model, ["--bind", "Conv=reference"], ["Conv"]),
    ]
    for name, path, arguments, words in cases:
        with compare(path, "--backends", "reference", *arguments) as run:
            tally.case(name, refused(run, words))
    for name, spec, words in (
        ("absent backend", "nonesuch", ["nonesuch"]),
        ("absent version", "onnxruntime@0.0.1", ["onnxruntime@0.0.1", "opdiff backend add onnxruntime==0.0.1"]),
        ("empty spec", "", []),
        ("unknown fault", "faulty:base=reference,op=Relu,fault=nonesuch", ["nonesuch"]),
        ("fault without place", "faulty:base=reference,fault=scale", ["node="]),
        ("fault on an absent backend", "faulty:base=nonesuch,op=Relu,fault=scale", ["nonesuch"]),
        ("the same backend twice", "reference,reference", ["reference"]),
    ):
        with compare(model, "--backends", spec) as run:
            tally.case(name, refused(run, words))
    return tally


def hostile_names(folder: pathlib.Path) -> Tally:
    """Names that would steer a terminal, forge a line of the report, or spoil an archive."""
    tally = Tally("names with control characters")
    name = "a\x1b[31m/b\nopdiff: clean\u202e"
    model = files.onnx(
        folder / "hostile.onnx",
        [(name, "Relu", ["x"], "\x1b]0;t\n"), ("sum", "Add", ["\x1b]0;t\n", "x"], "y\x9b")],
        {"x": [4, 8]},
        {"y\x9b": [4, 8]},
    )
    for backends in ("reference", "faulty:base=reference,op=Relu,fault=scale,size=2"):
        for more in ([], ["--details"]):
            with compare(model, "--backends", backends, *more) as run:
                faults = run.leftovers()
                if run.status != (CLEAN if backends == "reference" else DEFECT) or run.result is None:
                    faults.append(run.describe())
                if any(ord(c) < 32 and c != "\n" or c in "\x7f\x9b\u202e" for c in run.stdout + run.stderr):
                    faults.append(f"control characters: {run.stdout!r}")
                if "\nopdiff: clean" in run.stdout:
                    faults.append("a name forged a line")
                if backends != "reference" and len(list(run.out.glob("culprits/1-*"))) != 3:
                    faults.append(f"cases: {list(run.out.rglob('*'))}")
            tally.case(f"{backends} {more}", faults)
    return tally


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        tallies = [bad_models(), bad_inputs(pathlib.Path(folder)), known_to_a_backend(pathlib.Path(folder))]
        tallies.append(hostile_names(pathlib.Path(folder)))
    return max([tally.close() for tally in tallies])


if __name__ == "__main__":
    sys.exit(main())
