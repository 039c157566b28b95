"""MNIST as LeNet-5 sees it: reads IDX files, resizes 28x28 to 32x32, normalises. Needs numpy only.

Training (`train.py`), its check (`check_accuracy.py`) and the demo's inputs (`make_digits.py`) share these functions,
so that the network is fed at test time exactly what it was trained on. The files come from `fetch_mnist`.
"""

import gzip
import os
import pathlib
import struct

import numpy as np

SIZE = 32
MEAN, DEVIATION = 0.1307, 0.3081  # of the 60,000 training images, scaled to [0, 1]


def mnist_folder() -> pathlib.Path:
    """Where `fetch_mnist` leaves the files: $OPDIFF_MNIST, else $XDG_CACHE_HOME/opdiff/mnist."""
    given = os.environ.get("OPDIFF_MNIST")
    if given:
        return pathlib.Path(given)
    cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(cache) / "opdiff" / "mnist"


def read_idx(path: pathlib.Path) -> np.ndarray:
    """The uint8 array of an IDX file, which may be gzipped beside its plain name (`NAME.gz`).

    Raises FileNotFoundError where neither is there and ValueError for a file that is no such array.
    """
    if path.exists():
        data = path.read_bytes()
    elif path.with_name(path.name + ".gz").exists():
        data = gzip.decompress(path.with_name(path.name + ".gz").read_bytes())
    else:
        raise FileNotFoundError(f"{path}: not there, run examples/lenet5/fetch_mnist first")
    if len(data) < 4 or data[:3] != b"\0\0\x08":
        raise ValueError(f"{path}: not an IDX file of bytes")
    rank = data[3]
    if len(data) < 4 + 4 * rank:
        raise ValueError(f"{path}: cut off in its header")
    shape = struct.unpack(f">{rank}I", data[4 : 4 + 4 * rank])
    values = np.frombuffer(data, np.uint8, offset=4 + 4 * rank)
    if values.size != np.prod(shape, dtype=object):
        raise ValueError(f"{path}: {values.size} values where its header says {shape}")
    return values.reshape(shape)


def read_digits(part: str) -> tuple[np.ndarray, np.ndarray]:
    """Images uint8 [n, 28, 28] and labels uint8 [n] of `part`: "train", "t10k" or "mnist5k" (the small substitute)."""
    folder = mnist_folder()
    return read_idx(folder / f"{part}-images-idx3-ubyte"), read_idx(folder / f"{part}-labels-idx1-ubyte")


def resize_axis(images: np.ndarray, axis: int, size: int) -> np.ndarray:
    """Linear interpolation to `size` along one axis: pixels are areas (half-pixel centres), the border repeats."""
    old = images.shape[axis]
    centres = np.clip((np.arange(size) + 0.5) * old / size - 0.5, 0, old - 1)
    below = np.floor(centres).astype(np.int64)
    above = np.minimum(below + 1, old - 1)
    shape = [1] * images.ndim
    shape[axis] = size
    weight = (centres - below).astype(np.float32).reshape(shape)
    return images.take(below, axis) * (1 - weight) + images.take(above, axis) * weight


def preprocess(images: np.ndarray) -> np.ndarray:
    """uint8 [n, 28, 28] to the network's input, float32 [n, 1, 32, 32]. Element by element: no BLAS, the same bits
    everywhere."""
    scaled = images.astype(np.float32) / np.float32(255)
    resized = resize_axis(resize_axis(scaled, 1, SIZE), 2, SIZE)
    return ((resized - np.float32(MEAN)) / np.float32(DEVIATION))[:, np.newaxis]
