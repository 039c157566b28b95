"""What result.json must hold (docs/formats/result.md): names and types, and that its parts agree with each other."""

NUMBER = (int, float, str)  # "nan", "inf", "-inf" are strings
OUTCOMES = {"ok", "unsupported", "error", "crash", "timeout", "out-of-memory"}
STATUSES = {"clean", "defect", "cannot-run", "crashed"}
RUNGS = {"exact", "rounding", "algorithm", "approximation", "flush-to-zero", "precision", "convention", "unlikely", "defect"}
STAGES = {"kernel", "fusion-or-rewrite", "quantisation-rewrite", "importer", "gradient", "update", "state", "memory-plan",
          "shape", "non-determinism", "usage"}
WORST = {"index": int, "got": NUMBER, "centre": NUMBER, "radius": NUMBER, "deviation": NUMBER}
VERDICT = {"rung": str, "profile": str, "excess": NUMBER, "z_rms": NUMBER, "z_max": NUMBER, "worst": dict}
OUTCOME = {"outcome": str, "verdict": (dict, None), "outputs": dict, "own_error": (*NUMBER, None),
           "inherited_error": (*NUMBER, None), "wall_ms": (*NUMBER, None), "peak_bytes": (int, None)}
CULPRIT = {"nodes": list, "op": str, "backend": str, "stage": (str, None), "localised": bool, "pass": str, "necessary": dict, "sufficient": dict,
           "placebo": dict, "repeat": str}
PROOF = {"error": NUMBER, "wrong": bool, "holds": bool}
RESULT = {"opdiff": str, "model": dict, "mode": str, "seed": int, "backends": list, "status": str, "nodes": list, "whole_model": dict,
          "culprits": list, "unproven": list, "interrupted": bool, "stopped": (str, None),
          "deaths": list, "reasons": list}


class Checker:
    def __init__(self):
        self.faults = []

    def fields(self, where: str, value, wanted: dict) -> bool:
        if not isinstance(value, dict):
            self.faults.append(f"{where} is no object")
            return False
        for name, types in wanted.items():
            allowed = types if isinstance(types, tuple) else (types,)
            if name not in value:
                self.faults.append(f"{where}.{name} is missing")
            elif value[name] is None:
                if None not in allowed:
                    self.faults.append(f"{where}.{name} is null")
            elif not isinstance(value[name], tuple(kind for kind in allowed if kind)) or (
                isinstance(value[name], bool) and bool not in allowed
            ):
                self.faults.append(f"{where}.{name} is {value[name]!r}")
        return not self.faults

    def one_of(self, where: str, value, allowed: set) -> None:
        if value not in allowed:
            self.faults.append(f"{where} is {value!r}")

    def verdict(self, where: str, verdict) -> None:
        if self.fields(where, verdict, VERDICT):
            self.one_of(f"{where}.rung", verdict["rung"], RUNGS)
            self.fields(f"{where}.worst", verdict["worst"], WORST)

    def result(self, result) -> None:
        if not self.fields("result", result, RESULT):
            return
        self.fields("model", result["model"], {"file": str, "sha256": str})
        self.one_of("status", result["status"], STATUSES)
        specs = set()
        for backend in result["backends"]:
            if self.fields("backends", backend, {"spec": str, "version": str, "build": str}):
                specs.add(backend["spec"])
        names = set()
        for node in result["nodes"]:
            if not self.fields("nodes", node, {"name": str, "op": str, "backends": dict}):
                continue
            names.add(node["name"])
            for spec, outcome in node["backends"].items():
                where = f"{node['name']} on {spec}"
                self.one_of(f"backend of {where}", spec, specs)
                if not self.fields(where, outcome, OUTCOME):
                    continue
                self.one_of(f"{where}.outcome", outcome["outcome"], OUTCOMES)
                verdicts = dict(outcome["outputs"])
                if outcome["verdict"] is not None:
                    verdicts["verdict"] = outcome["verdict"]
                for name, verdict in verdicts.items():
                    self.verdict(f"{where}.{name}", verdict)
        for culprit in result["culprits"]:
            if not self.fields("culprits", culprit, CULPRIT):
                continue
            self.one_of("stage", culprit["stage"], STAGES if culprit["localised"] else {None})
            self.one_of("culprit's backend", culprit["backend"], specs)
            if not culprit["nodes"] or not set(culprit["nodes"]) <= names:
                self.faults.append(f"culprit {culprit['nodes']} is not of the model")
            for proof in ("necessary", "sufficient", "placebo"):
                self.fields(proof, culprit[proof], PROOF)
        if not set(result["unproven"]) <= names:
            self.faults.append(f"unproven {result['unproven']} is not of the model")


def faults_of(result) -> list[str]:
    checker = Checker()
    checker.result(result)
    return checker.faults
