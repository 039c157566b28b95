#!/usr/bin/env python3
"""A worker killed at random moments of `opdiff compare`: outcome `crash`, the run goes on, status 3, nothing left
behind. Usage: killed_workers_full_test.py [MOMENTS=50] [SEED=0]"""

import contextlib
import os
import random
import signal
import sys
import time

from support import CLEAN, CRASHED, RESIDUAL, RESIDUAL_INPUTS, Tally, compare, require, starting


def backend_of(pid: int) -> str:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:
        words = file.read().decode().split("\0")
        for name in ("onnxruntime", "torch"):
            if any(f"backends/{name}/" in word for word in words):
                return name
    return ""


def workers_of(run) -> list[int]:
    return [pid for pid in run.workers() if backend_of(pid) == "onnxruntime"]


def outcomes(run, backend: str) -> list[str | None]:
    return [node["backends"].get(backend, {}).get("outcome") for node in run.result["nodes"]]


def crashes(run, backend: str) -> int:
    return outcomes(run, backend).count("crash") + (run.result["whole_model"].get(backend, {}).get("outcome") == "crash")


def main() -> int:
    moments = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    random.seed(int(sys.argv[2]) if len(sys.argv) > 2 else 0)
    require("onnxruntime")
    arguments = [RESIDUAL, *RESIDUAL_INPUTS, "--backends", "reference,onnxruntime"]
    with compare(*arguments) as run:
        if run.status != CLEAN:
            print(f"not clean without a kill: {run.describe()}")
            return 1
        span = run.result["wall_seconds"]
        others = outcomes(run, "reference")
    tally, attempts = Tally("workers killed at random moments"), 0
    while tally.passed + len(tally.failures) < moments and attempts < 4 * moments:
        attempts += 1
        with starting(*arguments) as run:
            victims, moment = workers_of(run), random.uniform(0, 0.7 * span)
            while not victims and run.process.poll() is None:
                victims = workers_of(run)
            time.sleep(moment)
            victims = workers_of(run)
            victim = random.choice(victims) if victims else None
            if victim:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(victim, signal.SIGKILL)
            run.finish(300)
            faults = run.leftovers()
            if victim is None or (run.status == CLEAN and "killed" not in run.stdout):
                # It was not there yet, or had done its work.
                if run.status != CLEAN or faults:
                    tally.case(f"{moment:.2f} s, no worker", faults + [run.describe()])
                continue
            if run.result is None:
                faults.append(f"no result: {run.describe()}")
            else:
                if run.status != CRASHED or run.result["status"] != "crashed":
                    faults.append(f"not status {CRASHED}: {run.describe()}")
                # A death after the nodes were run, or in a batch that was run again, is told without a node.
                if crashes(run, "onnxruntime") == 0 and not any(death["outcome"] == "crash" for death in run.result["deaths"]):
                    faults.append(f"no outcome crash: {run.result['reasons']}")
                if outcomes(run, "reference") != others:
                    faults.append(f"the other backend did not go on: {outcomes(run, 'reference')}")
                if run.result["culprits"]:
                    faults.append(f"blamed {[culprit['nodes'] for culprit in run.result['culprits']]}")
            tally.case(f"killed after {moment:.2f} s of {span:.2f}: {0 if run.result is None else crashes(run, 'onnxruntime')} outcomes", faults)
    print(f"({attempts - moments} further moments had no worker to kill or one that was done)")
    return tally.close()


if __name__ == "__main__":
    sys.exit(main())
