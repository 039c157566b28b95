#!/usr/bin/env python3
"""Writes LeNet-5 with the weights that training starts from, drawn from a seed: how lenet5_initial.onnx was made.

Usage: make_initial.py [--out lenet5_initial.onnx] [--seed 0]      (needs numpy, onnx)

The graph is the one of train.py. Weights and biases are uniform in +-1 / sqrt(inputs of a neuron), as PyTorch's layers
start, drawn by numpy in the order of the nodes.
"""

import argparse
import pathlib

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SIZE = 32
SHAPES = {"conv1": (6, 1, 5, 5), "conv2": (16, 6, 5, 5), "fc1": (120, 400), "fc2": (84, 120), "fc3": (10, 84)}


def weights(seed: int) -> list[onnx.TensorProto]:
    generator, tensors = np.random.default_rng(seed), []
    for name, shape in SHAPES.items():
        bound = 1 / np.sqrt(np.prod(shape[1:]))
        for part, extent in (("weight", shape), ("bias", shape[:1])):
            values = generator.uniform(-bound, bound, extent).astype(np.float32)
            tensors.append(numpy_helper.from_array(values, f"{name}.{part}"))
    return tensors


def lenet5(seed: int) -> onnx.ModelProto:
    """[batch, 1, 32, 32] to log-probabilities [batch, 10]; opset 17, IR version 8."""
    node = helper.make_node
    nodes = [
        node("Conv", ["image", "conv1.weight", "conv1.bias"], ["conv1"], "conv1", kernel_shape=[5, 5]),
        node("Relu", ["conv1"], ["relu1"], "relu1"),
        node("MaxPool", ["relu1"], ["pool1"], "pool1", kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", ["pool1", "conv2.weight", "conv2.bias"], ["conv2"], "conv2", kernel_shape=[5, 5]),
        node("Relu", ["conv2"], ["relu2"], "relu2"),
        node("MaxPool", ["relu2"], ["pool2"], "pool2", kernel_shape=[2, 2], strides=[2, 2]),
        node("Flatten", ["pool2"], ["flatten"], "flatten", axis=1),
        node("Gemm", ["flatten", "fc1.weight", "fc1.bias"], ["fc1"], "fc1", transB=1),
        node("Relu", ["fc1"], ["relu3"], "relu3"),
        node("Gemm", ["relu3", "fc2.weight", "fc2.bias"], ["fc2"], "fc2", transB=1),
        node("Relu", ["fc2"], ["relu4"], "relu4"),
        node("Gemm", ["relu4", "fc3.weight", "fc3.bias"], ["fc3"], "fc3", transB=1),
        node("LogSoftmax", ["fc3"], ["log_probabilities"], "logsoftmax", axis=1),
    ]
    graph = helper.make_graph(
        nodes,
        "lenet5",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 1, SIZE, SIZE])],
        [helper.make_tensor_value_info("log_probabilities", TensorProto.FLOAT, ["batch", 10])],
        weights(seed),
    )
    model = helper.make_model(graph, producer_name="opdiff", ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
    onnx.checker.check_model(model, full_check=True)
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).parent / "lenet5_initial.onnx")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    options.out.write_bytes(lenet5(options.seed).SerializeToString(deterministic=True))
    print(f"wrote {options.out}, {options.out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
