"""Normalise: one trace for all those that the laws make equal.

- what is looked up and never used is not looked up, and nothing is looked up twice;
- a step that changes nothing, and two steps that undo one another, are none (`split` then `fuse`,
  `reorder` and back, `annotate` then `unannotate`);
- steps that commute stand in one order: as early as they may, by their identity.

Program-independent laws are applied without a program. Which steps may cancel each other is data,
the laws of `plica.schedule.law`. Other laws depend on the program (whether two steps commute
depends on their loop bodies), so they are tried on the given one. Law: `normalise(t, p)` replays on
`p` to the digest that `t` replays to.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

from plica.core import CompilerBug, Name, Term, digest, map_bottom_up
from plica.core.collector import paused
from plica.ir.loop.statement import Kernel
from plica.schedule.align import signatures
from plica.schedule.handle import Handle, Output
from plica.schedule.instruction import Instruction, Sampling
from plica.schedule.law import UNDOING
from plica.schedule.problem import Problem
from plica.schedule.replay import ReplayState, begin, kernel_of, scheduled, states, taken
from plica.schedule.trace import Program, Step, Trace, check_traces, handles

Spot: TypeAlias = tuple[str, int]
"""The name-independent object of a handle: the index of a loop or a block, or a number."""

MAX_ROUNDS: Final = 100


def normalise(trace: Trace, program: Program | None = None, kernel: str | None = None) -> Trace:
    """The trace in normal form; raises `ScheduleRefused` where it does not replay."""
    check_traces(trace)
    found = used(trace)
    if program is None:
        return found
    _, _, root = kernel_of(program, kernel)
    with paused():
        for _ in range(MAX_ROUNDS):
            before = found
            found = used(_without_detours(used(_asked_once(found, root)), root))
            found = _ordered(found, root)
            if found is before:
                break
        if digest(scheduled(found, root)) != digest(scheduled(trace, root)):
            raise CompilerBug("Normalising a trace changed the program that it makes.")
    return found


def used(trace: Trace) -> Trace:
    """The trace without look-ups and decisions that no other step uses."""
    needed: set[int] = set()
    kept: list[int] = []
    for number in range(len(trace) - 1, -1, -1):
        what = trace.steps[number].instruction
        if number in needed or not what.pure:
            kept.append(number)
            needed.update(handle.step for handle in handles(what))
    found = trace.only(tuple(reversed(kept)))
    assert found is not None  # whatever is needed was kept
    return found


def redirected(step: Step, table: Mapping[Handle, Handle]) -> Step:
    """The step with other handles."""

    def move(node: Term) -> Term:
        return table.get(node, node) if isinstance(node, Handle) else node

    moved = map_bottom_up(move, step.instruction)
    return Step(moved, step.decision)


def _asked_once(trace: Trace, root: Kernel) -> Trace:
    """The trace in which a look-up whose answer is known already is not made again."""
    known: dict[tuple[Instruction, tuple[Output, ...]], int] = {}
    table: dict[Handle, Handle] = {}
    steps: list[Step] = []
    for number, (step, state) in enumerate(zip(trace.steps, states(trace, root), strict=True)):
        step = redirected(step, table)
        steps.append(step)
        if not step.instruction.pure or isinstance(step.instruction, Sampling):
            continue
        mine = [output for output in state.outputs if output.step == number]
        mine.sort(key=lambda each: each.output)
        answer = tuple(state.outputs[handle] for handle in mine)
        first = known.setdefault((step.instruction, answer), number)
        if first != number:
            table |= {handle: Handle(first, handle.output, handle.sort) for handle in mine}
    return Trace(tuple(steps))


def _without_detours(trace: Trace, root: Kernel) -> Trace:
    """The trace without steps that change nothing and pairs that undo one another."""
    at = 0
    reached = [begin(root), *states(trace, root)]
    while at < len(trace):
        shorter = _dropped(trace, reached, at, at) or next(
            (
                less
                for late in range(at + 1, len(trace))
                if _may_undo(trace, at, late)
                and _commutes_down(trace, reached, late, at + 1)
                and (less := _dropped(trace, reached, at, late)) is not None
            ),
            None,
        )
        if shorter is None:
            at += 1
        else:
            trace, at = shorter, 0
            reached = [begin(root), *states(trace, root)]
    return trace


def _may_undo(trace: Trace, early: int, late: int) -> bool:
    first, second = trace.steps[early].instruction, trace.steps[late].instruction
    if (first.kind, second.kind) not in UNDOING:
        return False
    known = {handle for handle in handles(first) if handle.sort != "number"}
    targets = [handle for handle in handles(second) if handle.sort != "number"]
    return bool(targets) and all(target.step == early or target in known for target in targets)


def _dropped(trace: Trace, reached: list[ReplayState], early: int, late: int) -> Trace | None:
    """The trace without a step, or without two steps that cancel each other; None if they have an
    effect, or if a result has no replacement."""
    first = trace.steps[early]
    if first.instruction.pure or not handles(first.instruction):
        return None
    before = reached[early]
    after: ReplayState | Problem = reached[early + 1]
    if late != early:
        assert isinstance(after, ReplayState)
        after = taken(after, trace.steps[late])
    assert isinstance(
        after, ReplayState
    )  # it replays, at its place or before steps it commutes with
    if not _same(before, after, {}):
        return None
    gone = {early, late}
    old = {spot: handle for handle, spot in reversed(spots(before).items())}  # the first wins
    new = spots(after)
    # In `after`, the later of the two has the number after the first one's.
    made = {early: early, late: early + 1 if late != early else early}
    table: dict[Handle, Handle] = {}
    for number, step in enumerate(trace.steps):
        if number in gone:
            continue
        for handle in handles(step.instruction):
            if handle.step in gone and handle not in table:
                here = Handle(made[handle.step], handle.output, handle.sort)
                twin = old.get(new[here]) if here in new else None
                if twin is None:
                    return None
                table[handle] = twin
    rest = Trace(tuple(redirected(each, table) for each in trace.steps))
    return rest.only(tuple(n for n in range(len(trace)) if n not in gone))


def _ordered(trace: Trace, root: Kernel) -> Trace:
    """The lexicographic normal form: each step in turn moves before the first commuting one with a
    greater identity."""
    keys = [f"{signature.kind} {signature.identity}" for signature in signatures(trace)]
    reached = [begin(root), *states(trace, root)]
    for number in range(1, len(trace)):
        place = number
        here: ReplayState | None = None
        for at in range(number - 1, -1, -1):
            if (here := _swapped(trace, reached, number, at, here)) is None:
                break
            if keys[at] > keys[number]:
                place = at
        if place != number:
            trace = _moved(trace, number, place)
            keys.insert(place, keys.pop(number))
            state = reached[place]
            for later in range(place, number + 1):
                after = taken(state, trace.steps[later])
                assert isinstance(after, ReplayState)  # steps that commute
                state = reached[later + 1] = after
    return trace


def _commutes_down(trace: Trace, reached: list[ReplayState], number: int, place: int) -> bool:
    """Whether a step commutes with those before it, down to a place."""
    here: ReplayState | None = None
    for at in range(number - 1, place - 1, -1):
        if (here := _swapped(trace, reached, number, at, here)) is None:
            return False
    return True


def _swapped(
    trace: Trace, reached: list[ReplayState], number: int, at: int, here: ReplayState | None
) -> ReplayState | None:
    """The state after exchanging step `number` with step `at`, if both orders are equivalent;
    `here` is its result one place earlier."""
    moving, other = trace.steps[number], trace.steps[at]
    if any(handle.step == at for handle in handles(moving.instruction)):
        return None
    if isinstance(early := taken(reached[at], moving), Problem):
        return None
    if moving.instruction.pure and other.instruction.pure:
        return early
    late = taken(early, other)
    first = taken(reached[at + 1], moving) if here is None else here
    if isinstance(late, Problem) or isinstance(first, Problem):
        return None
    return early if _same(first, late, {at: at + 1, at + 1: at}) else None


def _moved(trace: Trace, number: int, place: int) -> Trace:
    order = [*range(place), number, *range(place, number), *range(number + 1, len(trace))]
    found = trace.only(tuple(order))
    assert found is not None  # all steps are there
    return found


def _same(a: ReplayState, b: ReplayState, swapped: Mapping[int, int]) -> bool:
    """Whether two states are equal up to names; steps of the one count as others of the other."""
    if a.kernel is not b.kernel and digest(a.kernel) != digest(b.kernel):
        return False
    here = {
        (swapped.get(handle.step, handle.step), handle.output): spot
        for handle, spot in spots(a).items()
    }
    there = {(handle.step, handle.output): spot for handle, spot in spots(b).items()}
    common = here.keys() & there.keys()
    return all(here[key] == there[key] for key in common) and (
        not swapped or len(common) == len(here) == len(there)
    )


def spots(state: ReplayState) -> dict[Handle, Spot]:
    """The objects of a state's handles, without those that are gone."""
    map_ = state.scene.map
    loops = {var: number for number, var in enumerate(map_.loops)}
    blocks = {label: number for number, label in enumerate(map_.blocks)}
    found: dict[Handle, Spot] = {}
    for handle in sorted(state.outputs, key=lambda each: (each.step, each.output)):
        if isinstance(output := state.outputs[handle], int):
            found[handle] = ("number", output)
        elif isinstance(output, Name):
            if output in blocks:
                found[handle] = ("block", blocks[output])
        elif output in loops:
            found[handle] = ("loop", loops[output])
    return found
