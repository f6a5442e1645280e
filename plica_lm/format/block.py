"""Block formats: weights of few bits as bytes, and what they mean as a term of the graph language.

A format says the index space of a block, how many bytes it takes, its fields, and the value of a
weight from the fields, which broadcast over the space.  Dequantisation is derived:

>>> from plica_lm.format.field import bits, floats
>>> from plica.ir.type.dtype import f16
>>> nibbles = BlockFormat("nibbles", (2, 16), 18, {"d": floats(f16, 0), "q": bits(4, 2, 4, 8)},
...                       lambda d, q: d * real(q - 8))
>>> nibbles.elements, nibbles.row_bytes(4096)
(32, 2304)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from attrs import field, frozen

from plica import op
from plica.ir.graph import Expr
from plica.ir.type.dtype import f32
from plica.runtime.error import Diagnostic, InputError
from plica_lm.format.field import Bits, Field, index


@frozen(eq=False)
class BlockFormat:
    """Rows of blocks of `size` bytes, each of which holds the weights of an index space `shape`."""

    name: str
    shape: tuple[int, ...]
    size: int
    fields: Mapping[str, Field] = field(repr=False)
    value: Callable[..., Expr] = field(repr=False)
    """The weights from the fields, given by their names."""

    def __attrs_post_init__(self) -> None:
        for name, each in self.fields.items():
            if isinstance(each, Bits):
                each.checked(f"{self.name}.{name}", self.shape, self.size)

    @property
    def elements(self) -> int:
        """Weights of a block."""
        return math.prod(self.shape)

    def row_bytes(self, columns: int) -> int:
        """The bytes of a row; one that is no whole number of blocks is refused."""
        if columns % self.elements:
            message = f"Rows of {self.name} are whole blocks."
            expected = f"a multiple of {self.elements}"
            raise InputError(Diagnostic("shape-conflict", message, None, expected, str(columns)))
        return columns // self.elements * self.size

    def columns(self, row_bytes: int) -> int:
        """The weights of a row of so many bytes."""
        if row_bytes % self.size:
            message = f"Rows of {self.name} are whole blocks."
            expected = f"a multiple of {self.size} bytes"
            raise InputError(Diagnostic("shape-conflict", message, None, expected, str(row_bytes)))
        return row_bytes // self.size * self.elements

    def decode(self, raw: Expr, lead: int = 1) -> Expr:
        """The weights (…, columns) as f32 of bytes (…, row bytes) after `lead` axes; sizes may be
        open."""
        blocks = op.reshape_codes(raw, codes=(*[0] * lead, -4, -1, self.size))
        found: dict[str, Any] = {}  # Any: expressions, by the names of the parameters
        for name, each in self.fields.items():
            if isinstance(each, Bits):
                found[name] = each.term(blocks, lead + 1, self.shape, self.size)
            else:
                found[name] = index(each.axis, self.shape)
        return merged(self.value(**found), lead, len(self.shape) + 1)


def real(x: Expr) -> Expr:
    """Integers as f32."""
    return op.cast(x, dtype=f32)


def merged(x: Expr, at: int, count: int) -> Expr:
    """So many axes from one on as one."""
    for _ in range(count - 1):
        x = op.reshape_codes(x, codes=(*[0] * at, -3, -2))
    return x
