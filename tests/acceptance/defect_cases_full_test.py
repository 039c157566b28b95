#!/usr/bin/env python3
"""Every defect of tests/cases is found, blamed on the right nodes, stage and pass; releases without it are clean."""

import sys
import tomllib

from support import CANNOT_RUN, CLEAN, DEFECT, ROOT, Tally, compare, require

PATIENCE = 2400  # seconds: a compiler is asked anew for each set of passes


def passes_of(known: dict) -> tuple[set[str], set[str]]:
    """The passes that make the fault, and all whose absence is known to repair it."""
    makers = set(filter(None, known["pass"].split("+")))
    repairing = {spec.partition("disable=")[2] for spec in known["healthy"]} - {""}
    return makers, makers | repairing


def faults_of_affected(run, known: dict, nodes: list[str]) -> list[str]:
    faults = run.leftovers()
    if run.status != DEFECT or run.result is None or run.result["status"] != "defect":
        return faults + [run.describe()]
    blamed = {node for culprit in run.result["culprits"] for node in culprit["nodes"]}
    if not blamed or not blamed <= set(nodes):
        faults.append(f"blamed {sorted(blamed)}, culprits are {nodes}")
    makers, repairing = passes_of(known)
    for culprit in run.result["culprits"]:
        if culprit["stage"] != known["stage"]:
            faults.append(f"stage {culprit['stage']}, not {known['stage']}")
        named = set(filter(None, culprit["pass"].replace("|", "+").split("+")))
        if bool(named & makers) != bool(makers) or not named <= repairing:
            faults.append(f"pass {culprit['pass']!r}, not {known['pass']!r}")
        for proof in ("necessary", "sufficient", "placebo"):
            if not culprit[proof]["holds"]:
                faults.append(f"{proof} does not hold: {culprit[proof]}")
    return faults


def faults_of_refusal(run, nodes: list[str]) -> list[str]:
    """A kernel that refuses a valid node has no value that could be wrong: the node is named, and nothing is blamed."""
    faults = run.leftovers()
    if run.status != CANNOT_RUN or run.result is None or run.result["status"] != "cannot-run":
        return faults + [run.describe()]
    failing = {entry["node"] for entry in run.result["failing"]}
    if not failing or not failing <= set(nodes) or run.result["culprits"]:
        faults.append(f"failing {sorted(failing)}, culprits {run.result['culprits']}, not {nodes}")
    return faults


def main() -> int:
    tally = Tally("defects of released frameworks")
    cases = sorted(ROOT.glob("tests/cases/*/case.toml"))
    known_of = {path.parent: tomllib.loads(path.read_text()) for path in cases}
    for known in known_of.values():
        for spec in (known["backend"], *known["healthy"]):
            require(spec.partition(":")[0])
    for folder, known in known_of.items():
        for model, inputs, nodes, symptom in (
            ("model", "input", known["culprit_nodes"], known["symptom"]),
            ("embedded", "embedded_input", known["embedded_culprit_nodes"], known.get("embedded_symptom")),
        ):
            if not (folder / f"{model}.onnx").exists():
                continue  # controls have no embedded graph
            files = [folder / f"{model}.onnx", "--inputs", folder / f"{inputs}.npz", "--backends"]
            control = known["negative_control"]
            if not control:
                with compare(*files, known["backend"], timeout=PATIENCE) as run:
                    refused = symptom == "run-error"
                    faults = faults_of_refusal(run, nodes) if refused else faults_of_affected(run, known, nodes)
                    tally.case(f"{known['id']} {model} on {known['backend']}", faults)
            for spec in [known["backend"]] * control + known["healthy"]:
                with compare(*files, spec, timeout=PATIENCE) as run:
                    clean = run.status == CLEAN and run.result and run.result["status"] == "clean"
                    tally.case(
                        f"{known['id']} {model} on {spec}: clean",
                        run.leftovers() + ([] if clean else [run.describe()]),
                    )
    return tally.close()


if __name__ == "__main__":
    sys.exit(main())
