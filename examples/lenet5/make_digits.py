#!/usr/bin/env python3
"""Writes the first 100 test digits of MNIST as an input of lenet5.onnx. Needs numpy; run fetch_mnist first.

The file holds `image` float32 [COUNT, 1, 32, 32], resized and normalised as in training, and `label` int64 [COUNT].
Where only the substitute of 5,000 training digits could be fetched, COUNT of those are taken, evenly from all classes.
"""

import argparse
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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", nargs="?", type=pathlib.Path, default="digits.npz", help="default: digits.npz")
    parser.add_argument("count", nargs="?", type=int, default=100, help="how many digits; default: 100")
    arguments = parser.parse_args()
    if arguments.count < 1:
        parser.error(f"COUNT is {arguments.count}; it must be at least 1")
    out = arguments.out
    try:
        images, labels = pick(arguments.count)
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
