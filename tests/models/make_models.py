#!/usr/bin/env python3
"""Makes the small networks of the tests, with seeded weights and inputs: how the committed files beside it were made.

Usage: make_models.py [DIR]      (needs onnx 1.22 and numpy; DIR is this folder by default)

residual12.onnx: a residual block and a classifier, 12 nodes: where faults are planted.
mixed_ops.onnx:  every operator of the first set in one connected network: what importers and exporters must carry.
fused_chains.onnx, also in _float16 and _bfloat16: chains that backends fuse, 24 nodes.
NAME_inputs.npz: four images of noise for each; those of fused_chains are for all three.
"""

import pathlib
import sys

import numpy as np
from onnx import TensorProto, checker, helper, numpy_helper


def node(operator: str, inputs: str, name: str, output: str = "", **attributes):
    """A node with one output, named like the node unless told otherwise; `inputs` are names with spaces between."""
    return helper.make_node(operator, inputs.split(), [output or name], name, **attributes)


def to_bfloat16(values) -> np.ndarray:
    """Rounded to the nearest, ties to even; as float32."""
    bits = np.asarray(values, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)


def lowered(values, name: str, dtype: int):
    """An initialiser of float values in another floating type."""
    if dtype != TensorProto.BFLOAT16:
        return numpy_helper.from_array(np.asarray(values, helper.tensor_dtype_to_np_dtype(dtype), order="C"), name)
    bits = (to_bfloat16(values).view(np.uint32) >> 16).astype(np.uint16)
    return helper.make_tensor(name, dtype, bits.shape, bits.tobytes(), raw=True)


class Weights:
    """Draws initialisers from one seed and collects them."""

    def __init__(self, seed: int):
        self.random = np.random.default_rng(seed)
        self.tensors = []

    def add(self, name: str, values) -> None:
        self.tensors.append(numpy_helper.from_array(np.asarray(values, order="C"), name))

    def normal(self, name: str, shape, deviation: float) -> None:
        self.add(name, (self.random.standard_normal(shape) * deviation).astype(np.float32))

    def convolution(self, name: str, out: int, channels: int, kernel: int) -> None:
        """NAME.weight after He (variance 2 / fan-in: what a trained ReLU layer is close to) and a small NAME.bias."""
        self.normal(f"{name}.weight", (out, channels, kernel, kernel), (2 / (channels * kernel * kernel)) ** 0.5)
        self.normal(f"{name}.bias", (out,), 0.1)

    def batch_norm(self, name: str, channels: int) -> None:
        """Scale near 1, statistics near those of a He-initialised layer on unit noise (mean 0, variance 2)."""
        uniform = self.random.uniform
        self.add(f"{name}.scale", uniform(0.5, 1.5, channels).astype(np.float32))
        self.normal(f"{name}.bias", (channels,), 0.2)
        self.normal(f"{name}.mean", (channels,), 0.2)
        self.add(f"{name}.var", uniform(1.0, 3.0, channels).astype(np.float32))


def batch_norm(source: str, name: str):
    return node("BatchNormalization", f"{source} {name}.scale {name}.bias {name}.mean {name}.var", name)


def model(name: str, nodes, output: str, classes: int, weights: Weights, dtype: int = TensorProto.FLOAT):
    """A checked model of IR version 8 from `image` [batch, 3, 16, 16] to `output` [batch, classes] of `dtype`."""
    opset = 22 if dtype == TensorProto.BFLOAT16 else 17  # Conv takes bfloat16 from 22 on
    graph = helper.make_graph(
        nodes,
        name,
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 3, 16, 16])],
        [helper.make_tensor_value_info(output, dtype, ["batch", classes])],
        weights.tensors,
    )
    made = helper.make_model(graph, producer_name="opdiff", ir_version=8, opset_imports=[helper.make_opsetid("", opset)])
    checker.check_model(made, full_check=True)
    return made


def residual12():
    weights = Weights(12)
    weights.convolution("conv1", 8, 3, 3)
    weights.batch_norm("batchnorm1", 8)
    weights.convolution("conv2", 8, 8, 3)
    weights.batch_norm("batchnorm2", 8)
    weights.normal("gemm.weight", (10, 8), 0.7)
    weights.normal("gemm.bias", (10,), 0.1)
    return model(
        "residual12",
        [
            node("Conv", "image conv1.weight conv1.bias", "conv1", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
            batch_norm("conv1", "batchnorm1"),
            node("Relu", "batchnorm1", "relu1"),
            node("Conv", "relu1 conv2.weight conv2.bias", "conv2", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
            batch_norm("conv2", "batchnorm2"),
            node("Add", "batchnorm2 relu1", "add"),
            node("Relu", "add", "relu2"),
            node("AveragePool", "relu2", "averagepool", kernel_shape=[2, 2], strides=[2, 2]),
            node("GlobalAveragePool", "averagepool", "globalaveragepool"),
            node("Flatten", "globalaveragepool", "flatten", axis=1),
            node("Gemm", "flatten gemm.weight gemm.bias", "gemm", transB=1),
            node("Softmax", "gemm", "softmax", output="probabilities", axis=1),
        ],
        "probabilities",
        10,
        weights,
    )


def mixed_ops():
    weights = Weights(33)
    weights.convolution("conv1", 8, 3, 3)
    weights.batch_norm("batchnorm1", 8)
    weights.convolution("conv2", 4, 1, 3)  # depthwise: one channel per group
    weights.normal("gemm.weight", (8, 6), 0.5)
    weights.normal("gemm.bias", (6,), 0.1)
    weights.normal("matmul.weight", (8, 6), 0.5)
    for name, values in {
        "pad.pads": [0, 0, 1, 1, 0, 0, 1, 1],
        "zero": [0],
        "one": [1],
        "two": [2],
        "three": [3],
        "four": [4],
        "eight": [8],
        "positions": [8, -1],
    }.items():
        weights.add(name, np.array(values, np.int64))
    for name, value in {"pad.value": 0.25, "clip.min": -0.75, "clip.max": 1.5, "dropout.ratio": 0.5}.items():
        weights.add(name, np.array(value, np.float32))
    scale = numpy_helper.from_array(weights.random.uniform(0.5, 2, (1, 8, 1, 1)).astype(np.float32), "scale")
    return model(
        "mixed_ops",
        [
            node("Pad", "image pad.pads pad.value", "pad", mode="constant"),
            node("Conv", "pad conv1.weight conv1.bias", "conv1", kernel_shape=[3, 3], auto_pad="SAME_UPPER"),
            batch_norm("conv1", "batchnorm1"),
            node("LeakyRelu", "batchnorm1", "leakyrelu", alpha=0.1),
            # 18 rows to 9: the last window hangs over the border.
            node("MaxPool", "leakyrelu", "maxpool", kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1),
            # Half of the channels each: a dilated depthwise convolution, and a smoothed one.
            node("Slice", "maxpool zero four one", "slice_low"),
            node("Slice", "maxpool four eight one", "slice_high"),
            node(
                "Conv",
                "slice_low conv2.weight conv2.bias",
                "conv2",
                kernel_shape=[3, 3],
                group=4,
                dilations=[2, 2],
                pads=[2, 2, 2, 2],
            ),
            node("Elu", "conv2", "elu", alpha=0.5),
            node(
                "AveragePool", "slice_high", "averagepool", kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1
            ),
            node("Tanh", "averagepool", "tanh"),
            node("Concat", "elu tanh", "concat", axis=1),
            # A gate, then centred and scaled like a layer norm, around a shortcut.
            node("Sigmoid", "concat", "sigmoid"),
            node("Mul", "concat sigmoid", "mul"),
            node("Clip", "mul clip.min clip.max", "clip"),
            node("ReduceMean", "clip", "reducemean", axes=[2, 3], keepdims=1),
            node("Sub", "clip reducemean", "sub"),
            node("Constant", "", "constant", output="scale", value=scale),
            node("Div", "sub scale", "div"),
            node("Add", "div maxpool", "add"),
            node("Relu", "add", "relu"),
            node("Dropout", "relu dropout.ratio", "dropout"),
            node("Identity", "dropout", "identity"),
            # One head over averaged channels, one over all positions with shapes computed at run time.
            node("GlobalAveragePool", "identity", "globalaveragepool"),
            node("Flatten", "globalaveragepool", "flatten", axis=1),
            node("Gemm", "flatten gemm.weight gemm.bias", "gemm"),
            node("Shape", "identity", "shape"),
            node("Slice", "shape zero one", "slice_batch"),
            node("Concat", "slice_batch positions", "concat_shape", axis=0),
            node("Reshape", "identity concat_shape", "reshape"),
            node("Transpose", "reshape", "transpose", perm=[0, 2, 1]),
            node("MatMul", "transpose matmul.weight", "matmul"),
            node("Softmax", "matmul", "softmax", axis=2),
            node("ReduceMean", "softmax", "reducemean_positions", axes=[1], keepdims=0),
            node("Unsqueeze", "reducemean_positions one", "unsqueeze"),
            node("Slice", "shape two three", "slice_height"),
            node("Cast", "slice_height", "cast", to=TensorProto.FLOAT),
            node("Mul", "unsqueeze cast", "mul_height"),
            node("Squeeze", "mul_height one", "squeeze"),
            node("Add", "gemm squeeze", "add_heads"),
            node("LogSoftmax", "add_heads", "logsoftmax", output="log_probabilities", axis=1),
        ],
        "log_probabilities",
        6,
        weights,
    )


def fused_chains(suffix: str, dtype: int):
    weights = Weights(24)
    for number, channels in ((1, 3), (2, 8), (3, 8), (4, 8)):
        weights.convolution(f"conv{number}", 8, channels, 3)
    weights.batch_norm("batchnorm5", 8)
    weights.normal("channels", (8, 1, 1), 0.5)
    weights.normal("vector", (8,), 0.5)
    weights.normal("matmul6.weight", (8, 8), 0.5)
    weights.normal("gemm7.weight", (8, 8), 0.5)
    weights.tensors = [lowered(numpy_helper.to_array(tensor), tensor.name, dtype) for tensor in weights.tensors]

    def convolution(source: str, name: str):
        return node("Conv", f"{source} {name}.weight {name}.bias", name, kernel_shape=[3, 3], pads=[1, 1, 1, 1])

    return model(
        "fused_chains" + suffix,
        [
            node("Cast", "image", "cast", to=dtype),
            convolution("cast", "conv1"),
            node("Relu", "conv1", "relu1"),
            convolution("relu1", "conv2"),
            node("Mul", "conv2 channels", "mul2"),
            node("Add", "channels mul2", "add2"),
            node("Tanh", "add2", "tanh2"),
            convolution("tanh2", "conv3"),
            node("Add", "conv3 tanh2", "add3"),
            node("LeakyRelu", "add3", "leakyrelu3", alpha=0.1),
            convolution("leakyrelu3", "conv4"),
            node("Sigmoid", "conv4", "sigmoid4"),
            node("Mul", "sigmoid4 leakyrelu3", "mul4"),
            batch_norm("mul4", "batchnorm5"),
            node("Relu", "batchnorm5", "relu5"),
            node("GlobalAveragePool", "relu5", "globalaveragepool"),
            node("Flatten", "globalaveragepool", "flatten"),
            node("MatMul", "flatten matmul6.weight", "matmul6"),
            node("Add", "matmul6 vector", "add6"),
            node("Relu", "add6", "relu6"),
            node("Gemm", "relu6 gemm7.weight vector", "gemm7", transB=1, alpha=0.5),
            node("Sub", "gemm7 vector", "sub7"),
            node("Mul", "flatten sub7", "mul7"),
            node("Elu", "mul7", "elu7", output="features"),
        ],
        "features",
        8,
        weights,
        dtype,
    )


def main() -> None:
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent)
    for suffix, dtype in (("_float16", TensorProto.FLOAT16), ("_bfloat16", TensorProto.BFLOAT16)):
        (folder / f"fused_chains{suffix}.onnx").write_bytes(fused_chains(suffix, dtype).SerializeToString(deterministic=True))
    for seed, made in enumerate([residual12(), mixed_ops(), fused_chains("", TensorProto.FLOAT)], 1):
        name = made.graph.name
        (folder / f"{name}.onnx").write_bytes(made.SerializeToString(deterministic=True))
        image = np.random.default_rng(seed).standard_normal((4, 3, 16, 16)).astype(np.float32)
        np.savez(folder / f"{name}_inputs.npz", image=image)


if __name__ == "__main__":
    main()
