"""Boxes by the copy engine: tiles that are a box along each axis of a tensor, and may overhang it.

    for r, c in …:                                          tile_copy(&T[0], &map_x,
        T[r, c] = x[y + r // 8, z + r % 8, c]    -->                  0, z, y)
                  if 0 <= y + r // 8 < 50 and … else 0

Not here: tiles of matrices that are some panels one behind another (`tma`).

>>> from plica.analysis.index.context import EMPTY
>>> from plica.codegen.cuda.tma import SWIZZLED
>>> from plica.ir.loop.statement import For
>>> from plica.ir.loop.tensor import axis, buffer
>>> from plica.ir.type.dtype import f16
>>> x, r, k, b = buffer("x", (9, 20, 64), f16), axis("r"), axis("k"), axis("b")
>>> line, column = b * 2 + r // 16 - 1, r % 16
>>> tile = sc.Buffer(x.name, (sc.index(32), sc.index(64)), f16, SWIZZLED)
>>> inside = sc.And(sc.Le(sc.index(0), line), sc.Lt(line, sc.index(9)))
>>> value = sc.Select(inside, x[line, column, k], sc.Lit(0, f16))
>>> body = For(k, sc.index(64), "serial", Store(tile, (r, k), value))
>>> copy = For(r, sc.index(32), "serial", body)
>>> found = fetched(copy, EMPTY.loop(b, 5))
>>> found.extents, found.sizes
((64, 16, 2), (64, 20, 9))
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from plica.analysis.enclosing import simple
from plica.analysis.index.bounds import bounds
from plica.analysis.index.context import Context
from plica.codegen.cuda import tma
from plica.codegen.cuda.address import wide
from plica.codegen.emit.expression import linear
from plica.core import Term, free_vars, fresh, post_order, substitute
from plica.ir.loop import Stmt, Store, scalar as sc
from plica.ir.type import i64, known, polynomial

Sum: TypeAlias = dict[tuple[sc.Scalar, ...], int]  # products of terms with their coefficients


def fetched(nest: Stmt, around: Context) -> tma.TmaTile:
    """The tile that a nest copies: a box, or panels one behind another."""
    of = tma.copy_nest(nest)
    return _boxed(of, around) if _is_box(of) else tma.copied(of, around)


def _is_box(of: tma.CopyNest) -> bool:
    """Whether a tile may begin before a tensor, or is cut at parts of its loops."""
    below = [
        guard
        for guard in of.guards
        if isinstance(guard, sc.Lt | sc.Le) and known(guard.left) is not None
    ]
    return bool(_quotients(of) or below)


def _quotients(of: tma.CopyNest) -> list[sc.FloorDiv]:
    """Parts of loops that say where an element is."""
    every = post_order(*map(wide, of.load.indices))
    return [
        node
        for node in every
        if isinstance(node, sc.FloorDiv) and not free_vars(node).isdisjoint(of.loops)
    ]


def _boxed(of: tma.CopyNest, around: Context) -> tma.TmaTile:
    store, load = of.store, of.load
    loops, parts = _cut(of, around)
    inside = _inside(around, loops)

    def told(term: sc.Scalar) -> Sum:
        scalar = simple(substitute(wide(term), parts), inside)
        return {atoms: factor for atoms, factor in polynomial(scalar).values() if factor}

    to, places = told(linear(store.buffer, store.indices)), [told(index) for index in load.indices]
    axes, extents = _axes(store, to, places, loops)
    shape = [known(dim) or 0 for dim in load.buffer.shape]
    steps = [1]
    for length in reversed(shape[1:]):
        steps.insert(0, steps[0] * length)
    box, strides = tuple([extents[axis] for axis in axes]), tuple([steps[axis] for axis in axes])
    size = load.buffer.dtype.bytes
    plain = strides[0] == 1 and box[0] * size == tma.ROW and 1 < len(box) <= tma.DEEPEST
    if not plain or max(box) > tma.LONGEST or any(step * size % 16 for step in strides[1:]):
        raise tma.no_tile(store, f"a box of {box} with steps of {strides}")
    _check_ends(of, places, [told(_negative(guard, store)) for guard in of.guards], inside)
    begins = [tuple([item for item in places[axis].items() if not _is_loop(item[0], loops)])
              for axis in axes]  # fmt: skip
    atoms = [atom for begin in begins for scalars, _ in begin for atom in scalars]
    if any(not free_vars(atom).isdisjoint(loops) for atom in atoms):
        raise tma.no_tile(store, "places that are no multiples of loops")
    sizes = tuple([shape[axis] for axis in axes])
    return tma.TmaTile(store, load, tuple(of.loops), box, strides, sizes, tuple(begins))


def _negative(guard: sc.Scalar, store: Store) -> sc.Scalar:
    """A term that is negative where a guard holds."""
    match guard:
        case sc.Lt(left, right):
            return wide(left) - wide(right)
        case sc.Le(left, right):
            return wide(left) - wide(right) - 1
        case _:
            raise tma.no_tile(store, "a guard that is no bound")


def _is_loop(atoms: tuple[sc.Scalar, ...], loops: Mapping[sc.ScalarVar, int]) -> bool:
    return len(atoms) == 1 and atoms[0] in loops


def _cut(of: tma.CopyNest, around: Context) -> tuple[dict[sc.ScalarVar, int], dict[Term, Term]]:
    """Loops split in two where indices are quotients of them, and the original variables in terms
    of the parts."""
    loops, parts = dict(of.loops), dict[Term, Term]()
    used = {var.name for var in (*loops, *post_order(*of.load.indices))
            if isinstance(var, sc.ScalarVar)}  # fmt: skip
    while (found := _quotient(of, loops, parts, around)) is not None:
        var, step = found
        far = sc.ScalarVar(fresh(var.name, used), i64)
        near = sc.ScalarVar(fresh(var.name, {*used, far.name}), i64)
        used |= {far.name, near.name}
        whole: dict[Term, Term] = {var: far * step + near}
        parts = {one: substitute(other, whole) for one, other in parts.items()}
        if var in of.loops:
            parts |= whole
        loops = {**loops, far: loops[var] // step, near: step}
        del loops[var]
    return loops, parts


def _quotient(
    of: tma.CopyNest, loops: Mapping[sc.ScalarVar, int], parts: Mapping[Term, Term], around: Context
) -> tuple[sc.ScalarVar, int] | None:
    """A loop whose quotient occurs in an index, and the divisor."""
    inside = _inside(around, loops)
    for place in of.load.indices:
        for node in post_order(simple(substitute(wide(place), parts), inside)):
            match node:
                case sc.FloorDiv(sc.ScalarVar() as var, sc.Lit(int(step))):
                    if var in loops and 1 < step < loops[var] and loops[var] % step == 0:
                        return var, step
                case _:
                    pass
    return None


def _inside(around: Context, loops: Mapping[sc.ScalarVar, int]) -> Context:
    for var, extent in loops.items():
        around = around.loop(var, extent)
    return around


def _axes(
    store: Store, to: Sum, places: Sequence[Sum], loops: Mapping[sc.ScalarVar, int]
) -> tuple[list[int], list[int]]:
    """Axes of the tensor in the order of the tile's, and how long the box is along each."""
    axes, extents, dense = list[int](), [1] * len(places), 1
    several = [var for var, extent in loops.items() if extent > 1]
    for var in sorted(several, key=lambda var: to.get((var,), 0)):
        mine = [axis for axis, place in enumerate(places) if (var,) in place]
        if to.get((var,)) != dense or len(mine) != 1 or mine[0] in axes[:-1]:
            raise tma.no_tile(store, "places that are no box")
        (axis,) = mine
        if places[axis][var,] != extents[axis]:
            raise tma.no_tile(store, "places that are no box")
        axes += [axis] * (axis not in axes)
        extents[axis] *= loops[var]
        dense *= loops[var]
    return [*axes, *[axis for axis in range(len(places)) if axis not in axes]], extents


def _check_ends(
    of: tma.CopyNest, places: Sequence[Sum], guards: Sequence[Sum], inside: Context
) -> None:
    """Refuse a guard that is no end of an axis, and a place that may be outside without one."""
    for axis, (place, extent) in enumerate(zip(places, of.load.buffer.shape, strict=True)):
        size = known(extent) or 0
        low, high = bounds(_term(place), inside)
        below, above = _less(place, -1, -1), _less(place, size, 1)
        if (low is None or low < 0) and below not in guards:
            raise tma.no_tile(of.store, f"a place that may be before axis {axis}")
        if (high is None or high >= size) and above not in guards:
            raise tma.no_tile(of.store, f"a place that may be after axis {axis}")
        guards = [guard for guard in guards if guard not in (below, above)]
    if guards:
        raise tma.no_tile(of.store, "a guard that is no end of an axis")


def _less(of: Sum, size: int, sign: int) -> Sum:
    """A sum less a size, or the size less it."""
    found = {**of, (): of.get((), 0) - size}
    return {atoms: sign * factor for atoms, factor in found.items() if factor}


def _term(of: Sum) -> sc.Scalar:
    """The term of a sum."""
    scalar = sc.index(0)
    for atoms, factor in of.items():
        product: sc.Scalar = sc.index(factor)
        for atom in atoms:
            product = product * atom
        scalar = scalar + product
    return scalar
