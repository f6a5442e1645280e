"""The kinds of random stages that forms look for, at sizes nothing divides."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from hypothesis import strategies as st

from plica.ir.type import f16, f32
from plica.schedule.generate.stages.case import StagesCase
from plica.schedule.generate.stages.contraction import (
    coded,
    few_bits,
    pools,
    products,
    quantised,
    windows,
    winograds,
)
from plica.schedule.generate.stages.row import (
    chains,
    column_chains,
    columns,
    concats,
    elements,
    mergings,
    reductions,
    runnings,
    scattereds,
    selections,
    steps,
    transposes,
)

KINDS: Final[dict[str, Callable[[], st.SearchStrategy[StagesCase]]]] = {
    "product": products, "columns": partial(products, ("columns",)), "window": windows,
    "grouped": partial(windows, "groups"),
    "depthwise": partial(windows, "single"), "pool": pools, "reduction": reductions,
    "chain": chains, "elementwise": elements, "concat": concats, "transpose": transposes,
    "quantised": quantised, "few bits": few_bits, "coded": coded,
    "winograd": winograds, "running": runnings, "scattered": scattereds,
    "merged": mergings, "selected": selections, "across": columns, "column chain": column_chains,
    "stepped": steps,
}  # fmt: skip

MANY_ELEMENTS: Final = 1 << 16  # products that are worth tiles on a GPU

ON_SMALL: Final = (
    "reduction", "across", "chain", "column chain", "elementwise", "concat", "running",
)  # fmt: skip
"""Kinds whose forms take many elements on a large GPU, and few on a small one."""

GPU_KINDS: Final[dict[str, Callable[[], st.SearchStrategy[StagesCase]]]] = {
    "product": partial(products, ("rows", "columns", "any"), (f32,), MANY_ELEMENTS),
    "f16": partial(products, ("rows", "columns"), (f16,), MANY_ELEMENTS),
    "octets": partial(products, ("octets",), (f16,), MANY_ELEMENTS),
    "deep": partial(products, ("octets",), (f32,), MANY_ELEMENTS),
    "window": partial(windows, "all", MANY_ELEMENTS), "transpose": transposes,
    **{name: KINDS[name] for name in ON_SMALL},
}  # fmt: skip
