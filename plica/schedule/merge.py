"""Merge: combines two traces derived from a common one.

    merge(base, a, b, program)     a trace with the changes of both, or why they cannot both be made

Laws: the result replays on the program, or names a conflict; for traces that replay on it
`merge(base, a, base) is a`, `merge(base, a, a) is a`; `merge(base, a, b)` is `merge(base, b, a)`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from attrs import field, frozen

from plica.schedule.align import Signature, signatures
from plica.schedule.diff import Change, Delete, Insert, Keep, Leave, MovedStep, described, diff
from plica.schedule.handle import Handle
from plica.schedule.problem import ScheduleRefused
from plica.schedule.replay import kernel_of, scheduled
from plica.schedule.trace import Program, Step, Trace, check_traces, handles, renumbered

Meeting: TypeAlias = Literal["changed-both", "deleted-and-changed", "moved-both", "same-target",
                             "needs-deleted", "out-of-order", "illegal"]  # fmt: skip

Item: TypeAlias = tuple[str, int]
"""A step of the result: of the base, or made by one of the sides."""


@frozen
class Conflict:
    """Two changes that cannot both be made."""

    kind: Meeting
    step: int | None  # of the base, where it is about one
    ours: Step | None
    theirs: Step | None
    why: str

    def __str__(self) -> str:
        sides = [f"ours: {described(self.ours)}"] if self.ours is not None else []
        sides += [f"theirs: {described(self.theirs)}"] if self.theirs is not None else []
        where = "" if self.step is None else f"step {self.step}: "
        return "\n  ".join((f"{where}{self.why} [{self.kind}]", *sides))


@frozen
class Conflicts:
    """Why two traces cannot be merged."""

    found: tuple[Conflict, ...]

    def __str__(self) -> str:
        return "\n".join(str(each) for each in self.found)


@frozen
class _Side:
    """One trace relative to the base: what it did with each step, and what it inserted."""

    name: str
    trace: Trace
    origin: dict[int, Item] = field(factory=dict)  # of each of its steps
    changed: dict[int, int] = field(factory=dict)  # steps of the base, and which they are here
    deleted: set[int] = field(factory=set)
    moved: dict[int, int] = field(factory=dict)  # steps of the base, and the gap they went to
    gaps: dict[int, list[Item]] = field(factory=dict)  # what stands before a step of the base
    known: tuple[Signature, ...] = ()


def merge(
    base: Trace, a: Trace, b: Trace, program: Program | None = None, kernel: str | None = None
) -> Trace | Conflicts:
    """The trace with the changes of both, or the conflicts.

    With the program, the result is sure to replay on it.  Without it only conflicts that show in
    the traces are named: a step of one side may still be illegal after those of the other.
    """
    check_traces(base, a, b)
    whole = None if program is None else kernel_of(program, kernel)[2]
    ours, theirs = _side("ours", base, a), _side("theirs", base, b)
    turned = _key(ours) > _key(theirs)  # so that the order of the sides makes no difference
    found, order = _merged(base, theirs, ours) if turned else _merged(base, ours, theirs)
    if isinstance(found, Conflicts):
        return _swapped(found) if turned else found
    if whole is None:
        return found
    try:
        scheduled(found, whole)
    except ScheduleRefused as refused:
        at = refused.step or 0
        return Conflicts((_illegal(order[at], found.steps[at], str(refused)),))
    return found


def _illegal(item: Item, step: Step, why: str) -> Conflict:
    """A step of the merged trace is refused: of one side, or of the base after changes of both."""
    side, number = item
    mine, other = (step if side in (word, "base") else None for word in ("ours", "theirs"))
    return Conflict("illegal", number if side == "base" else None, mine, other, why)


def _key(side: _Side) -> str:
    return "".join(each.identity for each in side.known)


def _side(name: str, base: Trace, trace: Trace) -> _Side:
    side = _Side(name, trace, known=signatures(trace))
    gap = 0
    for edit in diff(base, trace).edits:
        match edit:
            case Keep(old, new):
                side.origin[new] = ("base", old)
                gap = old + 1
            case Change(old, new, _, _):
                side.origin[new] = ("base", old)
                side.changed[old] = new
                gap = old + 1
            case MovedStep(old, new, _):
                side.origin[new] = ("base", old)
                side.moved[old] = gap
                side.gaps.setdefault(gap, []).append(("base", old))
            case Insert(new, _):
                side.origin[new] = (name, new)
                side.gaps.setdefault(gap, []).append((name, new))
            case Delete(old, _):
                side.deleted.add(old)
                gap = old + 1
            case Leave(old, _):
                gap = old + 1
    return side


def _merged(base: Trace, ours: _Side, theirs: _Side) -> tuple[Trace | Conflicts, Sequence[Item]]:
    """The merged trace, and the origin of each of its steps."""
    found = _clashes(base, ours, theirs)
    same: dict[Item, Item] = {}  # what both made alike, theirs -> ours
    order: list[Item] = []
    gone = ours.deleted | theirs.deleted | ours.moved.keys() | theirs.moved.keys()
    for at in range(len(base) + 1):
        mine, other = ours.gaps.get(at, []), theirs.gaps.get(at, [])
        order += mine
        left = {ours.known[item[1]].identity: item for item in mine if item[0] == ours.name}
        for item in other:
            if item[0] == "base":
                if item not in mine:
                    order.append(item)
                continue
            if (twin := left.pop(theirs.known[item[1]].identity, None)) is None:
                order.append(item)
            else:
                same[item] = twin
        if at < len(base) and at not in gone:
            order.append(("base", at))
    found += _same_targets(order, ours, theirs)
    position = {item: number for number, item in enumerate(order)}
    steps: list[Step] = []
    for number, item in enumerate(order):
        step, origin = _step_of(item, base, ours, theirs)
        place: dict[int, int] = {}
        for handle in handles(step.instruction):
            source = origin.get(handle.step)
            source = same.get(source, source) if source is not None else None
            if source is None or source not in position:
                why = f"One side needs step {handle.step}, which the other takes away."
                found.append(_needs("needs-deleted", item, step, ours.name, why))
            elif position[source] >= number:
                why = "A step comes before one that it needs."
                found.append(_needs("out-of-order", item, step, ours.name, why))
            else:
                place[handle.step] = position[source]
        if len(place) == len({each.step for each in handles(step.instruction)}):
            steps.append(renumbered(step, place))
    return Conflicts(tuple(found)) if found else Trace(tuple(steps)), order


def _clashes(base: Trace, ours: _Side, theirs: _Side) -> list[Conflict]:
    found: list[Conflict] = []
    for at in range(len(base)):
        mine, other = _changed(at, ours), _changed(at, theirs)
        if mine is not None and other is not None:
            left, right = (side.known[side.changed[at]] for side in (ours, theirs))
            alike = left.identity == right.identity
            if not alike and _in_base(mine, ours) is not _in_base(other, theirs):
                why = "Both sides change the step, in different ways."
                found.append(Conflict("changed-both", at, mine, other, why))
        elif (mine is not None and at in theirs.deleted) or (
            other is not None and at in ours.deleted
        ):
            why = "One side changes the step, the other takes it away."
            found.append(Conflict("deleted-and-changed", at, mine, other, why))
        if at in ours.moved and (at in theirs.moved or at in theirs.deleted):
            if theirs.moved.get(at) != ours.moved[at]:
                step = base.steps[at]
                why = "One side moves the step, the other moves it elsewhere or takes it away."
                found.append(Conflict("moved-both", at, step, step, why))
        elif at in theirs.moved and at in ours.deleted:
            step = base.steps[at]
            why = "One side moves the step, the other takes it away."
            found.append(Conflict("moved-both", at, step, step, why))
    return found


def _same_targets(order: list[Item], ours: _Side, theirs: _Side) -> list[Conflict]:
    """Steps that both sides made, of one kind and with one target of the base, but not alike."""
    mine: dict[tuple[str, tuple[Handle, ...]], Step] = {}
    for side, number in order:
        if side == ours.name:
            step = ours.trace.steps[number]
            if (target := _target(step, ours)) is not None:
                mine[step.instruction.kind, target] = step
    found = []
    for side, number in order:
        if side == theirs.name:
            step = theirs.trace.steps[number]
            target = _target(step, theirs)
            other = None if target is None else mine.get((step.instruction.kind, target))
            if other is not None and not step.instruction.pure:
                why = "Both sides do this to the same target, in different ways."
                found.append(Conflict("same-target", None, other, step, why))
    return found


def _target(step: Step, side: _Side) -> tuple[Handle, ...] | None:
    """The target of a step in the numbering of the base, or None if it is not from there."""
    found = []
    for handle in handles(step.instruction):
        origin, number = side.origin[handle.step]
        if handle.sort == "number":
            continue
        if origin != "base":
            return None
        found.append(Handle(number, handle.output, handle.sort))
    return tuple(found) or None


def _changed(at: int, side: _Side) -> Step | None:
    return side.trace.steps[side.changed[at]] if at in side.changed else None


def _in_base(step: Step, side: _Side) -> Step:
    """A step with handles renumbered to the base where possible."""
    place = {n: o[1] if o[0] == "base" else -1 - o[1] for n, o in side.origin.items()}
    return renumbered(step, place)


def _step_of(item: Item, base: Trace, ours: _Side, theirs: _Side) -> tuple[Step, dict[int, Item]]:
    """A step of the result, and the origins of the steps its handles refer to."""
    name, number = item
    for side in (ours, theirs):
        if name == side.name:
            return side.trace.steps[number], side.origin
        if name == "base" and number in side.changed:
            return side.trace.steps[side.changed[number]], side.origin
    return base.steps[number], {each: ("base", each) for each in range(number)}


def _needs(kind: Meeting, item: Item, step: Step, ours: str, why: str) -> Conflict:
    at = item[1] if item[0] == "base" else None
    mine = item[0] in (ours, "base")
    return Conflict(kind, at, step if mine else None, None if mine else step, why)


def _swapped(conflicts: Conflicts) -> Conflicts:
    turned = [
        Conflict(each.kind, each.step, each.theirs, each.ours, each.why) for each in conflicts.found
    ]
    return Conflicts(tuple(turned))
