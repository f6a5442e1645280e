"""Block formats: weights of few bits as bytes, and what they mean as a term of the graph language.

A format defines the index space of a block, its bytes, its fields, and the value of a weight from
the fields, which broadcast over the space. Dequantisation is derived:

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

from attrs import field, frozen

from plica import op
from plica.ir.graph import Expr
from plica.ir.op import Mismatch
from plica.ir.type.dtype import f32
from plica.ir.type.term import tensor
from plica_lm.format.field import BitField, Field, index
from plica_lm.refusal import refusal

_WHOLE = "Give rows of whole blocks."


@frozen(eq=False)
class BlockFormat:
    """Rows of blocks of `size` bytes, each with the weights of an index space `shape`."""

    name: str
    shape: tuple[int, ...]
    size: int
    fields: Mapping[str, Field] = field(repr=False)
    value: Callable[..., Expr | tuple[Expr, ...]] = field(repr=False)
    """The weights from the fields, given by their names; several parts, each over an index space
    of two axes, follow one another."""

    def __attrs_post_init__(self) -> None:
        for name, each in self.fields.items():
            if isinstance(each, BitField):
                attrs = each.attributes(self.shape, self.size)
                found = op.bit_field.relation(attrs, tensor((self.size,), "u8"))
                if isinstance(found, Mismatch):
                    message = f"The field {name} of {self.name} is none: {found.message}"
                    raise refusal(found.code, message, found.expected or "a field of bits",
                                  found.found or name, "Correct the declaration.")  # fmt: skip

    @property
    def elements(self) -> int:
        """Weights of a block."""
        return math.prod(self.shape)

    def row_bytes(self, columns: int) -> int:
        """The bytes of a row; one that is no whole number of blocks is refused."""
        if columns % self.elements:
            message = f"Rows of {self.name} are whole blocks."
            expected = f"a multiple of {self.elements}"
            raise refusal("shape-conflict", message, expected, f"{columns} columns", _WHOLE)
        return columns // self.elements * self.size

    def columns(self, row_bytes: int) -> int:
        """The number of weights in a row of bytes."""
        if row_bytes % self.size:
            message = f"Rows of {self.name} are whole blocks."
            expected = f"a multiple of {self.size} bytes"
            raise refusal("shape-conflict", message, expected, f"{row_bytes} bytes", _WHOLE)
        return row_bytes // self.size * self.elements

    def decode(self, raw: Expr, lead: int = 1) -> Expr:
        """The weights (…, columns) as f32 of bytes (…, row bytes) after `lead` axes; sizes may be
        open."""
        found = {
            name: each.term(raw, self.shape, self.size)
            if isinstance(each, BitField)
            else index(each.axis, self.shape)
            for name, each in self.fields.items()
        }
        value = self.value(**found)
        parts = value if isinstance(value, tuple) else (value,)
        flat = [merged(part, lead + 1, 2 if len(parts) > 1 else len(self.shape)) for part in parts]
        whole = flat[0] if len(flat) == 1 else op.concat(tuple(flat), axis=-1)
        return merged(whole, lead, 2)


def real(x: Expr) -> Expr:
    """Integers as f32."""
    return op.cast(x, dtype=f32)


def merged(x: Expr, at: int, count: int) -> Expr:
    """A number of axes merged into one."""
    for _ in range(count - 1):
        x = op.reshape_codes(x, codes=(*[0] * at, -3, -2))
    return x
