#!/usr/bin/env python3
"""opdiff forms: no false alarm over healthy backends, and those that are right are found: onnxruntime 1.32.0 makes an
invalid model of Cast + Div + Mul."""

import json
import pathlib
import subprocess
import sys
import tempfile

from support import CLEAN, DEFECT, OPDIFF, Tally, require

BACKENDS = ("onnxruntime", "torch", "onednn:postops=1")
# Backend, form, stage, part of the pass's name: defects of the releases that are bound.
REAL = {("onnxruntime", "cast-div-mul", "fusion-or-rewrite", "DivMulFusion")}


def main() -> int:
    require(*(backend.partition(":")[0] for backend in BACKENDS))
    tally = Tally("healthy forms")
    with tempfile.TemporaryDirectory() as temporary:
        out = pathlib.Path(temporary) / "forms.json"
        run = subprocess.run(
            [OPDIFF, "forms", "check", "--backends", *BACKENDS, "--dtype", "f32", "bf16", "--cases", "5", "--no-time",
             "--quiet", "--json", str(out)],
            capture_output=True, text=True, timeout=3600)
        result = json.loads(out.read_text()) if out.exists() else {"rows": [], "findings": []}
        real = [finding for finding in result["findings"]
                if any(finding["backend"] == backend and set(finding["forms"]) == {form} and finding["stage"] == stage and
                       part in finding["pass"] for backend, form, stage, part in REAL)]
        expected = DEFECT if real else CLEAN
        tally.case("status", [] if run.returncode == expected else [f"{run.returncode}: {run.stderr[-500:]}"])
        for backend in BACKENDS:
            for dtype in ("float", "bfloat16"):
                rows = [row for row in result["rows"] if row["backend"] == backend and row["dtype"] == dtype]
                ran = sum(row["cases"] for row in rows)
                tally.case(f"{backend} {dtype}: {ran} cases", [] if ran > 0 else ["no case ran"])
        false = [f"{finding['signature']}\n{finding['repeat']}" for finding in result["findings"] if finding not in real]
        tally.case("no false alarm", false)
        tally.case("Cast + Div + Mul on onnxruntime", [] if real else ["not found"])
    return tally.close()


if __name__ == "__main__":
    sys.exit(main())
