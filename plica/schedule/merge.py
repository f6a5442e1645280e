"""Merge: a three-way merge of schedule traces.

    merge(base, a, b, program) -> Trace | Conflicts

`a` and `b` are edits of `base`. The diff of each to `base` says which steps it kept, changed,
moved, deleted and inserted. A step changed by one side is taken from that side. Insertions of both
sides at one place follow each other, in an order that does not depend on which is `a`; equal ones
are taken once. Handles are renumbered, because a step refers to the results of earlier steps by
number. What both sides edit differently is a `Conflict`.

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

ConflictKind: TypeAlias = Literal[
    "changed-both", "deleted-and-changed", "moved-both", "same-target", "needs-deleted",
    "out-of-order", "illegal",
]  # fmt: skip

StepSource: TypeAlias = tuple[str, int]
"""Where a step of the result comes from: "base", "ours" or "theirs", and its number there."""


@frozen
class Conflict:
    """Two edits that cannot both be applied."""

    kind: ConflictKind
    step: int | None  # its number in the base, if the conflict is about a step of the base
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
    """All conflicts of a merge."""

    found: tuple[Conflict, ...]

    def __str__(self) -> str:
        return "\n".join(str(conflict) for conflict in self.found)


@frozen
class _Edits:
    """The edits of one side relative to the base; steps of the base are named by number."""

    name: str
    trace: Trace
    sources: dict[int, StepSource] = field(factory=dict)  # for each step of this trace
    changed: dict[int, int] = field(factory=dict)  # step of the base -> step of this trace
    deleted: set[int] = field(factory=set)
    moved: dict[int, int] = field(factory=dict)  # step of the base -> step it now precedes
    inserted: dict[int, list[StepSource]] = field(factory=dict)  # before each step of the base
    signatures: tuple[Signature, ...] = ()


def merge(
    base: Trace, a: Trace, b: Trace, program: Program | None = None, kernel: str | None = None
) -> Trace | Conflicts:
    """The trace with the edits of both sides, or the conflicts.

    With the program, the result is replayed, and an illegal step is a conflict. Without it only
    the traces are compared: a step of one side may be illegal after the edits of the other.
    """
    check_traces(base, a, b)
    whole = None if program is None else kernel_of(program, kernel)[2]
    ours, theirs = _edits("ours", base, a), _edits("theirs", base, b)
    swapped = _identity(ours) > _identity(theirs)  # the result does not depend on the order
    found, order = _merged(base, theirs, ours) if swapped else _merged(base, ours, theirs)
    if isinstance(found, Conflicts):
        return _swapped(found) if swapped else found
    if whole is None:
        return found
    try:
        scheduled(found, whole)
    except ScheduleRefused as refused:
        at = refused.step or 0
        return Conflicts((_illegal(order[at], found.steps[at], str(refused)),))
    return found


def _illegal(item: StepSource, step: Step, why: str) -> Conflict:
    """The conflict of a step that is illegal in the merged trace."""
    side, number = item
    mine, other = (step if side in (word, "base") else None for word in ("ours", "theirs"))
    return Conflict("illegal", number if side == "base" else None, mine, other, why)


def _identity(side: _Edits) -> str:
    return "".join(signature.identity for signature in side.signatures)


def _edits(name: str, base: Trace, trace: Trace) -> _Edits:
    side = _Edits(name, trace, signatures=signatures(trace))
    gap = 0
    for edit in diff(base, trace).edits:
        match edit:
            case Keep(old, new):
                side.sources[new] = ("base", old)
                gap = old + 1
            case Change(old, new, _, _):
                side.sources[new] = ("base", old)
                side.changed[old] = new
                gap = old + 1
            case MovedStep(old, new, _):
                side.sources[new] = ("base", old)
                side.moved[old] = gap
                side.inserted.setdefault(gap, []).append(("base", old))
            case Insert(new, _):
                side.sources[new] = (name, new)
                side.inserted.setdefault(gap, []).append((name, new))
            case Delete(old, _):
                side.deleted.add(old)
                gap = old + 1
            case Leave(old, _):
                gap = old + 1
    return side


def _merged(
    base: Trace, ours: _Edits, theirs: _Edits
) -> tuple[Trace | Conflicts, Sequence[StepSource]]:
    """The merged trace or the conflicts, and the source of each step."""
    conflicts = _conflicts_per_step(base, ours, theirs)
    same: dict[StepSource, StepSource] = {}  # equal insertions, theirs -> ours
    order: list[StepSource] = []
    absent = ours.deleted | theirs.deleted | ours.moved.keys() | theirs.moved.keys()
    for at in range(len(base) + 1):
        mine, other = ours.inserted.get(at, []), theirs.inserted.get(at, [])
        order += mine
        left = {ours.signatures[item[1]].identity: item for item in mine if item[0] == ours.name}
        for item in other:
            if item[0] == "base":
                if item not in mine:
                    order.append(item)
                continue
            if (twin := left.pop(theirs.signatures[item[1]].identity, None)) is None:
                order.append(item)
            else:
                same[item] = twin
        if at < len(base) and at not in absent:
            order.append(("base", at))
    conflicts += _conflicts_per_target(order, ours, theirs)
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
                conflicts.append(_needs("needs-deleted", item, step, ours.name, why))
            elif position[source] >= number:
                why = "A step comes before one that it needs."
                conflicts.append(_needs("out-of-order", item, step, ours.name, why))
            else:
                place[handle.step] = position[source]
        if len(place) == len({each.step for each in handles(step.instruction)}):
            steps.append(renumbered(step, place))
    return Conflicts(tuple(conflicts)) if conflicts else Trace(tuple(steps)), order


def _conflicts_per_step(base: Trace, ours: _Edits, theirs: _Edits) -> list[Conflict]:
    """Conflicts about steps of the base: changed, moved or deleted differently by both sides."""
    conflicts: list[Conflict] = []
    for at in range(len(base)):
        mine, other = _changed(at, ours), _changed(at, theirs)
        if mine is not None and other is not None:
            left, right = (side.signatures[side.changed[at]] for side in (ours, theirs))
            alike = left.identity == right.identity
            if not alike and _in_base(mine, ours) is not _in_base(other, theirs):
                why = "Both sides change the step, in different ways."
                conflicts.append(Conflict("changed-both", at, mine, other, why))
        elif (mine is not None and at in theirs.deleted) or (
            other is not None and at in ours.deleted
        ):
            why = "One side changes the step, the other takes it away."
            conflicts.append(Conflict("deleted-and-changed", at, mine, other, why))
        if at in ours.moved and (at in theirs.moved or at in theirs.deleted):
            if theirs.moved.get(at) != ours.moved[at]:
                step = base.steps[at]
                why = "One side moves the step, the other moves it elsewhere or takes it away."
                conflicts.append(Conflict("moved-both", at, step, step, why))
        elif at in theirs.moved and at in ours.deleted:
            step = base.steps[at]
            why = "One side moves the step, the other takes it away."
            conflicts.append(Conflict("moved-both", at, step, step, why))
    return conflicts


def _conflicts_per_target(order: list[StepSource], ours: _Edits, theirs: _Edits) -> list[Conflict]:
    """Conflicts of different insertions of one kind with one target in the base."""
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


def _target(step: Step, side: _Edits) -> tuple[Handle, ...] | None:
    """The blocks and loops a step is applied to, numbered as in the base; None if they are new."""
    found = []
    for handle in handles(step.instruction):
        origin, number = side.sources[handle.step]
        if handle.sort == "number":
            continue
        if origin != "base":
            return None
        found.append(Handle(number, handle.output, handle.sort))
    return tuple(found) or None


def _changed(at: int, side: _Edits) -> Step | None:
    return side.trace.steps[side.changed[at]] if at in side.changed else None


def _in_base(step: Step, side: _Edits) -> Step:
    """A step with its handles numbered as in the base, where they are of the base."""
    place = {n: o[1] if o[0] == "base" else -1 - o[1] for n, o in side.sources.items()}
    return renumbered(step, place)


def _step_of(
    item: StepSource, base: Trace, ours: _Edits, theirs: _Edits
) -> tuple[Step, dict[int, StepSource]]:
    """A step of the result, and the sources of the steps that its handles refer to."""
    name, number = item
    for side in (ours, theirs):
        if name == side.name:
            return side.trace.steps[number], side.sources
        if name == "base" and number in side.changed:
            return side.trace.steps[side.changed[number]], side.sources
    return base.steps[number], {each: ("base", each) for each in range(number)}


def _needs(kind: ConflictKind, item: StepSource, step: Step, ours: str, why: str) -> Conflict:
    at = item[1] if item[0] == "base" else None
    mine = item[0] in (ours, "base")
    return Conflict(kind, at, step if mine else None, None if mine else step, why)


def _swapped(conflicts: Conflicts) -> Conflicts:
    turned = [
        Conflict(each.kind, each.step, each.theirs, each.ours, each.why) for each in conflicts.found
    ]
    return Conflicts(tuple(turned))
