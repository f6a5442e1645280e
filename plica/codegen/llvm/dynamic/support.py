"""Support: objects with counts, their memory, and the stack, in LLVM's text.

    object    ::= i64 count, i64 meta, fields of 8 bytes       data
                | i64 count, i64 meta, ptr elements, elements  a tensor
    meta      ::= class | fields << 8 | tag << 32

An object of class `k` has `64 << k` bytes.  A count below 0 says that an object is not counted:
constants, inputs, and constructors without fields.  Free objects of a class are a list through
their first words; there is one state for each call, so nothing is locked.

Note [Freeing]: an object whose last owner goes drops its fields; those that go as well wait in a
list through their counts, so that long lists and deep trees take no stack.

Note [Stack]: routines run on a stack of the state, big enough for deep recursion, and look before
they go deeper.  The pointer of the stack is set as if it were being restored; memory of unknown
size on the stack makes LLVM refer to everything else by the frame, which does not move.

Note [Failing]: a routine that fails notes why and gives back null, and so does whoever called it.
Nothing is dropped on the way: the caller of the program gives all memory of the state back.
"""

from __future__ import annotations

from typing import Final

from plica.codegen.llvm.pool import llvm_text
from plica.runtime.dynamic import state

CELL: Final = 64  # bytes of the smallest object
SMALL: Final = 32  # elements of this many bytes are inside the smallest object
CHUNK: Final = 1 << 20
"""Bytes that are asked of the system at once; objects of more than a 32nd of it are alone."""


def class_of(size: int) -> int:
    """The class of objects of a given number of bytes.

    >>> class_of(16), class_of(64), class_of(65), class_of(1 << 20)
    (0, 0, 1, 14)
    """
    return max(0, (size - 1).bit_length() - 6)


def meta(size: int, fields: int = 0, tag: int = 0) -> int:
    """What an object says of itself."""
    return class_of(size) | fields << 8 | tag << 32


def tensor_size(elements: int) -> tuple[int, int]:
    """The bytes of a tensor's object, and where its elements begin in it.

    >>> tensor_size(4), tensor_size(256)
    ((36, 32), (320, 64))
    """
    start = SMALL if elements <= SMALL else CELL
    return start + elements, start


_JUMPS: Final = ("x86_64", "aarch64")
"""Where a call in tail position can be a jump, whatever it is given."""


def has_tail_calls(triple: str) -> bool:
    """Whether any call in tail position can be a jump there."""
    return triple.split("-", maxsplit=1)[0] in _JUMPS


def text() -> str:
    """Everything but the routines, which `plica.begin` calls."""
    found = llvm_text("support")
    words = {
        "RUN": state.RUN,
        "RELEASE": state.RELEASE,
        "RESET": state.RESET,
        "FULL": state.FULL,
        "CHUNK": CHUNK,
        "LARGE": CHUNK // 32,
        "CLASSES": state.CLASSES,
        "CLEARED": 8 * state.CLASSES,
        **{
            f"AT_{name}": 8 * getattr(state, name)
            for name in (
                "CODE", "LIVE", "LOWEST", "TOP", "BUMP", "BUMP_END", "CHUNKS", "HELD", "MOST",
                "FREE", "ARGS", "RESULTS",
            )
        },
    }  # fmt: skip
    for word, value in words.items():
        found = found.replace(f"<{word}>", str(value))
    return found
