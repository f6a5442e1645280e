"""Gathering: writes a GPU array with strides, negative or zero ones included, contiguously.

>>> print(text((2, 3), (4, 8), 4).splitlines()[0])
.version 7.0
>>> is_dense((2, 3), (12, 4), 4), is_dense((2, 3), (4, 8), 4), is_dense((1, 3), (0, 4), 4)
(True, False, True)
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

THREADS: Final = 256
FUNCTION: Final = "gather"

_KINDS: Final = {1: ("u8", "rs"), 2: ("u16", "rs"), 4: ("u32", "r"), 8: ("u64", "rd")}
"""How elements of this many bytes are moved, and in which register."""


def is_dense(shape: Sequence[int], steps: Sequence[int], size: int) -> bool:
    """Whether elements lie one behind another; steps are in bytes, as `size` is."""
    expected = size
    for extent, step in zip(reversed(shape), reversed(steps), strict=True):
        if extent > 1 and step != expected:
            return prod(shape) == 0
        expected *= extent
    return True


def blocks(shape: Sequence[int]) -> int:
    """How many blocks of threads gather an array."""
    return max(1, -(-prod(shape) // THREADS))


def text(shape: Sequence[int], steps: Sequence[int], size: int) -> str:
    """PTX that reads from its first address and writes to its second, an element a thread."""
    moved, word = _KINDS[size]
    lines = [
        ".version 7.0",
        ".target sm_80",
        ".address_size 64",
        f".visible .entry {FUNCTION}(.param .u64 given, .param .u64 made)",
        "{",
        "    .reg .pred %p;",
        "    .reg .u16 %rs;",
        "    .reg .u32 %r, %block, %many, %thread;",
        "    .reg .u64 %rd, %from, %to, %number, %left, %digit, %at;",
        "    ld.param.u64 %from, [given];",
        "    ld.param.u64 %to, [made];",
        "    cvta.to.global.u64 %from, %from;",
        "    cvta.to.global.u64 %to, %to;",
        "    mov.u32 %block, %ctaid.x;",
        "    mov.u32 %many, %ntid.x;",
        "    mov.u32 %thread, %tid.x;",
        "    mul.wide.u32 %number, %block, %many;",
        "    cvt.u64.u32 %left, %thread;",
        "    add.u64 %number, %number, %left;",
        f"    setp.ge.u64 %p, %number, {prod(shape)};",
        "    @%p bra done;",
        "    mov.u64 %left, %number;",
    ]
    for extent, step in zip(reversed(shape), reversed(steps), strict=True):
        lines += [
            f"    rem.u64 %digit, %left, {extent};",
            f"    div.u64 %left, %left, {extent};",
            f"    mad.lo.s64 %from, %digit, {step}, %from;",
        ]
    lines += [
        f"    mad.lo.u64 %at, %number, {size}, %to;",
        f"    ld.global.{moved} %{word}, [%from];",
        f"    st.global.{moved} [%at], %{word};",
        "done:",
        "    ret;",
        "}",
        "",
    ]
    return "\n".join(lines)
