#!/usr/bin/env python3
"""A backend that crashes, hangs, is killed, talks on its standard output, or returns the wrong shape or dtype: a verdict
or a clear message, the right status, nothing left behind."""

import os
import pathlib
import sys
import tempfile

import files
from support import CANNOT_RUN, CLEAN, CRASHED, DEFECT, ROOT, SKIPPED, Tally, compare


def python_with_numpy() -> str | None:
    """An interpreter for workers/test_worker.py: that of an environment of ours, else the test's own."""
    home = os.environ.get("OPDIFF_HOME") or os.path.join(
        os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share"), "opdiff"
    )
    environments = sorted(pathlib.Path(home, "environments").glob("onnxruntime@*/bin/python"))
    for python in [*map(str, environments), sys.executable]:
        if os.system(f"'{python}' -c 'import numpy' 2> /dev/null") == 0:
            return python
    return None


def test_backend(folder: pathlib.Path, python: str) -> dict[str, str]:
    """The environment in which there is a backend `test`, workers/test_worker.py."""
    root, home = folder / "root", folder / "home"
    backend = root / "backends" / "test"
    backend.mkdir(parents=True)
    (home / "bindings").mkdir(parents=True)
    (root / "sdk").symlink_to(ROOT / "sdk")
    (root / "backends" / "reference").symlink_to(ROOT / "backends" / "reference")
    (backend / "worker.py").symlink_to(ROOT / "tests" / "workers" / "test_worker.py")
    (backend / "manifest.toml").write_text(
        'name = "test"\nkind = "python"\nabout = "every way to go wrong"\nversion = "1"\nmodule = "numpy"\n'
        'megabytes = 0\nworker = "worker.py"\n\n[[install]]\npackages = ["numpy"]\n'
    )
    (home / "bindings" / "test.toml").write_text(f'python = "{python}"\nversion = "1"\n')
    return {"OPDIFF_ROOT": str(root), "OPDIFF_HOME": str(home), "PYTHONPATH": str(ROOT / "sdk" / "python")}


def outcomes_of(run, spec: str) -> set[str]:
    return {node["backends"][spec]["outcome"] for node in run.result["nodes"] if spec in node["backends"]}


# Mode of the worker, more arguments, status, outcome of a node or of the whole model, words of the report.
MODES = (
    ("good", [], CLEAN, "ok", []),
    ("print", [], CLEAN, "ok", []),
    ("temporary", [], CRASHED, "crash", ["signal 9"]),
    ("crash", [], CRASHED, "crash", ["signal 11"]),
    ("exit", [], CRASHED, "crash", ["7"]),
    ("close", [], CRASHED, "crash", []),
    ("child", [], CRASHED, "crash", ["signal 11"]),
    ("hang", ["--time-limit", "1"], CRASHED, "timeout", ["1 s"]),
    ("garbage", [], CRASHED, "crash", ["protocol"]),
    ("oversize", [], CRASHED, "crash", []),
    ("short", [], CRASHED, "crash", []),
    ("wrong-id", [], CRASHED, "crash", ["protocol"]),
    ("memory", ["--memory-limit", "400M", "--time-limit", "20"], CRASHED, "out-of-memory", []),
    ("error", [], CANNOT_RUN, "error", ["kernel says no"]),
    ("memory-error", [], CRASHED, "out-of-memory", []),
    ("missing", [], CANNOT_RUN, "error", []),
    ("wrong-name", [], CANNOT_RUN, "error", ["nobody asked"]),
)

# Backends that do not come up: status 2 or 3 and one message.
STARTS = (("hello-error", CANNOT_RUN, "libmissing.so"), ("hello-crash", CRASHED, "signal 11"))

# Faults over the good worker: option, status, outcome, stage of the culprit.
FAULTS = (
    ("wrong-shape", DEFECT, "ok", "shape"),
    ("wrong-dtype", DEFECT, "ok", None),
    ("crash", CRASHED, "crash", None),
    ("hang", CRASHED, "timeout", None),
)


def main() -> int:
    python = python_with_numpy()
    if python is None:
        print("no Python with numpy for the test worker: opdiff backend add onnxruntime")
        return SKIPPED
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        environment = test_backend(folder, python)
        model = files.small_model(folder)
        tally = Tally("backends that go wrong")
        for mode, arguments, status, outcome, words in MODES:
            spec = f"test:mode={mode}"
            with compare(model, "--backends", f"reference,{spec}", *arguments, environment=environment, timeout=300) as run:
                faults = run.leftovers()
                if run.status != status or run.result is None:
                    faults.append(f"not status {status}: {run.describe()}")
                else:
                    seen = outcomes_of(run, spec) | {run.result["whole_model"][spec]["outcome"]}
                    if outcome not in seen:
                        faults.append(f"outcomes {seen}")
                    if outcomes_of(run, "reference") != {"ok"}:
                        faults.append(f"the other backend: {outcomes_of(run, 'reference')}")
                    faults += [f"{word!r} is not in the report" for word in words if word not in run.stdout]
                    if status != CLEAN and not any(spec in line["reason"] for line in run.result["reasons"]):
                        faults.append(f"no reason names it: {run.result['reasons']}")
                tally.case(f"{mode}: status {run.status}", faults)
        for mode, status, word in STARTS:
            with compare(model, "--backends", f"test:mode={mode}", environment=environment) as run:
                faults = run.leftovers()
                text = run.stdout + run.stderr
                if run.status != status or word not in text or "test:mode=" not in text:
                    faults.append(f"not status {status} with {word!r}: {run.describe()}")
                tally.case(f"{mode}: status {run.status}", faults)
        for fault, status, outcome, stage in FAULTS:
            spec = f"faulty:base=test,node=double,fault={fault}"
            arguments = ["--time-limit", "1"] if fault == "hang" else []
            with compare(model, "--backends", f"reference,{spec}", *arguments, environment=environment, timeout=300) as run:
                faults = run.leftovers()
                if run.status != status or run.result is None:
                    faults.append(f"not status {status}: {run.describe()}")
                else:
                    node = next(node for node in run.result["nodes"] if node["name"] == "double")
                    if node["backends"][spec]["outcome"] != outcome:
                        faults.append(f"outcome {node['backends'][spec]['outcome']}: {node['backends'][spec]['reason']}")
                    blamed = [(culprit["nodes"], culprit["stage"]) for culprit in run.result["culprits"]]
                    if [nodes for nodes, _ in blamed] != [["double"]] or stage not in (None, blamed[0][1]):
                        faults.append(f"blamed {blamed}")
                tally.case(f"fault {fault}: status {run.status}", faults)
        # An operator that only the one that dies could compute: the death is told, what was proven before it too.
        unknown = files.onnx(
            folder / "unknown.onnx",
            [("relu", "Relu", ["x"], "r"), ("odd", "TestTwice", ["r"], "l"), ("sum", "Add", ["l", "x"], "y")],
            {"x": [4, 8]},
            {"y": [4, 8]},
        )
        wrong = "faulty:base=reference,node=relu,fault=scale,size=2"
        for mode, arguments in (("hang", ["--time-limit", "1"]), ("crash", []), ("good", ["--memory-limit", "1K"])):
            for others in ("", f"{wrong},"):
                with compare(unknown, "--backends", f"{others}test:mode={mode}", *arguments, environment=environment) as run:
                    faults = run.leftovers()
                    listed = {line["status"] for line in run.result["reasons"]} if run.result else set()
                    if run.status != CRASHED or "crashed" not in listed or "odd" not in run.result["stopped"]:
                        faults.append(run.describe())
                    # With 1K the reference's worker cannot run either.
                    if others and mode != "good" and "defect" not in listed:
                        faults.append(f"listed {listed}")
                    tally.case(f"{mode} of an unknown operator, {others or 'alone'}: status {run.status}", faults)
        # The death of one and the defect of the other are both listed, and the death decides.
        dead, wrong = "test:mode=crash", "faulty:base=test,node=relu,fault=scale,size=2"
        with compare(model, "--backends", f"{dead},{wrong}", environment=environment) as run:
            faults = run.leftovers()
            listed = {line["status"] for line in run.result["reasons"]} if run.result else set()
            if run.status != CRASHED or listed != {"crashed", "defect"}:
                faults.append(f"listed {listed}; {run.describe()}")
            tally.case(f"a crash and a defect: status {run.status}, both listed", faults)
    return tally.close()


if __name__ == "__main__":
    sys.exit(main())
