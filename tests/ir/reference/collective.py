"""Cases and meanings of the collectives: what devices exchange, a row for each."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np

from plica.ir.type.dtype import DTYPES, bool_
from tests.ir.reference.case import NUMBERS, Array, Case, Draw, array, case, one, shapes
from tests.ir.reference.meaning import REFERENCE


@case("all_reduce", "all_gather", "reduce_scatter", "own_block", "ring_shift")
def _of_rows(draw: Draw, name: str) -> Case:
    rows = draw(st.integers(1, 3))
    shape = list(draw(shapes(1, 3)))
    attrs: dict[str, Any] = {}
    dtypes = DTYPES
    if name in {"all_gather", "reduce_scatter", "own_block"}:
        attrs["dim"] = draw(st.integers(0, len(shape) - 1))
        if name != "all_gather":
            shape[attrs["dim"]] *= rows
    if name in {"all_reduce", "reduce_scatter"}:
        attrs["combiner"] = draw(st.sampled_from(["sum", "max", "min", "all", "any"]))
        dtypes = (bool_,) if attrs["combiner"] in {"all", "any"} else NUMBERS
    if name == "ring_shift":
        attrs["shift"] = draw(st.integers(-4, 4))
    x = draw(array(draw(st.sampled_from(dtypes)), (rows, *shape), finite=True))
    return Case((x,), attrs)


@case("all_to_all")
def _all_to_all(draw: Draw, _: str) -> Case:
    rows, shape = draw(st.integers(1, 3)), list(draw(shapes(2, 3)))
    source, target = draw(st.permutations(range(len(shape))))[:2]
    shape[target] *= rows
    return Case((one(draw, DTYPES, (rows, *shape)),), {"source": source, "target": target})


@case("stack_devices")
def _stack(draw: Draw, _: str) -> Case:
    return Case((one(draw, DTYPES),), {"axis": "model", "devices": draw(st.integers(1, 4))})


@case("own_device")
def _own(draw: Draw, _: str) -> Case:
    return Case((one(draw, DTYPES, draw(shapes(1, side=1))),), {"axis": "model"})


COMBINE: Any = {"sum": np.sum, "max": np.max, "min": np.min, "all": np.all, "any": np.any}


def _combined(x: Array, combiner: str) -> Array:
    wide = x.astype(np.float64) if x.dtype.kind not in "iub" else x
    return np.asarray(COMBINE[combiner](wide, axis=0)).astype(x.dtype)


def _reduced(x: Array, combiner: str = "sum") -> Array:
    return np.stack([_combined(x, combiner)] * len(x))


def _gathered(x: Array, dim: int = 0) -> Array:
    return np.stack([np.concatenate(list(x), dim)] * len(x))


def _scattered(x: Array, dim: int = 0, combiner: str = "sum") -> Array:
    return np.stack(np.split(_combined(x, combiner), len(x), dim))


def _exchanged(x: Array, source: int, target: int) -> Array:
    sent = [np.split(row, len(x), target) for row in x]
    return np.stack([
        np.concatenate([blocks[to] for blocks in sent], source) for to in range(len(x))
    ])  # fmt: skip


REFERENCE.update({
    "all_reduce": _reduced,
    "all_gather": _gathered,
    "reduce_scatter": _scattered,
    "all_to_all": _exchanged,
    "ring_shift": lambda x, shift=1: np.stack([x[(i - shift) % len(x)] for i in range(len(x))]),
    "own_block": lambda x, dim=0: np.stack([
        np.split(row, len(x), dim)[i] for i, row in enumerate(x)
    ]),
    "stack_devices": lambda x, axis, devices: np.stack([x] * devices),
    "own_device": lambda x, axis: x[0],
})  # fmt: skip
