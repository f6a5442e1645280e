"""The rule packs: Plica's own, and those of installed libraries, found by name.

Plica's packs are imported when they are asked for.

>>> sorted(OWN)[0]
'algebra'
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from plica.core import ExtensionGroup, RuleRefused, post_order
from plica.ir.graph import Apply, Module
from plica.rewrite.pack import Pack

OWN: Final[dict[str, str]] = {
    "algebra": "plica.rewrite.packs.algebra:ALGEBRA",
    "byte-views": "plica.rewrite.packs.byte_view:BYTE_VIEWS",
    "canonical": "plica.rewrite.packs.canonical:CANONICAL",
    "cast": "plica.rewrite.packs.cast:CAST",
    "combine": "plica.rewrite.packs.combine:COMBINE",
    "cut": "plica.rewrite.packs.cut:CUT",
    "fastmath": "plica.rewrite.packs.fastmath:FASTMATH",
    "fourier": "plica.rewrite.packs.fourier:FOURIER",
    "inference": "plica.rewrite.packs.inference:INFERENCE",
    "layout": "plica.rewrite.layout.rules:LAYOUT",
    "logic": "plica.rewrite.packs.logic:LOGIC",
    "motion": "plica.rewrite.packs.motion:MOTION",
    "padding": "plica.rewrite.packs.padding:PADDING",
    "precision-bf16": "plica.rewrite.packs.precision:BF16",
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
"""Where each of Plica's own packs is."""

ABOUT: Final[dict[str, frozenset[str]]] = {
    "fourier": frozenset({"dft"}),
    "padding": frozenset({"pad", "nn.conv"}),
    "scatter": frozenset({"scatter_nd", "scatter_elements", "argwhere"}),
    "selection": frozenset({"topk"}),
    "sorting": frozenset({"argsort", "sort", "topk"}),
    "transposed": frozenset({"nn.conv_transpose"}),
}
"""Operators of which every left side of a pack has one: without them it need not be loaded."""

IF_PADDED: Final = frozenset({"nn.conv"})
"""Operators of which these packs speak only where they pad."""


PACKS: Final = ExtensionGroup(
    "plica.packs", "rule pack", Pack, OWN, lambda each: each.name,
    error=RuleRefused, unknown="unknown-pack",
)  # fmt: skip
"""The packs by name, Plica's own and those of libraries."""


def find_pack(name: str) -> Pack:
    """The pack of that name; raises `RuleRefused` where there is none."""
    return PACKS.load(name)


def may_apply(name: str, module: Module) -> bool:
    """Whether a module has an operator that the rules of a pack speak of, as far as one knows."""
    return name not in ABOUT or any(
        isinstance(each, Apply)
        and each.op in ABOUT[name]
        and (each.op not in IF_PADDED or _pads(dict(each.attrs)["padding"]))
        for value in module.values
        for each in post_order(value)
    )


def has_any(operators: Collection[str], module: Module) -> bool:
    """Whether a module has one of these operators."""
    return any(isinstance(node, Apply) and node.op in operators for node in post_order(module))


def _pads(given: object) -> bool:
    """Whether padding as it is given, a number or a tuple of such, is any at all."""
    return any(map(_pads, given)) if isinstance(given, tuple) else bool(given)


def all_packs() -> dict[str, Pack]:
    """Every pack, by name; of libraries, those that can be loaded."""
    return {
        **{name: find_pack(name) for name in sorted(OWN)},
        **{each.name: each for each in PACKS.all()},
    }
