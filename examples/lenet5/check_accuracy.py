#!/usr/bin/env python3
"""Runs an ONNX LeNet-5 with onnxruntime on the 10,000 test digits and prints its accuracy.

Usage: check_accuracy.py [MODEL]      (needs onnxruntime and numpy; run fetch_mnist first)
"""

import pathlib
import sys

import numpy as np
import onnxruntime

from preprocess import preprocess, read_digits


def main() -> None:
    model = sys.argv[1] if len(sys.argv) > 1 else str(pathlib.Path(__file__).parent / "lenet5.onnx")
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    images, labels = read_digits("t10k")
    right = 0
    for start in range(0, len(images), 1000):
        batch = preprocess(images[start : start + 1000])
        (log_probabilities,) = session.run(["log_probabilities"], {"image": batch})
        right += int(np.sum(log_probabilities.argmax(1) == labels[start : start + 1000]))
    print(
        f"onnxruntime {onnxruntime.__version__}: {right} of {len(labels)} test digits right, "
        f"{100 * right / len(labels):.2f} %"
    )


if __name__ == "__main__":
    main()
