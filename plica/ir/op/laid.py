"""Operators over tensors in other layouts: `nn.conv_laid(x, w, ("NHWC", "HWIO", "NHWC"))`.

>>> from plica.ir.type.term import tensor
>>> _, attrs = LAID["nn.max_pool"].bind((1.0,), {"layouts": ("NHWC", "NHWC"), "kernel": 2})
>>> found = LAID["nn.max_pool"].relation(dict(attrs), tensor((1, 8, 8, 3), "f32"))
>>> [size.value for size in found.shape]
[1, 4, 4, 3]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from plica.core import CompilerBug
from plica.ir.graph.expression import Expr
from plica.ir.graph.operator import Mismatch, Operator, Through, Values, register
from plica.ir.loop.layout import Layout, layout_of
from plica.ir.loop.relayout import laid
from plica.ir.loop.scalar import Buffer
from plica.ir.loop.tensor import Compute
from plica.ir.op.attribute import attribute, many, text
from plica.ir.op.convolution import conv, conv_transpose
from plica.ir.op.cotangent import reshape, transpose
from plica.ir.op.pixel import upsample
from plica.ir.op.pool import adaptive_avg_pool, avg_pool, max_pool
from plica.ir.op.record import tensor_of
from plica.ir.op.relation import fitting, refuse, shown
from plica.ir.type import TensorType

# fmt: off
LETTERS: Final[dict[str, tuple[str, ...]]] = {  # of each argument, then of the result
    conv.name:              ("NC", "OI", "NC"),
    conv_transpose.name:    ("NC", "IO", "NC"),
    max_pool.name:          ("NC", "NC"),
    avg_pool.name:          ("NC", "NC"),
    adaptive_avg_pool.name: ("NC", "NC"),
    upsample.name:          ("NC", "NC"),
}
# fmt: on
"""The logical axes of the operators that exist in other layouts, without the spatial ones."""


def logical_axes(op: str, rank: int) -> tuple[str, ...]:
    """The letters of the logical axes of each argument and of the result: `("NCHW", …)`."""
    return tuple(letters + "DHW"[max(0, 5 - rank) :] for letters in LETTERS[op])


def layouts_in(op: str, words: Sequence[str]) -> tuple[Layout, ...]:
    """The layouts that words stand for; refuses where one is none."""
    letters = logical_axes(op, sum(letter.isupper() for letter in words[0]) if words else 0)
    if len(words) != len(letters):
        message = f"{op}_laid takes a layout for each argument and one for the result."
        refuse("bad-layout", message, f"{len(letters)} layouts", str(len(words)))
    found = []
    for word, logical in zip(words, letters, strict=True):
        if isinstance(layout := layout_of(word, logical), str):
            refuse("bad-layout", f"{op}_laid: {layout}", f"a layout of {logical}", word)
        found.append(layout)
    return tuple(found)


def _logical(op: str, layout: Layout, of: TensorType) -> TensorType:
    if len(of.shape) != len(layout.axes):
        message = f"{op}_laid: a tensor has another rank than its layout."
        refuse("shape-conflict", message, f"rank {len(layout.axes)}", str(of))
    if (shape := layout.logical_shape(of.shape)) is None:
        blocks = [str(block) for _, block in layout.axes if block]
        message = f"{op}_laid: an inner axis has another size than its block."
        refuse("shape-conflict", message, f"blocks of {', '.join(blocks)}", str(of))
    return TensorType(shape, of.dtype)


def _unlaid(layout: Layout, x: Expr) -> Expr:
    """A tensor in its logical layout."""
    shape = layout.logical_shape(tensor_of(x).shape)
    assert shape is not None  # the relation has asked for it
    parts = tuple(at for axis in range(layout.rank) for at in layout.positions(axis))
    return reshape(transpose(x, parts), shape)


def _derived(record: Operator) -> Operator:
    op = record.name

    def rule(attrs: Values, *types: TensorType) -> TensorType:
        layouts = layouts_in(op, attrs["layouts"])
        logical = [_logical(op, *each) for each in zip(layouts, types, strict=False)]
        if isinstance(result := record.relation(attrs, *logical), Mismatch):
            refuse(result.code, result.message, result.expected, result.found, result.suggestion)
        assert isinstance(result, TensorType)
        if (shape := layouts[-1].shape_of(result.shape)) is None:
            message = f"{op}_laid: the blocks of {attrs['layouts'][-1]} do not divide the result."
            refuse("shape-conflict", message, "a multiple of each block", shown(result.shape))
        return TensorType(shape, result.dtype)

    def definition(attrs: Values, *buffers: Buffer) -> Compute:
        layouts = layouts_in(op, attrs["layouts"])
        logical = [
            Buffer(buffer.name, layout.logical_shape(buffer.shape) or (), buffer.dtype)
            for layout, buffer in zip(layouts, buffers, strict=False)
        ]
        if record.compute is None:
            raise CompilerBug(f"{op} has no tensor expression to derive another from.")
        found = record.compute(attrs, *logical)
        assert isinstance(found, Compute)
        return laid(found, layouts[:-1], layouts[-1], buffers)

    def plainly(attrs: Values, *args: Expr) -> Expr:
        layouts = layouts_in(op, attrs["layouts"])
        logical = [_unlaid(*each) for each in zip(layouts, args, strict=False)]
        own = {each.name: attrs[each.name] for each in record.attributes}
        return _laid_out(layouts[-1], record(*logical, **own), attrs, args)

    def _laid_out(layout: Layout, value: Expr, attrs: Values, args: Sequence[Expr]) -> Expr:
        result = rule(attrs, *[tensor_of(arg) for arg in args])
        parts = [at for axis in range(layout.rank) for at in layout.positions(axis)]
        cut = reshape(value, tuple(result.shape[at] for at in parts))
        return transpose(cut, tuple(parts.index(at) for at in range(len(parts))))

    words = attribute("layouts", many(text))
    return register(
        Operator(
            f"{op}_laid",
            record.inputs,
            fitting(f"{op}_laid", record.inputs, rule),
            compute=definition,
            attributes=(words, *record.attributes),
            doc=f"{op} with a layout per argument and for the result.",
            gradient=Through(plainly),
        )
    )


LAID: Final[dict[str, Operator]] = {
    operator.name: _derived(operator)
    for operator in (conv, conv_transpose, max_pool, avg_pool, adaptive_avg_pool, upsample)
}
"""The derived operators, by the one they are derived from."""

UNLAID: Final[dict[str, str]] = {operator.name: op for op, operator in LAID.items()}
"""The operators they are derived from, by name."""


def words_of(attrs: Values) -> tuple[str, ...]:
    """The layouts of a derived operator, as words."""
    found: Any = attrs["layouts"]
    return tuple(found)
