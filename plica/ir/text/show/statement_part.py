"""Parts of statements in print: slices, annotations, and implicit parts of headers.

>>> keywords((("pipeline", (0, 1)), ("unroll", True)))
['pipeline=(0, 1)', 'unroll=True']
"""

from __future__ import annotations

import keyword
from collections.abc import Mapping
from typing import Final

from plica.core import free_vars
from plica.ir.loop.scalar import Add, Lit, Scalar, ScalarVar
from plica.ir.loop.statement import Annotations, Block, For, counted_in
from plica.ir.text.show.attribute import string_text, value_text
from plica.ir.text.show.type import TypePrinter
from plica.ir.text.word import BITS
from plica.ir.type import i64

ONE: Final = Lit(1, i64)
ZERO: Final = Lit(0, i64)


def is_plain(loop: For) -> bool:
    """Whether a loop is serial, with nothing said about it."""
    usual = loop.var.dtype is counted_in(loop.extent)
    return loop.kind == "serial" and not loop.annotations and usual


def is_short(block: Block, extents: Mapping[ScalarVar, Scalar]) -> bool:
    """Whether each variable of a block is just a loop around it, and the text can say so."""
    loops = [binding for binding in block.bindings if isinstance(binding, ScalarVar)]
    if not loops or len(loops) != len(block.vars) or len(set(loops)) != len(loops):
        return False
    if any(extents.get(a) is not e for a, e in zip(loops, block.extents, strict=True)):
        return False
    runs = [kind for i, kind in enumerate(block.kinds) if i == 0 or block.kinds[i - 1] != kind]
    if len(set(runs)) != len(runs):
        return False
    inside = (block.init, block.body, *block.reads, *block.writes)
    mine = set(block.vars)
    return not any(
        var in loops and var not in mine
        for part in inside
        if part is not None
        for var in free_vars(part)
    )


def stop(start: Scalar, extent: Scalar) -> Scalar:
    """The end of a slice; the reader recovers the extent from it."""
    if start is ZERO:
        return extent
    if isinstance(start, Lit) and isinstance(extent, Lit) and extent.dtype is start.dtype is i64:
        end = start.value + extent.value
        if end < 2**63 and end >= -(2**63):
            return Lit(end, i64)
    return Add(start, extent)


def slice_text(start: str, end: str, extent: Scalar, whole: bool) -> str:
    """A slice; a single element is an index unless `whole` holds."""
    if extent is ONE and not whole:
        return start
    return f"{start} : {end}" if " " in start or " " in end else f"{start}:{end}"


def keywords(annotations: Annotations) -> list[str]:
    """Annotations as keywords where all their keys can be, otherwise as a dict."""
    if all(key.isidentifier() and key.isascii() and _is_free(key) for key, _ in annotations):
        return [f"{key}={value_text(value, TypePrinter())}" for key, value in annotations]
    return [f"annotations={dict_text(annotations)}"]


def _is_free(key: str) -> bool:
    return key not in ("annotations", BITS) and not keyword.iskeyword(key)


def dict_text(annotations: Annotations) -> str:
    """Annotations as a dict."""
    inside = [
        f"{string_text(key)}: {value_text(value, TypePrinter())}" for key, value in annotations
    ]
    return f"{{{', '.join(inside)}}}"
