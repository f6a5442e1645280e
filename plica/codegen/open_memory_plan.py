"""Open placing: where the temporaries of a program lie whose sizes come with a call.

>>> from plica.codegen.program import Slot
>>> from plica.ir.type.dim import dim_var
>>> from plica.ir.type.dtype import f32
>>> n = dim_var("n")
>>> slots = (Slot("temporary", 0, (n, 3), f32),)
>>> made = plan_open_memory(Program((), (), slots, ((),), 0, (), dims=(n,)))
>>> len(made.arenas), made.where
(1, {0: 0})
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Final, TypeAlias

from attrs import field, frozen

from plica.codegen.memory_plan import WorkspacePlan, lives_of, written_over
from plica.codegen.program import Chunks, Launch, Program
from plica.core import Term
from plica.ir.loop.scalar import Max, Scalar, index
from plica.ir.type.dim import Key, evaluate, is_size, polynomial


@frozen
class OpenPlan:
    """The bytes of each arena, and the arena of each temporary."""

    arenas: tuple[Scalar, ...]
    where: Mapping[int, int] = field(eq=False)

    def over(self, launch: Launch, program: Program) -> int | None:
        """Which input of a launch lies where its result will, if one does."""
        *inputs, target = launch.args
        if target in self.where and not isinstance(launch, Chunks):
            for number, slot in enumerate(inputs):
                if self.where.get(slot) == self.where[target]:
                    return number
        return None


AnyPlan: TypeAlias = WorkspacePlan | OpenPlan
"""A plan for sizes that are known, or for those that are open."""


USUAL: Final = 64  # what dims may be, for all that is known: arenas are chosen to be small then


def plan_open_memory(program: Program) -> OpenPlan:
    """The temporaries of a program in arenas: the largest first, each in the smallest arena where
    all others come before or after it."""
    steps, lives = lives_of(program)
    over = written_over(program, steps, lives, lambda new, old: _sort(new.size) == _sort(old.size))
    first: dict[int, int] = {}  # of those that are written over one another, the first
    spans: dict[int, tuple[int, int]] = {}
    for slot in sorted(lives, key=lambda each: (lives[each], each)):
        first[slot] = owner = first[over[slot]] if slot in over else slot
        born, last = spans.get(owner, lives[slot])
        spans[owner] = min(born, lives[slot][0]), max(last, lives[slot][1])
    usual: dict[Term, int] = dict.fromkeys(program.dims, USUAL)
    sizes = {slot: program.slots[slot].size for slot in spans}
    bytes_of = {slot: evaluate(size, usual) or 0 for slot, size in sizes.items()}
    arenas: list[dict[frozenset[tuple[Key, int]], Scalar]] = []
    tenants: list[list[tuple[int, int]]] = []
    where: dict[int, int] = {}
    for slot in sorted(spans, key=lambda each: (-bytes_of[each], spans[each], each)):
        born, last = spans[slot]
        free = [
            arena
            for arena, others in enumerate(tenants)
            if all(end < born or last < start for start, end in others)
        ]
        if not free:
            free = [len(arenas)]
            arenas.append({})
            tenants.append([])
        arena = where[slot] = free[-1]  # arenas are the smaller the later they were made
        arenas[arena].setdefault(_sort(sizes[slot]), sizes[slot])
        tenants[arena].append((born, last))
    most = [reduce(Max, each.values()) for each in arenas]
    # A size in a branch that is not taken may be negative: it must not shrink the workspace.
    most = [scalar if is_size(scalar) else Max(scalar, index(0)) for scalar in most]
    return OpenPlan(tuple(most), {slot: where[owner] for slot, owner in first.items()})


def _sort(of: Scalar) -> frozenset[tuple[Key, int]]:
    """A size, whatever the order it is written in."""
    return frozenset((key, count) for key, (_, count) in polynomial(of).items() if count)
