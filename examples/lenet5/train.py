#!/usr/bin/env python3
"""Trains LeNet-5 on MNIST with PyTorch and writes it as ONNX: how the committed lenet5.onnx was made.

Usage: train.py [--out lenet5.onnx] [--epochs 5] [--seed 0]      (needs torch, numpy, onnx; run fetch_mnist first)

The ONNX file is written node by node instead of by PyTorch's exporter: its operators, names and attributes are then
the ones that the documentation and the tests speak of, whatever the exporter of the day prefers.
"""

import argparse
import pathlib

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper

from preprocess import SIZE, preprocess, read_digits

BATCH, LEARNING_RATE = 64, 1e-3


class LeNet5(torch.nn.Module):
    """[batch, 1, 32, 32] to log-probabilities [batch, 10]; layers carry the names of the ONNX nodes."""

    def __init__(self):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(1, 6, 5)
        self.conv2 = torch.nn.Conv2d(6, 16, 5)
        self.fc1 = torch.nn.Linear(16 * 5 * 5, 120)
        self.fc2 = torch.nn.Linear(120, 84)
        self.fc3 = torch.nn.Linear(84, 10)

    def forward(self, image):
        pool1 = torch.max_pool2d(torch.relu(self.conv1(image)), 2)
        pool2 = torch.max_pool2d(torch.relu(self.conv2(pool1)), 2)
        relu3 = torch.relu(self.fc1(pool2.flatten(1)))
        relu4 = torch.relu(self.fc2(relu3))
        return torch.log_softmax(self.fc3(relu4), 1)


def train(network: LeNet5, images: torch.Tensor, labels: torch.Tensor, epochs: int) -> None:
    """Adam on the negative log-likelihood, in an order drawn anew each epoch; prints the mean loss of each."""
    optimiser = torch.optim.Adam(network.parameters(), LEARNING_RATE)
    for epoch in range(1, epochs + 1):
        total = 0.0
        for rows in torch.randperm(len(images)).split(BATCH):
            optimiser.zero_grad()
            loss = torch.nn.functional.nll_loss(network(images[rows]), labels[rows])
            loss.backward()
            optimiser.step()
            total += loss.item() * len(rows)
        print(f"epoch {epoch}: mean loss {total / len(images):.4f}", flush=True)


def accuracy(network: LeNet5, images: torch.Tensor, labels: torch.Tensor) -> tuple[int, int]:
    """(right answers, images)."""
    with torch.no_grad():
        answers = torch.cat([network(batch).argmax(1) for batch in images.split(1000)])
    return int((answers == labels).sum()), len(labels)


def to_onnx(network: LeNet5) -> onnx.ModelProto:
    """The trained network as an ONNX model, opset 17, IR version 8."""
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
    weights = [numpy_helper.from_array(value.detach().numpy(), name) for name, value in network.named_parameters()]
    graph = helper.make_graph(
        nodes,
        "lenet5",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 1, SIZE, SIZE])],
        [helper.make_tensor_value_info("log_probabilities", TensorProto.FLOAT, ["batch", 10])],
        weights,
    )
    model = helper.make_model(graph, producer_name="opdiff", ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
    onnx.checker.check_model(model, full_check=True)
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).parent / "lenet5.onnx")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()

    torch.manual_seed(options.seed)
    torch.set_num_threads(1)  # the number of threads changes the order of sums, and so the weights
    torch.use_deterministic_algorithms(True)
    network = LeNet5()
    images, labels = read_digits("train")
    train(network, torch.from_numpy(preprocess(images)), torch.from_numpy(labels.astype(np.int64)), options.epochs)

    images, labels = read_digits("t10k")
    right, count = accuracy(network, torch.from_numpy(preprocess(images)), torch.from_numpy(labels.astype(np.int64)))
    print(f"torch {torch.__version__}: {right} of {count} test digits right, {100 * right / count:.2f} %")
    options.out.write_bytes(to_onnx(network).SerializeToString(deterministic=True))
    print(f"wrote {options.out}, {options.out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
