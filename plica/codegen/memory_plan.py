"""Memory plan: where the temporaries of a program lie in its workspace.

When each is needed is found along an order in which the steps might run; arranging them is left to
`plica.analysis.memory`.  An elementwise kernel may write its result over an input that dies.

>>> from plica.ir.type.dtype import f32
>>> from plica.codegen.program import Slot
>>> workspace_plan(Program((), (), (Slot("temporary", 0, (3,), f32),) * 2, ((),), 0, ())).offsets
((0, 0), (1, 64))
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Final, TypeAlias

from attrs import frozen

from plica.analysis.memory import Allocation, MemoryPlan, pack_arena
from plica.codegen.program import Choose, Chunks, Copy, Force, Launch, Program, Slot, Step
from plica.core import Memo, free_vars, post_order
from plica.ir.loop.scalar import Load, Max, Min, Scalar
from plica.ir.loop.statement import Bind, Kernel, Store

Interval: TypeAlias = tuple[int, int]  # the first and the last step at which a slot is needed

NONE: Final = -1  # what runs outside of every thunk


@frozen(slots=False)
class WorkspacePlan:
    """Where the temporaries lie in the workspace: pairs (slot, offset), and its size.

    Behind them is a byte for each thunk.  `memory` says when each is needed, in the same order.
    """

    offsets: tuple[tuple[int, int], ...]
    flags: int
    size: int
    memory: MemoryPlan

    @cached_property
    def where(self) -> Mapping[int, int]:
        """The offset of each temporary."""
        return dict(self.offsets)

    def over(self, launch: Launch, program: Program) -> int | None:
        """Which input of a launch lies where its result will, if one does."""
        *inputs, target = launch.args
        offsets = self.where
        if target not in offsets or not program.slots[target].bytes:
            return None
        for number, slot in enumerate(inputs):
            if program.slots[slot].bytes and offsets.get(slot) == offsets[target]:
                return number
        return None


MORE: Final = 2  # how much larger a workspace may be so that steps can run beside one another


def workspace_plan(program: Program, *, branches: bool = False) -> WorkspacePlan:
    """The temporaries arranged so that those never needed together share memory.

    With `branches`, steps that wait for nothing of one another may run at once: they share none.
    """
    steps, lives = lives_of(program)
    plan = _arranged(program, steps, lives)
    if branches and (longer := _beside(program, steps, lives)) != lives:
        wide = _arranged(program, steps, longer)
        return wide if wide.size <= MORE * plan.size else plan
    return plan


def _beside(
    program: Program, steps: Sequence[Step], lives: Mapping[int, Interval]
) -> Mapping[int, Interval]:
    """When temporaries are needed, up to the last step that does not wait for all who touch them.

    Of programs without choices; others are as they are.
    """
    if program.thunks or not all(isinstance(each, Launch | Copy) for each in steps):
        return lives
    users: dict[int, int] = {}  # the bits of the steps that touch a slot
    writers: dict[int, int] = {}  # and of those that write it
    before: list[int] = []  # the bits of the steps that a step waits for
    for number, step in enumerate(steps):
        args = step.args if isinstance(step, Launch) else (step.source, step.target)  # type: ignore[union-attr]  # a copy
        first = program.kernels[step.kernel].inputs if isinstance(step, Launch) else 1
        reached = 0
        for place, slot in enumerate(args):
            reached |= writers.get(slot, 0) if place < first else users.get(slot, 0)
        for slot, place in zip(args, range(len(args)), strict=True):
            users[slot] = users.get(slot, 0) | 1 << number
            if place >= first:
                writers[slot] = writers.get(slot, 0) | 1 << number
        for one in range(number):
            if reached >> one & 1:
                reached |= before[one]
        before.append(reached)
    found = dict(lives)
    for slot, (born, last) in lives.items():
        asked = users.get(slot, 0)
        free = [n for n in range(last + 1, len(steps)) if asked & ~before[n]]
        if steps and asked & ~(before[last] | 1 << last):  # nor is it written over by the last
            free.append(last + 1)
        found[slot] = born, max([last, *free])
    return found


def _arranged(
    program: Program, steps: Sequence[Step], lives: Mapping[int, Interval]
) -> WorkspacePlan:
    order = sorted(lives, key=lambda slot: (lives[slot], slot))
    numbers = {slot: number for number, slot in enumerate(order)}
    over = written_over(program, steps, lives, lambda new, old: new.bytes <= old.bytes)
    tenants = [
        Allocation(
            program.slots[slot].bytes,
            *lives[slot],
            in_place_of=numbers[over[slot]] if slot in over else None,
        )
        for slot in order
    ]
    memory = pack_arena(tenants)
    where = dict(zip(order, memory.offsets, strict=True))
    parts = [
        (slot, where[each.within] + each.offset)
        for slot, each in enumerate(program.slots)
        if each.space == "temporary" and each.within is not None
    ]
    offsets = tuple(sorted([*where.items(), *parts]))
    return WorkspacePlan(offsets, memory.size, memory.size + len(program.thunks), memory)


def written_over(
    program: Program,
    steps: Sequence[Step],
    lives: Mapping[int, Interval],
    fits: Callable[[Slot, Slot], bool],
) -> dict[int, int]:
    """For temporaries that are written over another: which one, read there for the last time."""
    found: dict[int, int] = {}
    taken: set[int] = set()
    for at, step in enumerate(steps):
        if not isinstance(step, Launch) or isinstance(step, Chunks) or step.calls:
            continue
        target = step.args[-1]
        for number in overwritable(program.kernels[step.kernel]):
            of = step.args[number]
            if (
                of in lives
                and of not in taken
                and [program.holder(arg) for arg in step.args].count(of) == 1
                and target in lives
                and lives[of][1] == at == lives[target][0]
                and fits(program.slots[target], program.slots[of])
            ):
                found[target] = of
                taken.add(of)
                break
    return found


def _may_repeat(of: Scalar) -> bool:
    """Whether a place may be the same in two turns of a loop."""
    return any(isinstance(node, Min | Max) for node in post_order(of))


OVERWRITABLE: Final[Memo[Kernel, tuple[int, ...]]] = Memo(512)
"""What was found of kernels, here or by the process that made them."""


def overwritable(kernel: Kernel) -> tuple[int, ...]:
    """The inputs whose every element is read only to make the element stored in its place."""
    return OVERWRITABLE.found(kernel, partial(_overwritable, kernel))


def _overwritable(kernel: Kernel) -> tuple[int, ...]:
    nodes = post_order(kernel.body)
    out = kernel.params[-1]
    stores = [node for node in nodes if isinstance(node, Store)]
    final = [store for store in stores if store.buffer is out]
    if len(kernel.params) != kernel.inputs + 1 or len(final) != 1:
        return ()
    (last,) = final
    places = {var for index in last.indices for var in free_vars(index)}
    named = [e.value for e in nodes if isinstance(e, Bind) and e.var in places]
    if any(map(_may_repeat, (*last.indices, *named))):
        return ()  # a tile that ends with the tensor makes some elements a second time
    size = out.shape, out.dtype.bytes
    elsewhere = {
        load.buffer
        for store in stores
        for term in (store.value, *store.indices)
        for load in post_order(term)
        if isinstance(load, Load) and (store is not last or load.indices != last.indices)
    }
    return tuple(
        [
            number
            for number, param in enumerate(kernel.params[: kernel.inputs])
            if (param.shape, param.dtype.bytes) == size and param not in elsewhere
        ]
    )


def lives_of(program: Program) -> tuple[list[Step], dict[int, Interval]]:
    """All steps in an order in which they might run, and when each temporary is needed.

    One branch of a choice stands behind the other.  A thunk stands where it is forced first, but
    it may run wherever it is forced, so all it touches is needed from the first to the last of
    these places.
    """
    order: list[Step] = []
    spans: dict[int, Interval] = {}  # when a thunk may run
    forced: list[tuple[int, int]] = []  # a thunk, and one that is forced while it runs
    touched: list[tuple[int, int, int]] = []  # slot, place, thunk
    stack: list[tuple[int, int, int]] = [(program.entry, 0, NONE)]
    while stack:
        region, place, thunk = stack.pop()
        steps = program.regions[region]
        if place == len(steps):
            continue
        stack.append((region, place + 1, thunk))
        step, at = steps[place], len(order)
        order.append(step)
        match step:
            case Launch(_, args, _):
                touched += [(slot, at, thunk) for slot in args]
            case Copy(source, target):
                touched += [(source, at, thunk), (target, at, thunk)]
            case Choose(condition, then, orelse):
                touched.append((condition, at, thunk))
                stack += [(orelse, 0, thunk), (then, 0, thunk)]
            case Force(inner):
                forced.append((thunk, inner))
                if inner in spans:
                    spans[inner] = spans[inner][0], at
                else:
                    spans[inner] = at, at
                    stack.append((program.thunks[inner], 0, inner))
    changed = True
    while changed:  # once, if a thunk has a greater number than those that force it
        changed = False
        for outer, inner in sorted(forced):
            if outer != NONE:
                whole = _hull(spans[outer], spans[inner])
                changed = changed or whole != spans[inner]
                spans[inner] = whole
    lives: dict[int, Interval] = {}
    for slot, at, thunk in touched:
        slot = program.holder(slot)  # who touches a part touches the whole
        if program.slots[slot].space == "temporary":
            here = (at, at) if thunk == NONE else _hull(spans[thunk], (at, at))
            lives[slot] = _hull(lives[slot], here) if slot in lives else here
    for slot, each in enumerate(program.slots):
        if each.space == "temporary" and each.within is None and slot not in lives:
            lives[slot] = (0, 0)  # nothing needs it, but it has a place
    return order, lives


def _hull(a: Interval, b: Interval) -> Interval:
    return min(a[0], b[0]), max(a[1], b[1])
