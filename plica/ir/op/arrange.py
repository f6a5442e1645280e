"""Arranging: views, grids and sequences, each in terms of other operators.

Axes are regrouped by codes or by layout names, windows slide over an axis, vectors span grids,
indices select along several axes at once, and sequences of different lengths are masked or
reversed.

>>> from plica.ir.type.term import tensor
>>> found = reshape_codes.relation({"codes": (0, -3, -4, 2, -1)}, tensor((5, 2, 3, 8), "f32"))
>>> [size.value for size in found.shape]
[5, 6, 2, 4]
"""

from __future__ import annotations

from typing import Any

from plica.ir.graph.expression import Expr, Tuple
from plica.ir.graph.operator import Values
from plica.ir.loop.layout import Layout, layout_of
from plica.ir.loop.scalar import Scalar, index
from plica.ir.op.attribute import attribute, axis, choice, integers, many, number, positive, text
from plica.ir.op.comparison import less
from plica.ir.op.create import iota, iota_like
from plica.ir.op.elementwise import add, cast, multiply, subtract
from plica.ir.op.index import gather_nd, integers as index_dtype, take, take_along_axis, where
from plica.ir.op.join import stack
from plica.ir.op.order import ONE, unravelled
from plica.ir.op.record import composite, scalar, tensor_of, tuple_of
from plica.ir.op.relation import Shape, axis_of, broadcast, literal, rank_is, refuse, same, shown
from plica.ir.op.repeat import broadcast_to
from plica.ir.op.shape import new_shape_of, reshape, transpose
from plica.ir.type import TensorType, TupleType, i64, known, normal_dim, product, quotient

# --- axes by codes and words ---------------------------------------------------------------------


def _coded(attrs: Values, shape: Shape) -> Shape:
    """The shape that the codes denote; -1 stays for the inferred dim."""
    codes, at, found = list(attrs["codes"]), 0, []

    def next_axis() -> Scalar:
        nonlocal at
        if at >= len(shape):
            message = "reshape_codes speaks of more axes than x has."
            refuse("shape-conflict", message, f"rank {len(shape)}", str(attrs["codes"]))
        at += 1
        return shape[at - 1]

    while codes:
        code = codes.pop(0)
        if code > 0 or code == -1:
            found.append(index(code))
            at += 1
        elif code == 0:
            found.append(next_axis())
        elif code == -2:
            found += shape[at:]
            at = len(shape)
        elif code == -3:
            found.append(product((next_axis(), next_axis())))
        elif code == -4 and len(codes) >= 2:
            found += _halves(next_axis(), codes.pop(0), codes.pop(0))
        else:
            message = "reshape_codes takes sizes, 0, -1, -2, -3, and -4 with two parts."
            refuse("bad-attribute", message, "a code", str(attrs["codes"]))
    return new_shape_of(shape, tuple(found))


def _halves(whole: Scalar, first: int, second: int) -> tuple[Scalar, Scalar]:
    parts = [None if each == -1 else index(each) for each in (first, second)]
    if parts[0] is None and parts[1] is not None:
        parts[0] = quotient(whole, parts[1])
    elif parts[1] is None and parts[0] is not None:
        parts[1] = quotient(whole, parts[0])
    if parts[0] is None or parts[1] is None or min(first, second) < -1 or 0 in (first, second):
        message = "reshape_codes: -4 splits an axis into two parts, one of which may be -1."
        refuse("shape-conflict", message, shown((whole,)), str((first, second)))
    return parts[0], parts[1]


reshape_codes = composite(
    "reshape_codes", ("x",), lambda attrs, x: TensorType(_coded(attrs, x.shape), x.dtype),
    lambda attrs, x: reshape(x, _coded(attrs, tensor_of(x).shape)),
    "Reshape by codes: 0 copies an axis, -1 infers, -2 copies the rest, -3 merges two axes, "
    "-4 splits one into the next two numbers.",
    attributes=(attribute("codes", integers),),
)  # fmt: skip


def _layouts(attrs: Values, x: TensorType) -> tuple[Layout, Layout, Shape]:
    """Both layouts and the logical shape."""
    letters = "".join(each for each in attrs["source"] if each.isupper())
    source, target = (layout_of(attrs[name], letters) for name in ("source", "target"))
    for layout, word in ((source, attrs["source"]), (target, attrs["target"])):
        if isinstance(layout, str):
            refuse("bad-layout", f"layout_transform: {layout}", f"a layout of {letters}", word)
    assert isinstance(source, Layout)
    assert isinstance(target, Layout)
    rank_is("layout_transform", "x", x, len(source.axes))
    if (logical := source.logical_shape(x.shape)) is None:
        message = "layout_transform: an inner axis has another size than its block."
        refuse("shape-conflict", message, attrs["source"], str(x))
    return source, target, logical


def _laid_rule(attrs: Values, x: TensorType) -> TensorType:
    _, target, logical = _layouts(attrs, x)
    if (shape := target.shape_of(logical)) is None:
        message = f"layout_transform: the blocks of {attrs['target']} do not divide x."
        refuse("shape-conflict", message, "a multiple of each block", shown(logical))
    return TensorType(shape, x.dtype)


def _laid(attrs: Values, x: Expr) -> Expr:
    source, target, logical = _layouts(attrs, tensor_of(x))
    shape = _laid_rule(attrs, tensor_of(x)).shape
    parts = [at for axis_ in range(source.rank) for at in source.positions(axis_)]
    plain = reshape(transpose(x, tuple(parts)), logical)
    order = [at for axis_ in range(target.rank) for at in target.positions(axis_)]
    cut = reshape(plain, tuple(shape[at] for at in order))
    return transpose(cut, tuple(order.index(at) for at in range(len(order))))


layout_transform = composite(
    "layout_transform", ("x",), _laid_rule, _laid,
    'Convert x between layouts: "NCHW", "NCHW4c".',
    attributes=(attribute("source", text), attribute("target", text)),
)  # fmt: skip


def _windows(attrs: Values, x: TensorType) -> tuple[int, Shape, tuple[int, ...], tuple[int, ...]]:
    """The first axis, the number of windows along each axis, their sizes and strides."""
    at, sizes = axis_of("sliding_window", attrs["axis"], len(x.shape)), attrs["window"]
    strides = attrs["strides"] if len(attrs["strides"]) > 1 else attrs["strides"] * len(sizes)
    if at + len(sizes) > len(x.shape) or len(strides) != len(sizes):
        message = "sliding_window takes a size and a stride for each axis it slides along."
        refuse("bad-attribute", message, f"at most {len(x.shape) - at} axes", str(sizes))
    counts = []
    for whole, size, stride in zip(x.shape[at:], sizes, strides, strict=False):
        held = known(whole)
        if held is not None and held < size:
            message = "sliding_window has windows that are longer than the axis."
            refuse("shape-conflict", message, str(size), shown((whole,)))
        counts.append(normal_dim((whole - size) // stride + 1))
    return at, tuple(counts), sizes, strides


def _window_rule(attrs: Values, x: TensorType) -> TensorType:
    at, counts, sizes, _ = _windows(attrs, x)
    rest = x.shape[at + len(sizes) :]
    return TensorType((*x.shape[:at], *counts, *map(index, sizes), *rest), x.dtype)


def _window(attrs: Values, x: Expr) -> Expr:
    at, counts, sizes, strides = _windows(attrs, tensor_of(x))
    rank = len(tensor_of(x).shape)
    for number_, (count, size, stride) in enumerate(zip(counts, sizes, strides, strict=True)):
        both = (count, index(size))
        starts = multiply(iota(both, axis=0), scalar(stride, i64))
        x = take(x, add(starts, iota(both, axis=1)), axis=at + 2 * number_)
    outer = tuple(at + 2 * number_ for number_ in range(len(sizes)))
    inner = tuple(each + 1 for each in outer)
    rest = tuple(range(at + 2 * len(sizes), rank + len(sizes)))
    return transpose(x, (*range(at), *outer, *inner, *rest))


sliding_window = composite(
    "sliding_window", ("x",), _window_rule, _window,
    "Sliding windows of x along axes from `axis` on: window counts, then window sizes.",
    attributes=(
        attribute("axis", axis),
        attribute("window", many(positive)),
        attribute("strides", many(positive), 1),
    ),
)  # fmt: skip

# --- grids and indices ---------------------------------------------------------------------------


def _grid_rule(attrs: Values, *given: TensorType) -> TupleType:
    for tensor_type in given:
        rank_is("meshgrid", "each vector", tensor_type, 1)
    sizes = [tensor_type.shape[0] for tensor_type in given]
    if attrs["indexing"] == "xy":
        sizes[:2] = sizes[:2][::-1]
    return tuple_of([TensorType(tuple(sizes), tensor_type.dtype) for tensor_type in given])


def _grid(attrs: Values, *given: Expr) -> Expr:
    shape = _grid_rule(attrs, *map(tensor_of, given)).items[0].shape  # type: ignore[union-attr]  # a tuple of tensors
    swapped = attrs["indexing"] == "xy" and len(given) > 1
    made = []
    for number_, expr in enumerate(given):
        at = 1 - number_ if swapped and number_ < 2 else number_
        form = tuple(shape[at] if other == at else index(1) for other in range(len(shape)))
        made.append(broadcast_to(reshape(expr, form), shape))
    return Tuple(tuple(made))


meshgrid = composite(
    "meshgrid", ("*values",), _grid_rule, _grid,
    "Coordinate grids of vectors; `xy` swaps the first two axes.",
    attributes=(attribute("indexing", choice("ij", "xy"), "ij"),), like=(),
)  # fmt: skip


def _unravel_rule(attrs: Values, indices: TensorType) -> TensorType:
    index_dtype("unravel_index", indices)
    if not attrs["shape"]:
        refuse("bad-attribute", "unravel_index takes a shape of one axis or more.", "an axis", "()")
    return TensorType((index(len(attrs["shape"])), *indices.shape), i64)


def _unravel(attrs: Values, indices: Expr) -> Expr:
    sizes = [scalar(each, i64) for each in attrs["shape"]]
    return stack(tuple(unravelled(cast(indices, i64), sizes)), axis=0)


unravel_index = composite(
    "unravel_index", ("indices",), _unravel_rule, _unravel,
    "Convert flat indices to index rows, one row per axis of a shape.",
    attributes=(attribute("shape", many(positive)),),
)  # fmt: skip


def _advanced(given: tuple[TensorType, ...]) -> Shape:
    x, *indices = given
    for tensor_type in indices:
        index_dtype("adv_index", tensor_type)
    if not 0 < len(indices) <= len(x.shape):
        message = "adv_index takes indices for the leading axes of x."
        refuse("wrong-arity", message, f"1 to {len(x.shape)} tensors", str(len(indices)))
    return broadcast("adv_index", (tensor_type.shape for tensor_type in indices))


def _advanced_rule(attrs: Values, *given: TensorType) -> TensorType:
    front = _advanced(given)
    return TensorType((*front, *given[0].shape[len(given) - 1 :]), given[0].dtype)


def _advanced_index(attrs: Values, x: Expr, *indices: Expr) -> Expr:
    front = _advanced(tuple(map(tensor_of, (x, *indices))))
    places = [broadcast_to(cast(expr, i64), front) for expr in indices]
    return gather_nd(x, stack(tuple(places), axis=len(front)))


adv_index = composite(
    "adv_index", ("*values",), _advanced_rule, _advanced_index,
    "x[i, j, …]: the first tensor indexed by integer tensors that broadcast.", like=(0,),
)  # fmt: skip

# --- sequences -----------------------------------------------------------------------------------


def _sequences(name: str, attrs: Values, x: TensorType, lengths: TensorType) -> tuple[int, int]:
    """The axis of time and that of the batch."""
    index_dtype(name, lengths)
    rank_is(name, "the lengths", lengths, 1)
    at, batch = (axis_of(name, attrs[each], len(x.shape)) for each in ("axis", "batch_axis"))
    if at == batch:
        refuse("bad-attribute", f"{name} takes two different axes.", "two axes", str(at))
    same(name, "the batch and the lengths", x.shape[batch], lengths.shape[0])
    return at, batch


def _timed(name: str, attrs: Values, x: Expr, lengths: Expr) -> tuple[Expr, Expr, int]:
    """Times in the shape of x, lengths that broadcast to it, and the axis of time."""
    of = tensor_of(x)
    at, batch = _sequences(name, attrs, of, tensor_of(lengths))
    form = tuple(of.shape[batch] if other == batch else index(1) for other in range(len(of.shape)))
    return iota_like(x, axis=at), reshape(cast(lengths, i64), form), at


def _mask_rule(attrs: Values, x: TensorType, lengths: TensorType) -> TensorType:
    _sequences("sequence_mask", attrs, x, lengths)
    literal("sequence_mask", attrs["value"], x.dtype)
    return x


def _mask(attrs: Values, x: Expr, lengths: Expr) -> Expr:
    times, ends, _ = _timed("sequence_mask", attrs, x, lengths)
    value: Any = attrs["value"]
    return where(less(times, ends), x, scalar(value, tensor_of(x).dtype))


def _reverse_rule(attrs: Values, x: TensorType, lengths: TensorType) -> TensorType:
    _sequences("reverse_sequence", attrs, x, lengths)
    return x


def _reverse(attrs: Values, x: Expr, lengths: Expr) -> Expr:
    times, ends, at = _timed("reverse_sequence", attrs, x, lengths)
    turned = subtract(subtract(ends, ONE), times)
    return take_along_axis(x, where(less(times, ends), turned, times), axis=at)


_TIME = (attribute("axis", axis, 1), attribute("batch_axis", axis, 0))
sequence_mask = composite(
    "sequence_mask", ("x", "lengths"), _mask_rule, _mask,
    "Fill each sequence of a batch with a value beyond its length.",
    attributes=(*_TIME, attribute("value", number, 0)), like=(0,),
)  # fmt: skip
reverse_sequence = composite(
    "reverse_sequence", ("x", "lengths"), _reverse_rule, _reverse,
    "Reverse the first `length` elements of each sequence of a batch.",
    attributes=_TIME, like=(0,), onnx=("ReverseSequence",),
)  # fmt: skip
