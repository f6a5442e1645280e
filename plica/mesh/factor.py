"""Factors: which dims of the arguments of an operator are split when a dim of its result is.

They are read off the tensor definition: an index is split together with another if moving along
the first by a block moves the second by a block.  No operator declares anything.

    out[i, j] = sum over k of x[i, k] * y[k, j]
        i   x split 0, y replicated  ->  out split 0
        j   x replicated, y split 1  ->  out split 1
        k   x split 1, y split 0     ->  out partial sum

A form is accepted only if the operator, applied to the blocks, has the same tensor definition as
the whole at the sizes of a block: what depends on a size or on a position is refused.

>>> from plica.ir.type import tensor
>>> x, y = tensor((8, 6), "f32"), tensor((6, 4), "f32")
>>> for form in forms("matmul", (), (x, y), 2):
...     print(*form.arguments, "->", *form.results, sep="; ")
split 0; replicated; ->; split 0
replicated; split 1; ->; split 1
split 1; split 0; ->; partial sum
partial sum; replicated; ->; partial sum
replicated; partial sum; ->; partial sum
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import combinations
from typing import Any, Final, TypeAlias

import attrs
from attrs import frozen

from plica.analysis.index import EMPTY, simplify
from plica.core import Name, Term, digest, map_bottom_up, post_order, substitute
from plica.ir.graph.expression import Attrs
from plica.ir.graph.operator import Mismatch, Operator, find
from plica.ir.loop import scalar as sc
from plica.ir.loop.combiner import MEANING
from plica.ir.loop.tensor import Compute, Prefix
from plica.ir.type import TensorType, TupleType, bool_, known, tensor
from plica.mesh.mesh import PARTIAL_SUM, REPLICATED, Placement, partial, placed, sizes_of, split

Types: TypeAlias = tuple[TensorType, ...]


@frozen
class ShardedForm:
    """How an operator runs on blocks: placements along one axis, and its attributes there."""

    arguments: tuple[Placement, ...]
    results: tuple[Placement, ...]
    attributes: Attrs


@lru_cache(maxsize=1 << 14)
def forms(op: str, attributes: Attrs, types: Types, devices: int) -> tuple[ShardedForm, ...]:
    """The ways in which an operator can run on an axis of `devices` without moving data.

    Those without any split or partial argument or result are not among them.
    """
    record = find(op)
    if record is None or record.compute is None:
        return ()
    outputs = _computes(record, attributes, types)
    if outputs is None:
        return ()
    candidates = [
        *_by_results(outputs, devices), *_by_reduction(outputs, devices), *_linear(outputs),
    ]  # fmt: skip
    accepted: dict[tuple[Any, ...], ShardedForm] = {}
    for candidate in candidates:
        if (key := candidate[:2]) not in accepted:
            form = _on_blocks(record, attributes, types, outputs, candidate, devices)
            if form is not None:
                accepted[key] = form
    return tuple(accepted.values())


Candidate: TypeAlias = "tuple[tuple[Placement, ...], tuple[Placement, ...], int | None]"
"""Placements of arguments and results; which axis of the last reduction is cut, if one is."""


def _computes(record: Operator, attributes: Attrs, types: Types) -> tuple[Compute, ...] | None:
    """The tensor expressions of an operator over buffers `x0, x1, …`."""
    if any(known(size) is None for of in types for size in of.shape):
        return None
    assert record.compute is not None
    values = dict(attributes)
    if isinstance(record.relation(values, *types), Mismatch):
        return None
    buffers = [sc.Buffer(Name("x", at), of.shape, of.dtype) for at, of in enumerate(types)]
    made = record.compute(values, *buffers)
    outputs = (made,) if isinstance(made, Compute) else tuple(made)
    return tuple([attrs.evolve(output, inputs=tuple(buffers)) for output in outputs])


def _by_results(outputs: tuple[Compute, ...], devices: int) -> Iterator[Candidate]:
    """Splits of a dim of the first result, and of the dims of the others that follow from it."""
    first, *others = [[*_dim_splits(output, devices)] for output in outputs]
    for dim, arguments in first:
        results = [split(dim)]
        for options in others:
            agreeing = [at for at, given in options if _joined(arguments, given) is not None]
            if not agreeing:
                break
            results.append(split(agreeing[0] if dim not in agreeing else dim))
        else:
            yield tuple(map(placed, arguments)), tuple(results), None


Dims: TypeAlias = tuple[int | None, ...]
"""For each argument the dim that is split, -1 for none, None where nothing is read of it."""


def _joined(one: Dims, two: Dims) -> Dims | None:
    """What two results ask of the arguments, None if they do not agree."""
    joined = [a if b is None else b for a, b in zip(one, two, strict=True)]
    agree = all(a is None or a == c for a, c in zip(one, joined, strict=True))
    return tuple(joined) if agree else None


def _dim_splits(of: Compute, devices: int) -> Iterator[tuple[int, Dims]]:
    """Each dim of a result that can be split, with what that asks of the arguments; those that are
    read for their shape alone are split alike."""
    for dim, (axis, size) in enumerate(zip(of.axes, of.shape, strict=True)):
        dims = _moved(of, of.body, axis, known(size), devices)
        if dims is not None:
            like = [dim if x.shape == of.shape else None for x in of.inputs]
            yield dim, tuple([b if a is None else a for a, b in zip(dims, like, strict=True)])


def _by_reduction(outputs: tuple[Compute, ...], devices: int) -> Iterator[Candidate]:
    """Splits of an axis that is reduced last of all: each device has a term of the result."""
    reduction = _root_reduction(outputs[0].body) if len(outputs) == 1 else None
    if reduction is None:
        return
    for at, (axis, extent) in enumerate(zip(reduction.axes, reduction.extents, strict=True)):
        dims = _moved(outputs[0], reduction.body, axis, known(extent), devices)
        if dims is not None and any(dim is not None and dim >= 0 for dim in dims):
            yield tuple(map(placed, dims)), (partial(reduction.combiner),), at


def _root_reduction(body: sc.Scalar) -> sc.Reduce | None:
    """The reduction that a body is, but for a cast of floats around a sum."""
    if isinstance(body, sc.Cast) and body.dtype.is_float and isinstance(body.value, sc.Reduce):
        return body.value if sc.dtype_of(body.value).is_float else None
    return body if isinstance(body, sc.Reduce) else None


# --- shifts ---------------------------------------------------------------------------------------


def _moved(
    of: Compute, body: sc.Scalar, axis: sc.ScalarVar, size: int | None, devices: int
) -> Dims | None:
    """The dim of each argument along which an axis moves if it moves by a block; None if the value
    at a place depends on more than the block, or the devices do not divide the size.

    `shift[e]` is what is added to an index when the axis moves on by a block, the same everywhere.
    A value that is loaded moves with the block that it lies in: its shift is 0.
    """
    if not size or size % devices:
        return None
    position = {buffer: at for at, buffer in enumerate(of.inputs)}
    dims: list[int | None] = [None] * len(of.inputs)
    shift: dict[Term, int | None] = {axis: size // devices}
    for node in post_order(body):
        if node in shift or not isinstance(node, sc.Scalar):
            continue
        if isinstance(node, sc.Load):
            dim = _block_dim(node, shift, devices)
            at = position.get(node.buffer)
            if dim is None or at is None or dims[at] not in (None, dim):
                return None
            dims[at] = dim
            shift[node] = 0
        else:
            moved = _shift(node, shift)
            if moved is None:
                return None
            shift[node] = moved
    return tuple(dims) if shift[body] == 0 else None


def _block_dim(load: sc.Load, shift: Mapping[Term, int | None], devices: int) -> int | None:
    """The dim that a load moves along by a block, -1 if it stays, None if it does otherwise."""
    found = -1
    for dim, (place, size) in enumerate(zip(load.indices, load.buffer.shape, strict=True)):
        moved = shift[place]
        if moved == 0:
            continue
        if found >= 0 or moved is None or moved * devices != known(size):
            return None
        found = dim
    return found


def _shift(node: sc.Scalar, shift: Mapping[Term, int | None]) -> int | None:
    """The shift of an index term; None where it is not the same everywhere, or is used as a
    value."""
    moved = [shift.get(kid, 0) for kid in node._children if isinstance(kid, sc.Scalar)]
    if not any(moved):
        return 0
    match node:
        case sc.Add(left, right):
            return (shift[left] or 0) + (shift[right] or 0)
        case sc.Sub(left, right):
            return (shift[left] or 0) - (shift[right] or 0)
        case sc.Mul(left, sc.Lit(by)) | sc.Mul(sc.Lit(by), left):
            return (shift[left] or 0) * int(by)
        case sc.FloorDiv(left, sc.Lit(by)) if by > 0 and (shift[left] or 0) % by == 0:
            return (shift[left] or 0) // int(by)
        case sc.FloorMod(left, sc.Lit(by)) if by > 0 and (shift[left] or 0) % by == 0:
            return 0
    return None


# --- partial arguments ----------------------------------------------------------------------------


def _linear(outputs: tuple[Compute, ...]) -> Iterator[Candidate]:
    """Arguments that may be terms of a sum since the result is linear in them; a maximum or a
    product of terms may be moved about."""
    count = len(outputs[0].inputs)
    floats = [at for at, x in enumerate(outputs[0].inputs) if x.dtype.is_float]
    chosen = [(at,) for at in floats] + ([tuple(floats)] if 1 < len(floats) == count else [])
    for places in chosen:
        given = {outputs[0].inputs[at] for at in places}
        if all(_degree(output.body, given) == 1 for output in outputs):
            arguments = [PARTIAL_SUM if at in places else REPLICATED for at in range(count)]
            yield tuple(arguments), (PARTIAL_SUM,) * len(outputs), None
    if count == 1 and all(isinstance(output.body, sc.Load) for output in outputs):
        for combiner in MEANING:
            if combiner != "sum" and (combiner in LOGICAL) == (outputs[0].dtype is bool_):
                yield (partial(combiner),), (partial(combiner),) * len(outputs), None


LOGICAL: Final = ("all", "any")
ANY_DEGREE: Final = -1  # the degree of zero


def _degree(body: sc.Scalar, given: set[sc.Buffer]) -> int | None:
    """1 if a value is linear in what is loaded from some buffers, 0 if it does not depend on it."""
    degree: dict[Term, int | None] = {}
    for node in post_order(body):
        if not isinstance(node, sc.Scalar):
            continue
        kids = [degree[kid] for kid in node._children if isinstance(kid, sc.Scalar)]
        degree[node] = _node_degree(node, kids, degree, given)
    return degree[body]


def _node_degree(
    node: sc.Scalar,
    kids: Sequence[int | None],
    degree: Mapping[Term, int | None],
    given: set[sc.Buffer],
) -> int | None:
    if isinstance(node, sc.Load):
        return None if None in kids or 1 in kids else int(node.buffer in given)
    if isinstance(node, sc.Lit):
        return ANY_DEGREE if node.value == 0 else 0
    if None in kids:
        return None
    match node:
        case sc.Add() | sc.Sub():
            return _common(kids)
        case sc.Mul(left, right):
            pair = [degree[left] or 0, degree[right] or 0]
            return ANY_DEGREE if ANY_DEGREE in pair else (0, 1, None)[sum(pair)]
        case sc.Div(left, right):
            return degree[left] if degree[right] == 0 else None
        case sc.Cast(value) if node.dtype.is_float and sc.dtype_of(value).is_float:
            return degree[value]
        case sc.Select(condition, then, orelse):
            return _common([degree[then], degree[orelse]]) if degree[condition] != 1 else None
        case sc.Reduce(combiner="sum", body=inside) | Prefix(combiner="sum", body=inside):
            return degree[inside]
    return None if 1 in kids else 0


def _common(degrees: Sequence[int | None]) -> int | None:
    """The degree of a sum: that of all its terms that are not zero."""
    distinct = set(degrees) - {ANY_DEGREE}
    if not distinct:
        return ANY_DEGREE
    return distinct.pop() if len(distinct) == 1 else None


# --- the operator on blocks -----------------------------------------------------------------------


def local_types(types: Types, placements: Sequence[Placement], devices: int) -> Types:
    """The types of what one device holds."""
    sizes = [[n // devices if dim == p.dim else n for dim, n in enumerate(sizes_of(of))]
             for of, p in zip(types, placements, strict=True)]  # fmt: skip
    return tuple([tensor(n, of.dtype) for n, of in zip(sizes, types, strict=True)])


def _on_blocks(  # noqa: PLR0917  # what it is about
    record: Operator, attributes: Attrs, types: Types, outputs: tuple[Compute, ...],
    candidate: Candidate, devices: int,
) -> ShardedForm | None:  # fmt: skip
    """The form, if the operator on blocks is defined as the whole at the sizes of a block."""
    arguments, results, cut = candidate
    inner = local_types(types, arguments, devices)
    whole = tuple([tensor([known(s) or 0 for s in each.shape], each.dtype) for each in outputs])
    wanted = local_types(whole, results, devices)
    expected = [
        _normal_form(_resized(output, inner, of.shape, cut, devices))
        for output, of in zip(outputs, wanted, strict=True)
    ]
    for changed in _local_attributes(attributes, whole, wanted):
        result = record.relation(dict(changed), *inner)
        if (result.items if isinstance(result, TupleType) else (result,)) == wanted:
            local = _computes(record, changed, inner)
            if local is not None and [_normal_form(compute) for compute in local] == expected:
                return ShardedForm(arguments, results, changed)
    return None


def _local_attributes(
    attributes: Attrs, whole: Sequence[TensorType], wanted: Sequence[TensorType]
) -> Iterator[Attrs]:
    """The attributes, and with the sizes of the result in them replaced by those of a block."""
    yield attributes
    for before, after in zip(whole, wanted, strict=True):
        changes = [_at_size(value, before, after) for _, value in attributes]
        places = [at for at, value in enumerate(changes) if value is not None]
        for count in range(1, len(places) + 1):
            for chosen in combinations(places, count):
                yield tuple([
                    (name, changes[at] if at in chosen else value)
                    for at, (name, value) in enumerate(attributes)
                ])  # fmt: skip


def _at_size(value: Any, before: TensorType, after: TensorType) -> Any:
    """An attribute with the sizes of a block in place of those of the whole; None if none is there.

    Any: attributes are what the records of operators declare.
    """
    old, new = sizes_of(before), sizes_of(after)
    changed = dict([(a, b) for a, b in zip(old, new, strict=True) if a != b][:1])
    if not isinstance(value, tuple) or not changed:
        return None
    sizes = tuple([known(each) if isinstance(each, sc.Scalar) else each for each in value])
    if any(type(each) is not int for each in sizes):
        return None
    if sizes != old and sum(size in changed for size in sizes) != 1:
        return None
    local = new if sizes == old else [changed.get(size or 0, size or 0) for size in sizes]
    return tuple([sc.index(n) if isinstance(v, sc.Scalar) else n
                  for n, v in zip(local, value, strict=True)])  # fmt: skip


def _resized(
    of: Compute, inner: Types, shape: Sequence[sc.Scalar], cut: int | None, devices: int
) -> Compute:
    """The definition of the whole, over blocks; an axis of its reduction may be `cut`."""
    buffers = [sc.Buffer(x.name, t.shape, x.dtype) for x, t in zip(of.inputs, inner, strict=True)]
    body = substitute(of.body, dict(zip(of.inputs, buffers, strict=True)))
    if cut is not None and (reduction := _root_reduction(body)) is not None:
        extents = list(reduction.extents)
        extents[cut] = sc.index((known(extents[cut]) or 0) // devices)
        shorter = attrs.evolve(reduction, extents=tuple(extents))
        body = sc.Cast(shorter, body.dtype) if isinstance(body, sc.Cast) else shorter
    return Compute(tuple(buffers), of.axes, tuple(shape), body)


@lru_cache(maxsize=1 << 12)
def _normal_form(of: Compute) -> str:
    """A digest of a definition: index terms in canonical form, an axis of size 1 is 0."""
    context = EMPTY
    for axis, size in zip(of.axes, of.shape, strict=True):
        context = context.loop(axis, size)
    ones = {axis: sc.index(0) for axis, size in zip(of.axes, of.shape, strict=True)
            if known(size) == 1}  # fmt: skip
    body = map_bottom_up(_without_ones, substitute(of.body, ones))
    assert isinstance(body, sc.Scalar)
    return str(digest(Compute(of.inputs, of.axes, of.shape, simplify(body, context))))


def _without_ones(node: Term) -> Term:
    """A reduction with 0 in place of its axes of size 1."""
    if not isinstance(node, sc.Reduce):
        return node
    ones = {axis: sc.index(0) for axis, size in zip(node.axes, node.extents, strict=True)
            if known(size) == 1}  # fmt: skip
    return attrs.evolve(node, body=substitute(node.body, ones)) if ones else node
