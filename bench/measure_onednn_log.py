#!/usr/bin/env python3
"""Measures the absolute floor of oneDNN's log in f32, in units of u = 2^-24.

    python bench/measure_onednn_log.py WORKER        (backends/onednn's program; needs numpy)

Over every 1009th normal number, and densely around 1: the largest absolute error where the error is beyond 8 ulp, which
src/ops/operators/log.cpp holds as kApproximationFloor, rounded up; and what it makes of subnormal numbers.
"""
import pathlib
import sys

import numpy

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "workers"))
from wire_client import Worker, node  # noqa: E402


def main(program):
    x = numpy.arange(0x00800000, 0x7F800000, 1009, dtype=numpy.uint32).view(numpy.float32)
    x = numpy.concatenate([x, numpy.linspace(0.9, 1.1, 200001, dtype=numpy.float32)])
    tiny = numpy.array([1e-45, 1e-40, 1e-38], numpy.float32)
    with Worker([program]) as worker:
        worker.hello()
        log = lambda part: worker.case([node("Log", ["x"], ["y"])], {"x": part}, {}, ["y"])["outputs"]["y"]
        got = numpy.concatenate([log(part) for part in numpy.array_split(x, 8)])
        right = numpy.log(x.astype(numpy.float64))
        error, ulp = numpy.abs(got - right), numpy.spacing(numpy.abs(right.astype(numpy.float32)))
        beyond = error > 8 * ulp.astype(numpy.float64)
        worst = numpy.flatnonzero(beyond)[error[beyond].argmax()]
        print(f"floor {error[worst] * 2**24:.2f} u at x = {x[worst]:.9g}; {100 * beyond.mean():.1f} % beyond 8 ulp")
        print("subnormal:", *(f"{a:.9g} for {b:.9g}" for a, b in zip(log(tiny), numpy.log(tiny.astype(numpy.float64)))))


if __name__ == "__main__":
    main(*sys.argv[1:])
