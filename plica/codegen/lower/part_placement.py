"""Placement of parts: values written directly into the memory of their concatenation.

    before                                    after
    a = conv(x, v)                            out[0:64] = conv(x, v)
    b = conv(x, w)                            out[64:128] = conv(x, w)
    out = concat(a, b)                        -- out is there already

A value is written in place if a kernel of this program produces it, and nothing else fixes its
place. Concatenations are visited from last to first, so a nested one has its place before its
parts; one whose parts are already adjacent elsewhere is placed there. Other parts are copied,
unless that is most of the concatenation: then one kernel computes it as usual. Slices of another
tensor are read in place.

>>> from plica.core.name import Name
>>> from plica.ir.graph.expression import Apply, Tuple, Var
>>> from plica.ir.type.term import tensor
>>> x = Var(Name("x"), tensor((1, 2, 4), "f32"))
>>> whole = Apply("concat", (Apply("exp", (x,)), Apply("sin", (x,))), (("axis", 1),))
>>> print(*placed(steps_below(whole), whole).notes)
concat of (1, 4, 4): 2 of 2 parts are written in place
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, TypeAlias

from attrs import evolve, field, frozen

from plica.codegen.lower.step import leaves, made_by, shown, steps_below
from plica.codegen.memory_plan import lives_of, workspace_plan
from plica.codegen.program import Launch, Program
from plica.ir.graph.expression import Apply, Call, Expr, If, Project, Var
from plica.ir.type import TensorType, static_shape, type_of
from plica.rewrite.fuse.adjacent import Piece, pieces, window
from plica.rewrite.fuse.reading import operator, parts, reading

__all__ = ["PartPlacement", "fitted", "placed", "steps_below"]


@frozen
class PartPlacement:
    """What joins tensors without a kernel, and where values lie that are parts of others.

    `homes` maps a value to the step whose memory holds it, and a byte offset; `ranges` maps a value
    read in place to its tensor and byte offset.
    """

    joins: Mapping[Expr, tuple[Piece, ...]] = field(factory=dict)
    homes: Mapping[Expr, tuple[Expr, int]] = field(factory=dict)
    ranges: Mapping[Expr, tuple[Expr, int]] = field(factory=dict)
    notes: tuple[str, ...] = ()


NOWHERE = PartPlacement()


def placed(
    order: Sequence[Expr], root: Expr, barred: Collection[Expr] = frozenset()
) -> PartPlacement:
    """The places of parts in a program of steps in topological order.

    `barred` values have their own memory.
    """
    if any(isinstance(step, If) for step in order):
        return NOWHERE  # what is not computed in one of the branches has no memory there
    outputs = {shown(leaf) for leaf in leaves(root)}
    foreign = set(_foreign(order))
    joins: dict[Expr, tuple[Piece, ...]] = {}
    homes: dict[Expr, tuple[Expr, int]] = {}
    lying = _Contents()
    notes: list[str] = []
    for step in reversed(order):
        found = _pieces(step)
        if not found:  # no join, or one of nothing
            continue
        args, size = parts(step) or (), _tensor(step).dtype.bytes
        given = [(shown(args[piece.operand]), piece.start * size) for piece in found]
        free = step not in homes and step not in outputs | foreign | set(barred)
        if free and (at := lying.of(given)):
            homes[step], joins[step] = at, found
            notes.append(f"{_word(step)}: lies in a longer one")
            continue
        counts = Counter(leaf for leaf, _ in given)
        why = [
            "would need its memory too soon" if leaf in barred
            else _obstacle(leaf, outputs, foreign, homes, counts)
            for leaf, _ in given
        ]  # fmt: skip
        spared = sum(piece.count for piece, no in zip(found, why, strict=True) if no is None)
        total = sum(piece.count for piece in found)
        notes.append(_note(step, why, joined=0 < spared >= total - spared))
        if not 0 < spared >= total - spared:
            continue
        joins[step] = found
        home, first = homes.get(step, (step, 0))
        for (leaf, offset), no in zip(given, why, strict=True):
            lying.add(leaf, home, first + offset)
            if no is None:
                homes[leaf] = home, first + offset
    skipped = outputs | foreign | joins.keys() | homes.keys() | set(barred)
    return PartPlacement(joins, homes, dict(_ranges(order, skipped)), tuple(reversed(notes)))


Build: TypeAlias = Callable[[frozenset[Expr] | None], tuple[Program, Mapping[Expr, int]]]
"""Makes a program in which some values, or none at all, are parts; says which slots parts have."""


def fitted(build: Build) -> Program:
    """A program with parts whose workspace is no larger than that of the same without.

    A concatenation occupies memory from its first part on. If that increases the peak, the first
    part of the largest concatenation live at the peak is copied instead, and so on.
    """
    program, parts_ = build(frozenset())
    if not parts_:
        return program
    without, _ = build(None)
    most = workspace_plan(without).size
    barred, seen = frozenset[Expr](), set[Expr]()
    for _ in range(MAX_ROUNDS):
        if workspace_plan(program).size <= most:
            return program
        found = _largest(program, parts_)
        again = any(leaf in seen for leaf, _ in found)  # its first part was not enough
        seen.update([leaf for leaf, _ in found])
        barred |= {leaf for leaf, at in found if again or at == found[0][1]}
        program, parts_ = build(barred)
    return evolve(without, joined=(TOO_LARGE,))


MAX_ROUNDS: Final = 12  # the maximum number of attempts to fit memory
TOO_LARGE: Final = "no part is written in place: that would take a larger workspace"


def _largest(program: Program, slots: Mapping[Expr, int]) -> list[tuple[Expr, int]]:
    """The parts of the largest memory live at the peak, in order, with the steps of their first
    use."""
    steps, lives = lives_of(program)
    top = max(range(len(steps)), key=partial(_needed, program, lives))
    first: dict[int, int] = {}
    for at, step in enumerate(steps):
        for slot in step.args if isinstance(step, Launch) else ():
            first.setdefault(slot, at)
    held: dict[int, list[tuple[Expr, int]]] = {}
    for leaf, slot in slots.items():
        if slot in first and program.holder(slot) in lives:
            held.setdefault(program.holder(slot), []).append((leaf, first[slot]))
    alive = [each for each in held if lives[each][0] <= top <= lives[each][1]] or list(held)
    if not alive:
        return []
    largest = max(alive, key=lambda slot: (program.slots[slot].bytes, slot))
    return sorted(held[largest], key=lambda pair: pair[1])


def _needed(program: Program, lives: Mapping[int, tuple[int, int]], at: int) -> int:
    """The bytes live at a step."""
    return sum(program.slots[slot].bytes for slot, (a, b) in lives.items() if a <= at <= b)


class _Contents:
    """The contents of concatenation memory."""

    def __init__(self) -> None:
        self.at: dict[tuple[Expr, int], Expr] = {}
        self.places: dict[Expr, list[tuple[Expr, int]]] = {}

    def add(self, leaf: Expr, home: Expr, offset: int) -> None:
        self.at[home, offset] = leaf
        self.places.setdefault(leaf, []).append((home, offset))

    def of(self, given: Sequence[tuple[Expr, int]]) -> tuple[Expr, int] | None:
        """Where tensors lie one after the other, at the given distances."""
        first, skipped = given[0]
        for home, offset in self.places.get(first, ()):
            start = offset - skipped
            if all(self.at.get((home, start + at)) is leaf for leaf, at in given):
                return home, start
        return None


def _pieces(step: Expr) -> tuple[Piece, ...] | None:
    of = reading(step) if isinstance(step, Apply | Project) else None
    return None if of is None or of.is_view else pieces(of)


def _tensor(step: Expr) -> TensorType:
    of = type_of(step)
    assert isinstance(of, TensorType)  # it has a tensor expression
    return of


def _foreign(order: Sequence[Expr]) -> Iterator[Expr]:
    """The inputs of user-written kernels, which may rely on alignment."""
    for step in order:
        if isinstance(step, Call) and isinstance(step.callee, Var):
            yield from (shown(leaf) for arg in step.args for leaf in leaves(arg))


def _obstacle(
    leaf: Expr,
    outputs: Collection[Expr],
    foreign: Collection[Expr],
    homes: Collection[Expr],
    counts: Mapping[Expr, int],
) -> str | None:
    """Why a tensor is not written where it is joined with others."""
    value = made_by(leaf)
    if value is None:
        return "is given"
    if leaf in outputs:
        return "is a result of the program"
    if leaf in foreign or (isinstance(value[0], Call) and isinstance(value[0].callee, Var)):
        return "belongs to a kernel that somebody wrote"
    if leaf in homes:
        return "lies elsewhere"
    return "comes twice" if counts[leaf] > 1 else None


def _ranges(
    order: Sequence[Expr], skipped: Collection[Expr]
) -> Iterator[tuple[Expr, tuple[Expr, int]]]:
    """The slices of other tensors."""
    for step in order:
        of = reading(step) if isinstance(step, Apply | Project) else None
        if of is None or of.is_view or step in skipped or (start := window(of)) is None:
            continue
        args = parts(step)
        assert args is not None
        yield step, (args[of.viewed], start * _tensor(step).dtype.bytes)


def _word(step: Expr) -> str:
    return f"{operator(step)} of {static_shape(_tensor(step))}"


def _note(step: Expr, why: Sequence[str | None], *, joined: bool) -> str:
    good = sum(each is None for each in why)
    rest = [f"part {number} {each}" for number, each in enumerate(why) if each is not None]
    if joined:
        said = f"{good} of {len(why)} parts are written in place"
        return f"{_word(step)}: {'; '.join([said, *[f'{each}: it is copied' for each in rest]])}"
    return f"{_word(step)}: one kernel copies all parts; {', '.join(rest)}"
