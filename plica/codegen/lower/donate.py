"""Donated inputs: a result that replaces an input is written over it, where it differs.

    out[i, j] = v[j] if i == p else x[i, j]
      -->  if 0 <= p < n: for j: out[p, j] = v[j]             out and x are one memory

So a cache of which a step changes one row is neither copied nor read in full. The input must have
no later readers: a refusal names them.

>>> from plica.ir.loop.stages import stages
>>> from plica.ir.loop.stage import stage
>>> from plica.ir.loop.tensor import buffer
>>> from plica.ir.type.dtype import f32, i64
>>> x, v, p = buffer("x", (8, 4), f32), buffer("v", (4,), f32), buffer("p", (), i64)
>>> last = stage("out", (8, 4), lambda i, j: Select(Eq(i, p[()]), v[j], x[i, j]))
>>> made = written_over_input(stages((x, v, p), (last,)), x)
>>> [str(each.name) for each in made.params], type(made.body).__name__
(['v', 'p', 'out'], 'Branch')
"""

from __future__ import annotations

from attrs import evolve

from plica.codegen.program import Choose, Copy, Launch, Program
from plica.core import free_vars, substitute
from plica.ir.loop.scalar import And, Buffer, Eq, Le, Load, Lt, Scalar, ScalarVar, Select, index
from plica.ir.loop.stage import Each, Scatter
from plica.ir.loop.stages import Stages, kernel_of, loads, stages
from plica.ir.loop.statement import NOTHING, Branch, For, Kernel, Stmt, Store
from plica.ir.type import known
from plica.runtime.error import Diagnostic, Place, UnsupportedError
from plica.runtime.late import lazy_imports
from plica.schedule.default.machine import Machine

with lazy_imports(__name__):
    from plica.codegen.lower.passes import lower
    from plica.schedule.default.choose import recorded
    from plica.schedule.default.scattered import scatter_schedule, scattered_form

__all__ = ["Eq", "check_donated", "refused_donation", "unsound", "with_unread",
           "written_over_input"]  # fmt: skip


def written_over_input(of: Stages, given: Buffer) -> Kernel | None:
    """The kernel that writes the differing part over an input, or None if there is none.

    The input is not a parameter of it: reads of it are served in place.
    """
    last = of.stages[-1]
    if len(of.stages) == 1 and isinstance(last, Each):
        body = _put(last, last.value, given, 0)
    else:
        body = _terms(of, given)
    if body == NOTHING or any(load.buffer is given for load in loads(body)):
        return None
    rest = tuple([buffer for buffer in of.inputs if buffer is not given])
    return Kernel(of.dims, (*rest, of.result), len(rest), body)


def _terms(of: Stages, given: Buffer) -> Stmt:
    """What puts terms at the places that they name, where every place begins as the input."""
    found = scattered_form(of)
    match None if found is None or len(found.stages) > 1 else found.stages[0]:
        case Scatter(out, axes, Load(buffer, indices) as first) as scatter if buffer is given:
            if not _is_own(indices, Each(out, axes, first)):
                return NOTHING
            kernel = kernel_of(stages(of.inputs, (evolve(scatter, first=None),)))
            schedule = scatter_schedule(kernel, Machine(512, 32))
            if schedule is None:
                return NOTHING
            return lower(recorded(schedule, kernel)[1]).body
        case _:
            return NOTHING


def _put(of: Each, value: Scalar, given: Buffer, depth: int) -> Stmt:
    """What stores a value inside of the first loops; choices are made as far out as they can."""
    bound, free = frozenset(of.axes[:depth]), frozenset(of.axes)
    match value:
        case Load(buffer, indices) if buffer is given and _is_own(indices, of):
            return NOTHING
        case Select(condition, then, orelse) if not (free_vars(condition) & free) - bound:
            yes, no = (_put(of, scalar, given, depth) for scalar in (then, orelse))
            return NOTHING if yes is no is NOTHING else Branch(condition, yes, no)
        case _ if depth < len(of.axes):
            axis: ScalarVar = of.axes[depth]
            inside = _put(of, value, given, depth + 1)
            if inside is NOTHING:
                return NOTHING
            return _at_one(inside, axis, of.out.shape[depth])
        case _:
            return Store(of.out, of.axes, value)


def _at_one(inside: Stmt, axis: ScalarVar, extent: Scalar) -> Stmt:
    """A loop over an axis, restricted to its only active index if there is one."""
    match inside:
        case Branch(Eq(left, right), then, orelse) if orelse is NOTHING:
            at = right if left is axis else left if right is axis else None
            if at is not None and axis not in free_vars(at):
                there = And(Le(index(0), at), Lt(at, extent))
                return Branch(there, substitute(then, {axis: at}), NOTHING)
    return For(axis, extent, "serial", inside)


def _is_own(indices: tuple[Scalar, ...], of: Each) -> bool:
    """Whether an element is read of the place it is for; an axis of length 1 has one place."""
    if len(indices) != len(of.axes):
        return False
    places = zip(indices, of.axes, of.out.shape, strict=True)
    return all(at is axis or known(size) == 1 for at, axis, size in places)


def with_unread(of: Program, names: tuple[str, ...], wanted: tuple[str, ...]) -> Program:
    """A program where donated inputs that nothing reads are the memory of a result of their type:
    all of their elements are replaced."""
    pairs = list(of.donated)
    for given, slot in enumerate(of.space("input")):
        if names[given] not in wanted or given in [old for old, _ in pairs]:
            continue
        if any(_reads(step, of.slots.index(slot), of) for steps in of.regions for step in steps):
            continue
        taken = [new for _, new in pairs]
        free = [
            new for new, each in enumerate(of.space("output"))
            if new not in taken and (each.shape, each.dtype) == (slot.shape, slot.dtype)
        ]  # fmt: skip
        pairs += [(given, new) for new in free[:1]]
    return of if len(pairs) == len(of.donated) else evolve(of, donated=tuple(pairs))


def check_donated(of: Program, names: tuple[str, ...], wanted: tuple[str, ...]) -> None:
    """Refuses a program that does not update its donated inputs in place.

    `names` are those of the inputs in order, `wanted` those that were donated.
    """
    done = {names[given]: (given, result) for given, result in of.donated}
    for name in wanted:
        if name not in done:
            raise refused_donation(name, "no result is the input with some elements replaced")
        if (why := _read_late(of, *done[name])) is not None:
            raise refused_donation(name, why)


def unsound(of: Program, names: tuple[str, ...], offered: tuple[str, ...]) -> set[str]:
    """Which of the inputs that may be written over are read once they were."""
    done = [(names[given], given, result) for given, result in of.donated]
    return {name for name, *pair in done if name in offered and _read_late(of, *pair) is not None}


def _read_late(of: Program, given: int, result: int) -> str | None:
    """Who reads an input when or after something was written over it, in words."""
    slots = {
        (slot.space, slot.index): at for at, slot in enumerate(of.slots) if slot.within is None
    }
    old, new = slots["input", given], slots["output", result]
    first, *others = (
        of.regions[of.entry],
        *[steps for at, steps in enumerate(of.regions) if at != of.entry],
    )
    written = False
    for step in first:
        written = written or (isinstance(step, Launch) and new in map(of.holder, step.args[-1:]))
        if written and _reads(step, old, of):
            return f"{_called(step)} reads it after it was updated"
    for steps in others:  # which run before or after, as it turns out
        for step in steps:
            if _reads(step, old, of):
                return f"{_called(step)} reads it inside of a branch"
    return None


def _reads(step: object, slot: int, of: Program) -> bool:
    """Whether a step reads a slot, or a part of it."""
    if isinstance(step, Launch):
        return slot in map(of.holder, step.args)
    if isinstance(step, Choose):
        return step.condition == slot
    return isinstance(step, Copy) and of.holder(step.source) == slot


def _called(step: object) -> str:
    return step.source if isinstance(step, Launch) else "an output"


def refused_donation(name: str, why: str) -> UnsupportedError:
    """The refusal of a donated input that is not updated in place."""
    message = f"The donated input {name!r} is not updated in place: {why}."
    expected = "a result of its type that replaces elements of it, computed when it is last read"
    hint = "Leave it out of `donate`, or compute the update before what else needs the old values."
    place = Place(node=name)
    return UnsupportedError(Diagnostic("unsupported", message, place, expected, None, hint))
