"""The rule packs: Plica's own, and those of installed libraries, found by name.

Plica's packs are imported on first use.

>>> sorted(OWN)[0]
'algebra'
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import lru_cache
from typing import Final

from plica.core import ExtensionGroup, RuleRefused, post_order
from plica.ir.graph import Apply, Module
from plica.ir.type import TensorType, bf16, f16, type_of
from plica.rewrite.pack import Pack, pack

OWN: Final[dict[str, str]] = {
    "algebra": "plica.rewrite.packs.algebra:ALGEBRA",
    "byte-views": "plica.rewrite.packs.byte_row:BYTE_VIEWS",
    "canonical": "plica.rewrite.packs.canonical:CANONICAL",
    "cast": "plica.rewrite.packs.cast:CAST",
    "combine": "plica.rewrite.packs.combine:COMBINE",
    "composite": "plica.rewrite.packs.composite:COMPOSITE",
    "cut": "plica.rewrite.packs.cut:CUT",
    "fastmath": "plica.rewrite.packs.fastmath:FASTMATH",
    "fourier": "plica.rewrite.packs.fourier:FOURIER",
    "inference": "plica.rewrite.packs.inference:INFERENCE",
    "layout": "plica.rewrite.layout.rules:LAYOUT",
    "logic": "plica.rewrite.packs.logic:LOGIC",
    "motion": "plica.rewrite.packs.motion:MOTION",
    "padding": "plica.rewrite.packs.padding:PADDING",
    "precision-bf16": "plica.rewrite.packs.precision:BF16",
    "rearrange": "plica.rewrite.packs.rearrange:REARRANGE",
    "reduction": "plica.rewrite.packs.reduction:REDUCTION",
    "scale": "plica.rewrite.packs.scale:SCALE",
    "scatter": "plica.rewrite.packs.scatter:SCATTER",
    "selection": "plica.rewrite.packs.selection:SELECTION",
    "shape": "plica.rewrite.packs.shape:SHAPE",
    "simplify": "plica.rewrite.packs.simplify:SIMPLIFY",
    "sorting": "plica.rewrite.packs.sorting:SORTING",
    "winograd": "plica.rewrite.packs.winograd:WINOGRAD",
    "transposed": "plica.rewrite.packs.transposed:TRANSPOSED",
    "view": "plica.rewrite.packs.view:VIEW",
    "views": "plica.rewrite.packs.view:VIEWS",
    "wide": "plica.rewrite.packs.wide:WIDE",
    "wide-scale": "plica.rewrite.packs.wide:WIDE_SCALE",
}
"""The module of each of Plica's packs."""

PARTS: Final[dict[str, tuple[str, ...]]] = {
    "simplify": (
        "composite", "canonical", "algebra", "logic", "cast", "shape", "rearrange", "cut",
        "reduction", "motion",
    ),
}  # fmt: skip
"""Packs that combine the rules of several others."""

ABOUT: Final[dict[str, frozenset[str]]] = {
    "algebra": frozenset(
        {"absolute", "add", "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor", "ceil",
         "copysign", "degrees", "divide", "exp", "exp2", "floor", "floor_divide", "fmax", "fmin",
         "fmod", "left_shift", "maximum", "minimum", "mod", "multiply", "negative", "nn.sigmoid",
         "nn.softplus", "power", "reciprocal", "right_shift", "round", "sign", "square",
         "subtract", "trunc", "trunc_divide"}
    ),
    "cast": frozenset({"cast"}),
    "composite": frozenset(
        {"copy", "full", "full_like", "iota_like", "mean", "nn.bias_add", "nn.global_avg_pool",
         "nn.global_max_pool", "ones", "ones_like", "shape_of", "size", "zeros", "zeros_like"}
    ),
    "cut": frozenset({"concat", "slice", "take"}),
    "fourier": frozenset({"dft"}),
    "inference": frozenset(
        {"multiply", "nn.batch_norm", "nn.dropout", "nn.group_norm", "nn.instance_norm",
         "nn.l2_normalize", "nn.layer_norm", "nn.rms_norm"}
    ),
    "logic": frozenset(
        {"absolute", "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor", "equal", "greater",
         "greater_equal", "isfinite", "isinf", "isnan", "less", "less_equal", "logical_and",
         "logical_not", "logical_or", "logical_xor", "not_equal", "signbit", "where"}
    ),
    "padding": frozenset({"nn.batch_to_space", "nn.conv", "nn.space_to_batch", "pad"}),
    "rearrange": frozenset(
        {"broadcast_to", "concat", "flip", "nn.depth_to_space", "nn.upsample", "pad", "repeat",
         "roll", "split", "stack", "tile", "tril", "triu"}
    ),
    "reduction": frozenset(
        {"all", "any", "cumprod", "cumsum", "einsum", "infimum", "max", "min", "prod", "sum",
         "supremum"}
    ),
    "scale": frozenset({"add", "divide", "multiply", "subtract"}),
    "scatter": frozenset({"scatter_nd", "scatter_elements", "argwhere"}),
    "selection": frozenset({"topk"}),
    "sorting": frozenset({"argsort", "sort", "topk"}),
    "transposed": frozenset({"nn.conv_transpose"}),
    "wide": frozenset(
        {"matmul", "nn.avg_pool", "nn.batch_matmul", "nn.conv", "nn.conv_transpose", "nn.dense",
         "nn.max_pool"}
    ),
    "wide-scale": frozenset({"cast"}),
}  # fmt: skip
"""Operators of which every left side of a pack has one: without them it need not be loaded."""

PACKS: Final = ExtensionGroup(
    "plica.packs", "rule pack", Pack, OWN, lambda each: each.name,
    error=RuleRefused, unknown="unknown-pack",
)  # fmt: skip
"""The packs by name, Plica's own and those of libraries."""


def find_pack(name: str) -> Pack:
    """The pack of that name; raises `RuleRefused` if there is none."""
    return PACKS.load(name)


def may_apply(name: str, module: Module) -> bool:
    """Whether a module has an operator that the rules of a pack speak of, as far as one knows."""
    about, spoken_of = ABOUT.get(name), ONLY_WHERE.get(name, _always)
    return about is None or any(
        isinstance(node, Apply) and node.op in about and spoken_of(node)
        for value in module.values
        for node in post_order(value)
    )


def has_any(operators: Collection[str], module: Module) -> bool:
    """Whether a module has one of these operators."""
    return any(isinstance(node, Apply) and node.op in operators for node in post_order(module))


def parts_of(name: str, module: Module) -> tuple[str, ...]:
    """The packs of a union whose rules speak of operators that a module has."""
    present = {node.op for node in post_order(module) if isinstance(node, Apply)}
    return tuple([part for part in PARTS[name] if not present.isdisjoint(ABOUT.get(part, present))])


@lru_cache(maxsize=64)  # so that the index of the rules is made once
def united(name: str, parts: tuple[str, ...]) -> Pack:
    """The rules of some parts of a union, under its name."""
    rules = (rule for part in parts for rule in find_pack(part))
    return pack(name, rules, version="2", doc=f"The rules of {', '.join(PARTS[name])}.")


def _always(node: Apply) -> bool:
    return True


def _pads(node: Apply) -> bool:
    """Whether an operator is no convolution, or one that pads."""
    given = [dict(node.attrs)["padding"]] if node.op == "nn.conv" else [1]
    while given:
        width = given.pop()
        if isinstance(width, tuple):
            given.extend(width)
        elif width:
            return True
    return False


def _is_narrow_or_pool(node: Apply) -> bool:
    """Whether an operator is a pool, or gives floats of 16 bits."""
    of = type_of(node)
    narrow = isinstance(of, TensorType) and of.dtype in (f16, bf16)
    return narrow or node.op in ("nn.avg_pool", "nn.max_pool")


ONLY_WHERE: Final[dict[str, Callable[[Apply], bool]]] = {
    "padding": _pads,
    "wide": _is_narrow_or_pool,
}
"""Of the operators that packs are about, those that their rules speak of."""


def all_packs() -> dict[str, Pack]:
    """Every pack, by name; of libraries, those that can be loaded."""
    return {
        **{name: find_pack(name) for name in sorted(OWN)},
        **{each.name: each for each in PACKS.all()},
    }
