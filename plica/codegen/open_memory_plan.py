"""Open placing: where the temporaries of a program lie whose sizes come with a call.

Temporaries of the same size, as a term over the dims, that are never needed together share a room.
How large the rooms are, and so where each begins, is computed when the program is called.

>>> from plica.codegen.program import Slot
>>> from plica.ir.type.dim import dim_var
>>> from plica.ir.type.dtype import f32
>>> n = dim_var("n")
>>> slots = (Slot("temporary", 0, (n, 3), f32),)
>>> made = plan_open_memory(Program((), (), slots, ((),), 0, (), dims=(n,)))
>>> len(made.rooms), made.where
(1, {0: 0})
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from attrs import field, frozen

from plica.codegen.memory_plan import WorkspacePlan, lives_of, written_over
from plica.codegen.program import Chunks, Launch, Program
from plica.ir.loop.scalar import Scalar
from plica.ir.type.dim import Key, polynomial


@frozen
class OpenPlan:
    """The bytes of each room, and the room of each temporary."""

    rooms: tuple[Scalar, ...]
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


def plan_open_memory(program: Program) -> OpenPlan:
    """The temporaries of a program in rooms."""
    steps, lives = lives_of(program)
    over = written_over(program, steps, lives, lambda new, old: _sort(new.size) == _sort(old.size))
    rooms: list[Scalar] = []
    ends: list[int] = []  # when the last that lives in a room is done with
    alike: dict[frozenset[tuple[Key, int]], list[int]] = {}
    where: dict[int, int] = {}
    for slot in sorted(lives, key=lambda each: (lives[each], each)):
        size = program.slots[slot].size
        born, last = lives[slot]
        room = where[over[slot]] if slot in over else None
        same = alike.setdefault(_sort(size), [])
        if room is None:
            room = next((each for each in same if ends[each] < born), None)
        if room is None:
            room = len(rooms)
            rooms.append(size)
            ends.append(last)
            same.append(room)
        where[slot] = room
        ends[room] = max(ends[room], last)
    return OpenPlan(tuple(rooms), where)


def _sort(of: Scalar) -> frozenset[tuple[Key, int]]:
    """A size, whatever the order it is written in."""
    return frozenset((key, count) for key, (_, count) in polynomial(of).items() if count)
