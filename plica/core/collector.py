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
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused() -> Iterator[None]:
    """Inside, no cycles are collected; reference counting frees everything else as ever."""
    if not gc.isenabled():  # somebody outside has paused it, and will go on
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
