"""Nests: the input of feature extraction, derived from a kernel.

    Nest   ::= Nest(loops, accesses, operations, room, guards)      one for each store
    Loop   ::= Loop(key, extent, kind)                        outermost first
    Access ::= Access(buffer, written, bytes, shape, strides, reaches)
    Reach  ::= Reach(coefficient, range)                      of one loop along one dimension

>>> from plica.ir.text.script import from_text
>>> from plica.search.space import DOUBLED
>>> (nest,) = nests_of(from_text(DOUBLED).values[0])
>>> [(each.extent, each.kind) for each in nest.loops]
[(64.0, 'serial')]
>>> [(each.written, list(each.reaches.values())) for each in nest.accesses]
[(True, [Stride(coefficient=1.0, range=64.0)]), (False, [Stride(coefficient=1.0, range=64.0)])]
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from attrs import evolve, frozen

from plica.analysis.access import accesses as accesses_of
from plica.codegen.lower.blocks import blocks_to_loops
from plica.core import Name, Term, fold_into, free_vars, fresh
from plica.ir.loop import scalar as sc, statement as st
from plica.ir.type import i64, known
from plica.search.feature.operation import Operations, operations, place_operations

SYMBOLIC: Final = 64.0  # what a size counts for that is known only when the program runs


@frozen
class LoopFeature:
    """A loop of more than one step."""

    key: Name
    extent: float
    kind: str


@frozen
class Stride:
    """A given number of places, a given number of elements apart."""

    coefficient: float
    range: float


Reaches: TypeAlias = "dict[tuple[Name, int], Stride]"  # by loop and dimension, where it moves


@frozen(eq=False)
class AccessFeature:
    """A load or a store, with its strides along the enclosing loops."""

    buffer: Name
    written: bool
    bytes: int
    shape: tuple[float, ...]
    strides: tuple[float, ...]
    reaches: Reaches


@frozen
class AllocationFeature:
    """Where a result lives: bytes allocated in the kernel (0 if none), and the loops around."""

    bytes: float
    times: float
    outside: frozenset[Name]


@frozen(eq=False)
class NestFeature:
    """A store and all that is around it."""

    loops: tuple[LoopFeature, ...]
    accesses: tuple[AccessFeature, ...]  # the first is the store itself
    operations: Operations
    room: AllocationFeature
    guards: int = 0  # how many conditions are around it
    intrinsic: str = ""  # the name of the instruction of many elements that writes, if it is one
    places: Operations = (0.0, 0.0)  # what finding places takes (`place_operations`)
    local: bool = False  # whether what it writes is to be in registers


@frozen(eq=False)
class _Around:
    """Loops around a statement, buffers allocated with the loops around these, and bindings."""

    loops: tuple[tuple[sc.ScalarVar, float, str], ...]
    allocations: Mapping[sc.Buffer, tuple[tuple[sc.ScalarVar, float, str], ...]]
    bound: Mapping[sc.ScalarVar, sc.Scalar]
    guards: int = 0


Sizes: TypeAlias = Mapping[sc.ScalarVar, float]


def nests_of(kernel: st.Kernel) -> tuple[NestFeature, ...]:
    """The nests of a kernel, in the order of the text; blocks are loops first."""
    if any(isinstance(statement, st.Block) for statement in st.statements(kernel.body)):
        kernel = blocks_to_loops(kernel)
    nest_features: list[NestFeature] = []
    stack: list[tuple[st.Stmt, _Around]] = [(kernel.body, _Around((), {}, {}))]
    while stack:
        stmt, here = stack.pop()
        match stmt:
            case st.Store(buffer, indices, value):
                nest_features.append(_stored(buffer, indices, value, here))
                continue
            case st.Invoke():
                nest = _invoked(stmt, here)
                nest_features += [] if nest is None else [nest]
                continue
            case st.For(var, extent, kind, _):
                here = evolve(here, loops=(*here.loops, (var, _size(extent), kind)))
            case st.Alloc(buffer, _):
                here = evolve(here, allocations={**here.allocations, buffer: here.loops})
            case st.Bind(var, value, _):
                here = evolve(here, bound={**here.bound, var: value})
            case st.Branch():
                here = evolve(here, guards=here.guards + 1)
            case _:
                pass
        stack.extend([(substatement, here) for substatement in reversed(st.substatements(stmt))])
    return tuple(nest_features)


def _stored(
    buffer: sc.Buffer, indices: tuple[sc.Scalar, ...], value: sc.Scalar, here: _Around
) -> NestFeature:
    loads, axes = _loads((*indices, value))
    if axes:
        inner = tuple([(var, _size(extent), "serial") for var, extent in axes])
        here = evolve(here, loops=(*here.loops, *inner))
    places = [(buffer, indices, True), *[(load.buffer, load.indices, False) for load in loads]]
    sizes = {var: extent for var, extent, _ in here.loops}
    features = [_access(*place, sizes, here.bound) for place in places]
    room, finding = _allocation_of(buffer, here), place_operations((*indices, value), here.bound)
    return NestFeature(
        _loops(here),
        tuple(features),
        operations(value),
        room,
        here.guards,
        places=finding,
        local=buffer.scope == "local",
    )


def _invoked(stmt: st.Invoke, here: _Around) -> NestFeature | None:
    """An intrinsic of many elements counts as loops over the largest box it touches."""
    touched = [access for access in accesses_of(stmt) if None not in access.starts]
    if (target := next((access.buffer for access in touched if access.written), None)) is None:
        return None
    boxes = [[_size(extent) for extent in access.extents] for access in touched]
    widest = max(boxes, key=_product)
    used = {var.name for var, _, _ in here.loops}
    lanes: list[tuple[sc.ScalarVar, float, str]] = []
    for extent in widest:
        name = fresh(Name("lane"), used)
        used.add(name)
        lanes.append((sc.ScalarVar(name, i64), extent, "vectorized"))
    sizes = {var: extent for var, extent, _ in here.loops}
    features: list[AccessFeature] = []
    here = evolve(here, loops=(*here.loops, *lanes))
    for access, box in zip(touched, boxes, strict=True):
        starts = tuple([start for start in access.starts if start is not None])
        plain = _access(access.buffer, starts, access.written, sizes, here.bound)
        for dimension, ((var, _, _), extent) in enumerate(zip(lanes, box, strict=False)):
            if extent > 1:
                plain.reaches[var.name, dimension] = Stride(1.0, extent)
        features.append(plain)
    features.sort(key=lambda each: not each.written)
    room, said = _allocation_of(target, here), stmt.name
    return NestFeature(_loops(here), tuple(features), operations(None), room, here.guards, said)


def _loops(here: _Around) -> tuple[LoopFeature, ...]:
    return tuple(
        [LoopFeature(var.name, extent, kind) for var, extent, kind in here.loops if extent > 1]
    )


def _allocation_of(buffer: sc.Buffer, here: _Around) -> AllocationFeature:
    if (around := here.allocations.get(buffer)) is None:
        return AllocationFeature(0.0, 1.0, frozenset())
    size = _product([_size(dim) for dim in buffer.shape]) * buffer.dtype.bytes
    times = _product([extent for _, extent, _ in around])
    return AllocationFeature(size, times, frozenset([var.name for var, _, _ in around]))


def _size(extent: sc.Scalar) -> float:
    number = known(extent)
    return SYMBOLIC if number is None else float(number)


def _product(numbers: Iterable[float]) -> float:
    found = 1.0
    for number in numbers:
        found *= number
    return found


def _loads(
    roots: Iterable[sc.Scalar],
) -> tuple[list[sc.Load], list[tuple[sc.ScalarVar, sc.Scalar]]]:
    """All loads, each once, in the order of the text, and the axes of sums among them."""
    loads: list[sc.Load] = []
    axes: list[tuple[sc.ScalarVar, sc.Scalar]] = []
    stack: list[Term] = []
    stack.extend(roots)
    stack.reverse()
    seen: set[Term] = set()
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if isinstance(node, sc.Load):
            loads.append(node)
            stack.extend(node.indices[::-1])
            continue
        if isinstance(node, sc.Reduce):
            axes += zip(node.axes, node.extents, strict=True)
        stack.extend([child for child in reversed(node._children) if isinstance(child, sc.Scalar)])
    return loads, axes


def _access(
    buffer: sc.Buffer,
    indices: tuple[sc.Scalar, ...],
    written: bool,
    sizes: Sizes,
    bound: Mapping[sc.ScalarVar, sc.Scalar],
) -> AccessFeature:
    shape = [_size(dim) for dim in buffer.shape]
    strides = [_size(stride) for stride in buffer.strides] if buffer.strides else _row_major(shape)
    reaches: Reaches = {}
    for dimension, index in enumerate(indices):
        for var, reach in reaches_of(index, sizes, bound).items():
            reaches[var.name, dimension] = reach
    return AccessFeature(
        buffer.name, written, buffer.dtype.bytes, tuple(shape), tuple(strides), reaches
    )


def _row_major(shape: list[float]) -> list[float]:
    strides = [1.0] * len(shape)
    for at in range(len(shape) - 2, -1, -1):
        strides[at] = strides[at + 1] * shape[at + 1]
    return strides


# --- indices --------------------------------------------------------------------------------------

Moves: TypeAlias = "dict[sc.ScalarVar, Stride]"
Form: TypeAlias = "dict[sc.Scalar, float]"  # a sum: coefficients of its opaque terms


def reaches_of(index: sc.Scalar, sizes: Sizes, bound: Mapping[sc.ScalarVar, sc.Scalar]) -> Moves:
    """How an index moves with each loop; an opaque term may move by one with all of its loops."""
    forms: dict[sc.Scalar, Form] = {}
    moves: dict[sc.Scalar, Moves] = {}
    form = fold_into(
        forms,
        index,
        lambda node: _parts(node, bound),
        lambda node: _form(node, forms, moves, sizes, bound),
    )
    return _moves(form, moves, sizes)


def _parts(node: sc.Scalar, bound: Mapping[sc.ScalarVar, sc.Scalar]) -> list[sc.Scalar]:
    match node:
        case sc.ScalarVar():
            return [bound[node]] if node in bound else []
        case sc.Add(left, right) | sc.Sub(left, right) | sc.Mul(left, right):
            return [left, right]
        case sc.FloorDiv(left, sc.Lit()) | sc.FloorMod(left, sc.Lit()):
            return [left]
        case sc.Ramp(base, _, _):
            return [base]
        case _:
            return []


def _form(
    node: sc.Scalar,
    forms: dict[sc.Scalar, Form],
    moves: dict[sc.Scalar, Moves],
    sizes: Sizes,
    bound: Mapping[sc.ScalarVar, sc.Scalar],
) -> Form:
    match node:
        case sc.Lit():
            return {}
        case sc.ScalarVar():
            if node in bound:
                return forms[bound[node]]
            if node in sizes:
                moves[node] = {node: Stride(1.0, sizes[node])}
            return {node: 1.0} if node in sizes else {}
        case sc.Add(left, right):
            return _sum(forms[left], forms[right], 1.0)
        case sc.Sub(left, right):
            return _sum(forms[left], forms[right], -1.0)
        case sc.Mul(sc.Lit(value, _), other) | sc.Mul(other, sc.Lit(value, _)):
            return {atom: value * factor for atom, factor in forms[other].items() if value}
        case sc.FloorDiv(left, sc.Lit(value, _)) if value > 0:
            moves[node] = {
                var: _divided(reach, float(value))
                for var, reach in _moves(forms[left], moves, sizes).items()
            }
        case sc.FloorMod(left, sc.Lit(value, _)) if value > 0:
            moves[node] = {
                var: Stride(reach.coefficient, min(reach.range, -(-value // reach.coefficient)))
                for var, reach in _moves(forms[left], moves, sizes).items()
                if reach.coefficient % value
            }
        case sc.Ramp(base, _, _):
            return forms[base]
        case _:
            inside = free_vars(node)
            moves[node] = {v: Stride(1.0, sizes[v]) for v in sizes if v in inside}
    return {node: 1.0}


def _divided(reach: Stride, by: float) -> Stride:
    if reach.coefficient >= by:
        return Stride(reach.coefficient // by, reach.range)
    return Stride(1.0, reach.coefficient * (reach.range - 1) // by + 1)


def _sum(one: Form, other: Form, sign: float) -> Form:
    found = dict(one)
    for atom, factor in other.items():
        found[atom] = found.get(atom, 0.0) + sign * factor
    return {atom: factor for atom, factor in found.items() if factor}


def _moves(form: Form, moves: dict[sc.Scalar, Moves], sizes: Sizes) -> Moves:
    """All terms of a sum together, by loop."""
    found: dict[sc.ScalarVar, tuple[float, float]] = {}
    for atom, factor in form.items():
        for var, reach in moves[atom].items():
            if reach.range > 1:
                span, count = found.get(var, (0.0, 1.0))
                wide = abs(factor) * reach.coefficient * (reach.range - 1)
                found[var] = span + wide, count * reach.range
    return {
        var: Stride(span / (count - 1), min(count, sizes[var]))
        for var, (span, count) in found.items()
    }
