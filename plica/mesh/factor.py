"""Factors: which dims of the arguments of an operator are split when a dim of its result is.

They are read off the tensor definition by one fold, which says of each scalar in it what moving to
the next device does: an index grows by the block, a value is that of the block, or a term of the
whole.  No operator declares anything.

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
from itertools import product
from typing import Any, Final, TypeAlias

import attrs
from attrs import frozen

from plica.analysis.index import EMPTY, simplify
from plica.core import Name, Term, digest, map_bottom_up, post_order, substitute
from plica.ir.graph.expression import Attrs
from plica.ir.graph.operator import Mismatch, find
from plica.ir.loop import scalar as sc
from plica.ir.loop.combiner import MEANING
from plica.ir.loop.tensor import Compute, Prefix
from plica.ir.type import TensorType, bool_, known, tensor
from plica.mesh.mesh import PARTIAL_SUM, REPLICATED, Placement, partial, placed, sizes_of, split

Types: TypeAlias = tuple[TensorType, ...]
Placements: TypeAlias = tuple[Placement, ...]
Candidate: TypeAlias = "tuple[Placements, Placements, sc.ScalarVar | None]"
"""Placements of arguments and results, and the axis that is split, if one is."""


@frozen
class ShardedForm:
    """How an operator runs on blocks: placements along one axis, and its attributes there."""

    arguments: Placements
    results: Placements
    attributes: Attrs


@lru_cache(maxsize=1 << 14)
def forms(op: str, attributes: Attrs, types: Types, devices: int) -> tuple[ShardedForm, ...]:
    """The ways in which an operator can run on an axis of `devices` without moving data.

    Those without any split or partial argument or result are not among them.
    """
    if (outputs := _computes(op, attributes, types)) is None:
        return ()
    accepted: dict[tuple[Placements, Placements], ShardedForm] = {}
    for candidate in (*_by_axes(outputs, devices), *_linear(outputs)):
        if candidate[:2] not in accepted:
            for changed in _on_blocks(op, attributes, types, outputs, candidate, devices):
                accepted[candidate[:2]] = ShardedForm(*candidate[:2], changed)
                break
    return tuple(accepted.values())


def _computes(op: str, attributes: Attrs, types: Types) -> tuple[Compute, ...] | None:
    """The tensor expressions of an operator over buffers `x0, x1, …`."""
    record, values = find(op), dict(attributes)
    if (
        record is None
        or record.compute is None
        or any(known(size) is None for of in types for size in of.shape)
        or isinstance(record.relation(values, *types), Mismatch)
    ):
        return None
    buffers = tuple([sc.Buffer(Name("x", at), of.shape, of.dtype) for at, of in enumerate(types)])
    computed = record.compute(values, *buffers)
    outputs = (computed,) if isinstance(computed, Compute) else computed
    return tuple([attrs.evolve(output, inputs=buffers) for output in outputs])


# --- candidates -----------------------------------------------------------------------------------

Dims: TypeAlias = tuple[int | None, ...]
"""For each argument the dim that is split, -1 for none, None where nothing is read of it."""


def _moved(of: Compute, devices: int) -> Iterator[tuple[sc.ScalarVar, Placement, Dims]]:
    """Each axis that can be split, with what that makes of the result and asks of the arguments;
    those that are read for their shape alone are split like the result."""
    reductions = [node for node in post_order(of.body) if isinstance(node, sc.Reduce)]
    bounds = [(of.axes, of.shape), *[(node.axes, node.extents) for node in reductions]]
    axes = [pair for bound in bounds for pair in zip(*bound, strict=True)]
    for at, (axis, size) in enumerate(axes):
        extent = known(size)
        if not extent or extent % devices:
            continue
        dims, state = _fold(of, {axis: extent // devices}, devices)
        if at < len(of.axes) and state in (SAME, ZERO):
            like = [at if x.shape == of.shape else None for x in of.inputs]
            yield axis, split(at), _joined(dims, like)
        elif state in MEANING and any(dim is not None and dim >= 0 for dim in dims):
            yield axis, partial(state), dims


def _by_axes(outputs: tuple[Compute, ...], devices: int) -> Iterator[Candidate]:
    """Splits of an axis of the first result, and of those of the others that ask the same."""
    first, *others = [[*_moved(output, devices)] for output in outputs]
    for axis, placement, dims in first:
        results = [placement]
        for options in others:
            for _, other, asked in sorted(options, key=lambda option: option[1] is not placement):
                if all(None in pair or len({*pair}) == 1 for pair in zip(dims, asked, strict=True)):
                    results.append(other)
                    dims = _joined(dims, asked)
                    break
        if len(results) == len(outputs):
            yield tuple(map(placed, dims)), tuple(results), axis


def _joined(dims: Sequence[int | None], others: Sequence[int | None]) -> Dims:
    return tuple([b if a is None else a for a, b in zip(dims, others, strict=True)])


def _linear(outputs: tuple[Compute, ...]) -> Iterator[Candidate]:
    """Arguments that may be terms of a sum since the result is linear in them; a maximum or a
    product of terms may be moved about."""
    inputs = outputs[0].inputs
    floats = [at for at, x in enumerate(inputs) if x.dtype.is_float]
    chosen = [(at,) for at in floats] + ([tuple(floats)] if 1 < len(floats) == len(inputs) else [])
    for places in chosen:
        terms: dict[Term, State] = {inputs[at]: "sum" for at in places}
        if all(_fold(output, terms, 1)[1] == "sum" for output in outputs):
            arguments = [PARTIAL_SUM if x in terms else REPLICATED for x in inputs]
            yield tuple(arguments), (PARTIAL_SUM,) * len(outputs), None
    if len(inputs) == 1 and all(isinstance(output.body, sc.Load) for output in outputs):
        for combiner in MEANING:
            if combiner != "sum" and (combiner in LOGICAL) == (outputs[0].dtype is bool_):
                yield (partial(combiner),), (partial(combiner),) * len(outputs), None


LOGICAL: Final = ("all", "any")

# --- what moving to the next device does ----------------------------------------------------------

State: TypeAlias = "int | str"
"""By how much an index grows; SAME for a value of the block; or the combiner of which a value is a
term.  A zero is both."""
SAME: Final = 0
ZERO: Final = "zero"
UNKNOWN: Final = "unknown"


def _fold(of: Compute, given: Mapping[Term, State], devices: int) -> tuple[Dims, State]:
    """The dims along which the arguments move, and the state of an element, given the states of an
    axis or of arguments; unknown where an element depends on more than blocks."""
    dims: list[int | None] = [None] * len(of.inputs)
    states = dict(given)
    for node in post_order(of.body):
        if not isinstance(node, sc.Scalar) or node in states:
            continue
        if isinstance(node, sc.Load):
            at, dim = of.inputs.index(node.buffer), _block_dim(node, states, devices)
            if dim is None or dims[at] not in (None, dim):
                return (), UNKNOWN
            dims[at], states[node] = dim, given.get(node.buffer, SAME)
        elif (state := _state(node, states)) == UNKNOWN:
            return (), UNKNOWN
        else:
            states[node] = state
    return tuple(dims), states[of.body]


def _block_dim(load: sc.Load, states: Mapping[Term, State], devices: int) -> int | None:
    """The dim that a load moves along by a block, -1 if it stays, None if it does otherwise."""
    moving = [dim for dim, place in enumerate(load.indices) if states[place] not in (SAME, ZERO)]
    if not moving:
        return -1
    dim, *others = moving
    step = states[load.indices[dim]]
    whole = isinstance(step, int) and step * devices == known(load.buffer.shape[dim])
    return dim if whole and not others else None


def _state(node: sc.Scalar, states: Mapping[Term, State]) -> State:
    """The state of a scalar from those of its parts."""
    kids = [states[kid] for kid in node._children if isinstance(kid, sc.Scalar)]
    distinct = {*kids} - {ZERO}
    if isinstance(node, sc.Lit):
        return ZERO if node.value == 0 else SAME
    if distinct <= {SAME}:
        return SAME
    steps = [kid if isinstance(kid, int) else SAME for kid in kids]
    match node:
        case sc.Add() | sc.Sub() if distinct == {"sum"}:
            return "sum"
        case sc.Reduce(combiner, body=body) if states[body] in (SAME, ZERO):
            return combiner  # its axis is what moves
        case sc.Reduce("sum", body=body) | Prefix("sum", body=body):
            return "sum" if states[body] == "sum" else UNKNOWN
        case sc.Mul() if kids.count("sum") == kids.count(SAME) == 1:
            return "sum"
        case sc.Div(left, right) if states[right] == SAME and states[left] == "sum":
            return "sum"
        case sc.Cast(value) if node.dtype.is_float and sc.dtype_of(value).is_float:
            return states[value]
        case sc.Select(condition, then, orelse) if states[condition] in (SAME, ZERO):
            return "sum" if {states[then], states[orelse]} - {ZERO} == {"sum"} else UNKNOWN
        case _ if any(isinstance(kid, str) for kid in distinct):
            return UNKNOWN
        case sc.Add():
            return sum(steps)
        case sc.Sub():
            return steps[0] - steps[1]
        case sc.Mul(_, sc.Lit(by)) | sc.Mul(sc.Lit(by), _):
            return sum(steps) * int(by)
        case sc.FloorDiv(_, sc.Lit(by)) if by > 0 and steps[0] % by == 0:
            return steps[0] // int(by)
        case sc.FloorMod(_, sc.Lit(by)) if by > 0 and steps[0] % by == 0:
            return SAME
    return UNKNOWN


# --- the operator on blocks -----------------------------------------------------------------------


def local_types(types: Types, placements: Sequence[Placement], devices: int) -> Types:
    """The types of what one device holds."""
    sizes = [[n // devices if dim == p.dim else n for dim, n in enumerate(sizes_of(of))]
             for of, p in zip(types, placements, strict=True)]  # fmt: skip
    return tuple([tensor(n, of.dtype) for n, of in zip(sizes, types, strict=True)])


def _on_blocks(  # noqa: PLR0917  # what it is about
    op: str, attributes: Attrs, types: Types, outputs: tuple[Compute, ...],
    candidate: Candidate, devices: int,
) -> Iterator[Attrs]:  # fmt: skip
    """Attributes with which the operator on blocks is defined as the whole at their sizes."""
    arguments, results, axis = candidate
    inner = local_types(types, arguments, devices)
    whole = tuple([tensor([known(s) or 0 for s in of.shape], of.dtype) for of in outputs])
    wanted = local_types(whole, results, devices)
    expected = [
        _normal_form(_resized(output, inner, of.shape, axis, devices))
        for output, of in zip(outputs, wanted, strict=True)
    ]
    for changed in _local_attributes(attributes, whole, wanted):
        local = _computes(op, changed, inner)
        if local is not None and list(map(_normal_form, local)) == expected:
            yield changed


def _local_attributes(attributes: Attrs, whole: Types, wanted: Types) -> Iterator[Attrs]:
    """The attributes, and with the sizes of the result in them replaced by those of a block."""
    names = [name for name, _ in attributes]
    for before, after in zip(whole, wanted, strict=True):
        sizes = sizes_of(before), sizes_of(after)
        options = [(value, *_at_sizes(value, *sizes)) for _, value in attributes]
        for values in product(*options):
            yield tuple(zip(names, values, strict=True))


def _at_sizes(value: Any, old: tuple[int, ...], new: tuple[int, ...]) -> Iterator[Any]:
    """An attribute with the sizes of a block in place of those of the whole, if they are in it.

    Any: attributes are what the records of operators declare.
    """
    changed = dict([(a, b) for a, b in zip(old, new, strict=True) if a != b][:1])
    items = value if isinstance(value, tuple) else ()
    sizes = tuple([known(item) if isinstance(item, sc.Scalar) else item for item in items])
    if changed and all(type(size) is int for size in sizes):
        local = new if sizes == old else [changed.get(size or 0, size or 0) for size in sizes]
        if sizes == old or sum(size in changed for size in sizes) == 1:
            yield tuple([sc.index(n) if isinstance(item, sc.Scalar) else n
                         for n, item in zip(local, items, strict=True)])  # fmt: skip


def _resized(
    of: Compute, inner: Types, shape: tuple[sc.Scalar, ...], cut: sc.ScalarVar | None, devices: int
) -> Compute:
    """The definition of the whole, over blocks; an axis of a reduction in it may be `cut`."""
    buffers = [sc.Buffer(x.name, t.shape, x.dtype) for x, t in zip(of.inputs, inner, strict=True)]

    def shorter(node: Term) -> Term:
        if not isinstance(node, sc.Reduce) or cut not in node.axes:
            return node
        extents = [sc.index((known(size) or 0) // devices) if axis is cut else size
                   for axis, size in zip(node.axes, node.extents, strict=True)]  # fmt: skip
        return attrs.evolve(node, extents=tuple(extents))

    body = map_bottom_up(shorter, substitute(of.body, dict(zip(of.inputs, buffers, strict=True))))
    assert isinstance(body, sc.Scalar)
    return Compute(tuple(buffers), of.axes, shape, body)


@lru_cache(maxsize=1 << 12)
def _normal_form(of: Compute) -> str:
    """A digest of a definition: index terms in canonical form, an axis of size 1 is 0."""
    context = EMPTY
    for axis, size in zip(of.axes, of.shape, strict=True):
        context = context.loop(axis, size)
    body = map_bottom_up(_without_ones, _at_ones(of.body, of.axes, of.shape))
    assert isinstance(body, sc.Scalar)
    return str(digest(Compute(of.inputs, of.axes, of.shape, simplify(body, context))))


def _at_ones(body: sc.Scalar, axes: Sequence[Term], extents: Sequence[sc.Scalar]) -> sc.Scalar:
    """A scalar with 0 in place of the axes of size 1."""
    pairs = zip(axes, extents, strict=True)
    return substitute(body, {axis: sc.index(0) for axis, size in pairs if known(size) == 1})


def _without_ones(node: Term) -> Term:
    if not isinstance(node, sc.Reduce):
        return node
    return attrs.evolve(node, body=_at_ones(node.body, node.axes, node.extents))
