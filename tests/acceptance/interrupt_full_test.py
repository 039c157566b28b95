#!/usr/bin/env python3
"""Ctrl-C in the middle of `opdiff compare` leaves a usable result.json and nothing else; result.json is as documented."""

import signal
import sys
import time

import schema
from support import CANNOT_RUN, RESIDUAL, RESIDUAL_INPUTS, Tally, compare, require, starting

STEPS = 12


def main() -> int:
    require("onnxruntime")
    faulty = "faulty:base=onnxruntime,node=conv2,fault=drop-term"
    arguments = [RESIDUAL, *RESIDUAL_INPUTS, "--backends", f"reference,onnxruntime,{faulty}"]
    tally = Tally("Ctrl-C, result.json")
    with compare(*arguments) as run:
        tally.case("a run to its end", run.leftovers() + schema.faults_of(run.result))
        span = run.result["wall_seconds"]
        names = [node["name"] for node in run.result["nodes"]]
    for step in range(STEPS):
        moment = span * (step + 0.5) / STEPS
        with starting(*arguments) as run:
            time.sleep(moment)
            run.process.send_signal(signal.SIGINT)
            asked = time.monotonic()
            run.finish(120)
            faults = run.leftovers()
            if time.monotonic() - asked > 10 + span:
                faults.append(f"took {time.monotonic() - asked:.1f} s to end")
            if run.status == -signal.SIGINT and not run.out.exists():
                pass  # before anything was opened: nothing was done yet
            elif run.result is None:
                faults.append(f"no result: {run.describe()}")
            else:
                faults += schema.faults_of(run.result)
                if run.result["interrupted"]:
                    if run.status != CANNOT_RUN and not run.result["culprits"]:
                        faults.append(f"interrupted, and yet status {run.status}")
                    if not any("interrupted" in line["reason"] for line in run.result["reasons"]):
                        faults.append("no reason says so")
                if [node["name"] for node in run.result["nodes"]] not in ([], names):
                    faults.append("the nodes are not the model's")
            tally.case(f"after {moment:.2f} s of {span:.2f}: status {run.status}", faults)
    return tally.close()


if __name__ == "__main__":
    sys.exit(main())
