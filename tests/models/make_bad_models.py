#!/usr/bin/env python3
"""Makes models that opdiff must refuse, or survive, with one clear message: how the files in bad/ were made.

Usage: make_bad_models.py DIR      (needs onnx 1.22 and numpy)

DIR/expected.json says of each model what is wrong, how a run must end ("refused": exit status 2; "unproven": the run
goes on) and which words (node, tensor, operator, value) the message must hold. Each external-data model has a folder
of its own; the bytes that it must not read are really there, so that only a check of the path can refuse it.
"""

import json
import os
import pathlib
import sys

import numpy as np
from onnx import TensorProto, helper, numpy_helper

node = helper.make_node
FLOAT, INT64, STRING = TensorProto.FLOAT, TensorProto.INT64, TensorProto.STRING
MODELS = {}  # path below DIR: (bytes, what is wrong, how it ends, words of the message)


def value(name: str, shape=("batch", 4), dtype=FLOAT):
    return helper.make_tensor_value_info(name, dtype, shape)


def model(nodes, initialisers=(), inputs=None, outputs=None, opset=17, ir=8, domains=()):
    """A model from `source` [batch, 4] to `target` [batch, 4] unless told otherwise; nothing is checked."""
    graph = helper.make_graph(
        nodes,
        "bad",
        [value("source")] if inputs is None else inputs,
        [value("target")] if outputs is None else outputs,
        list(initialisers),
    )
    imports = [helper.make_opsetid("", opset)] + [helper.make_opsetid(domain, 1) for domain in domains]
    return helper.make_model(graph, ir_version=ir, opset_imports=imports)


def bad(path: str, made, why: str, mentions=(), ends="refused") -> None:
    data = made if isinstance(made, bytes) else made.SerializeToString(deterministic=True)
    assert path not in MODELS and len(data) < 2048, path
    MODELS[path] = (data, why, ends, list(mentions))


def relu(source="source", target="target", name="relu"):
    return node("Relu", [source], [target], name)


def weight(name="weight", shape=(4, 4)):
    return numpy_helper.from_array(np.ones(shape, np.float32), name)


def claims(name: str, dims, dtype=FLOAT, raw=b""):
    """An initialiser whose shape is not that of its data."""
    return TensorProto(name=name, dims=dims, data_type=dtype, raw_data=raw)


def external(location: str, **entries) -> TensorProto:
    """A [4, 4] float initialiser `weight` whose data lie in another file."""
    tensor = TensorProto(name="weight", dims=[4, 4], data_type=FLOAT, data_location=TensorProto.EXTERNAL)
    for key, text in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=str(text))
    return tensor


MATMUL = [node("MatMul", ["source", "weight"], ["target"], "matmul")]


def files() -> None:
    whole = model(MATMUL, [weight()]).SerializeToString(deterministic=True)
    bad("empty.onnx", b"", "0 bytes")
    bad("truncated.onnx", whole[: len(whole) // 2], "cut off in the middle of a tensor")
    bad("not_protobuf.onnx", b"This is a text, not a model.\n" * 4, "not a protobuf message")
    graphless = model([relu()])
    graphless.ClearField("graph")
    bad("no_graph.onnx", graphless, "a model without a graph")
    bad("no_outputs.onnx", model([relu()], outputs=[]), "a graph without outputs")
    bad("opset_6.onnx", model([relu()], opset=6), "opset below the supported range", ["6"])
    bad("opset_99.onnx", model([relu()], opset=99), "opset above the supported range", ["99"])
    bad("ir_99.onnx", model([relu()], ir=99), "IR version above the supported range", ["99"])


def structure() -> None:
    bad(
        "cyclic.onnx",
        model(
            [
                node("Add", ["source", "b"], ["a"], "first"),
                relu("a", "b", "second"),
                node("Identity", ["b"], ["target"], "last"),
            ]
        ),
        "two nodes need each other",
        ["first"],
    )
    bad(
        "cyclic_self.onnx",
        model([node("Add", ["source", "target"], ["target"], "loop")]),
        "a node needs its own output",
        ["loop"],
    )
    bad(
        "missing_input.onnx",
        model([node("Add", ["source", "nowhere"], ["target"], "add")]),
        "a tensor that nothing produces",
        ["add", "nowhere"],
    )
    bad("missing_output.onnx", model([relu(target="middle")]), "a graph output that nothing produces", ["target"])
    bad(
        "duplicate_outputs.onnx",
        model(
            [
                relu(target="middle", name="one"),
                relu(target="middle", name="two"),
                node("Identity", ["middle"], ["target"], "last"),
            ]
        ),
        "two nodes produce one tensor",
        ["middle"],
    )
    bad(
        "duplicate_output_of_node.onnx",
        model([node("Dropout", ["source"], ["target", "target"], "dropout")]),
        "a node names two of its outputs alike",
        ["target"],
    )
    bad(
        "shadowed_input.onnx",
        model([relu(target="source", name="shadow"), node("Identity", ["source"], ["target"], "last")]),
        "a node produces a graph input",
        ["source"],
    )
    bad("too_few_inputs.onnx", model([node("Add", ["source"], ["target"], "add")]), "Add with one operand", ["add"])
    bad(
        "too_many_inputs.onnx",
        model([node("Relu", ["source", "source"], ["target"], "relu")]),
        "Relu with two operands",
        ["relu"],
    )


def operators() -> None:
    bad(
        "unknown_operator.onnx",
        model([relu(target="middle"), node("Frobnicate", ["middle"], ["target"], "mystery")]),
        "an operator that ONNX has not",
        ["Frobnicate"],
        ends="unproven",
    )
    bad(
        "unknown_domain.onnx",
        model(
            [relu(target="middle"), node("Relu", ["middle"], ["target"], "custom", domain="com.example")],
            domains=["com.example"],
        ),
        "an operator of a foreign domain, named like one of ONNX's",
        ["com.example"],
        ends="unproven",
    )


def types_and_shapes() -> None:
    bad(
        "type_mixed.onnx",
        model(
            [node("Add", ["source", "counts"], ["target"], "add")],
            [numpy_helper.from_array(np.ones(4, np.int64), "counts")],
        ),
        "float32 + int64",
        ["add"],
    )
    bad(
        "type_declared.onnx",
        model([relu()], outputs=[value("target", dtype=INT64)]),
        "declared int64, computed float32",
        ["target"],
    )
    bad(
        "shape_inside.onnx",
        model([relu(target="middle"), node("Gemm", ["middle", "weight"], ["target"], "gemm")], [weight(shape=(5, 4))]),
        "a product of [batch, 4] and [5, 4]",
        ["gemm"],
    )
    bad(
        "shape_declared.onnx",
        model([relu()], outputs=[value("target", ("batch", 5))]),
        "declared [batch, 5], computed [batch, 4]",
        ["target"],
    )
    bad(
        "string_input.onnx",
        model(
            [node("Identity", ["source"], ["target"], "identity")],
            inputs=[value("source", dtype=STRING)],
            outputs=[value("target", dtype=STRING)],
        ),
        "a graph input of strings",
        ["source", "string"],
    )
    bad(
        "string_tensor.onnx",
        model(
            [node("Identity", ["words"], ["copied"], "identity"), relu()],
            [helper.make_tensor("words", STRING, [2], [b"a", b"b"])],
        ),
        "an initialiser of strings",
        ["words", "string"],
    )
    bad(
        "unknown_dtype.onnx",
        model(MATMUL, [claims("weight", [4, 4], 99, bytes(64))]),
        "an element type that is no type",
        ["weight", "99"],
    )


def attributes() -> None:
    image = [value("source", ("batch", 1, 4, 4))]
    pooled = [value("target", ("batch", 1, "height", "width"))]

    def pool(name: str, **attributes):
        return model([node("MaxPool", ["source"], ["target"], name, **attributes)], inputs=image, outputs=pooled)

    bad("attribute_missing.onnx", pool("pool"), "MaxPool without kernel_shape", ["pool", "kernel_shape"])
    bad(
        "attribute_type.onnx",
        pool("pool", kernel_shape=[2.0, 2.0]),
        "kernel_shape given as floats",
        ["pool", "kernel_shape"],
    )
    bad("kernel_negative.onnx", pool("pool", kernel_shape=[-2, 2]), "a negative kernel", ["pool", "-2"])
    bad("stride_zero.onnx", pool("pool", kernel_shape=[2, 2], strides=[0, 1]), "a stride of 0", ["pool", "strides"])
    bad("pads_too_few.onnx", pool("pool", kernel_shape=[2, 2], pads=[1]), "one pad for two axes", ["pool", "pads"])
    bad(
        "axis_out_of_range.onnx",
        model([node("Softmax", ["source"], ["target"], "softmax", axis=7)]),
        "axis 7 of two",
        ["softmax", "7"],
    )
    bad(
        "groups_uneven.onnx",
        model(
            [node("Conv", ["source", "weight"], ["target"], "conv", group=3)],
            [weight(shape=(4, 1, 1, 1))],
            image,
            pooled,
        ),
        "one channel in three groups",
        ["conv"],
    )
    bad(
        "perm_repeated.onnx",
        model([node("Transpose", ["source"], ["target"], "transpose", perm=[1, 1])]),
        "perm [1, 1]",
        ["transpose", "perm"],
    )


def sizes() -> None:
    bad(
        "initialiser_2_60.onnx",
        model(MATMUL, [claims("weight", [2**30, 2**30])]),
        "an initialiser of 2^60 elements",
        ["weight"],
    )
    bad(
        "initialiser_2_64.onnx",
        model(MATMUL, [claims("weight", [2**32, 2**32])]),
        "an initialiser of 2^64 elements: 0 in 64-bit arithmetic, as many as it has",
        ["weight"],
    )
    bad(
        "initialiser_short.onnx",
        model(MATMUL, [claims("weight", [4, 4], raw=bytes(60))]),
        "15 values for [4, 4]",
        ["weight"],
    )
    bad(
        "initialiser_long.onnx",
        model(MATMUL, [claims("weight", [4, 4], raw=bytes(68))]),
        "17 values for [4, 4]",
        ["weight"],
    )
    bad(
        "initialiser_negative.onnx",
        model(MATMUL, [claims("weight", [-4, -4], raw=bytes(64))]),
        "shape [-4, -4]",
        ["weight"],
    )
    bad(
        "input_2_60.onnx",
        model([relu()], inputs=[value("source", (2**30, 2**30))], outputs=[value("target", (2**30, 2**30))]),
        "a graph input of 2^60 elements",
        ["source"],
    )
    pads = numpy_helper.from_array(np.array([0, 0, 2**59, 2**59], np.int64), "pads")
    bad(
        "pad_2_59.onnx",
        model([node("Pad", ["source", "pads"], ["target"], "pad")], [pads], outputs=[value("target", ("a", "b"))]),
        "a computed tensor of 2^118 elements",
        ["pad"],
    )
    shape = numpy_helper.from_array(np.array([2**30, 2**30], np.int64), "shape")
    bad(
        "reshape_2_60.onnx",
        model(
            [node("Reshape", ["source", "shape"], ["target"], "reshape")],
            [shape],
            outputs=[value("target", ("a", "b"))],
        ),
        "4 columns reshaped to 2^60 elements",
        ["reshape"],
    )


def external_data() -> None:
    for name, location, why, entries in [
        ("parent", "../outside.bin", "data in the parent folder", {}),
        ("hidden_parent", "inside/../../outside.bin", "data in the parent folder, by way of a subfolder", {}),
        ("symlink", "link.bin", "data behind a link that leads out of the folder", {}),
        ("symlink_folder", "folder/outside.bin", "data in a folder that is a link out of the folder", {}),
        ("absolute", "/etc/passwd", "data at an absolute path", {}),
        ("missing", "absent.bin", "data in a file that is not there", {}),
        ("unnamed", "", "data in a file without a name", {}),
        ("short", "short.bin", "fewer bytes than the shape needs", {}),
        ("beyond_end", "whole.bin", "data beyond the end of the file", {"offset": 2**62, "length": 64}),
        ("negative_offset", "whole.bin", "a negative offset", {"offset": -64, "length": 64}),
        ("length_differs", "whole.bin", "a length that is not that of the shape", {"offset": 0, "length": 32}),
        ("offset_text", "whole.bin", "an offset that is no number", {"offset": "many"}),
    ]:
        bad(f"external_{name}/model.onnx", model(MATMUL, [external(location, **entries)]), why, ["weight"])


def main() -> None:
    folder = pathlib.Path(sys.argv[1])
    for part in (files, structure, operators, types_and_shapes, attributes, sizes, external_data):
        part()
    for path, (data, *_) in MODELS.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)

    numbers = np.arange(64, dtype=np.float32).tobytes()
    (folder / "outside").mkdir(exist_ok=True)
    for name in ("outside.bin", "outside/outside.bin"):
        (folder / name).write_bytes(numbers)
    (folder / "external_short/short.bin").write_bytes(numbers[:60])
    for name in ("beyond_end", "negative_offset", "length_differs", "offset_text"):
        (folder / f"external_{name}/whole.bin").write_bytes(numbers)
    (folder / "external_hidden_parent/inside").mkdir(exist_ok=True)
    (folder / "external_hidden_parent/inside/keep.bin").write_bytes(numbers[:4])
    for link, target in {
        "external_symlink/link.bin": "../outside.bin",
        "external_symlink_folder/folder": "../outside",
    }.items():
        (folder / link).unlink(missing_ok=True)
        os.symlink(target, folder / link)

    expected = {
        path: {"why": why, "ends": ends, "mentions": mentions}
        for path, (_, why, ends, mentions) in sorted(MODELS.items())
    }
    (folder / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()
