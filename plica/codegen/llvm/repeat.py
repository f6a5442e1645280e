"""The driver of loops: native code that runs the segments of a staged program's loop.

    i64 plica_repeat(i64 *frame)      code, registers, tables; 0, or what a segment said

>>> "define i64 @plica_repeat(" in text("x86_64-unknown-linux-gnu")
True
"""

from __future__ import annotations

from functools import lru_cache

from plica.codegen.llvm import toolchain
from plica.codegen.llvm.pool import llvm_text
from plica.codegen.target import Target
from plica.runtime.link import can_link
from plica.runtime.staged.loop_code import REPEAT


def text(triple: str) -> str:
    """The module of the driver, which is one function."""
    return f'target triple = "{triple}"\n' + llvm_text("repeat").replace("<REPEAT>", REPEAT)


@lru_cache(maxsize=8)
def repeat_object(target: Target) -> bytes:
    """The object file of the driver; empty if this process cannot run the target's code."""
    if not can_link() or target.triple != toolchain.host().triple:
        return b""
    return toolchain.emit(text(target.triple), target)
