"""The collector: Python's cyclic garbage collector, paused while many terms are built.

Terms refer only to older terms, so they form no cycles; tracing a million of them again and again
finds nothing and costs half the time of a large rewrite.

>>> import gc
>>> with paused():
...     gc.isenabled()
False
>>> gc.isenabled()
True
"""

from __future__ import annotations

import gc
from typing import Final

_frozen: Final[list[int]] = []
"""How many objects were once found frozen: Python counts them one by one, so once is enough."""


def age() -> None:
    """Moves all live objects to the oldest generation, so the next young collection skips them.

    Without this, a collection after a pause that allocated millions of objects would cost what the
    pause saved. If the caller has frozen objects, nothing is done, because they would be thawed.
    """
    if _frozen:
        return
    if count := gc.get_freeze_count():
        _frozen.append(count)
    else:
        gc.freeze()
        gc.unfreeze()


class paused:  # read as a word: `with paused():`
    """Inside, no cycles are collected; reference counting frees everything else as ever.

    A class, since a generator would cost more than a walk over a small term.
    """

    __slots__ = ("_outer",)

    def __enter__(self) -> None:
        self._outer = gc.isenabled()  # if not, somebody outside has paused it, and will go on
        gc.disable()

    def __exit__(self, *exception: object) -> None:
        if self._outer:
            gc.enable()
