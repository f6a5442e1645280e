"""Upgrade: traces that were written by older versions of the format, brought to the newest.

    UPGRADES[v - 1] makes a document of version v + 1 from one of version v

The format version is the number of upgrades plus one, so a change of the format is one function
appended here; earlier ones are never modified, and stored traces replay forever. Renaming a kind or
a field, or changing the meaning of a default, is such a change; a new field whose default preserves
the old meaning is not.

>>> def renamed(step):
...     return {**step, "kind": "split"} if step["kind"] == "tile" else step
>>> upgraded([{"kind": "tile"}], 1, (each_step(renamed),))
[{'kind': 'split'}]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

# Any: unvalidated JSON data.
Steps: TypeAlias = "list[Any]"
Upgrade: TypeAlias = Callable[[Steps], Steps]

UPGRADES: Final[tuple[Upgrade, ...]] = ()

VERSION: Final = 1 + len(UPGRADES)


def upgraded(steps: Steps, version: int, upgrades: tuple[Upgrade, ...] = UPGRADES) -> Steps:
    """The steps of a document of that version, in the newest."""
    for upgrade in upgrades[version - 1 :]:
        steps = upgrade(steps)
    return steps


def each_step(change: Callable[[dict[str, Any]], dict[str, Any]]) -> Upgrade:
    """An upgrade of single steps; other data is unchanged and refused later."""

    def upgrade(steps: Steps) -> Steps:
        return [
            change(step) if isinstance(step, dict) and "kind" in step else step for step in steps
        ]

    return upgrade
