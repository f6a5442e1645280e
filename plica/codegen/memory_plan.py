"""Placing: where the temporaries of a program lie in its workspace.

When each is needed is found along an order in which the steps might run; arranging them is left to
`plica.analysis.memory`.  An elementwise kernel may write its result over an input that dies.

>>> from plica.ir.type.dtype import f32
>>> from plica.codegen.program import Slot
>>> workspace_plan(Program((), (), (Slot("temporary", 0, (3,), f32),) * 2, ((),), 0, ())).offsets
((0, 0), (1, 64))
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Final, TypeAlias

from attrs import frozen

from plica.analysis.memory import Allocation, MemoryPlan, pack_arena
from plica.codegen.program import Choose, Chunks, Copy, Force, Launch, Program, Slot, Step
from plica.core.fold import post_order
from plica.ir.loop.scalar import Load
from plica.ir.loop.statement import Kernel, Store

Interval: TypeAlias = tuple[int, int]  # the first and the last step at which a slot is needed

NONE: Final = -1
"""What runs outside of every thunk."""


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


def workspace_plan(program: Program) -> WorkspacePlan:
    """The temporaries arranged so that those never needed together share memory."""
    steps, lives = lives_of(program)
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
    offsets = tuple(sorted(zip(order, memory.offsets, strict=True)))
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
                and step.args.count(of) == 1
                and target in lives
                and lives[of][1] == at == lives[target][0]
                and fits(program.slots[target], program.slots[of])
            ):
                found[target] = of
                taken.add(of)
                break
    return found


@lru_cache(maxsize=512)
def overwritable(kernel: Kernel) -> tuple[int, ...]:
    """The inputs whose every element is read only to make the element stored in its place."""
    nodes = post_order(kernel.body)
    out = kernel.params[-1]
    stores = [node for node in nodes if isinstance(node, Store)]
    final = [store for store in stores if store.buffer is out]
    if len(kernel.params) != kernel.inputs + 1 or len(final) != 1:
        return ()
    (last,) = final
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
            for number, each in enumerate(kernel.params[: kernel.inputs])
            if (each.shape, each.dtype.bytes) == size and each not in elsewhere
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
        if program.slots[slot].space == "temporary":
            here = (at, at) if thunk == NONE else _hull(spans[thunk], (at, at))
            lives[slot] = _hull(lives[slot], here) if slot in lives else here
    for slot, each in enumerate(program.slots):
        if each.space == "temporary" and slot not in lives:
            lives[slot] = (0, 0)  # nothing needs it, but it has a place
    return order, lives


def _hull(a: Interval, b: Interval) -> Interval:
    return min(a[0], b[0]), max(a[1], b[1])
