"""Kept: executables that are still in use somewhere in this process, by all that made them."""

from __future__ import annotations

from typing import Final
from weakref import WeakValueDictionary

from plica.runtime.executable import Executable

COMPILED: Final[WeakValueDictionary[object, Executable]] = WeakValueDictionary()
