"""Rows of sequences and optionals: tensors one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs
import numpy as np

from plica.frontend.measured import ZERO, amount, matched
from plica.frontend.onnx import ragged, value as values
from plica.frontend.onnx.node import OnnxNode
from plica.frontend.onnx.ragged import as_ragged
from plica.frontend.onnx.row.part import cut_into
from plica.frontend.onnx.row.word import Made, Row, as_scalar, axis_in, dtype, rank, shape
from plica.frontend.onnx.run_time import pieces, size_from, wrapped_index
from plica.frontend.onnx.storage import dtype_of
from plica.ir.graph.expression import Expr, If, Tuple, const
from plica.ir.loop.scalar import Scalar, index
from plica.ir.op.namespace import op
from plica.ir.type import f32, i64, known, same_dim

LONGEST: Final = 1 << 10  # a sequence of more tensors is not made


def _empty(node: OnnxNode) -> values.SequenceValue:
    of = dtype_of(node.integer("dtype"), node.place) if node.has("dtype") else f32
    return values.SequenceValue.holding((), of)


def _construct(node: OnnxNode) -> values.SequenceValue:
    exprs = node.all()
    return values.SequenceValue.holding(exprs, dtype(exprs[0]))


def _items(node: OnnxNode) -> tuple[Expr, ...] | values.RaggedValue:
    """The tensors of a sequence, where their number is known, or all of them in two parts."""
    value = node.need(0)
    return value.items if isinstance(value, values.SequenceValue) else as_ragged(node.place, value)


def _like(node: OnnxNode, items: Sequence[Expr]) -> values.SequenceValue:
    value = node.need(0)
    assert isinstance(value, values.SequenceValue)
    return values.SequenceValue.holding(tuple(items), value.of)


def _place(node: OnnxNode, at: int, count: int, most: int) -> int | Expr:
    """A place among `count` tensors, at most `most`: a number, or a value inside of the bounds."""
    (given,) = pieces(node, at)
    if isinstance(given, int):
        found = given + count if given < 0 else given
        if not 0 <= found <= most:
            node.malformed("There is no such place in the sequence.", f"0 to {most}", str(given))
        return found
    late = wrapped_index(amount(given), const(count, i64))
    # Gathering from the index numbers refuses values out of bounds; negative ones are past the end.
    inside = op.where(late < ZERO, const(most + 1, i64), late)
    return op.take(const(np.arange(most + 1)), inside)


def _at(node: OnnxNode) -> Expr:
    if isinstance(items := _items(node), values.RaggedValue):
        return ragged.item(node, items, as_scalar(node.x(1)))
    if not items:
        node.malformed("There is nothing in an empty sequence.", "a tensor", "none")
    if isinstance(at := _place(node, 1, len(items), len(items) - 1), int):
        return items[at]
    expr = items[-1]
    for number, each in reversed(list(enumerate(items[:-1]))):
        expr = _either(node, op.equal(at, const(number, i64)), each, expr)
    return expr


def _either(node: OnnxNode, condition: Expr, yes: Expr, no: Expr) -> Expr:
    """One of two tensors, whose sizes may differ."""
    if rank(yes) != rank(no):
        node.undecided("Which tensor of a sequence is meant", values.TensorValue(condition))
    sizes: list[Scalar] = []
    for at, (a, b) in enumerate(zip(shape(yes), shape(no), strict=True)):
        same = same_dim(a, b)
        late = op.where(condition, amount(a), amount(b))
        sizes.append(a if same else node.measured(late, at))
    return If(condition, matched(yes, sizes), matched(no, sizes))


def _insert(node: OnnxNode) -> values.TensorValue:
    sequence, new, spot = node.need(0), node.x(1), node.maybe(2)
    if isinstance(sequence, values.GrowingValue) and spot is None:
        ragged.check_rank(node.place, rank(new))
        return attrs.evolve(sequence, expr=Tuple((*sequence.parts, new)))
    if isinstance(found_ := _items(node), values.RaggedValue):
        return ragged.inserted(node, found_, new, None if spot is None else as_scalar(spot))
    items = list(found_)
    if spot is None:
        return _like(node, [*items, new])
    if isinstance(at := _place(node, 2, len(items), len(items)), int):
        return _like(node, [*items[:at], new, *items[at:]])
    exprs: list[Expr] = []
    for number in range(len(items) + 1):
        here = const(number, i64)
        rest = items[number] if number < len(items) else new
        before = items[number - 1] if number else new
        chosen = _either(node, here < at, rest, before) if number else _either(
            node, op.equal(at, here), new, rest)  # fmt: skip
        exprs.append(_either(node, op.equal(at, here), new, chosen) if number else chosen)
    return _like(node, exprs)


def _erase(node: OnnxNode) -> values.TensorValue:
    if isinstance(items := _items(node), values.RaggedValue):
        spot = node.maybe(1)
        return ragged.erased(node, items, None if spot is None else as_scalar(spot))
    if not items:
        node.malformed("There is nothing in an empty sequence.", "a tensor", "none")
    at = len(items) - 1 if node.value(1) is None else _place(node, 1, len(items), len(items) - 1)
    if isinstance(at, int):
        return _like(node, [*items[:at], *items[at + 1 :]])
    return _like(node, [
        _either(node, const(number, i64) < at, items[number], items[number + 1])
        for number in range(len(items) - 1)
    ])  # fmt: skip


def _length(node: OnnxNode) -> Expr:
    if isinstance(items := _items(node), values.RaggedValue):
        return ragged.length(items)
    return const(len(items), i64)


def _concat(node: OnnxNode) -> Expr:
    if isinstance(items := _items(node), values.RaggedValue):
        axes = node.flag("new_axis")
        if items.rank is None:
            message = "The number of axes of the tensors of this sequence is not known."
            node.unsupported(message, "tensors of one rank", items.word)
        along = axis_in(node, node.integer("axis"), items.rank + axes)
        return ragged.concatenated(node, items, along, axes)
    if not items:
        node.malformed("There is nothing to join.", "a tensor", "none")
    new = node.flag("new_axis")
    axis = axis_in(node, node.integer("axis"), rank(items[0]) + new)
    return op.stack(items, axis=axis) if new else op.concat(items, axis=axis)


def _split(node: OnnxNode) -> values.TensorValue:
    x = node.x(0)
    axis = axis_in(node, node.integer("axis", 0), rank(x))
    whole, keep = shape(x)[axis], node.flag("keepdims", True)
    sizes: list[Scalar]
    if node.value(1) is not None and node.rank(1):
        keep = True  # it says nothing where there are lengths
        sizes = [size_from(node, piece, at) for at, piece in enumerate(pieces(node, 1, LONGEST))]
    else:
        (said,) = (1,) if node.value(1) is None else pieces(node, 1)
        keep, length = keep or node.value(1) is not None, known(whole)
        if not isinstance(said, int) or length is None or -(-length // max(said, 1)) > LONGEST:
            return ragged.split(node, x, axis, amount(said), keep)
        step = said
        if step < 1:
            node.malformed("A sequence is made of parts of some length.", "1 or more", str(step))
        sizes = [index(min(step, length - at)) for at in range(0, length, step)]
    parts = cut_into(x, axis, sizes)
    if not keep:
        rest = (*shape(x)[:axis], *shape(x)[axis + 1 :])
        parts = [op.reshape(part, rest) for part in parts]
    return values.SequenceValue.holding(tuple(parts), dtype(x))


def _optional(node: OnnxNode) -> Made:
    said = node.type_given("type")
    if node.value(0) is not None:
        return node.need(0)
    if said is None:
        node.malformed("An optional without a value says what it may hold.", "a type", "none")
    holds_list = said.HasField("sequence_type")
    of = (said.sequence_type.elem_type if holds_list else said).tensor_type
    axes = len(of.shape.dim) if of.HasField("shape") else None
    return ragged.absent(dtype_of(of.elem_type, node.place), axes, holds_list)


def _get_element(node: OnnxNode) -> Made:
    value = node.need(0)
    if not isinstance(value, values.OptionValue):
        return value
    inside = ragged.held(node, value)
    return inside if value.holds_list else ragged.item(node, inside, const(0, i64))


def _has_element(node: OnnxNode) -> Expr:
    value = node.value(0)
    return value.parts[0] if isinstance(value, values.OptionValue) else const(value is not None)


# fmt: off
TABLE: Final[dict[str, Row]] = {
    "SequenceEmpty":      _empty,
    "SequenceConstruct":  _construct,
    "SequenceAt":         _at,
    "SequenceInsert":     _insert,
    "SequenceErase":      _erase,
    "SequenceLength":     _length,
    "ConcatFromSequence": _concat,
    "SplitToSequence":    _split,
    "Optional":           _optional,
    "OptionalGetElement": _get_element,
    "OptionalHasElement": _has_element,
}
# fmt: on
