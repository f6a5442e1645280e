"""Coverage: whether some writes together reach an element, whatever the point is.

An element is a tuple of index terms over the variables of a context: what one read looks at, or any
element of a box.  The loops around a write are solved for it (a guess), and that the guess is an
iteration of the write is a proof.  A guess may be wrong, a proof is not.

>>> from plica.ir.type.dim import dim_var
>>> from plica.analysis.index import EMPTY
>>> i, j, e = (dim_var(name) for name in "ije")
>>> even, odd = (Write((2 * i + at,), ((i, sc.index(8)),)) for at in (0, 1))
>>> reached([even, odd], (e,), EMPTY.loop(e, 16)), reached([even], (e,), EMPTY.loop(e, 16))
(True, False)
>>> front = Write((i,), ((i, sc.index(10)),))
>>> reached([front, Write((j + 10,), ((j, sc.index(6)),))], (e,), EMPTY.loop(e, 16))
True

Law: where `reached` is True, at every point of the context some write has an iteration at which its
guards hold and whose place is the element.

Coverage: whether a block reads, in an iteration, only what was written in the same iteration.

The writer's stores, over the loops inside the iteration, must together reach every element of the
box that is read (`plica.analysis.coverage`); where the writer has a predicate, it must hold for the
instance that writes an element inside the buffer.

>>> from plica.ir.type.dtype import f32
>>> from plica.ir.loop.statement import For, Kernel, Store, block, seq
>>> from plica.ir.loop.tensor import axis, buffer
>>> x, y, z = (buffer(name, (3,), f32) for name in "xyz")
>>> i, v, w = axis("i"), axis("v"), axis("w")
>>> one = block("y", (v,), (3,), "s", (i,), Store(y, (v,), x[v]))
>>> two = block("z", (w,), (3,), "s", (i,), Store(z, (w,), y[w]))
>>> kernel = Kernel((), (x, y, z), 1, For(i, x.shape[0], "serial", seq(one, two)))
>>> sites = map_of(kernel).blocks
>>> is_covered(sites[one.label], sites[two.label], kernel.body)
True
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import product
from math import prod
from typing import Final

from plica.analysis.access import Access, Inner, inside
from plica.analysis.enclosing import context_of, shown, simple
from plica.analysis.index import Context
from plica.analysis.index.count import ONE, ZERO
from plica.analysis.index.iteration import iteration_map
from plica.analysis.region import Box, boxes_under
from plica.analysis.site import Site, map_of
from plica.analysis.write import Loops, Places, Write, filled, joined
from plica.core import Name, Term, free_vars, substitute
from plica.ir.loop import scalar as sc
from plica.ir.loop.scalar import Le, Lt, Scalar, ScalarVar
from plica.ir.loop.statement import TRUE, Block, For
from plica.ir.type import dim_var, from_polynomial, i64, known, polynomial

__all__ = ["is_covered", "map_of", "reaches"]


def is_covered(writer: Site[Block], reader: Site[Block], shared: For) -> bool:
    """Whether, in each iteration of a common loop, the reader reads only what the writer wrote."""
    at = next(at for at, (stmt, _) in enumerate(reader.above) if stmt is shared)
    context = context_of(reader.above[: at + 1])
    around = {stmt.var for stmt, _ in reader.above[: at + 1] if isinstance(stmt, For)}
    guard = reader.node.predicate
    if guard is not TRUE and all(v in around for v in free_vars(guard) if isinstance(v, ScalarVar)):
        context = context.where(guard)  # it reads only where that holds
    reads, _ = boxes_under(reader, shared.var, context, guarded=True)
    variables = [loop.var for loop in writer.loops]
    first = variables.index(shared.var) + 1
    inner = tuple([(loop.var, loop.extent) for loop in writer.loops[first:]])
    written = {access.buffer for access in inside(writer.node) if access.written}
    return all(reaches(writer.node, inner, box, context) for box in reads if box.buffer in written)


@lru_cache(maxsize=1024)
def reaches(block: Block, inner: Inner, box: Box, context: Context) -> bool:
    """Whether a block is shown to write each element of a box, over all points of loops."""
    values: dict[Term, Scalar] = dict(zip(block.vars, block.bindings, strict=True))
    writes = [
        _write(each, values, inner, block.predicate)
        for each in inside(block)
        if each.written and each.buffer is box.buffer and each.certain and None not in each.starts
    ]
    if not writes:
        return False
    element: list[Scalar] = []
    said: list[Scalar] = []
    for number, (begin, extent, size) in enumerate(
        zip(box.starts, box.extents, box.buffer.shape, strict=True)
    ):
        is_one = known(extent) == 1  # fewer facts: a context keeps a limited number
        at, stop = begin if is_one else dim_var(Name("the element", number)), _stop(begin, extent)
        element.append(at)
        said += [Le(ZERO, at), Lt(at, size)]
        said += [] if is_one or begin is ZERO else [Le(begin, at)]
        said += [] if is_one or stop is size else [Lt(at, stop)]
    extents = [size for write in writes for _, size in write.loops]
    there = context.where(*_positive_dims(extents, context), *said)
    return reached(writes, tuple(element), there)


def _write(store: Access, values: dict[Term, Scalar], inner: Inner, predicate: Scalar) -> Write:
    """A store of a block in terms of loops."""
    loops = [*inner, *[(var, substitute(size, values)) for var, size in store.inner]]
    places: list[Scalar] = []
    for number, (start, extent) in enumerate(zip(store.starts, store.extents, strict=True)):
        assert start is not None
        place = substitute(start, values)
        if known(extent) != 1:
            offset = ScalarVar(Name("an offset", number), i64)
            loops.append((offset, substitute(extent, values)))
            place = place + offset
        places.append(place)
    return Write(tuple(places), tuple(loops), () if predicate is TRUE else (predicate,))


def _stop(start: Scalar, extent: Scalar) -> Scalar:
    """Where a side of a box ends."""
    return extent if start is ZERO else start + extent


def _positive_dims(extents: Iterable[Scalar], context: Context) -> list[Scalar]:
    """That dims are positive, or nothing is computed anyway."""
    ranged = {each.var for each in context.ranges}
    free = frozenset[Term]().union(*[free_vars(extent) for extent in extents])
    dims = [each for each in free if isinstance(each, ScalarVar) and each not in ranged]
    return [Le(ONE, var) for var in sorted(dims, key=lambda var: var.name)]


MAX_CASES: Final = 16  # proofs are made for this many cases, at most


def reached(writes: Sequence[Write], element: Places, context: Context) -> bool:
    """Whether some write reaches the element at every point of the context."""
    together = filled(joined(writes))
    if _reached_by_one(together, element, context):
        return True
    if together != writes and _reached_by_one(writes, element, context):
        return True
    return len(together) > 1 and (
        _reached_by_cases(together, element, context, [MAX_CASES])
        or _reached_at_numbers(together, element, context)
    )


def _reached_by_one(writes: Iterable[Write], element: Places, context: Context) -> bool:
    return any(
        all(proved(condition, context) for condition in _conditions(write, element, guess))
        for write in writes
        for guess in _guesses(write, element, context)
    )


def _reached_by_cases(
    writes: Sequence[Write], element: Places, context: Context, fuel: list[int]
) -> bool:
    """Whether one write reaches the element, or the others do wherever it may not."""
    fuel[0] -= 1
    if fuel[0] < 0:
        return False
    open_of = [_unproved(write, element, context) for write in writes]
    if any(scalars == () for scalars in open_of):
        return True
    number, cases = min(
        ((at, scalars) for at, scalars in enumerate(open_of) if scalars is not None),
        key=lambda each: len(each[1]), default=(0, None),
    )  # fmt: skip
    rest = [write for at, write in enumerate(writes) if at != number and open_of[at] is not None]
    if cases is None or not rest:
        return False
    return all(_reached_by_cases(rest, element, context.unless(case), fuel) for case in cases)


def _unproved(write: Write, element: Places, context: Context) -> tuple[sc.Scalar, ...] | None:
    """The unproved conditions under the best guess; None if the guess does not reach the
    element."""
    best: tuple[sc.Scalar, ...] | None = None
    for guess in _guesses(write, element, context):
        left: list[sc.Scalar] = []
        for condition in _conditions(write, element, guess):
            if proved(condition, context):
                continue
            if isinstance(condition, sc.Eq) or isinstance(simple(condition, context), sc.Lit):
                break
            left.append(condition)
        else:
            if best is None or len(left) < len(best):
                best = tuple(left)
    return best


def _reached_at_numbers(writes: Sequence[Write], element: Places, context: Context) -> bool:
    """Whether the element is reached at each point of the short loops that its place depends on."""
    free = frozenset[Term]().union(*[free_vars(scalar) for scalar in element])
    short: list[tuple[sc.ScalarVar, range]] = []
    for each in reversed(context.ranges):
        first, stop = known(each.start), known(each.stop)
        if each.var in free and first is not None and stop is not None:
            cases = prod([len(values) for _, values in short]) * (stop - first)
            if 0 < cases <= MAX_CASES:
                short.append((each.var, range(first, stop)))
    if not short:
        return False
    for numbers in product(*[values for _, values in short]):
        point: dict[Term, sc.Scalar] = {
            var: sc.Lit(number, i64) for (var, _), number in zip(short, numbers, strict=True)
        }
        here = Context(
            tuple([each for each in context.ranges if each.var not in point]),
            tuple([substitute(fact, point) for fact in context.facts]),
        )
        if not _reached_by_one(writes, tuple([substitute(term, point) for term in element]), here):
            return False
    return True


# --- guesses and what must hold for them ---------------------------------------------------------


def _guesses(write: Write, element: Places, context: Context) -> Iterator[Mapping[Term, sc.Scalar]]:
    """Iterations of a write that may be the one that writes the element."""
    found: dict[Term, sc.Scalar] = {}
    for place, wanted in zip(write.indices, element, strict=True):
        _solve(place, wanted, write.loops, found, context)
    yield found
    if len(found) < len(write.loops):
        yield _told(write, element, context)


def _conditions(
    write: Write, element: Places, guess: Mapping[Term, sc.Scalar]
) -> Iterator[sc.Scalar]:
    """What must hold for a guess to be an iteration that writes the element."""
    found: dict[Term, sc.Scalar] = {var: guess.get(var, sc.Lit(0, i64)) for var, _ in write.loops}
    for place, wanted in zip(write.indices, element, strict=True):
        yield sc.Eq(substitute(place, found), wanted)
    for var, extent in write.loops:
        yield sc.Le(sc.index(0), found[var])
        yield sc.Lt(found[var], substitute(extent, found))
    for guard in write.guards:
        yield substitute(guard, found)


def _solve(
    place: sc.Scalar,
    wanted: sc.Scalar,
    loops: Loops,
    found: dict[Term, sc.Scalar],
    context: Context,
) -> None:
    """Guesses the variables of an index `base + a * i + b * j …` as digits of the wanted index."""
    extents = dict(loops)
    rest = dict(polynomial(place))
    digits: list[tuple[int, sc.ScalarVar]] = []
    for key, (atoms, factor) in list(rest.items()):
        if len(atoms) == 1 and atoms[0] in extents and factor > 0:
            var = atoms[0]
            assert isinstance(var, sc.ScalarVar)
            digits.append((factor, var))
            del rest[key]
    if not digits:
        return
    target = wanted - from_polynomial(rest)
    # Of two variables with one factor, the one of extent 1 comes first: it is 0, and the other
    # takes the rest.
    digits.sort(key=lambda each: (each[0], known(extents[each[1]]) != 1))
    for at, (factor, var) in enumerate(digits):
        value = target if factor == 1 else target // factor
        if at + 1 < len(digits):
            value = value % extents[var]
        if var not in found:
            found[var] = simple(value, context)


def _told(write: Write, element: Places, context: Context) -> Mapping[Term, sc.Scalar]:
    """Guess all variables at once, from places such as `a * i + j // b` and `c * (j % b) + k`."""
    zero: dict[Term, sc.Scalar] = {var: sc.index(0) for var, _ in write.loops}
    begins = [substitute(place, zero) for place in write.indices]
    offsets = [
        simple(place - begin, context) for place, begin in zip(write.indices, begins, strict=True)
    ]
    free = frozenset[Term]().union(*[free_vars(offset) for offset in offsets])
    telling = tuple([loop for loop in write.loops if loop[0] in free])
    # How far the places reach does not matter for a guess.
    places = iteration_map(telling, tuple(offsets), tuple([sc.index(1)] * len(offsets)))
    values = [simple(w - b, context) for w, b in zip(element, begins, strict=True)]
    return dict(places.recovered(tuple(values)).items())


def proved(condition: sc.Scalar, context: Context) -> bool:
    if isinstance(condition, sc.Eq):
        if condition.left is condition.right:
            return True
    elif shown(condition, context, quick=True):
        return True
    if isinstance(said := simple(condition, context), sc.Lit):
        return bool(said.value)
    return shown(said, context)
