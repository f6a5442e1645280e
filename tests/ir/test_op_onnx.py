"""Operators against onnxruntime: the conventions of the neural ones are not only ours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from plica.ir.op import find
from tests.ir.reference import close, run

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(7)


def f32(*shape: int) -> Array:
    return RNG.normal(size=shape).astype(np.float32)


def onnx_run(kind: str, arrays: Sequence[Array], attrs: dict[str, Any], opset: int = 20) -> Array:
    """One node of a model, run by onnxruntime."""
    import onnx
    import onnxruntime
    from onnx import helper

    names = [f"x{i}" for i in range(len(arrays))]
    node = helper.make_node(kind, names, ["y"], **attrs)
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(each.dtype), each.shape)
        for name, each in zip(names, arrays, strict=True)
    ]
    graph = helper.make_graph([node], "one", inputs, [onnx.ValueInfoProto(name="y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    model.ir_version = 9
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    found: Array = session.run(None, dict(zip(names, arrays, strict=True)))[0]
    return found


CASES: dict[str, tuple[str, dict[str, Any], str, dict[str, Any], tuple[Array, ...]]] = {
    "conv": (
        "nn.conv", {"strides": (2, 1), "padding": ((1, 2), (0, 1)), "dilation": (1, 2)},
        "Conv", {"strides": [2, 1], "pads": [1, 0, 2, 1], "dilations": [1, 2]},
        (f32(2, 3, 8, 9), f32(4, 3, 3, 2)),
    ),
    "depthwise": (
        "nn.conv", {"groups": 4, "padding": 1}, "Conv", {"group": 4, "pads": [1, 1, 1, 1]},
        (f32(1, 4, 6, 6), f32(8, 1, 3, 3)),
    ),
    "conv3d": (
        "nn.conv", {"padding": 1, "groups": 2}, "Conv", {"group": 2, "pads": [1] * 6},
        (f32(1, 4, 4, 5, 3), f32(2, 2, 2, 3, 3)),
    ),
    "conv_transpose": (
        "nn.conv_transpose",
        {"strides": 2, "padding": ((1, 0), (1, 1)), "groups": 2, "output_padding": 1},
        "ConvTranspose",
        {"strides": [2, 2], "pads": [1, 1, 0, 1], "group": 2, "output_padding": [1, 1]},
        (f32(1, 4, 5, 4), f32(4, 3, 3, 3)),
    ),
    "max_pool": (
        "nn.max_pool", {"kernel": 3, "strides": 2, "padding": 1, "ceil_mode": True},
        "MaxPool",
        {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1] * 4, "ceil_mode": 1},
        (f32(1, 2, 8, 7),),
    ),
    "avg_pool": (
        "nn.avg_pool", {"kernel": 3, "strides": 2, "padding": 1},
        "AveragePool", {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1] * 4},
        (f32(1, 2, 8, 7),),
    ),
    "avg_pool padded": (
        "nn.avg_pool", {"kernel": 3, "strides": 2, "padding": 1, "count_include_pad": True},
        "AveragePool",
        {"kernel_shape": [3], "strides": [2], "pads": [1, 1], "count_include_pad": 1},
        (f32(1, 2, 9),),
    ),
    "global_avg_pool": ("nn.global_avg_pool", {}, "GlobalAveragePool", {}, (f32(2, 3, 4, 5),)),
    "lrn": (
        "nn.lrn", {"size": 3, "alpha": 0.1, "beta": 0.5, "bias": 2.0},
        "LRN", {"size": 3, "alpha": 0.1, "beta": 0.5, "bias": 2.0}, (f32(1, 7, 2, 2),),
    ),
    "batch_norm": (
        "nn.batch_norm", {"epsilon": 1e-3}, "BatchNormalization", {"epsilon": 1e-3},
        (f32(2, 3, 4), f32(3), f32(3), f32(3), np.abs(f32(3))),
    ),
    "layer_norm": (
        "nn.layer_norm", {"axis": 1}, "LayerNormalization", {"axis": 1},
        (f32(2, 3, 4), f32(3, 4), f32(3, 4)),
    ),
    "instance_norm": (
        "nn.instance_norm", {}, "InstanceNormalization", {}, (f32(2, 3, 4), f32(3), f32(3)),
    ),
    "depth_to_space": (
        "nn.depth_to_space", {"block": 2}, "DepthToSpace", {"blocksize": 2}, (f32(1, 8, 2, 3),),
    ),
    "depth_to_space CRD": (
        "nn.depth_to_space", {"block": 2, "column_row_depth": True},
        "DepthToSpace", {"blocksize": 2, "mode": "CRD"}, (f32(1, 8, 2, 3),),
    ),
    "space_to_depth": (
        "nn.space_to_depth", {"block": 2}, "SpaceToDepth", {"blocksize": 2}, (f32(1, 2, 4, 6),),
    ),
    "softmax": ("nn.softmax", {"axis": 1}, "Softmax", {"axis": 1}, (f32(2, 3, 4),)),
    "log_softmax": ("nn.log_softmax", {}, "LogSoftmax", {"axis": -1}, (f32(2, 3, 4),)),
    "gelu": ("nn.gelu", {}, "Gelu", {}, (f32(20),)),
    "gelu tanh": ("nn.gelu", {"approximate": "tanh"}, "Gelu", {"approximate": "tanh"}, (f32(20),)),
    "selu": ("nn.selu", {}, "Selu", {}, (f32(20),)),
    "celu": ("nn.celu", {"alpha": 2.0}, "Celu", {"alpha": 2.0}, (f32(20),)),
    "hard_swish": ("nn.hard_swish", {}, "HardSwish", {}, (4 * f32(20),)),
    "hard_sigmoid": (
        "nn.hard_sigmoid", {"alpha": 0.3}, "HardSigmoid", {"alpha": 0.3}, (4 * f32(20),)
    ),
    "mish": ("nn.mish", {}, "Mish", {}, (4 * f32(20),)),
    "softplus": ("nn.softplus", {}, "Softplus", {}, (4 * f32(20),)),
    "take": (
        "take", {"axis": 1}, "Gather", {"axis": 1}, (f32(2, 3, 4), np.array([[0, -1], [2, 1]])),
    ),
    "take_along_axis": (
        "take_along_axis", {"axis": 1}, "GatherElements", {"axis": 1},
        (f32(2, 3), np.array([[0, -1], [2, 1]])),
    ),
    "gather_nd": (
        "gather_nd", {"batch_dims": 1}, "GatherND", {"batch_dims": 1},
        (f32(2, 3, 4), np.array([[[0], [2]], [[1], [-1]]])),
    ),
    "einsum": (
        "einsum", {"equation": "bhid,bhjd->bhij"}, "Einsum", {"equation": "bhid,bhjd->bhij"},
        (f32(2, 2, 3, 4), f32(2, 2, 5, 4)),
    ),
    "trunc division": (
        "trunc_divide", {}, "Div", {},
        tuple(np.array([[7, -7, 7, -7], [2, 2, -2, -2]], np.int32)),
    ),
    "round": ("round", {}, "Round", {}, (np.array([0.5, 1.5, -0.5, 2.5, -1.2], np.float32),)),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_it_means_what_onnxruntime_means(case: str) -> None:
    name, ours, kind, theirs, args = CASES[case]
    record = find(name)
    assert record is not None
    (found,) = run(record, args, ours)
    close(found, onnx_run(kind, args, theirs), args)
