"""Moves: how an operator computes the same in another layout.

`moved(op, attrs, types, layout)` returns, for arguments stored in `layout`, the attributes with
which the operator computes the stored result, and the result's layout. Nothing is declared per
operator: a candidate is built by renaming axes in the attributes, and it is valid if its tensor
expression *equals* the expression over the moved tensors that `plica.ir.loop.relayout` derives.
Operators without a tensor expression (softmax, mean …) are few, listed here, and fuzzed; so are
those that cut along blocks, whose expressions differ by a division.

>>> from plica.ir.loop.layout import permuted
>>> from plica.ir.type.term import tensor
>>> nhwc = permuted((0, 2, 3, 1))
>>> found = moved("concat", (("axis", 1),), (tensor((1, 2, 3, 3), "f32"),) * 2, nhwc)
>>> found.attrs, found.results[0] is nhwc, found.exact
((('axis', 3),), True, True)
>>> moved("matmul", (), (tensor((1, 2, 3, 3), "f32"),) * 2, nhwc) is None
True
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, TypeAlias

from attrs import frozen

from plica.core import Name, Term, alpha_equal, map_bottom_up, post_order, substitute
from plica.ir.graph import Attrs, Mismatch, Operator, find
from plica.ir.loop import Buffer, Compute, Load, Reduce, ScalarVar, index
from plica.ir.loop.fusion_kind import kind
from plica.ir.loop.layout import Layout, as_it_is, layout_of, show_layout
from plica.ir.loop.relayout import laid
from plica.ir.op.laid import LAID, UNLAID, logical_axes, words_of
from plica.ir.type import TensorType, TupleType, Type, known

Types: TypeAlias = tuple[TensorType, ...]

# Operators that are terms over others.  Along their `axis` they do one thing to every line of the
# tensor; the first keep the shape, the others fold their axes away.
KEEPING: Final = frozenset(
    ("nn.softmax", "nn.log_softmax", "nn.l2_normalize", "nn.batch_norm", "nn.bias_add")
)
FOLDING: Final = frozenset(("mean", "var", "std", "logsumexp", "argmax", "argmin"))
NUMBERING: Final = frozenset(("argmax", "argmin"))
"""Operators whose results are places: without an axis, in a tensor in its own order."""
CUTTING: Final = frozenset(("concat", "split"))
"""Operators that take tensors apart or together along an axis, whole blocks where it is blocked."""
OPENED: Final = frozenset(
    (
        "nn.global_avg_pool", "nn.global_max_pool", "nn.batch_norm", "nn.bias_add", "swapaxes",
        "moveaxis",
    )
)  # fmt: skip
"""Operators that are moved through their decomposition if they cannot be moved directly."""


@frozen
class Moved:
    """An operator in another layout; `exact` is whether sums keep their order."""

    op: str
    attrs: Attrs
    args: tuple[Layout | None, ...]  # None: as it is; of higher rank: with unit axes in front
    results: tuple[Layout, ...]
    exact: bool


@lru_cache(maxsize=4096)
def moved(op: str, attrs: Attrs, types: Types, layout: Layout) -> Moved | None:
    """The operator on arguments in `layout`, or None if it cannot be moved."""
    record = find(op)
    if record is None or not layout.rank:
        return None
    if all(len(each.shape) != layout.rank for each in types):
        return None
    if (op in LAID or op in UNLAID) and len(types) == 1:
        return _laid(op, attrs, types, layout)
    if record.compute is None:
        return _composite(record, attrs, types, layout)
    axis = dict(attrs).get("axis")
    if op in CUTTING and isinstance(axis, int) and layout.blocks(axis % layout.rank):
        return _cut(record, attrs, types, layout)
    # Some read a vector along one axis and not, as broadcasting would, along the last.
    pointwise = kind(record, dict(attrs), *types) in ("elementwise", "broadcast")
    lifted = None
    if pointwise and len(types) > 1:
        full = tuple(_lift(each, layout.rank) for each in types)
        lifted = _derived(record, attrs, full, layout)
    return lifted or _derived(record, attrs, types, layout)


def _laid(op: str, attrs: Attrs, types: Types, layout: Layout) -> Moved | None:
    """An operator that has a form for each layout, and may be in one already."""
    name = UNLAID.get(op, op)
    letters = logical_axes(name, layout.rank)
    own = [as_it_is(layout.rank)] * 2
    if op in UNLAID:
        read = [layout_of(*pair) for pair in zip(words_of(dict(attrs)), letters, strict=True)]
        own = [each for each in read if isinstance(each, Layout) and each.is_permutation]
    if len(own) < 2 or own[0] is not own[1]:
        return None
    whole = layout.renamed(own[0].order)  # of the data itself
    plain = tuple(attr for attr in attrs if attr[0] != "layouts")
    if whole.is_identity:
        return Moved(name, plain, (layout,), (layout,), True)
    words = tuple(show_layout(whole, letter) for letter in letters)
    new = tuple(sorted((*plain, ("layouts", words))))
    type_ = _result(LAID[name], new, _stored(types, (layout,)))
    return None if type_ is None else Moved(LAID[name].name, new, (layout,), (layout,), True)


def _cut(record: Operator, attrs: Attrs, types: Types, layout: Layout) -> Moved | None:
    """Pieces along a blocked axis are pieces along its blocks where all are whole blocks."""
    logical = _result(record, attrs, types)
    where = layout.positions(dict(attrs)["axis"] % layout.rank)[0]
    new = tuple((name, where if name == "axis" else value) for name, value in attrs)
    args = (layout,) * len(types)
    found = _result(record, new, _stored(types, args))
    wanted = logical.items if isinstance(logical, TupleType) else (logical,)
    made = found.items if isinstance(found, TupleType) else (found,)
    for each, there in zip(wanted, made, strict=False):
        if not isinstance(each, TensorType) or not isinstance(there, TensorType):
            return None
        if layout.shape_of(each.shape) != there.shape:
            return None
    return Moved(record.name, new, args, (layout,) * len(wanted), True)


def _composite(record: Operator, attrs: Attrs, types: Types, layout: Layout) -> Moved | None:
    """An operator of the two lists: only its axes are renamed."""
    result = record.relation(dict(attrs), *types)
    if record.name not in KEEPING | FOLDING or not isinstance(result, TensorType):
        return None
    if len(types[0].shape) != layout.rank:
        return None
    given = dict(attrs).get("axis")
    if given is None and record.name in NUMBERING:
        return None
    axes = _axes(given, layout.rank)
    if record.name in KEEPING and any(layout.blocks(axis) for axis in axes):
        return None
    if (new := _renamed(attrs, layout)) is None:
        return None
    if len(result.shape) == layout.rank:
        out = layout.with_unit_blocks(_units(result))
    else:
        out = layout.without(axes)
    args = (layout, *[None for _ in types[1:]])
    made = _result(record, new, _stored(types, args))
    wanted = out.shape_of(result.shape)
    if not isinstance(made, TensorType) or made.shape != wanted:
        return None
    # A sum over several axes may be reordered.
    exact = sorted(axes, key=layout.order.index) == sorted(axes)
    return Moved(record.name, new, args, (out,), exact)


def _derived(record: Operator, attrs: Attrs, types: Types, layout: Layout) -> Moved | None:
    """An operator whose renamed form has the tensor expression that its meaning demands."""
    args: list[Layout | None] = []
    for tensor_type in types:
        fits = len(tensor_type.shape) == layout.rank
        args.append(layout.with_unit_blocks(_units(tensor_type)) if fits else None)
    stored = _stored(types, args)
    before = _expressions(record, attrs, types)
    new = _renamed(attrs, layout)
    if stored is None or new is None or before is None:
        return None
    results = [_result_layout(compute, args, layout) for compute in before]
    outs = tuple(result for result in results if result is not None)
    if len(outs) < len(results) or any(
        out.shape_of(compute.shape) is None for out, compute in zip(outs, before, strict=True)
    ):
        return None
    after = _expressions(record, new, stored)
    if after is None or len(after) != len(before):
        return None
    exact = True
    for old, compute, out in zip(before, after, outs, strict=True):
        inputs = [arg or as_it_is(len(t.shape)) for arg, t in zip(args, types, strict=True)]
        wanted = laid(old, inputs, out, compute.inputs)
        if wanted.shape != compute.shape:
            return None
        wanted, compute = _plain(wanted), _plain(compute)
        if not alpha_equal(wanted, compute):
            exact = False
            if not alpha_equal(_ordered(wanted), _ordered(compute)):
                return None
    return Moved(record.name, new, tuple(args), outs, exact)


# --- types and expressions -----------------------------------------------------------------------


def _units(of: TensorType) -> list[int]:
    return [at for at, size in enumerate(of.shape) if known(size) == 1]


def _lift(of: TensorType, rank: int) -> TensorType:
    """With axes of size 1 in front; a scalar has none, since it fits everywhere."""
    if not of.shape:
        return of
    return TensorType((index(1),) * (rank - len(of.shape)) + of.shape, of.dtype)


def _stored(types: Types, layouts: Sequence[Layout | None]) -> Types | None:
    found = []
    for tensor_type, layout in zip(types, layouts, strict=True):
        shape = tensor_type.shape if layout is None else layout.shape_of(tensor_type.shape)
        if shape is None:
            return None
        found.append(TensorType(shape, tensor_type.dtype))
    return tuple(found)


def _result(record: Operator, attrs: Attrs, types: Types | None) -> Type | None:
    found = None if types is None else record.relation(dict(attrs), *types)
    return None if isinstance(found, Mismatch) else found


def _expressions(record: Operator, attrs: Attrs, types: Types) -> tuple[Compute, ...] | None:
    """The tensor expressions of an operator, or None if it is ill-typed."""
    assert record.compute is not None
    if not isinstance(_result(record, attrs, types), TensorType | TupleType):
        return None
    buffers = [Buffer(Name("x", i), tensor.shape, tensor.dtype) for i, tensor in enumerate(types)]
    found = record.compute(dict(attrs), *buffers)
    return (found,) if isinstance(found, Compute) else found


def _result_layout(of: Compute, args: Sequence[Layout | None], layout: Layout) -> Layout | None:
    """The layout of the result: that of the argument without the removed axes."""
    if len(of.shape) == layout.rank:
        return layout.with_unit_blocks([a for a, size in enumerate(of.shape) if known(size) == 1])
    main = next((b for b, arg in zip(of.inputs, args, strict=True) if arg is not None), None)
    became: dict[int, int] = {}
    for load in post_order(of.body):
        if isinstance(load, Load) and load.buffer is main:
            for axis, at in enumerate(load.indices):
                if not isinstance(at, ScalarVar) or at not in of.axes:
                    continue
                result = of.axes.index(at)
                if became.setdefault(axis, result) != result:
                    return None
    if sorted(became.values()) != list(range(len(of.shape))):
        return None
    kept = [(axis, block) for axis, block in layout.axes if axis in became]
    return Layout(tuple((became[axis], block) for axis, block in kept))


def _plain(of: Compute) -> Compute:
    """Axes of size 1 are read at 0, however they are written."""
    units: dict[Any, Term] = {
        axis: index(0) for axis, size in zip(of.axes, of.shape, strict=True) if known(size) == 1
    }
    if not units:
        return of
    body = substitute(of.body, units)
    return Compute(of.inputs, of.axes, of.shape, body)


def _ordered(of: Compute) -> Compute:
    """The axes of sums in the order in which they are first read."""

    def sort(node: Term) -> Term:
        if not isinstance(node, Reduce):
            return node
        seen = [each for each in post_order(node.body) if isinstance(each, Load)]
        order = list(dict.fromkeys(i for load in seen for i in load.indices if i in node.axes))
        ranked = sorted(
            zip(node.axes, node.extents, strict=True),
            key=lambda each: order.index(each[0]) if each[0] in order else len(order),
        )
        axes, extents = zip(*ranked, strict=True) if ranked else ((), ())
        return Reduce(node.combiner, axes, extents, node.body, node.runs)

    body = map_bottom_up(sort, of.body)
    return Compute(of.inputs, of.axes, of.shape, body)


# --- attributes ----------------------------------------------------------------------------------


def _axes(given: Any, rank: int) -> tuple[int, ...]:
    """Axes counted from the front; None is all of them."""
    if given is None:
        return tuple(range(rank))
    axes = given if isinstance(given, tuple) else (given,)
    return tuple(axis % rank for axis in axes) if rank else ()


def _renamed(attrs: Attrs, layout: Layout) -> Attrs | None:
    """Attributes that speak of axes, speaking of them where they are stored."""
    rank = layout.rank
    values = dict(attrs)
    new: dict[str, Any] = dict(values)
    for name, value in attrs:
        if name == "axis" and isinstance(value, int):
            if layout.blocks(value % rank):
                return None
            new[name] = layout.positions(value % rank)[0]
        elif name == "axis" and isinstance(value, tuple):
            found = [at for axis in _axes(value, rank) for at in layout.positions(axis)]
            new[name] = tuple(sorted(found))
        elif name == "axes" and "starts" in values:
            axes = _axes(value, rank) if value is not None else range(len(values["starts"]))
            if any(layout.blocks(axis) for axis in axes):
                return None
            new[name] = tuple(layout.positions(axis)[0] for axis in axes)
        elif name in ("pad_width", "reps", "shape") and isinstance(value, tuple):
            if len(value) != rank or (name == "shape" and not layout.is_permutation):
                return None
            nothing: Any = (0, 0) if name == "pad_width" else 1
            if any(layout.blocks(axis) and value[axis] != nothing for axis in range(rank)):
                return None
            new[name] = tuple(nothing if block else value[axis] for axis, block in layout.axes)
    return tuple(sorted(new.items()))
