"""Values put at places: compiled for one thread and two, beside numpy, place after place."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import plica
from plica.runtime.error import EvaluationError
from tests.ir.op.test_large import Array, program
from tests.ir.reference import REFERENCE

KINDS = ("replace", "add", "mul", "max", "min")
TYPES = (np.float32, np.float64, np.float16, np.int32, np.int64, np.uint8)


def numbers(random: np.random.Generator, dtype: Any, shape: tuple[int, ...]) -> Array:
    """Small whole numbers: sums and products of a few are exact in every type."""
    return random.integers(1, 3, shape).astype(dtype)


def agrees(name: str, args: list[Array], threads: int, **how: Any) -> None:
    made = plica.compile(program(name, args, **how), threads=threads)
    with np.errstate(over="ignore"):
        wanted = REFERENCE[name](*args, **how)
    np.testing.assert_array_equal(made(*args), wanted.astype(args[0].dtype))


@settings(max_examples=4)
@given(st.data())
def test_elements_go_where_they_belong(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.sampled_from((1, 2, 3, 9, 40)), min_size=1, max_size=3))
    at, random = data.draw(st.integers(0, len(shape) - 1)), np.random.default_rng(len(shape))
    part = [data.draw(st.integers(1, size)) for size in shape]
    part[at] = data.draw(st.integers(0, 12))
    dtype = data.draw(st.sampled_from(TYPES))
    places = random.integers(-shape[at], shape[at], part)
    args = [numbers(random, dtype, tuple(shape)), places, numbers(random, dtype, tuple(part))]
    how = {"axis": at, "reduction": data.draw(st.sampled_from(KINDS))}
    agrees("scatter_elements", args, data.draw(st.integers(1, 2)), **how)


@settings(max_examples=4)
@given(st.data())
def test_rows_go_where_they_belong(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.sampled_from((1, 2, 5, 70)), min_size=1, max_size=3))
    depth, random = data.draw(st.integers(1, len(shape))), np.random.default_rng(len(shape))
    outer = data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=2))
    columns = [random.integers(-size, size, outer) for size in shape[:depth]]
    dtype = data.draw(st.sampled_from(TYPES))
    updates = numbers(random, dtype, (*outer, *shape[depth:]))
    args = [numbers(random, dtype, tuple(shape)), np.stack(columns, -1), updates]
    how = {"reduction": data.draw(st.sampled_from(KINDS))}
    agrees("scatter_nd", args, data.draw(st.integers(1, 2)), **how)


@pytest.mark.parametrize("place", [7, -8])
def test_a_place_that_is_not_there_is_refused(place: int) -> None:
    x, i = np.zeros(7, np.float32), np.array([0, place])
    made = plica.compile(program("scatter_elements", [x, i, x[:2]], reduction="mul"))
    with pytest.raises(EvaluationError, match="index-out-of-bounds"):
        made(x, i, x[:2])


def test_no_place_looks_at_every_value() -> None:
    x, i = np.zeros((900, 700), np.float32), np.zeros((900, 700), np.int64)
    made = plica.compile(program("scatter_elements", [x, i, x], axis=1, reduction="mul"))
    assert "argsort" not in made.source("kernel")
    assert " == " not in made.source("kernel")  # which asks a term whether it is for a place


# fmt: off
OPEN = {  # how, and the shapes of indices and updates
    "scatter_elements(x, i, u, axis=1)":                   ('"n", "k"', '"n", "k"'),
    'scatter_elements(x, i, u, axis=0, reduction="add")':  ('"k", "m"', '"k", "m"'),
    'scatter_nd(x, i, u, reduction="max")':                ('"k", 1',   '"k", "m"'),
}
# fmt: on


@pytest.mark.parametrize("call", OPEN)
def test_open_sizes_look_at_each_value_once(call: str) -> None:
    index, updates = OPEN[call]
    made = plica.compile(
        plica.from_text(f"""
import plica
from plica import op

@plica.function(dims="n m k")
def main(
    x: Tensor[("n", "m"), f32], i: Tensor[({index}), i64], u: Tensor[({updates}), f32]
) -> Tensor[("n", "m"), f32]:
    return op.{call}
""")
    )
    assert " == " not in made.source("kernel")
    name, _, rest = call.partition("(x, i, u, ")
    how = {"reduction": "replace", **eval(f"dict({rest}")}  # a line above
    for n, m, k in ((3, 40, 5), (1, 1, 1), (7, 9, 0), (2, 33, 4)):
        random = np.random.default_rng(n)
        sizes = {'"n"': n, '"m"': m, '"k"': k, "1": 1}
        shapes = [tuple(sizes[each] for each in of.split(", ")) for of in (index, updates)]
        most = m if how.get("axis") == 1 else n
        places = random.integers(-most, most, shapes[0])
        args = [numbers(random, np.float32, (n, m)), places, numbers(random, np.float32, shapes[1])]
        np.testing.assert_array_equal(made(*args), REFERENCE[name](*args, **how))
    assert made.stats.at_call == 0


@settings(max_examples=4)
@given(st.data())
def test_places_of_what_is_not_zero(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=3))
    few = np.random.default_rng(len(shape)).random(shape) < data.draw(st.sampled_from((0, 0.3, 1)))
    x = few if data.draw(st.booleans()) else few.astype(np.float32)
    found, count = plica.compile(program("argwhere", [x]))(x)
    wanted = np.argwhere(x)
    assert count == len(wanted)
    np.testing.assert_array_equal(found[: len(wanted)], wanted)
    assert (found[len(wanted) :] == -1).all()
