"""Formats of quantised weights, each a declaration from which everything else is derived.

`FORMATS` holds them by name. Packages add theirs by entry points in `plica_lm.formats`:

    [project.entry-points."plica_lm.formats"]
    acme4 = "acme.formats:ACME4"

>>> FORMATS["Q4_K"].row_bytes(4096)
2304
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from plica.core.extension import ExtensionGroup
from plica_lm.format import ggml, grid
from plica_lm.format.block import BlockFormat
from plica_lm.format.field import Axis, BitField, bits, floats, i8s

__all__ = ["FORMATS", "Axis", "BitField", "BlockFormat", "bits", "floats", "i8s"]

OFFERED: Final = ExtensionGroup(
    "plica_lm.formats", "weight format", BlockFormat,
    {name: f"{module.__name__}:{name}"
     for module in (ggml, grid)
     for name, each in vars(module).items() if isinstance(each, BlockFormat)},
    named=lambda each: each.name,
)  # fmt: skip


class _Formats(Mapping[str, BlockFormat]):
    """Formats by name; an unknown name is refused with the most similar one."""

    def __getitem__(self, name: str) -> BlockFormat:
        return OFFERED.load(name)

    def __contains__(self, name: object) -> bool:
        return name in OFFERED.points()

    def __iter__(self) -> Iterator[str]:
        return iter(OFFERED.points())

    def __len__(self) -> int:
        return len(OFFERED.points())


FORMATS: Final[Mapping[str, BlockFormat]] = _Formats()
