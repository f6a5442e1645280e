# ruff: noqa: E501, SIM905  # rows of a table
"""The table of operators: for each a row by which a call of it is drawn, and its domain."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Final

import numpy as np

from plica.ir.generate import row
from plica.ir.generate.draw import DrawnCall, RealDraw, Row, Shape

DOMAINS: Final[Mapping[str, tuple[float, float]]] = {
    **dict.fromkeys(("arcsin", "arccos", "arctanh"), (-0.8, 0.8)),
    **dict.fromkeys(("log", "log2", "log10", "sqrt", "rsqrt", "power", "cumprod", "reciprocal",
                     "nn.nll_loss", "nn.cross_entropy"), (0.3, 2.0)),
    "log1p": (-0.5, 2.0),
    "arccosh": (1.3, 3.0),
    "tan": (-1.2, 1.2),
    "nn.batch_norm": (0.3, 2.0),
}  # fmt: skip
"""Where an operator is smooth, for those that are so only there."""


_UNARY: Final = tuple(
    (
        "absolute arccos arccosh arcsin arcsinh arctan arctanh ceil copy cos cosh degrees erf exp exp2 "
        "expm1 floor log log10 log1p log2 negative ones_like radians ravel reciprocal round rsqrt sign sin sinh "
        "sqrt square tan tanh trunc zeros_like nn.celu nn.elu nn.gelu nn.hard_sigmoid nn.hard_swish "
        "nn.hard_tanh nn.leaky_relu nn.log_sigmoid nn.mish nn.relu nn.relu6 nn.selu nn.sigmoid nn.silu "
        "nn.softplus nn.softsign nn.thresholded_relu nn.dropout"
    ).split()
)
_BINARY: Final = (
    "add arctan2 copysign divide floor_divide fmax fmin fmod logaddexp maximum minimum mod multiply "
    "power subtract trunc_divide"
).split()
_NHWC: Final = (("NHWC", "NHWC"), ("NCHW", "NCHW"))

# fmt: off
ROWS: Final[Mapping[str, Row]] = {
    **dict.fromkeys(_UNARY, row.one),
    **dict.fromkeys(_BINARY, row.two),
    **dict.fromkeys(("sum", "mean", "max", "min", "supremum", "infimum", "prod", "var", "std", "logsumexp"), row.reduced),
    **dict.fromkeys(("nn.softmax", "nn.log_softmax"), row.along()),
    **dict.fromkeys(("cumsum", "cumprod"), row.along(exclusive=lambda d: d.maybe(), reverse=lambda d: d.maybe())),
    **dict.fromkeys(("cummax", "cummin"), row.along(reverse=lambda d: d.maybe())),
    **dict.fromkeys(("tril", "triu"), row.shaped(2, 3, lambda d, shape: {"k": d.random.randint(-2, 2)})),
    "after":            lambda d: ((d.real(*d.shape()), d.real(2)), {}),
    "adv_index":        lambda d: ((d.real(3, 2, 2), d.whole(3, 2), d.whole(2, 2)), {}),
    "broadcast_to":     row.shaped(0, 2, lambda d, shape: {"shape": (*d.shape(0, 1), *shape)}),
    "cast":             lambda d: ((d.real(*d.shape()),), {"dtype": "f64"}),
    "clip":             row.shaped(0, 2, lambda d, shape: {"min": -0.7, "max": 0.8}),
    "concat":           row.joined(False),
    "device_copy":      row.shaped(0, 2, lambda d, shape: {"source": "cpu", "target": "gpu"}),
    "diagonal":         row.shaped(2, 3, lambda d, shape: {"offset": d.random.randint(-1, 1), "axis1": 0, "axis2": len(shape) - 1}),
    "dft":              lambda d: ((d.real(d.size(), d.size(1, 2), d.size(1, 5), d.size(1, 2)),), {"length": 6, "bins": d.size(1, 6), "parts": d.size(1, 2), "inverse": d.maybe()}),
    "einsum":           row.einsum,
    "expand_dims":      row.shaped(0, 2, lambda d, shape: {"axis": (d.random.randint(0, len(shape)),)}),
    "flip":             row.shaped(0, 3, lambda d, shape: {"axis": d.axes(len(shape))}),
    "full_like":        row.shaped(0, 2, lambda d, shape: {"value": 2, "dtype": "f64"}),
    "gather_nd":        row.gather_nd,
    "layout_transform": lambda d: ((d.real(1, 4, 2, 3),), {"source": "NCHW", "target": d.pick(("NHWC", "NCHW2c", "CNHW"))}),
    "match_shape":      row.shaped(0, 3, lambda d, shape: {"shape": shape}),
    "matmul":           row.matrices,
    "matrix_set_diag":  row.diagonal_set,
    "meshgrid":         lambda d: ((d.real(d.size()), d.real(d.size())), {"indexing": d.pick(("ij", "xy"))}),
    "moveaxis":         row.shaped(2, 3, lambda d, shape: {"source": (0,), "destination": (len(shape) - 1,)}),
    "nn.adaptive_avg_pool": row.image(lambda d: {"output_size": d.size(1, 3)}),
    "nn.adaptive_max_pool": row.image(lambda d: {"output_size": d.size(1, 3)}),
    "nn.adaptive_avg_pool_laid": row.laid(row.image(lambda d: {"output_size": d.size(1, 3)}, ranks=(2,)), *_NHWC),
    "nn.avg_pool":      row.pool(count_include_pad=lambda d: d.maybe()),
    "nn.avg_pool_laid": row.laid(row.image(lambda d: {"kernel": d.size(1, 3), "strides": d.size(1, 2)}, ranks=(2,)), *_NHWC),
    "nn.batch_matmul":  row.batched,
    "nn.batch_norm":    lambda d: row.channels(d, 4),
    "nn.batch_to_space": row.blocks(True),
    "nn.bias_add":      lambda d: ((d.real(2, 3, *d.shape(0, 1)), d.real(3)), {"axis": 1}),
    "nn.conv":          row.conv,
    "nn.conv_laid":     row.laid(lambda d: row.conv(d, 2), ("NHWC", "HWIO", "NHWC"), ("NCHW", "OIHW", "NCHW")),
    "nn.conv_transpose": lambda d: row.conv(d, turned=True),
    "nn.conv_transpose_laid": row.laid(lambda d: row.conv(d, 2, turned=True), ("NHWC", "HWIO", "NHWC"), ("NCHW", "IOHW", "NCHW")),
    "nn.conv_winograd": row.winograd,
    "nn.correlation":   lambda d: ((d.real(1, 2, 4, 4), d.real(1, 2, 4, 4)), {"max_displacement": 1, "padding": d.random.randint(0, 1), "multiply": d.maybe()}),
    "nn.cross_entropy": row.loss,
    "nn.deformable_conv2d": row.deformed,
    "nn.dense":         lambda d: ((d.real(d.size(), 3), d.real(d.size(), 3)), {}),
    "nn.depth_to_space": row.pixels(True),
    "nn.dilate":        row.shaped(1, 2, lambda d, shape: {"strides": tuple([d.size(1, 2) for _ in shape]), "value": 0}),
    "nn.flatten":       row.shaped(1, 3, lambda d, shape: {"axis": d.random.randint(0, len(shape))}),
    "nn.global_avg_pool": row.image(lambda d: {}),
    "nn.global_max_pool": row.image(lambda d: {}),
    "nn.group_norm":    lambda d: row.channels(d, 2, d.size(1, 2)),
    "nn.instance_norm": lambda d: row.channels(d, 2),
    "nn.l2_normalize":  row.shaped(1, 3, lambda d, shape: {"axis": (d.axis(len(shape)),), "epsilon": 1e-4}),
    "nn.layer_norm":    row.norm(2),
    "nn.lrn":           row.shaped(2, 3, lambda d, shape: {"size": d.size(1, 3), "alpha": 0.5, "beta": 0.75, "bias": 2.0}),
    "nn.max_pool":      row.pool(),
    "nn.max_pool_laid": row.laid(row.image(lambda d: {"kernel": d.size(1, 3), "strides": d.size(1, 2)}, ranks=(2,)), *_NHWC),
    "nn.nll_loss":      row.loss,
    "nn.prelu":         lambda d: ((d.real(2, 3, *d.shape(0, 1)), d.real(3)), {"axis": 1}),
    "nn.rms_norm":      row.norm(1),
    "nn.roi_align":     row.roi,
    "nn.space_to_batch": row.blocks(False),
    "nn.space_to_depth": row.pixels(False),
    "nn.sparse_dense":  row.sparse_dense,
    "nn.upsample":      row.image(lambda d: {"scale": d.size(1, 2)}),
    "nn.upsample_laid": row.laid(row.image(lambda d: {"scale": d.size(1, 2)}, ranks=(2,)), *_NHWC),
    "nn.window_put":    row.window_places(True),
    "nn.window_spread": row.spread_window,
    "nn.window_sum":    row.image(row.window),
    "nn.window_take":   row.window_places(False),
    "nn.winograd_weight": lambda d: ((d.real(d.size(1, 2), d.size(1, 2), 3, 3),), {"tile": d.pick((2, 4))}),
    "on_device":        row.shaped(0, 2, lambda d, shape: {"device": "gpu"}),
    "pad":              row.shaped(1, 2, row.padded),
    "repeat":           row.shaped(1, 3, lambda d, shape: {"repeats": d.size(1, 2), "axis": d.axis(len(shape))}),
    "reshape":          row.shaped(1, 3, row.reshaped),
    "reshape_codes":    lambda d: ((d.real(2, 3, 2),), {"codes": d.pick(((0, -2), (-4, 1, -1, -2), (-1,), (0, -3)))}),
    "reverse_sequence": row.sequences(),
    "roll":             row.shaped(1, 3, lambda d, shape: {"shift": d.random.randint(-2, 2), "axis": d.axis(len(shape))}),
    "scatter_elements": row.put_elements,
    "scatter_nd":       row.put_nd,
    "scatter_rows":     row.put_rows,
    "scatter_sum":      row.scatter_sum,
    "scatter_sum_along_axis": row.scatter_along,
    "sequence_mask":    row.sequences(value=1),
    "slice":            row.shaped(1, 3, row.slices),
    "sliding_window":   row.shaped(1, 2, lambda d, shape: {"axis": 0, "window": (d.size(1, shape[0]),), "strides": (d.size(1, 2),)}),
    "sort":             row.along(descending=lambda d: d.maybe()),
    "sparse_to_dense":  row.sparse,
    "split":            row.shaped(1, 3, row.split_in),
    "squeeze":          lambda d: ((d.real(2, 1, 3),), {"axis": d.pick((None, (1,)))}),
    "stack":            row.joined(True),
    "strided_set":      row.strided_set,
    "swapaxes":         row.shaped(2, 3, row.swapped),
    "take":             row.taken,
    "take_along_axis":  row.taken_along,
    "tile":             row.shaped(0, 2, lambda d, shape: {"reps": tuple([d.size(1, 2) for _ in range(d.random.randint(0, 3))])}),
    "topk":             row.shaped(1, 2, row.axis_of_length),
    "transpose":        row.shaped(0, 3, lambda d, shape: {"axes": tuple(d.random.sample(range(len(shape)), len(shape)))}),
    "unslice":          row.unslice,
    "where":            lambda d: ((d.whole(2, 2, 3) > 0, d.real(2, 3), d.real(*d.pick(((2, 3), (3,), ())))), {}),
}

INTEGER_ROWS: Final[Mapping[str, Row]] = {
    "first_places":     row.shaped(1, 3, lambda d, shape: {"k": d.size(1, shape[-1]), "descending": d.maybe()}),
    "merge_planes":     row.shaped(1, 3, lambda d, shape: {"width": d.size(1, 4)}),
    "merge_runs":       row.shaped(1, 3, lambda d, shape: {"width": d.size(1, 4)}),
}
"""Operators that have no gradient."""
# fmt: on


def drawn_call(op: str, random: Random, most: int = 3, shapes: tuple[Shape, ...] = ()) -> DrawnCall:
    """A call of an operator that has a row; where its shape is free it may be one of those given."""
    low, high = DOMAINS.get(op, (-2.0, 2.0))
    args, settings = {**INTEGER_ROWS, **ROWS}[op](RealDraw(random, low, high, most, shapes))
    if op == "nn.batch_norm":
        args = (*args[:4], np.abs(args[4]))
    return DrawnCall(op, args, settings)
