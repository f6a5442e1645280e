"""Groups of panels: how many tiles of columns are copied together, from the caches of a machine.

>>> near = Machine(512, 32, (48 * 1024, 2048 * 1024))
>>> group_of(168, 24 * 1024, 8, near, near.near), group_of(167, 24 * 1024, 8, near, near.near)
(8, 1)
"""

from __future__ import annotations

from plica.schedule.default.machine import Machine

WIDE = 256
"""Columns that are copied at once, at most: by then rows are read as fast as they can be."""


EACH = 4
"""Groups for each core, at least, so that all of them end at about the same time."""


EMPTY = 1 / 64
"""Tiles without a column, of all: so few are worth groups that all have as many tiles."""


def panel_room(machine: Machine, weights: int, *, whole: bool) -> int:
    """Bytes of the panels of a group, at most, beside weights of so many bytes: those that do not
    stay in a cache come again for each group.  Panels that are copied as a `whole` are on no
    stack."""
    if whole:
        return machine.cache(2) // 2
    return machine.near if weights > machine.cache(2) // 2 else machine.panel


def group_of(tiles: int, panel: int, width: int, machine: Machine, room: int) -> int:
    """How many of so many tiles, each with a panel of so many bytes, go together in some room."""
    most = _most_tiles(tiles, panel, width, machine, room)
    return max(each for each in range(1, most + 1) if tiles % each == 0)


def tiles_in_groups(tiles: int, panel: int, width: int, machine: Machine, room: int) -> int:
    """So many tiles, or a few more that are empty, of which longer groups can be made.

    >>> near = Machine(512, 32, (48 * 1024, 2048 * 1024))
    >>> [tiles_in_groups(tiles, 24 * 1024, 8, near, near.near) for tiles in (167, 37)]
    [168, 37]
    """
    most = _most_tiles(tiles, panel, width, machine, room)
    for group in range(most, 1, -1):
        count = -(-tiles // group) * group
        if count - tiles <= EMPTY * tiles:
            return count
    return tiles


def _most_tiles(tiles: int, panel: int, width: int, machine: Machine, room: int) -> int:
    most = max(1, min(room // panel, WIDE // width))
    if machine.cores > 1:
        most = max(1, min(most, tiles // (EACH * machine.cores)))
    return most
