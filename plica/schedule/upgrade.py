"""Upgrade: traces that were written by older versions of the format, brought to the newest.

    UPGRADES[v - 1] makes a document of version v + 1 from one of version v

The version of the format is one more than the number of upgrades, so a change of the format is
one function appended here; those before it are never touched, and stored traces replay for ever.
A kind or a field that gets another name, or a default that gets another meaning, is such a
change; a new field with a default that means what was meant before is none.

>>> def renamed(step):
...     return {**step, "kind": "split"} if step["kind"] == "tile" else step
>>> upgraded([{"kind": "tile"}], 1, (each_step(renamed),))
[{'kind': 'split'}]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

# Any: what JSON holds, before it was looked at.
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
    """An upgrade that looks at one step at a time; what is no step stays, to be refused later."""

    def upgrade(steps: Steps) -> Steps:
        return [
            change(step) if isinstance(step, dict) and "kind" in step else step for step in steps
        ]

    return upgrade
