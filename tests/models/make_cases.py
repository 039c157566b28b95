#!/usr/bin/env python3
"""Makes the cases of tests/cases that were found in Python and are graphs here: how the committed files were made.

Usage: make_cases.py [DIR]      (needs onnx 1.22 or later and numpy; DIR is tests/cases by default)

pt-inductor-sdpa-fusion-permuted-key: attention whose key is permuted in one step; alone, and inside a small network.
fa-bn-folding-bf16: a convolution and a normalisation in bfloat16, and beside them both folded into one convolution.
"""

import pathlib
import sys

import numpy as np
from make_models import lowered, node, to_bfloat16
from onnx import TensorProto, helper, numpy_helper

BATCH, TIME, HEADS, DEPTH = 1, 4, 4, 8  # time = heads: only then do the shapes of the rewritten graph fit
WIDTH = HEADS * DEPTH
SCALE = np.float32(DEPTH**-0.5)


def save(path: pathlib.Path, nodes, inputs: dict, outputs: dict, initialisers, opset: int = 17) -> None:
    """`inputs` and `outputs`: shape and TensorProto type by name."""
    info = {name: helper.make_tensor_value_info(name, kind, shape) for name, (shape, kind) in {**inputs, **outputs}.items()}
    graph = helper.make_graph(nodes, "case", [info[name] for name in inputs], [info[name] for name in outputs], initialisers)
    model = helper.make_model(graph, producer_name="opdiff", ir_version=8, opset_imports=[helper.make_opsetid("", opset)])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(model.SerializeToString())


def attention_nodes(q: str, k: str, v: str, output: str):
    """q, k, v: [batch, time, heads, depth]; the key goes to [batch, heads, depth, time] in one permutation."""
    return [
        node("Transpose", q, "query", perm=[0, 2, 1, 3]),
        node("Transpose", k, "key", perm=[0, 2, 3, 1]),
        node("MatMul", "query key", "scores"),
        node("Mul", "scores scale", "scaled"),
        node("Softmax", "scaled", "shares", axis=-1),
        node("Transpose", v, "value", perm=[0, 2, 1, 3]),
        node("MatMul", "shares value", "context", output),
    ]


def attention(q, k, v):
    scores = np.einsum("bthd,bshd->bhts", q, k) * np.float64(SCALE)
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("bhts,bshd->bhtd", shares / shares.sum(-1, keepdims=True), v)


def make_attention(folder: pathlib.Path) -> None:
    random = np.random.default_rng(0)
    shape = (BATCH, TIME, HEADS, DEPTH)
    given = {name: random.standard_normal(shape).astype(np.float32) for name in "qkv"}
    scale = numpy_helper.from_array(np.asarray(SCALE), "scale")
    save(
        folder / "model.onnx",
        attention_nodes("q", "k", "v", "y"),
        {name: (shape, TensorProto.FLOAT) for name in given},
        {"y": ((BATCH, HEADS, TIME, DEPTH), TensorProto.FLOAT)},
        [scale],
    )
    np.savez(folder / "input.npz", **given)
    np.savez(folder / "right.npz", y=attention(*(value.astype(np.float64) for value in given.values())))

    random = np.random.default_rng(1)
    sizes = {"first": (6, WIDTH), "last": (WIDTH, 3), **{name: (WIDTH, WIDTH) for name in ("q", "k", "v", "o")}}
    weights = {}
    for name, size in sizes.items():
        weights[f"{name}.weight"] = (0.3 * random.standard_normal(size)).astype(np.float32)
        weights[f"{name}.bias"] = (0.3 * random.standard_normal(size[1])).astype(np.float32)
    x = random.standard_normal((BATCH, TIME, 6)).astype(np.float32)

    def linear_nodes(source: str, name: str, output: str):
        return [
            node("MatMul", f"{source} {name}.weight", f"{name}_product"),
            node("Add", f"{name}_product {name}.bias", f"{name}_linear", output),
        ]

    nodes = linear_nodes("x", "first", "h")
    for name in "qkv":
        nodes += linear_nodes("h", name, f"{name}_flat")
        nodes.append(node("Reshape", f"{name}_flat split", f"{name}_heads", name))
    nodes += attention_nodes("q", "k", "v", "context_heads")
    nodes += [
        node("Transpose", "context_heads", "context_time", perm=[0, 2, 1, 3]),
        node("Reshape", "context_time joined", "context_flat"),
        *linear_nodes("context_flat", "o", "o_out"),
        node("Tanh", "o_out", "tanh"),
        *linear_nodes("tanh", "last", "y"),
    ]
    shapes = {"split": np.array(shape, np.int64), "joined": np.array((BATCH, TIME, WIDTH), np.int64)}
    save(
        folder / "embedded.onnx",
        nodes,
        {"x": (x.shape, TensorProto.FLOAT)},
        {"y": ((BATCH, TIME, 3), TensorProto.FLOAT)},
        [scale] + [numpy_helper.from_array(value, name) for name, value in {**weights, **shapes}.items()],
    )

    def linear(source, name: str):
        return source @ weights[f"{name}.weight"].astype(np.float64) + weights[f"{name}.bias"]

    h = linear(x.astype(np.float64), "first")
    context = attention(*(linear(h, name).reshape(shape) for name in "qkv")).transpose(0, 2, 1, 3)
    y = linear(np.tanh(linear(context.reshape(BATCH, TIME, WIDTH), "o")), "last")
    np.savez(folder / "embedded_input.npz", x=x)
    np.savez(folder / "embedded_right.npz", y=y)


def convolution(x, w):
    rows, columns = x.shape[2] - 2, x.shape[3] - 2
    return sum(
        np.einsum("nchw,oc->nohw", x[:, :, i : i + rows, j : j + columns], w[:, :, i, j]) for i in range(3) for j in range(3)
    )


def make_folding(folder: pathlib.Path) -> None:
    random = np.random.default_rng(0)
    x = to_bfloat16(random.standard_normal((2, 16, 10, 10)))
    w = to_bfloat16(random.uniform(-1, 1, (32, 16, 3, 3)) / 12)
    scale, bias, mean = (to_bfloat16(random.standard_normal(32)) for _ in range(3))
    variance = to_bfloat16(random.uniform(0.2, 3, 32))
    # As users fold: in float32, then stored as bfloat16.
    factor = scale / np.sqrt(variance + np.float32(1e-5))
    folded_w, folded_b = to_bfloat16(w * factor[:, None, None, None]), to_bfloat16(bias - mean * factor)
    kinds = {"x": (x.shape, TensorProto.FLOAT)}
    shape = (2, 32, 8, 8)
    save(
        folder / "model.onnx",
        [
            node("Cast", "x", "lowered", to=TensorProto.BFLOAT16),
            node("Conv", "lowered w", "convolution"),
            node("BatchNormalization", "convolution scale bias mean variance", "normalisation", "y"),
            node("Conv", "lowered folded_w folded_b", "folded", "y_folded"),
        ],
        kinds,
        {name: (shape, TensorProto.BFLOAT16) for name in ("y", "y_folded")},
        [
            lowered(value, name, TensorProto.BFLOAT16)
            for name, value in dict(
                w=w, scale=scale, bias=bias, mean=mean, variance=variance, folded_w=folded_w, folded_b=folded_b
            ).items()
        ],
        opset=22,  # Conv takes bfloat16 from it on
    )
    wide = {name: np.asarray(value, np.float64)[:, None, None] for name, value in
            dict(scale=scale, bias=bias, mean=mean, variance=variance, folded_b=folded_b).items()}
    x64 = x.astype(np.float64)
    deviation = convolution(x64, w.astype(np.float64)) - wide["mean"]
    y = wide["scale"] / np.sqrt(wide["variance"] + np.float32(1e-5)) * deviation + wide["bias"]
    np.savez(folder / "input.npz", x=x)
    np.savez(folder / "right.npz", y=y, y_folded=convolution(x64, folded_w.astype(np.float64)) + wide["folded_b"])


def main() -> int:
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parents[1] / "cases"
    make_attention(folder / "pt-inductor-sdpa-fusion-permuted-key")
    make_folding(folder / "fa-bn-folding-bf16")
    return 0


if __name__ == "__main__":
    sys.exit(main())
