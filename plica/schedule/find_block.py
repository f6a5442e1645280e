"""Finding blocks again: which block of another program plays the part of one of ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

from plica.schedule.instruction import Scene
from plica.schedule.primitive.block import GetBlock, role_of
from plica.schedule.trace import Trace

Plan: TypeAlias = Mapping[int, int | None]
"""The block that each look-up at the beginning of a trace is to find."""

EQUAL: Final = 8
ALIKE: Final = 2


def plan(trace: Trace, scene: Scene) -> Plan:
    """The blocks for the look-ups before the first change of a program."""
    asked: dict[int, GetBlock] = {}
    for number, step in enumerate(trace.steps):
        if not step.instruction.pure:
            break
        if isinstance(step.instruction, GetBlock):
            asked[number] = step.instruction
    wanted = sorted({(each.number, each.role) for each in asked.values()})
    roles = roles_in(scene)
    best = [[0] * (len(roles) + 1) for _ in range(len(wanted) + 1)]
    for i in range(len(wanted) - 1, -1, -1):
        for j in range(len(roles) - 1, -1, -1):
            like = _likeness(wanted[i], j, roles[j])
            both = best[i + 1][j + 1] + like if like else 0
            best[i][j] = max(both, best[i + 1][j], best[i][j + 1])
    found: dict[tuple[int, str], int | None] = dict.fromkeys(wanted)
    i = j = 0
    while i < len(wanted) and j < len(roles):
        like = _likeness(wanted[i], j, roles[j])
        if like and best[i][j] == best[i + 1][j + 1] + like:
            found[wanted[i]] = j
            i, j = i + 1, j + 1
        elif best[i][j] == best[i][j + 1]:
            j += 1
        else:
            i += 1
    return {number: found[each.number, each.role] for number, each in asked.items()}


def counterpart(what: GetBlock, number: int, scene: Scene, blocks: Plan) -> GetBlock | None:
    """The look-up that corresponds to one in another program, or None."""
    roles = roles_in(scene)
    if number in blocks:
        place = blocks[number]
    else:
        near = sorted(range(len(roles)), key=lambda at: (abs(at - what.number), at))
        alike = [at for at in near if _likeness((what.number, what.role), at, roles[at])]
        equal = [at for at in alike if roles[at] == what.role]
        place = next(iter((*equal, *alike)), None)
    return None if place is None else GetBlock(place, roles[place])


def roles_in(scene: Scene) -> list[str]:
    """The roles of all blocks, in the order of the text."""
    return [role_of(site.node) for site in scene.map.blocks.values()]


def _likeness(wanted: tuple[int, str], number: int, role: str) -> int:
    own, text = wanted
    bonus = int(own == number)
    if text == role:
        return EQUAL + bonus
    same = all((mark in text) == (mark in role) for mark in ("+init", "r", "o", "q"))
    return ALIKE + bonus if same else 0
