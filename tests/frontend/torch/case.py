"""Calls of each operator of the table: what is right for one and no other."""

# ruff: noqa: E501  # a row of the table is one line

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import torch

_RANDOM = torch.Generator().manual_seed(7)


def f(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=_RANDOM).to(dtype)


def i(high: int, *shape: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    return torch.randint(0, high, shape, generator=_RANDOM).to(dtype)


def b(*shape: int) -> torch.Tensor:
    return torch.rand(shape, generator=_RANDOM) > 0.5


def pos(*shape: int) -> torch.Tensor:
    return torch.rand(shape, generator=_RANDOM) + 0.1


H, B = torch.float16, torch.bfloat16


def grouped(rows: int, *ends: int) -> tuple[torch.Tensor, ...]:
    """Rows, a matrix for each group of them, and where the groups end."""
    return f(rows, 16), f(len(ends), 16, 8), torch.tensor(ends, dtype=torch.int32)


def bf16_grouped(rows: int, *ends: int) -> tuple[torch.Tensor, ...]:
    """The same in the only type that torch traces them in."""
    x, weight, offs = grouped(rows, *ends)
    return x.bfloat16(), weight.bfloat16(), offs


def recurrent(
    gates: int, layers: int = 1, ways: int = 1, biases: bool = True, given: int = 0
) -> list[torch.Tensor]:
    """The parameters of recurrent layers of 3 inputs and 4 states, of which fewer may be given."""
    out = given or 4
    found = []
    for layer in range(layers):
        for _ in range(ways):
            found += [f(gates * 4, ways * out if layer else 3), f(gates * 4, out)]
            found += [f(gates * 4) for _ in range(2 if biases else 0)]
            found += [f(given, 4)] if given else []
    return found


def flash(mask: torch.Tensor | None, causal: bool) -> tuple[Any, ...]:
    """The arguments of attention backwards: what it gave forwards is among them."""
    query, key, value, slope = (f(2, 3, 5, 4) for _ in range(4))
    how = {} if mask is None else {"attn_mask": mask}
    op = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    return (slope, query, key, value, *op(query, key, value, 0.0, causal, **how), 0.0, causal, how)


Call = tuple[Any, ...]
Calls = Callable[[], list[Call]]

# Operators that take a tensor and nothing that must be given.
UNARY: Final = [
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "cos",
    "cosh",
    "erf",
    "exp",
    "exp2",
    "expm1",
    "log",
    "log10",
    "log1p",
    "log2",
    "reciprocal",
    "rsqrt",
    "sigmoid",
    "sin",
    "sinh",
    "sqrt",
    "tan",
    "tanh",
    "abs",
    "ceil",
    "floor",
    "neg",
    "round",
    "sign",
    "square",
    "trunc",
    "isinf",
    "isnan",
    "isfinite",
    "signbit",
    "logical_not",
    "relu",
    "relu6",
    "silu",
    "mish",
    "selu",
    "hardswish",
    "hardsigmoid",
    "log_sigmoid",
    "celu",
    "elu",
    "gelu",
    "leaky_relu",
    "softplus",
    "hardshrink",
    "softshrink",
    "nan_to_num",
    "logit",
    "alias",
    "clone",
    "detach",
    "t",
    "lift_fresh_copy",
]
FLOAT_ONLY: Final = [
    "relu6",
    "silu",
    "mish",
    "selu",
    "hardswish",
    "hardsigmoid",
    "log_sigmoid",
    "celu",
    "elu",
    "gelu",
    "leaky_relu",
    "softplus",
    "hardshrink",
    "softshrink",
]

# Operators of two tensors, or of a tensor and a number.
BINARY: Final = [
    "add",
    "sub",
    "mul",
    "div",
    "remainder",
    "fmod",
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
]
ODD_PAIRS: Final = tuple(
    torch.tensor([0.0, 1.0, -0.0, torch.inf, torch.nan, -2.0, -1.0]).repeat_interleave(7)
    if first
    else torch.tensor([0.0, 1.0, -0.0, torch.inf, torch.nan, -2.0, -1.0]).repeat(7)
    for first in (True, False)
)
"""Every pair of some odd numbers."""

TENSORS: Final = [
    "maximum",
    "minimum",
    "fmax",
    "fmin",
    "atan2",
    "logical_and",
    "logical_or",
    "logical_xor",
]

# fmt: off
CASES: Final[dict[str, Calls]] = {
    "rsub.Tensor":          lambda: [(f(2, 3), f(3), {"alpha": 2}), (i(9, 4), i(9, 4))],
    "rsub.Scalar":          lambda: [(f(2, 3), 2.5), (i(9, 4), 3, 2)],
    "div.Tensor_mode":      lambda: [(f(9), f(9), {"rounding_mode": m}) for m in (None, "floor", "trunc")] + [(i(9, 5) - 4, i(3, 5) + 1, {"rounding_mode": m}) for m in (None, "floor", "trunc")],
    "div.Scalar_mode":      lambda: [(f(9), 0.3, {"rounding_mode": m}) for m in (None, "floor", "trunc")] + [(i(9, 5) - 4, 3, {"rounding_mode": "trunc"}), (i(9, 5) - 4, -2, {"rounding_mode": "floor"})],
    "floor_divide.default": lambda: [(f(9), f(9)), (i(9, 5) - 4, i(3, 5) + 1)],
    "pow.Tensor_Tensor":    lambda: [(pos(2, 3), f(3)), (i(5, 4), i(4, 4))],
    "pow.Tensor_Scalar":    lambda: [(f(5), 2), (f(5), 3), (pos(5), 0.5), (pos(5), -0.5), (f(5), -1), (pos(4), 1.7), (i(5, 4), 3), (i(5, 4), 0.5), (f(5, dtype=H), 2)],
    "pow.Scalar":           lambda: [(2.0, f(5)), (3, i(4, 5))],
    "copysign.Tensor":      lambda: [(f(4), f(4)), (i(5, 4), f(4))],
    "addcmul.default":      lambda: [(f(2, 3), f(3), f(2, 1)), (f(3, dtype=H), f(3, dtype=H), f(3, dtype=H), {"value": 0.5})],
    "addcdiv.default":      lambda: [(f(2, 3), f(3), pos(2, 1))],
    "lerp.Scalar":          lambda: [(f(4), f(4), 0.3), (f(4), f(4), 0.8)],
    "lerp.Tensor":          lambda: [(f(4), f(4), pos(4))],
    "round.decimals":       lambda: [(f(4), {"decimals": 0})],
    "bitwise_not.default":  lambda: [(i(9, 4),), (b(4),), (i(200, 4, dtype=torch.uint8),)],
    "clamp.default":        lambda: [(f(9), -0.5, 0.5), (f(9), None, 0.1), (f(9), 0.2, -0.2), (i(9, 4), 2), (i(9, 4), 2.5), (f(9, dtype=H), 0.1)],
    "clamp.Tensor":         lambda: [(f(2, 3), f(3), None), (f(2, 3), f(1), f(2, 1))],
    "clamp_min.default":    lambda: [(f(5), 0.1)],
    "clamp_max.default":    lambda: [(f(5), 0.1)],
    "hardtanh.default":     lambda: [(f(9),), (f(9), 0.0, 6.0), (f(9, dtype=B), 0.0, 0.3)],
    "where.self":           lambda: [(b(2, 3), f(3), f(2, 1)), (b(3), i(5, 3), f(3)), (b(3), f(), f(3, dtype=torch.float64))],
    "masked_fill.Scalar":   lambda: [(f(2, 3), b(3), float("-inf")), (i(5, 4), b(4), 3)],
    "masked_fill.Tensor":   lambda: [(f(2, 3), b(3), torch.tensor(2.0))],
    "bitwise_left_shift.Tensor":         lambda: [(i(9, 4), i(5, 4))],
    "__lshift__.Tensor":    lambda: [(i(9, 4), i(5, 4))],
    "__lshift__.Scalar":    lambda: [(i(9, 4), 3)],
    "__rshift__.Tensor":    lambda: [(i(9, 4), i(5, 4))],
    "__rshift__.Scalar":    lambda: [(i(9, 4), 2)],
    "sinc.default":         lambda: [(f(3, 4),), (torch.tensor([0.0, -0.0, 1.0, torch.inf, torch.nan]),), (i(5, 4),)],
    "xlogy.Tensor":         lambda: [ODD_PAIRS, (f(3, 4), f(4).abs()), (i(5, 4), f(4).abs())],
    "xlogy.Scalar_Self":    lambda: [(0.0, ODD_PAIRS[1]), (2.5, f(4).abs())],
    "xlogy.Scalar_Other":   lambda: [(ODD_PAIRS[0], 0.0), (f(4), 2.5)],
    "special_xlog1py.default":      lambda: [ODD_PAIRS, (f(3, 4), f(4).abs()), (i(5, 4), f(4).abs())],
    "special_xlog1py.self_scalar":  lambda: [(0.0, ODD_PAIRS[1]), (2.5, f(4).abs())],
    "special_xlog1py.other_scalar": lambda: [(ODD_PAIRS[0], -1.0), (f(4), 2.5)],
    "hypot.default":        lambda: [(f(3, 4), f(4)), (f(3) * 1e30, f(3) * 1e30), (f(3) * 0, f(3) * 0), (f(2) * torch.inf, f(2) * torch.nan)],
    "bitwise_left_shift.Tensor_Scalar":  lambda: [(i(9, 4), 3)],
    "bitwise_right_shift.Tensor":        lambda: [(i(99, 4) - 50, i(5, 4))],
    "bitwise_right_shift.Tensor_Scalar": lambda: [(i(99, 4) - 50, 3)],
    "log_sigmoid_forward.default":       lambda: [(f(9),)],
    "gelu.default":         lambda: [(f(9), {"approximate": "tanh"}), (f(9),), (f(9, dtype=H),)],
    "elu.default":          lambda: [(f(9), 0.5, 2.0, 0.7), (f(9), 0.5)],
    "celu.default":         lambda: [(f(9), 0.5)],
    "leaky_relu.default":   lambda: [(f(9), 0.2), (f(9), 0)],
    "softplus.default":     lambda: [(f(9) * 20, 2.0, 10.0)],
    "logit.default":        lambda: [(f(9), 0.1)],
    "nan_to_num.default":   lambda: [(torch.tensor([float("nan"), float("inf"), 1.0]), 2.0, 3.0)],
    "add.Tensor":           lambda: [(f(3), f(3), {"alpha": 2.5}), (b(4), b(4)), (f(3, dtype=H), f(3, dtype=H), {"alpha": 0.3})],
    "mul.Tensor":           lambda: [(b(4), b(4)), (b(4), f(4)), (f(4), 2.5)],
    "sub.Scalar":           lambda: [(f(3), 2, 3)],
    "lt.Tensor":            lambda: [(b(4), b(4))],
    "maximum.default":      lambda: [(b(4), b(4))],
    "hardshrink.default":   lambda: [(f(9), 0.2)],
    "softshrink.default":   lambda: [(f(9), 0.2)],
    "threshold.default":    lambda: [(f(9), 0.1, 20.0)],
    "_prelu_kernel.default": lambda: [(f(2, 3, 4), f(1, 3, 1))],
    "detach_.default":      lambda: [(f(3),)],
    "contiguous.default":   lambda: [(f(3, 4).t(),)],
    # reductions
    "sum.dim_IntList":      lambda: [(f(2, 3, 4), [1]), (f(2, 3), [-1, 0], True), (b(2, 3), [0]), (f(2, 3), None), (f(2, 3, dtype=H), [1]), (f(0, 3), [0]), (f(), [0])],
    "prod.dim_int":         lambda: [(f(2, 3, 4), 1), (i(5, 2, 3), -1, True), (f(), 0)],
    "mean.dim":             lambda: [(f(2, 3, 4), [1, 2]), (f(2, 3), [-1], True), (f(2, 3, dtype=B), [0]), (f(2, 3), None)],
    "mean.default":         lambda: [(f(2, 3),), (f(),), (f(5, dtype=H),)],
    "amax.default":         lambda: [(f(2, 3, 4), [1]), (i(9, 2, 3), []), (b(2, 3), [0], True)],
    "amin.default":         lambda: [(f(2, 3, 4), [-1, 0]), (b(2, 3), [0])],
    "max.dim":              lambda: [(f(2, 3), 1), (i(3, 4, 5), 0, True), (b(2, 3), 1), (torch.tensor([1.0, float("nan"), 3.0]), 0), (f(), 0)],
    "min.dim":              lambda: [(f(2, 3), 1), (i(3, 4, 5), -2, True), (torch.tensor([2.0, float("nan")]), 0)],
    "argmax.default":       lambda: [(f(2, 3),), (f(2, 3), 1), (i(3, 4, 5), 0, True), (f(2, 3), None, True)],
    "argmin.default":       lambda: [(f(2, 3),), (f(2, 3), -1), (f(),)],
    "histc.default":        lambda: [
        (f(20), 4, -1, 1), (i(8, 4, 5).float(), 8, 0, 7), (f(9),), (torch.ones(3), 5),
        (torch.tensor([math.nan, math.inf, 0.5, 1.0]), 3, 0, 1)],
    "_grouped_mm.default":   lambda: [bf16_grouped(9, 2, 2, 5, 9), bf16_grouped(3, 0, 1, 1, 3)],
    "transformers.grouped_mm_fallback.default": lambda: [
        grouped(9, 2, 2, 5, 9), grouped(3, 0, 1, 1, 3), grouped(0, 0, 0), grouped(9, 1, 2, 4)],
    "any.dim":              lambda: [(b(2, 3), 1), (f(2, 3), 0, True)],
    "any.dims":             lambda: [(b(2, 3), [0, 1]), (i(2, 2, 3), None), (b(2, 3), [])],
    "all.dim":              lambda: [(b(2, 3), 1), (i(2, 2, 3), 0, True)],
    "all.dims":             lambda: [(b(2, 3), [0, 1]), (f(2, 3), [], True), (b(), [])],
    "cumsum.default":       lambda: [(f(2, 5), 1), (i(9, 4), 0), (b(4), 0), (f(), 0), (f(2, 5, dtype=H), 0)],
    "cumprod.default":      lambda: [(f(2, 5), 1), (i(4, 4), 0)],
    "var.correction":       lambda: [(f(3, 4), [1]), (f(3, 4),), (f(3, 1), [1]), (f(3, 4), [0], {"correction": 0, "keepdim": True}), (f(3, 4), [0], {"correction": 1.5})],
    "var.dim":              lambda: [(f(3, 4), [1]), (f(3, 4), [0, 1], False, True)],
    "std.correction":       lambda: [(f(3, 4), [0]), (f(3, 4, dtype=H), [1])],
    "var_mean.correction":  lambda: [(f(3, 4), [1]), (f(2, 3, 4), [0, 2])],
    "std_mean.correction":  lambda: [(f(3, 4), [1])],
    "logsumexp.default":    lambda: [(f(3, 4), [1]), (f(3, 4), [0, 1], True)],
    "linalg_vector_norm.default": lambda: [(f(3, 4), p, [1]) for p in (2, 1, 3.0, float("inf"), float("-inf"), 0)] + [(f(3, 4),)],
    # views and parts
    "view.default":         lambda: [(f(2, 6), [3, -1]), (f(2, 0), [0, 2]), (f(), [1, 1])],
    "_unsafe_view.default": lambda: [(f(2, 6), [3, 4])],
    "reshape.default":      lambda: [(f(2, 6).t(), [3, 4])],
    "view_copy.default":    lambda: [(f(2, 6), [3, 4])],
    "squeeze.default":      lambda: [(f(1, 3, 1),)],
    "squeeze.dim":          lambda: [(f(1, 3, 1), -1), (f(1, 3), 1), (f(), 0)],
    "squeeze.dims":         lambda: [(f(1, 3, 1), [0, 2])],
    "unsqueeze.default":    lambda: [(f(2, 3), -1), (f(), 0)],
    "expand.default":       lambda: [(f(3, 1), [2, -1, 4])],
    "permute.default":      lambda: [(f(2, 3, 4), [2, 0, -2]), (f(), [])],
    "transpose.int":        lambda: [(f(2, 3, 4), 0, -1)],
    "slice.Tensor":         lambda: [(f(5, 3), 0, 1, 4, 2), (f(5), 0, -2, 2**63 - 1), (f(5), 0, 3, 1), (f(5, 3), 1), (f(5), 0, -9, 9)],
    "select.int":           lambda: [(f(4, 3), 0, -1), (f(4, 3), 1, 2)],
    "split.Tensor":         lambda: [(f(5, 3), 2), (f(4, 3), 2, 1)],
    "split_with_sizes.default": lambda: [(f(5, 3), [2, 0, 3])],
    "unbind.int":           lambda: [(f(3, 2),), (f(3, 2), -1)],
    "slice_scatter.default": lambda: [(f(5, 3), f(2, 3), 0, 1, 3), (f(5), f(2), 0, 1, 5, 2), (f(3), f(3))],
    "select_scatter.default": lambda: [(f(4, 3), f(3), 0, -1), (f(4, 3), f(4), 1, 0)],
    "diagonal_scatter.default": lambda: [(f(3, 4), f(3)), (f(3, 4), f(3), 1), (f(4, 3), f(3), -1), (f(3, 2, 4), f(2, 3), 1, 0, 2), (f(4, 2, 3), f(2, 2), -2, 0, 2), (f(3, 3), f(1), 2)],
    "diagonal.default":     lambda: [(f(3, 4), 1), (f(2, 3, 4), -1, 1, 2)],
    "tril.default":         lambda: [(f(3, 4),), (f(2, 3, 3), -1)],
    "triu.default":         lambda: [(f(3, 4), 1)],
    "unfold.default":       lambda: [(f(7), 0, 3, 2), (f(2, 6), 1, 2, 1), (f(2, 6, 3), -2, 3, 3)],
    "as_strided.default":   lambda: [(f(2, 6), [3, 2], [2, 1]), (f(12), [3, 4], [1, 3], 0), (f(12), [2, 2], [1, 1], 3)],
    # joins, repetition, borders
    "cat.default":          lambda: [([f(2, 3), f(1, 3)],), ([f(2, 3), f(2, 1)], -1), ([f(2), i(5, 2)],), ([f(0), f(2, 3)],)],
    "stack.default":        lambda: [([f(2, 3), f(2, 3)], -1)],
    "repeat.default":       lambda: [(f(2, 3), [2, 1, 2]), (f(2), [0])],
    "flip.default":         lambda: [(f(2, 3), [0, -1])],
    "roll.default":         lambda: [(f(4), [1]), (f(2, 3), [1, -1], [0, 1]), (f(2, 3), [4])],
    "constant_pad_nd.default":   lambda: [(f(2, 3), [1, 2]), (f(2, 3), [1, -1, 0, 2], 3.5), (b(2, 3), [1, 1], 1)],
    "reflection_pad1d.default":  lambda: [(f(2, 4), [1, 2])],
    "reflection_pad2d.default":  lambda: [(f(1, 2, 4, 4), [1, 2, 0, 1])],
    "reflection_pad3d.default":  lambda: [(f(1, 1, 3, 3, 3), [1, 1, 0, 1, 2, 0])],
    "replication_pad1d.default": lambda: [(f(2, 4), [1, 2])],
    "replication_pad2d.default": lambda: [(f(1, 2, 4, 4), [1, 2, 0, 1])],
    "replication_pad3d.default": lambda: [(f(1, 1, 3, 3, 3), [1, 1, 0, 1, 2, 0])],
    # tensors from numbers
    "full.default":         lambda: [([2, 3], 1.5), ([], 3), ([2], True)],
    "full_like.default":    lambda: [(f(2, 3), 2), (i(5, 2), 1), (i(5, 2), -2.75), (b(3), 2)],
    "sign.default":         lambda: [(b(2, 3),)],
    "zeros.default":        lambda: [([2, 3],)],
    "ones.default":         lambda: [([2, 3],)],
    "zeros_like.default":   lambda: [(f(2, 3),)],
    "ones_like.default":    lambda: [(i(9, 2, 3),)],
    "new_zeros.default":    lambda: [(f(2, 3), [4])],
    "new_ones.default":     lambda: [(i(9, 3), [4])],
    "fill.Scalar":          lambda: [(f(2, 3), 2.5)],
    "fill.Tensor":          lambda: [(f(2, 3), torch.tensor(2))],
    "copy.default":         lambda: [(f(2, 3), i(9, 3))],
    "_to_copy.default":     lambda: [(f(2, 3) * 3, {"dtype": t}) for t in (torch.int32, H, torch.bool, torch.float64)] + [(i(9, 4), {"dtype": B})],
    "arange.default":       lambda: [(5,), (2.5,)],
    "arange.start":         lambda: [(2, 7), (0.5, 3.0)],
    "arange.start_step":    lambda: [(2, 9, 3), (5, 0, -2), (0.0, 1.0, 0.25)],
    "scalar_tensor.default": lambda: [(2.5,), (3,)],
    # gathering, scattering, ordering
    "embedding.default":    lambda: [(f(5, 3), i(5, 2, 4)), (f(5, 3), i(5, 2, dtype=torch.int32), 1)],
    "index_select.default": lambda: [(f(4, 3), 0, i(4, 5)), (f(4, 3), -1, i(3, 2))],
    "gather.default":       lambda: [(f(3, 4), 1, i(4, 2, 2)), (f(3, 4), 0, i(3, 5, 4)), (f(), 0, i(1))],
    "index.Tensor":         lambda: [(f(4, 3), [i(4, 5)]), (f(4, 3, 2), [None, i(3, 2, 2) - 3]), (f(4, 3, 2), [i(4, 2, 1), i(3, 3)]), (f(4, 3, 2), [None, i(3, 2), i(2, 2)]), (f(4, 3, 2), [i(4, 2), None, i(2, 2)])],
    "_unsafe_index.Tensor": lambda: [(f(4, 3), [i(4, 5), i(3, 5)])],
    "index_put.default":    lambda: [(f(4, 3), [torch.tensor([2, 0])], f(2, 3)), (f(4, 3), [i(4, 5)], f(3), True), (f(4, 3, 2), [None, torch.tensor([0, 2])], f(4, 2, 2)), (f(4, 3), [torch.tensor([-1, 1]), torch.tensor([0, 2])], f(2)), (f(4, 3), [b(4, 3)], torch.tensor(2.0)), (f(4, 3, 2), [torch.tensor([0, 3]), None, torch.tensor([1, 0])], f(2, 3))],
    "_unsafe_index_put.default": lambda: [(f(4, 3), [torch.tensor([2, 0])], f(2, 3))],
    "scatter.src":          lambda: [(f(3, 5), 1, torch.tensor([[0, 2], [4, 1]]), f(2, 3)), (f(3, 2), 0, torch.tensor([[1, 0]]), f(1, 2))],
    "scatter.value":        lambda: [(f(3, 5), 1, torch.tensor([[0, 2], [4, 1]]), 2.5), (i(9, 4), 0, torch.tensor([1, 1]), 7)],
    "scatter_add.default":  lambda: [(f(3, 5), 1, i(5, 2, 4), f(2, 4)), (i(9, 4), 0, i(4, 6), i(9, 6))],
    "scatter_reduce.two":   lambda: [(f(3, 5), 1, i(5, 2, 4), f(2, 4), r) for r in ("sum", "prod", "amax", "amin", "mean")] + [(f(3, 5), 0, i(3, 2, 4), f(2, 4), r, {"include_self": False}) for r in ("sum", "prod", "amax", "amin", "mean")],
    "sort.default":         lambda: [(f(3, 5),), (f(3, 5), 0, True), (torch.tensor([1.0, float("nan"), -1.0]),)],
    "sort.stable":          lambda: [(i(3, 9), {"stable": True}), (f(2, 4), {"stable": True, "dim": 0, "descending": True})],
    "kthvalue.default":     lambda: [(f(3, 6), 2), (f(3, 6), 1, 0, True), (f(6), 6)],
    "searchsorted.Tensor":  lambda: [(torch.sort(f(7))[0], f(2, 3)), (torch.sort(f(2, 7))[0], f(2, 3), {"right": True}), (torch.tensor([1, 1, 3]), torch.tensor([1, 3, 4]), {"out_int32": True, "side": "right"})],
    "searchsorted.Scalar":  lambda: [(torch.sort(f(7))[0], 0.25)],
    "bucketize.Tensor":     lambda: [(f(2, 3), torch.tensor([-0.5, 0.0, 0.5])), (torch.tensor([0.0, 1.0]), torch.tensor([0.0, 1.0]), {"right": True})],
    "put.default":          lambda: [(f(3, 2), torch.tensor([1, -1]), f(2)), (f(3, 2), torch.tensor([[1, 1]]), f(1, 2), True)],
    "topk.default":         lambda: [(f(3, 6), 2), (f(3, 6), 2, 0), (f(6), 3, 0, False)],
    # linear algebra
    "mm.default":           lambda: [(f(2, 3), f(3, 4)), (i(9, 2, 3), i(9, 3, 2)), (f(2, 0), f(0, 3))],
    "_int_mm.default":      lambda: [(i(99, 17, 8, dtype=torch.int8), i(99, 8, 8, dtype=torch.int8))],
    "bmm.default":          lambda: [(f(2, 3, 4), f(2, 4, 5)), (f(2, 3, 4, dtype=B), f(2, 4, 5, dtype=B))],
    "mv.default":           lambda: [(f(2, 3), f(3))],
    "dot.default":          lambda: [(f(5), f(5))],
    "matmul.default":       lambda: [(f(3), f(3)), (f(2, 1, 3, 4), f(5, 4, 2)), (f(2, 3), f(3)), (f(3), f(2, 3, 4))],
    "lstm.input":           lambda: [(f(5, 2, 3), [f(1, 2, 4), f(1, 2, 4)], recurrent(4), True, 1, 0.0, False, False, False),
                                     (f(2, 5, 3), [f(4, 2, 4), f(4, 2, 4)], recurrent(4, 2, 2, False), False, 2, 0.5, False, True, True),
                                     (f(5, 2, 3), [f(1, 2, 2), f(1, 2, 4)], recurrent(4, given=2), True, 1, 0.0, True, False, False),
                                     (f(1, 0, 3), [f(1, 0, 4), f(1, 0, 4)], recurrent(4), True, 1, 0.0, False, False, False)],
    "gru.input":            lambda: [(f(2, 5, 3), f(2, 2, 4), recurrent(3, 1, 2), True, 1, 0.0, False, True, True),
                                     (f(5, 2, 3), f(2, 2, 4), recurrent(3, 2, 1, False), False, 2, 0.0, True, False, False)],
    "rnn_tanh.input":       lambda: [(f(5, 2, 3), f(1, 2, 4), recurrent(1), True, 1, 0.0, False, False, False),
                                     (f(5, 2, 3), f(2, 2, 4), recurrent(1, 1, 2, False), False, 1, 0.0, False, True, False)],
    "rnn_relu.input":       lambda: [(f(2, 5, 3), f(2, 2, 4), recurrent(1, 2), True, 2, 0.0, False, False, True)],
    "linear.default":       lambda: [(f(2, 3), f(4, 3), f(4)), (f(2, 5, 3), f(4, 3)), (f(3), f(4, 3), f(4)), (f(2, 3, dtype=H), f(4, 3, dtype=H), f(4, dtype=H))],
    "addmm.default":        lambda: [(f(4), f(2, 3), f(3, 4)), (f(4), f(2, 3), f(3, 4), {"alpha": 0.5, "beta": 2}), (f(2, 4, dtype=H), f(2, 3, dtype=H), f(3, 4, dtype=H))],
    "addmv.default":        lambda: [(f(2), f(2, 3), f(3))],
    "baddbmm.default":      lambda: [(f(2, 3, 5), f(2, 3, 4), f(2, 4, 5))],
    "_cdist_forward.default": lambda: [(f(3, 4), f(5, 4), p, None) for p in (1.0, 2.0, 3.0, float("inf"))] + [(f(2, 3, 4), f(2, 5, 4), 2.0, None)],
    "_pdist_forward.default": lambda: [(f(4, 3), p) for p in (1.0, 2.0, 3.0, float("inf"))],
    "scaled_dot_product_attention.default": lambda: [(f(2, 2, 3, 4), f(2, 2, 5, 4), f(2, 2, 5, 6)), (f(2, 3, 4), f(2, 3, 4), f(2, 3, 4), None, 0.0, True), (f(2, 2, 3, 4), f(2, 2, 5, 4), f(2, 2, 5, 6), b(3, 5)), (f(2, 3, 4), f(2, 5, 4), f(2, 5, 4), f(3, 5)), (f(1, 4, 3, 2), f(1, 2, 3, 2), f(1, 2, 3, 2), {"enable_gqa": True, "scale": 0.3}), (f(2, 3, 4, dtype=H), f(2, 3, 4, dtype=H), f(2, 3, 4, dtype=H)), (f(1, 3, 4), f(1, 2, 4), f(1, 2, 4), torch.zeros(3, 2, dtype=torch.bool))],
    "_scaled_dot_product_flash_attention_for_cpu.default": lambda: [(f(2, 2, 3, 4), f(2, 2, 5, 4), f(2, 2, 5, 4)), (f(2, 2, 3, 4), f(2, 2, 3, 4), f(2, 2, 3, 4), 0.0, True)],
    "_scaled_dot_product_flash_attention_for_cpu_backward.default": lambda: [flash(a, c) for a, c in ((None, False), (None, True), (f(5, 5), False))],
    "_transformer_encoder_layer_fwd.default": lambda: [(f(2, 3, 4), 4, 2, f(12, 4), f(12), f(4, 4), f(4), bool(g), bool(n), 1e-5, pos(4), f(4), pos(4), f(4), f(6, 4), f(6), f(4, 6), f(4)) for g in (0, 1) for n in (0, 1)],
    "_native_multi_head_attention.default":   lambda: [(x, x, x, 4, 2, f(12, 4), f(12), f(4, 4), f(4), None, True, a) for x, a in ((f(2, 3, 4), True), (f(1, 5, 4), False))],
    **{f"{name}_indices.default": lambda: [(3, 4), (4, 3, -1), (2, 5, 2)] for name in ("tril", "triu")},
    # running, middle and most frequent
    **{f"{name}.default": lambda: [(f(2, 5).round(decimals=1), 1), (f(4, 2, 3), 0), (torch.tensor([1.0, float("nan"), 3.0, float("nan"), 0.0]), 0), (i(5, 6), 0), (f(), 0)] for name in ("cummax", "cummin")},
    "logcumsumexp.default": lambda: [(f(2, 5) * 30, 1), (f(7, 2), 0), (torch.tensor([float("-inf"), 1.0, float("-inf")]), 0), (f(3, dtype=H), 0)],
    "median.default":       lambda: [(f(2, 5),), (f(4, 2),), (i(9, 7),), (torch.tensor([1.0, float("nan"), 3.0]),)],
    "median.dim":           lambda: [(f(3, 5), 1), (f(4, 2), 0, True), (i(90, 5), 0), (torch.tensor([1.0, float("nan"), 3.0]), 0)],
    "nanmedian.default":    lambda: [(f(2, 5),), (torch.tensor([1.0, float("nan"), 3.0, 2.0]),)],
    "nanmedian.dim":        lambda: [(f(3, 4), 1, True), (torch.tensor([[1.0, float("nan"), 3.0, 2.0]] * 2), 1)],
    "mode.default":         lambda: [(i(3, 2, 7), 1), (i(3, 6, 2), 0, True), (f(3), 0)],
    # special functions
    "lgamma.default":       lambda: [(torch.tensor([-3.5, -2.0, -0.3, 0.0, 1e-3, 0.5, 1.0, 1.7, 2.0, 9.5, 300.0, 1e20, float("inf"), -float("inf"), float("nan")], dtype=d),) for d in (torch.float32, torch.float64)] + [(i(9, 4),)],
    "digamma.default":      lambda: [(torch.tensor([-3.5, -2.0, -0.3, 0.0, -0.0, 1e-3, 0.5, 1.0, 1.7, 9.5, 300.0, 1e20, float("nan")], dtype=d),) for d in (torch.float32, torch.float64)],
    "erfc.default":         lambda: [(torch.tensor([-9.0, -1.5, -0.1, 0.0, 0.3, 1.0, 4.0, 9.0, float("inf"), -float("inf"), float("nan")], dtype=d),) for d in (torch.float32, torch.float64, H)],
    "erfinv.default":       lambda: [(torch.tensor([-2.0, -1.0, -0.9999, -0.4, 0.0, 1e-6, 0.7, 0.99, 1.0, 1.1, float("nan")], dtype=d),) for d in (torch.float32, torch.float64)],
    # bags and products of three
    "_embedding_bag_forward_only.default": lambda: [(f(6, 3), i(6, 8), torch.tensor([0, 3, 3, 6]), False, m, False, None, last, pad) for m in (0, 1, 2) for last, pad in ((False, -1), (True, 2))] + [(f(6, 3), i(6, 8), torch.tensor([0, 2, 8]), False, 0, False, f(8))],
    "_embedding_bag.default": lambda: [(f(6, 3), i(6, 8), torch.tensor([0, 5]), False, m) for m in (0, 1)],
    "_trilinear.default":   lambda: [(f(2, 4), f(5, 4, 3), f(2, 3), [1, 3], [0], [1, 2], [2, 3]), (f(2, 4), f(2, 4), f(2, 4), [], [], [], [1])],
    "_linalg_det.default":  lambda: [(f(n, n),) for n in (1, 2, 5)] + [(f(3, 2, 4, 4),), (torch.ones(3, 3),)],
    "_linalg_slogdet.default": lambda: [(f(4, 4),), (f(3, 3, 3),), (torch.ones(2, 2),)],
    # windows
    "col2im.default":       lambda: [(f(2, 12, 10), [3, 6], [2, 2], [1, 1], [0, 0], [1, 1]), (f(8, 6), [5, 6], [2, 2], [1, 1], [0, 0], [2, 2])],
    "convolution.default":  lambda: [(f(1, 2, 5, 5), f(4, 2, 3, 3), f(4), [2, 1], [1, 0], [1, 2], False, [0, 0], 1), (f(2, 4, 7), f(4, 2, 3), None, [1], [1], [1], False, [0], 2), (f(1, 4, 3, 3), f(4, 2, 3, 3), f(4), [2, 2], [1, 1], [1, 1], True, [1, 0], 2), (f(1, 2, 3, 3, 3), f(3, 2, 2, 2, 2), None, [1] * 3, [0] * 3, [1] * 3, False, [0] * 3, 1)],
    "convolution_backward.default": lambda: [(f(1, 4, 3, 3), f(1, 2, 5, 5), f(4, 2, 3, 3), [4], [2, 1], [1, 0], [1, 1], False, [0, 0], 1, [True] * 3), (f(2, 4, 7), f(2, 4, 7), f(4, 2, 3), [4], [1], [1], [1], False, [0], 2, [True] * 3), (f(1, 4, 6, 5), f(1, 4, 3, 3), f(4, 2, 3, 3), [4], [2, 2], [1, 1], [1, 1], True, [1, 0], 2, [True] * 3), (f(2, 3, 2, 3), f(2, 2, 6, 5), f(3, 2, 3, 2), [3], [2, 1], [0, 0], [1, 2], False, [0, 0], 1, [True] * 3)],
    "avg_pool1d.default":   lambda: [(f(2, 3, 7), [3], [2], [1]), (f(3, 7), [2])],
    "avg_pool2d.default":   lambda: [(f(2, 3, 7, 6), [3, 2], [2, 2], [1, 1]), (f(3, 7, 6), [2], [], [0], True), (f(1, 3, 7, 6), [3, 3], [2], [1], True, False), (f(1, 2, 5, 5), [2, 2], [2, 2], [1, 1], False, True, 3), (f(1, 3, 7, 6), [3, 3], [3], [1], True, True)],
    "avg_pool3d.default":   lambda: [(f(1, 2, 4, 4, 4), [2, 2, 2])],
    "max_pool2d_with_indices.default": lambda: [(f(2, 3, 7, 6), [3, 2], [2, 2], [1, 1]), (f(3, 7, 6), [2], [], [0], [2], True), (f(1, 3, 7, 6).masked_fill(f(1, 3, 7, 6) > 0.2, torch.nan), [3, 3], [1, 2], [1, 1])],
    "max_pool3d_with_indices.default": lambda: [(f(1, 2, 4, 4, 4), [2, 2, 2])],
    "adaptive_avg_pool1d.default":  lambda: [(f(2, 3, 7), [3])],
    "_adaptive_avg_pool2d.default": lambda: [(f(1, 2, 5, 4), [3, 4]), (f(3, 4, 3), [1, 1])],
    "_adaptive_avg_pool3d.default": lambda: [(f(1, 2, 4, 5, 3), [2, 2, 2])],
    "adaptive_max_pool2d.default":  lambda: [(f(2, 3, 7, 6), [3, 6])],
    "adaptive_max_pool3d.default":  lambda: [(f(1, 2, 4, 5, 3), [2, 2, 2])],
    # normalisation
    "_softmax.default":     lambda: [(f(2, 3), -1, False), (f(2, 3, 4), 1, False), (f(), 0, False), (f(2, 3, dtype=B), 1, False), (f(2, 0), 1, False)],
    "_log_softmax.default": lambda: [(f(2, 3), -1, False), (f(2, 3, dtype=H), 0, False)],
    "_native_batch_norm_legit_no_training.default": lambda: [(f(2, 3, 4), pos(3), f(3), f(3), pos(3), 0.1, 1e-5), (f(2, 3), None, None, f(3), pos(3), 0.1, 1e-3)],
    "_native_batch_norm_legit.no_stats": lambda: [(f(4, 3, 5), pos(3), f(3), True, 0.1, 1e-5)],
    "native_layer_norm.default": lambda: [(f(2, 3, 4), [4], pos(4), f(4), 1e-5), (f(2, 3, 4), [3, 4], None, None, 1e-3)],
    "_fused_rms_norm.default": lambda: [(f(2, 3, 4), [4], pos(4), 1e-5), (f(2, 3, 4), [3, 4], None, None), (f(2, 8, dtype=H), [8], None, None)],
    "native_group_norm.default": lambda: [(f(2, 4, 3), pos(4), f(4), 2, 4, 3, 2, 1e-5), (f(2, 4, 3, 2), None, None, 2, 4, 6, 4, 1e-5)],
    "native_dropout.default": lambda: [(f(2, 3), 0.5, False)],
    # images
    "upsample_nearest1d.vec":   lambda: [(f(1, 2, 5), [8], None)],
    "upsample_nearest2d.vec":   lambda: [(f(1, 2, 3, 4), None, [2.0, 3.0]), (f(1, 2, 5, 4), [7, 3], None), (f(1, 2, 5, 4), None, [1.7, 0.6])],
    "upsample_nearest3d.vec":   lambda: [(f(1, 1, 2, 3, 2), [4, 3, 5], None)],
    "upsample_nearest1d.default":   lambda: [(f(1, 2, 5), [8]), (f(1, 2, 5), [8], 1.7)],
    "upsample_nearest2d.default":   lambda: [(f(1, 2, 5, 4), [7, 3]), (f(1, 2, 5, 4), [8, 6], 1.7, 1.5)],
    "upsample_nearest3d.default":   lambda: [(f(1, 1, 2, 3, 2), [4, 3, 5])],
    "upsample_linear1d.default":    lambda: [(f(1, 2, 5), [8], True)],
    "upsample_bilinear2d.default":  lambda: [(f(1, 2, 5, 4), [7, 3], False), (f(1, 2, 5, 4), [8, 6], False, 1.7, 1.5)],
    "upsample_trilinear3d.default": lambda: [(f(1, 1, 2, 3, 2), [4, 3, 5], False)],
    "upsample_linear1d.vec":    lambda: [(f(1, 2, 5), [8], False, None)],
    "upsample_bilinear2d.vec":  lambda: [(f(1, 2, 3, 4), None, False, [2.0, 3.0]), (f(1, 2, 5, 4), [7, 3], True, None), (f(1, 2, 5, 4), [3, 9], False, None), (f(1, 2, 5, 4), [1, 1], True, None)],
    "upsample_trilinear3d.vec": lambda: [(f(1, 1, 2, 3, 2), [4, 3, 5], True, None)],
    "grid_sampler_2d.default":  lambda: [(f(2, 3, 4, 5), f(2, 3, 2, 2) * 1.5, m, p, a) for m in (0, 1, 2) for p in (0, 1, 2) for a in ((m + p) % 2 == 0,)] + [(f(1, 1, 1, 4), f(1, 2, 2, 2), 0, 2, True)],
    "grid_sampler_3d.default":  lambda: [(f(1, 2, 3, 4, 5), f(1, 2, 3, 2, 3), m, p, a) for m in (0, 1) for p in (0, 2) for a in (m + p == 1,)],
    "_upsample_bilinear2d_aa.default": lambda: [(f(1, 2, 9, 8), [4, 3], False), (f(1, 2, 5, 4), [7, 9], False), (f(1, 2, 9, 8), [4, 3], True)],
    "_upsample_bicubic2d_aa.default":  lambda: [(f(1, 2, 9, 8), [4, 3], False), (f(1, 2, 5, 4), [7, 9], False), (f(1, 1, 16, 5), [2, 5], False)],
    "_upsample_bilinear2d_aa.vec":     lambda: [(f(1, 2, 9, 8), None, False, [0.5, 0.5]), (f(1, 2, 9, 8), [4, 3], False, None)],
    "_upsample_bicubic2d_aa.vec":      lambda: [(f(1, 2, 9, 8), None, False, [0.5, 1.5]), (f(1, 2, 9, 8), [4, 3], False, None)],
}
# fmt: on


def calls(name: str) -> list[Call]:
    """The calls of an operator: the same ones whatever was called before."""
    _RANDOM.manual_seed(7)
    return CASES[name]()


# Their last outputs are not made: indices that nobody uses in inference.
FIRST: Final = {"_linalg_slogdet.default": (0, 1)}
FIRST_ONLY: Final = {
    "_embedding_bag.default", "_embedding_bag_forward_only.default", "_linalg_det.default",
    "adaptive_max_pool2d.default", "adaptive_max_pool3d.default", "log_sigmoid_forward.default",
}  # fmt: skip
# What torch leaves unset is compared by its type alone.
UNSET: Final = {
    "empty.memory_format": ([2, 3],),
    "empty_like.default": (torch.zeros(2, 3),),
    "empty_permuted.default": ([2, 3], [1, 0]),
    "empty_strided.default": ([2, 3], [1, 2]),
    "new_empty.default": (torch.zeros(2), [3]),
    "new_empty_strided.default": (torch.zeros(2), [2, 3], [1, 2]),
}

DECOMPOSED: Final = (
    "_prelu_kernel.default", "_unsafe_index.Tensor",
    "_unsafe_index_put.default", "_unsafe_view.default", "_upsample_bicubic2d_aa.vec",
    "_upsample_bilinear2d_aa.vec", "adaptive_avg_pool1d.default", "addcdiv.default",
    "all.default", "all.dims", "arange.default", "arange.start", "avg_pool1d.default",
    "baddbmm.default", "clamp_max.default", "clamp_min.default", "col2im.default",
    "detach.default", "dot.default", "empty_like.default", "fill.Scalar", "fill.Tensor",
    "floor_divide.default", "hardshrink.default", "lerp.Tensor",
    "log_sigmoid_forward.default", "logit.default", "masked_fill.Scalar",
    "masked_fill.Tensor", "mv.default", "nan_to_num.default", "new_empty.default",
    "new_ones.default", "new_zeros.default", "ones.default", "ones_like.default",
    "reflection_pad1d.default", "reflection_pad2d.default", "reflection_pad3d.default",
    "replication_pad1d.default", "replication_pad2d.default", "replication_pad3d.default",
    "rsub.Scalar", "rsub.Tensor", "select_scatter.default", "softshrink.default",
    "split.Tensor", "squeeze.default", "squeeze.dim", "sum.default", "t.default",
    "threshold.default", "transpose.int", "upsample_linear1d.default",
    "upsample_linear1d.vec", "upsample_nearest1d.default", "upsample_nearest1d.vec",
    "upsample_nearest2d.default", "upsample_nearest3d.default", "upsample_nearest3d.vec",
    "upsample_trilinear3d.vec", "var.dim", "zeros.default", "zeros_like.default",
)  # fmt: skip
"""Operators without a row: torch decomposes them into others before a program is read."""
