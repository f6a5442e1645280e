"""Memory scopes as data: where a buffer lives, who can reach it, and how much fits.

A scope is a name with a capacity in bytes (None: no limit that matters) and a reach: all threads,
those of one block, those of one warp, or one thread alone.  Targets declare their own, such as the
scratch-pads of an accelerator, and everything that speaks of scopes knows them at once.

>>> scope("shared").reach
'block'
>>> declare_scope("doc.scratch", capacity=1 << 15, reach="all", parent="global").capacity
32768
>>> str(declare_scope("doc.scratch", capacity=1 << 15, reach="all", parent="global").name)
'doc.scratch'
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from attrs import frozen

from plica.core import IllFormed, did_you_mean, ill_formed
from plica.runtime.error import Diagnostic, Place, PlicaError

Reach: TypeAlias = Literal["all", "block", "warp", "thread"]
REACHES: Final[tuple[Reach, ...]] = ("all", "block", "warp", "thread")

WARP: Final = 32  # how many neighbouring threads of a block make a warp


class UnknownScope(PlicaError):
    """No memory scope has this name."""


@frozen
class MemoryScope:
    """A kind of memory; it is loaded from its parent."""

    name: str
    capacity: int | None
    reach: Reach
    parent: str | None


# fmt: off
_SCOPES: Final[dict[str, MemoryScope]] = {
    memory_scope.name: memory_scope
    for memory_scope in (
        MemoryScope("global", None,   "all",    None),
        MemoryScope("shared", None,   "block",  "global"),
        MemoryScope("shared.swizzled", None, "block", "global"),
        MemoryScope("warp",   None,   "warp",   "shared"),
        MemoryScope("local",  None,   "thread", "shared"),
    )
}
# fmt: on


def scope(name: str) -> MemoryScope:
    """The scope of a name; raises for undeclared names."""
    if (memory_scope := _SCOPES.get(name)) is None:
        raise UnknownScope(unknown_scope(name))
    return memory_scope


def unknown_scope(name: str) -> Diagnostic:
    """The diagnostic for an undeclared scope."""
    return Diagnostic(
        "unknown-scope",
        f"There is no memory scope {name!r}.",
        None,
        f"one of {', '.join(_SCOPES)}",
        name,
        did_you_mean(name, _SCOPES) or "Declare it with plica.ir.loop.memory_scope.declare_scope.",
    )


def is_scope(name: str) -> bool:
    """Whether a scope is declared."""
    return name in _SCOPES


def scopes() -> tuple[MemoryScope, ...]:
    """All scopes, in the order they were declared."""
    return tuple(_SCOPES.values())


def declare_scope(
    name: str, capacity: int | None = None, reach: Reach = "all", parent: str = "global"
) -> MemoryScope:
    """A scope of a target; saying the same twice is fine, saying another thing is refused."""
    if not name or not all(part.isidentifier() for part in name.split(".")):
        raise ill_formed(f"A memory scope is a word or words with dots between, not {name!r}.")
    if capacity is not None and capacity < 0:
        raise ill_formed(f"The memory scope {name!r} holds at least 0 bytes, not {capacity}.")
    if reach not in REACHES:
        raise ill_formed(f"A memory scope is reached by one of {REACHES}, not {reach!r}.")
    scope(parent)
    new = MemoryScope(name, capacity, reach, parent)
    if _SCOPES.setdefault(name, new) != new:
        message = f"The memory scope {name!r} is declared already, and differently."
        hint = "Give it, or its machine, a name of its own."
        place, old = Place(node=name), _SCOPES[name]
        raise IllFormed.of("ill-formed-term", message, place, _shown(old), _shown(new), hint)
    return new


def _shown(of: MemoryScope) -> str:
    size = "any number of" if of.capacity is None else str(of.capacity)
    return f"{size} bytes, reached by {of.reach}, in {of.parent}"
