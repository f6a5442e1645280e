"""Matching: whether nests of a program implement a tensor intrinsic, and on which regions.

Not here: the use of a match (`plica.schedule.primitive.tensorize`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import combinations, permutations
from typing import Any, Final, TypeAlias

from attrs import evolve, frozen

from plica.analysis.enclosing import simple
from plica.analysis.reduction import reducer
from plica.core import Name, Term, free_vars, substitute
from plica.ir.loop import Kernel, Region, Store, scalar as sc
from plica.ir.loop.invocation import TensorIntrinsic
from plica.ir.type import i64, same_dim
from plica.runtime.late import lazy_imports
from plica.schedule.nest import Nest, nests_of

with lazy_imports(__name__):
    from plica.ir.text.show.name import IdentifierSupply
    from plica.ir.text.show.scalar import ScalarNames, ScalarPrinter

COMMUTATIVE: Final = (
    sc.Add, sc.Mul, sc.Min, sc.Max, sc.And, sc.Or, sc.BitAnd, sc.BitOr, sc.BitXor, sc.Eq, sc.Ne,
)  # fmt: skip
MAX_WAYS: Final = 16
MAX_STEPS: Final = 4_000  # how many ways of pairing the sides of operations are looked at

Values: TypeAlias = Mapping[Any, sc.Scalar]  # Any: variables, whichever class the caller has
Pairs: TypeAlias = "tuple[tuple[sc.Load, sc.Load], ...]"


@frozen(eq=False)
class IntrinsicMatch:
    """The values of an intrinsic's parameters and dims in a program."""

    regions: Mapping[Name, Region]
    sizes: Mapping[sc.ScalarVar, sc.Scalar]


@frozen
class MatchFailure:
    """Where a program differs from an intrinsic's meaning; `depth` is the extent of the
    agreement."""

    expected: str
    found: str
    depth: int = 0


@frozen(eq=False)
class Description:
    """The meaning of an intrinsic with names that no program has."""

    params: tuple[sc.Buffer, ...]
    shapes: Mapping[Name, tuple[sc.Scalar, ...]]
    dims: tuple[sc.ScalarVar, ...]
    nests: tuple[Nest, ...]


@lru_cache(maxsize=256)
def described(intrinsic: TensorIntrinsic) -> Description | str:
    """The meaning as nests, or what in it cannot be matched."""
    meaning: Kernel = intrinsic.meaning
    if isinstance(found := nests_of(meaning.body), str):
        return found
    dims = {dim: sc.ScalarVar(Name("a size", at), i64) for at, dim in enumerate(meaning.dims)}
    nests = []
    for nest in found:
        apart: dict[sc.ScalarVar, sc.ScalarVar] = dict(dims)
        for at, (var, _) in enumerate(nest.loops):
            apart[var] = sc.ScalarVar(Name("an iteration", at), i64)
        loops = tuple([(apart[var], _at(extent, apart)) for var, extent in nest.loops])
        nests.append(Nest(loops, substitute(nest.store, apart)))
    shapes = {
        param.name: tuple([_at(extent, dims) for extent in param.shape]) for param in meaning.params
    }
    return Description(meaning.params, shapes, tuple(dims.values()), tuple(nests))


def matched(nests: Sequence[Nest], of: Description) -> IntrinsicMatch | MatchFailure:
    """The parameters with which an intrinsic implements the nests."""
    if len(nests) != len(of.nests):
        return MatchFailure(f"{len(of.nests)} nests of loops", f"{len(nests)}")
    states = [IntrinsicMatch({}, {})]
    best = MatchFailure("the same computation", "another")
    for ours, theirs in zip(nests, of.nests, strict=True):
        after: list[IntrinsicMatch] = []
        for state in states:
            for match_ in _nest_matches(ours, theirs, of, state):
                if isinstance(match_, IntrinsicMatch):
                    after.append(match_)
                    if ours is nests[-1]:
                        break  # nothing that follows could rule it out
                elif match_.depth >= best.depth:
                    best = match_
        if not (states := after[:MAX_WAYS]):
            return best
    match = states[0]
    if missing := [param.name for param in of.params if param.name not in match.regions]:
        return MatchFailure(f"a use of {missing[0]}", "none")
    if any(dim not in match.sizes for dim in of.dims):
        return MatchFailure("a loop for each dim of the intrinsic", "none for one of them")
    return _apart(match, of) or match


def _apart(match: IntrinsicMatch, of: Description) -> MatchFailure | None:
    """A buffer that the intrinsic writes is none of its others."""
    stored = {nest.store.buffer.name for nest in of.nests}
    for one, two in permutations([param.name for param in of.params], 2):
        buffer = match.regions[one].buffer
        if one in stored and buffer is match.regions[two].buffer:
            expected = f"different buffers for {one} and {two}"
            return MatchFailure(expected, f"{buffer.name} stands for both")
    return None


def _nest_matches(
    ours: Nest, theirs: Nest, of: Description, state: IntrinsicMatch
) -> Iterator[IntrinsicMatch | MatchFailure]:
    if len(ours.loops) != len(theirs.loops):
        yield MatchFailure(_loops_text(theirs), _loops_text(ours), 1)
        return
    any_order = _in_any_order(theirs)  # then those that do the same may, too
    straight = tuple(range(len(ours.loops)))
    fitting = False
    for order in permutations(straight):
        loops = [ours.loops[at] for at in order]
        if (sizes := _sizes(loops, theirs.loops, state.sizes)) is None:
            continue
        fitting = True
        if order != straight and not any_order:
            yield MatchFailure("the same order of loops", "another, and it matters", 2)
            continue
        moved: dict[Term, sc.Scalar] = {
            var: there for (var, _), (there, _) in zip(loops, theirs.loops, strict=True)
        }
        here = evolve(state, sizes=sizes)
        yield from _store_matches(substitute(ours.store, moved), theirs, of, here)
    if not fitting:
        yield MatchFailure(_loops_text(theirs), _loops_text(ours), 2)


def _sizes(
    ours: Sequence[tuple[sc.ScalarVar, sc.Scalar]],
    theirs: Sequence[tuple[sc.ScalarVar, sc.Scalar]],
    known_sizes: Mapping[sc.ScalarVar, sc.Scalar],
) -> dict[sc.ScalarVar, sc.Scalar] | None:
    """The dims of an intrinsic for a pairing of loops, or None if extents differ."""
    sizes = dict(known_sizes)
    for (_, size), (_, wanted) in zip(ours, theirs, strict=True):
        if isinstance(wanted, sc.ScalarVar):
            sizes.setdefault(wanted, size)
    for (_, size), (_, wanted) in zip(ours, theirs, strict=True):
        if not same_dim(_at(wanted, sizes), size):
            return None
    return sizes


def _store_matches(
    ours: Store, theirs: Nest, of: Description, state: IntrinsicMatch
) -> Iterator[IntrinsicMatch | MatchFailure]:
    """The ways in which two stores in the same loops agree."""
    if ours.buffer.dtype is not theirs.store.buffer.dtype:
        yield _of_another_dtype(ours.buffer, theirs.store.buffer)
        return
    target = (
        sc.Load(ours.buffer, ours.indices),
        sc.Load(theirs.store.buffer, theirs.store.indices),
    )
    for pairs in _ways(ours.value, theirs.store.value):
        if isinstance(pairs, MatchFailure):
            yield pairs
            continue
        regions = dict(state.regions)
        wrong = None
        for pair in (target, *pairs):
            if (wrong := _placed(pair, theirs, of, state.sizes, regions)) is not None:
                break
        yield evolve(state, regions=regions) if wrong is None else wrong


def _ways(ours: sc.Scalar, theirs: sc.Scalar) -> Iterator[Pairs | MatchFailure]:
    """The ways to pair the elements that two values read; both sides of a sum are tried."""
    stack: list[tuple[tuple[tuple[sc.Scalar, sc.Scalar], ...], Pairs]] = [(((ours, theirs),), ())]
    steps = ways = 0
    while stack and steps < MAX_STEPS and ways < MAX_WAYS:
        steps += 1
        pending, found = stack.pop()
        if not pending:
            ways += 1
            yield found
            continue
        (a, b), rest = pending[0], pending[1:]
        if isinstance(a, sc.Load) and isinstance(b, sc.Load):
            if a.buffer.dtype is b.buffer.dtype:
                stack.append((rest, (*found, (a, b))))
            else:
                yield _of_another_dtype(a.buffer, b.buffer)
            continue
        if not _reads(a) and not _reads(b):
            if _same_value(a, b):
                stack.append((rest, found))
            else:
                yield _unlike(a, b, len(found))
            continue
        if (kids := _operands(a, b)) is None:
            yield _unlike(a, b, len(found))
            continue
        if isinstance(a, COMMUTATIVE):
            (left, right), (first, second) = zip(*kids, strict=True)
            stack.append((((left, second), (right, first), *rest), found))
        stack.append(((*kids, *rest), found))


def _operands(a: sc.Scalar, b: sc.Scalar) -> tuple[tuple[sc.Scalar, sc.Scalar], ...] | None:
    """The paired operands of two operations, or None if the operations differ."""
    if type(a) is not type(b) or isinstance(a, sc.Reduce | sc.Lit | sc.ScalarVar | sc.Load):
        return None
    pairs: list[tuple[sc.Scalar, sc.Scalar]] = []
    for name in type(a)._fields:
        one, two = getattr(a, name), getattr(b, name)
        if isinstance(one, sc.Scalar):
            pairs.append((one, two))
        elif isinstance(one, tuple) and any(isinstance(each, sc.Scalar) for each in one):
            if len(one) != len(two):
                return None
            pairs += zip(one, two, strict=True)
        elif one != two:
            return None
    return tuple(pairs)


def _same_value(a: sc.Scalar, b: sc.Scalar) -> bool:
    if a is b:
        return True
    return sc.dtype_of(a) is i64 and sc.dtype_of(b) is i64 and simple(a - b) is sc.index(0)


def _placed(
    pair: tuple[sc.Load, sc.Load],
    nest: Nest,
    of: Description,
    sizes: Mapping[sc.ScalarVar, sc.Scalar],
    regions: dict[Name, Region],
) -> MatchFailure | None:
    """Records the region of a parameter, or returns why there is none."""
    load, wanted = pair
    param, buffer = wanted.buffer, load.buffer
    depth = 10 + len(regions)
    if param.name not in of.shapes:
        return MatchFailure(f"a buffer for {param.name}, made inside the intrinsic", "none", depth)
    if param.scope not in ("global", buffer.scope):
        expected = f"{param.name} in the scope {param.scope}"
        return MatchFailure(expected, f"{buffer.name} in the scope {buffer.scope}", depth)
    old = regions.get(param.name)
    start: dict[Term, sc.Scalar] = {var: sc.index(0) for var, _ in nest.loops}
    bases = [_at(index, start) for index in load.indices]
    turns = [simple(index - base) for index, base in zip(load.indices, bases, strict=True)]
    theirs = [_at(index, sizes) for index in wanted.indices]
    their_bases = [_at(their, start) for their in theirs]
    their_turns = [simple(a - b) for a, b in zip(theirs, their_bases, strict=True)]
    zero, one = sc.index(0), sc.index(1)
    for places in combinations(range(len(turns)), len(their_turns)):
        if any(turns[at] is not turn for at, turn in zip(places, their_turns, strict=True)):
            continue
        if any(turn is not zero for at, turn in enumerate(turns) if at not in places):
            continue
        starts, extents = list(bases), [one] * len(bases)
        for at, base, extent in zip(places, their_bases, of.shapes[param.name], strict=True):
            starts[at] = simple(starts[at] - base)
            extents[at] = _at(extent, sizes)
        region = Region(buffer, tuple(starts), tuple(extents))
        if old is None or old is region:
            regions[param.name] = region
            return None
    expected = f"{_text(wanted)} at every turn of the loops"
    found = f"{_text(load)}" + ("" if old is None else f", beside another place of {buffer.name}")
    return MatchFailure(expected, found, depth)


def _in_any_order(nest: Nest) -> bool:
    """Whether the iterations of a nest may run in any order."""
    store = nest.store
    if store.buffer in free_vars(store.value):
        return reducer(store) is not None
    return all(var in store.indices for var, _ in nest.loops)


def _unlike(a: sc.Scalar, b: sc.Scalar, depth: int) -> MatchFailure:
    return MatchFailure(_text(b), _text(a), 3 + depth)


def _of_another_dtype(ours: sc.Buffer, theirs: sc.Buffer) -> MatchFailure:
    expected = f"{theirs.name} of {theirs.dtype}"
    return MatchFailure(expected, f"{ours.name} of {ours.dtype}", 9)


def _loops_text(nest: Nest) -> str:
    if not nest.loops:
        return "no loops"
    extents = sorted(_text(extent) for _, extent in nest.loops)
    return f"loops of {', '.join(extents)}"


def _text(term: sc.Scalar) -> str:
    _, (text,) = ScalarPrinter(ScalarNames(IdentifierSupply(()))).lines(
        [(term, None)], naming=False
    )
    short = text.replace("v_an_iteration", "i").replace("v_a_size", "n")
    return short if len(short) <= 60 else f"{short[:57]}..."


def _reads(term: sc.Scalar) -> bool:
    return any(isinstance(var, sc.Buffer) for var in free_vars(term))


def _at(term: sc.Scalar, values: Values) -> sc.Scalar:
    scalar = substitute(term, values) if values else term
    return simple(scalar)
