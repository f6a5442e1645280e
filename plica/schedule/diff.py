"""Differences of traces: an aligned edit script in parts that stand alone.

    Edit ::= Keep(old, new) | Change(old, new, before, after) | Leave(old, before), Move(old, new)
           | Insert(new, after) | Delete(old, before)

`old` and `new` are step numbers of the two traces. A moved step is removed in one place and added
in another. A hunk is a set of mutually dependent edits: an inserted step with those that use its
results. Any subset of hunks gives a valid trace.

Laws: `apply(diff(a, b), a) is b`; `diff(a, a)` keeps every step.

>>> from plica.schedule.primitive import split
>>> from plica.schedule.spelling import spell
>>> found = Step(spell("block", number=0, role="s"))
>>> around = Step(spell("loops", block=Handle(0, 0, "block")))
>>> a = Trace((found, around, Step(split(Handle(1, 0, "loop"), (None, 4)))))
>>> b = Trace((found, around, Step(split(Handle(1, 0, "loop"), (None, 8)))))
>>> (hunk,) = diff(a, b).hunks
>>> [str(each) for each in hunk]
['~ 2 split: factors (None, 4) -> (None, 8)']
>>> print(diff(a, b))
hunk 0
~ 2 split: factors (None, 4) -> (None, 8)
>>> apply(diff(a, b), a) is b
True

Effects: what each hunk of a difference does to the program, and to its cost.

for hunk, effect in zip(difference.hunks, effects(difference, a, matmul)):
    print(effect.text)
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from difflib import unified_diff
from functools import lru_cache
from typing import Final, TypeAlias

from attrs import frozen

from plica.core import Malformed, Term, digest
from plica.ir.graph.module import Module
from plica.ir.loop.statement import Kernel
from plica.runtime.error import Diagnostic
from plica.runtime.late import lazy_imports
from plica.schedule.align import aligned, signatures
from plica.schedule.handle import Handle
from plica.schedule.problem import ScheduleRefused
from plica.schedule.replay import kernel_of, scheduled, with_kernel
from plica.schedule.spelling import spelled
from plica.schedule.trace import Program, Step, Trace, check_traces, handles, renumbered

with lazy_imports(__name__):
    from plica.ir.text.show.kernel import show_kernel


@frozen(eq=False)
class Keep(Term):
    """A step that is in both traces, at the same place among those that are."""

    old: int
    new: int

    def __str__(self) -> str:
        return f"  {self.new}"


@frozen(eq=False)
class Leave(Term):
    """The old place of a step that moves."""

    old: int
    before: Step

    def __str__(self) -> str:
        return f"< {self.old} {described(self.before)}"


@frozen(eq=False)
class MovedStep(Term):
    """The new place of a step that moves."""

    written = "schedule.diff.Move"

    old: int
    new: int
    after: Step

    def __str__(self) -> str:
        return f"> {self.new} {described(self.after)}, from {self.old}"


@frozen(eq=False)
class Change(Term):
    """A step with another decision, other attributes or another target."""

    old: int
    new: int
    before: Step
    after: Step

    def __str__(self) -> str:
        said = "; ".join(changes(self.before, self.after))
        where = f"{self.new}" if self.old == self.new else f"{self.new} (was {self.old})"
        return f"~ {where} {self.after.instruction.kind}: {said}"


@frozen(eq=False)
class Insert(Term):
    """A step that only the new trace has."""

    new: int
    after: Step

    def __str__(self) -> str:
        return f"+ {self.new} {described(self.after)}"


@frozen(eq=False)
class Delete(Term):
    """A step that only the old trace has."""

    old: int
    before: Step

    def __str__(self) -> str:
        return f"- {self.old} {described(self.before)}"


SAME: Final = "the traces are the same"

Edit: TypeAlias = Keep | Leave | MovedStep | Change | Insert | Delete


@frozen(eq=False)
class Difference(Term):
    """Edits in the order of the new trace; deletions are at the position of their step."""

    base: str  # the digest of the old trace
    edits: tuple[Edit, ...]

    @property
    def hunks(self) -> tuple[tuple[Edit, ...], ...]:
        """The edits that change something, those that need one another together."""
        return hunks_of(self)

    def __str__(self) -> str:
        lines = []
        for number, hunk in enumerate(self.hunks):
            lines += [f"hunk {number}", *map(str, hunk)]
        return "\n".join(lines) or SAME


def diff(a: Trace, b: Trace) -> Difference:
    """What makes `b` of `a`."""
    check_traces(a, b)
    pairs = dict(aligned(a, b))
    kept = {new: old for old, new in pairs.items()}
    place = _with_moves(a, b, pairs)
    moved = {new: old for old, new in place.items() if new not in kept}
    edits: list[Edit] = []
    old = 0
    for new, after in enumerate(b.steps):
        if new in kept:
            edits += _gone(a, range(old, kept[new]), place)
            old = kept[new] + 1
            before = a.steps[kept[new]]
            same = _renumbered(before, place) is after
            edits.append(Keep(kept[new], new) if same else Change(kept[new], new, before, after))
        elif new in moved:
            edits.append(MovedStep(moved[new], new, after))
        else:
            edits.append(Insert(new, after))
    edits += _gone(a, range(old, len(a)), place)
    return Difference(digest(a), tuple(edits))


def apply(difference: Difference, a: Trace, hunks: Collection[int] | None = None) -> Trace:
    """The trace with the edits made, or with those hunks of them; raises `Malformed` for a trace
    that the difference was not made from."""
    if digest(a) != difference.base:
        message = "The difference was made from another trace."
        hint = "Use merge to bring changes of one trace to another."
        raise Malformed(Diagnostic("other-trace", message, suggestion=hint))
    chosen = _chosen(difference, hunks)
    # Each step of the result is a step of either trace; its handles are found by where it is now.
    items: list[tuple[Step, bool]] = []
    old_at: dict[int, int] = {}
    new_at: dict[int, int] = {}
    stays: dict[int, int] = {}
    for edit in difference.edits:
        now, done = len(items), edit in chosen
        match edit:
            case Keep(old, new):
                old_at[old] = new_at[new] = now
                items.append((a.steps[old], True))
            case Change(old, new, before, after):
                old_at[old] = new_at[new] = now
                items.append((after, False) if done else (before, True))
            case MovedStep(old, new, after) if done:
                old_at[old] = new_at[new] = now
                items.append((after, False))
            case MovedStep(old, new, _):
                stays[new] = old
            case Leave(old, before) | Delete(old, before) if not done:
                old_at[old] = now
                items.append((before, True))
            case Insert(new, after) if done:
                new_at[new] = now
                items.append((after, False))
            case _:
                pass
    new_at |= {new: old_at[old] for new, old in stays.items()}
    steps = [renumbered(step, old_at if is_old else new_at) for step, is_old in items]
    return Trace(tuple(steps))


@lru_cache(maxsize=256)
def hunks_of(difference: Difference) -> tuple[tuple[Edit, ...], ...]:
    """The edits that change something in groups: each may be made without the others."""
    edits = [each for each in difference.edits if not isinstance(each, Keep)]
    group = list(range(len(edits)))

    def root(at: int) -> int:
        while group[at] != at:
            at = group[at]
        return at

    def join(one: int, other: int) -> None:
        low, high = sorted((root(one), root(other)))
        group[high] = low

    old: dict[int, int] = {}
    new: dict[int, int] = {}
    for at, edit in enumerate(edits):
        if isinstance(edit, Leave | Delete):
            old[edit.old] = at
        if isinstance(edit, Insert | MovedStep):
            new[edit.new] = at
    for at, edit in enumerate(edits):
        if isinstance(edit, MovedStep):
            join(at, old[edit.old])
        if isinstance(edit, Leave | Delete | Change):
            for handle in handles(edit.before.instruction):
                if handle.step in old:
                    join(at, old[handle.step])
        if isinstance(edit, Insert | MovedStep | Change):
            for handle in handles(edit.after.instruction):
                if handle.step in new:
                    join(at, new[handle.step])
    table: dict[int, list[Edit]] = {}
    for at, edit in enumerate(edits):
        table.setdefault(root(at), []).append(edit)
    return tuple(tuple(each) for each in table.values())


def _with_moves(a: Trace, b: Trace, pairs: dict[int, int]) -> dict[int, int]:
    """Where the steps of `a` are in `b`: those in order, and equal ones elsewhere."""
    left, right = signatures(a), signatures(b)
    taken = set(pairs.values())
    free: dict[str, list[int]] = {}
    for new in range(len(b) - 1, -1, -1):
        if new not in taken:
            free.setdefault(right[new].identity, []).append(new)
    moves: dict[int, int] = {}
    for old in range(len(a)):
        if old not in pairs and free.get(left[old].identity):
            moves[old] = free[left[old].identity].pop()
    while True:  # equal up to where their handles went: those that are not exactly so, stay apart
        place = pairs | moves
        wrong = [
            old
            for old, new in moves.items()
            if _renumbered(a.steps[old], place) is not b.steps[new]
        ]
        if not wrong:
            return place
        for old in wrong:
            del moves[old]


def _renumbered(step: Step, place: dict[int, int]) -> Step | None:
    known = all(handle.step in place for handle in handles(step.instruction))
    return renumbered(step, place) if known else None


def _gone(a: Trace, numbers: range, place: dict[int, int]) -> list[Edit]:
    return [
        Leave(old, a.steps[old]) if old in place else Delete(old, a.steps[old]) for old in numbers
    ]


def _chosen(difference: Difference, hunks: Collection[int] | None) -> frozenset[Edit]:
    groups = difference.hunks
    numbers = range(len(groups)) if hunks is None else hunks
    return frozenset(edit for number in numbers for edit in groups[number])


def described(step: Step) -> str:
    """A step in one line: `split loop 1.0 (None, 4)`."""
    kind, fields = spelled(step.instruction)
    words = " ".join(shown(field) for field in fields.values())
    decision = "" if step.decision is None else f" = {step.decision}"
    return f"{kind} {words}{decision}" if words else f"{kind}{decision}"


def shown(value: object) -> str:
    """A field of an instruction in a line for people."""
    if isinstance(value, Handle):
        return f"{value.sort} {value.step}.{value.output}"
    if isinstance(value, tuple) and any(isinstance(each, Handle) for each in value):
        return f"({', '.join(shown(each) for each in value)})"
    return repr(value)


def changes(before: Step, after: Step) -> tuple[str, ...]:
    """What differs between two steps of one kind: fields by name, and the decision."""
    (_, old), (_, new) = spelled(before.instruction), spelled(after.instruction)
    said = [
        f"{name} {shown(old[name])} -> {shown(new[name])}"
        for name in old
        if name in new and old[name] != new[name]
    ]
    if before.decision != after.decision:
        said.append(f"decision {before.decision} -> {after.decision}")
    return tuple(said)


@frozen
class Effect:
    """The program before and after a hunk as lines of a difference, and the cost of both."""

    lines: tuple[str, ...]
    refused: ScheduleRefused | None = None
    before: float | None = None
    after: float | None = None

    @property
    def text(self) -> str:
        """The effect as text."""
        if self.refused is not None:
            return f"refused: {self.refused}"
        return "\n".join(self.lines) or "the program stays the same"


def effects(
    difference: Difference,
    a: Trace,
    program: Program,
    kernel: str | None = None,
    cost: Callable[[Module], float | None] | None = None,
) -> tuple[Effect, ...]:
    """The effect of each hunk when they are made in order; `cost` may not know a program."""
    whole, name, found = kernel_of(program, kernel)

    def reached(trace: Trace) -> Kernel | ScheduleRefused:
        try:
            return scheduled(trace, found)
        except ScheduleRefused as refused:
            return refused

    def costs(of: Kernel | ScheduleRefused) -> float | None:
        if cost is None or not isinstance(of, Kernel):
            return None
        return cost(with_kernel(whole, name, of))

    result: list[Effect] = []
    before = reached(a)
    for count in range(1, len(difference.hunks) + 1):
        if isinstance(after := reached(apply(difference, a, range(count))), Kernel):
            old = _lines(before) if isinstance(before, Kernel) else []
            shown = unified_diff(old, _lines(after), "before", "after", lineterm="", n=2)
            result.append(Effect(tuple(shown), None, costs(before), costs(after)))
        else:
            result.append(Effect((), after, costs(before)))
        before = after
    return tuple(result)


def _lines(kernel: Kernel) -> list[str]:
    return show_kernel(kernel).splitlines()
