#!/usr/bin/env python3
"""Chains that a backend fuses are as clean as the same nodes apart, in every dtype."""

import sys

from support import CLEAN, ROOT, Tally, compare, require

MODELS = ROOT / "tests/models"
BACKENDS = ("onednn", "onednn:postops=1")


def main() -> int:
    require("onednn")
    tally = Tally("fused chains")
    for dtype in ("", "_float16", "_bfloat16"):
        model, inputs = MODELS / f"fused_chains{dtype}.onnx", MODELS / "fused_chains_inputs.npz"
        for seed in range(3):
            with compare(model, "--inputs", inputs, "--backends", ",".join(BACKENDS), "--seed", seed) as run:
                faults = run.leftovers() + ([] if run.status == CLEAN else [run.describe()])
                tally.case(f"{model.stem}, seed {seed}", faults)
    return tally.close()


if __name__ == "__main__":
    sys.exit(main())
