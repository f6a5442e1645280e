"""Tiles fit the registers, and divide what they should."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

import plica
from plica.ir.loop.stage import placeholder, stage
from plica.ir.loop.stages import kernel_of, stages
from plica.ir.loop.tensor import reduce
from plica.ir.text.script import from_text
from plica.ir.type.dtype import DType, f32, f64
from plica.schedule.default import Machine, default_trace, formed
from plica.schedule.default.machine import LINE, waiting
from plica.schedule.default.tile import RegisterTile, best_tile, bytes_of_line, cost, fits
from plica.schedule.default.written_terms import LONGEST, SCALED
from plica.schedule.form import Facts
from plica.schedule.hoist import hoist
from plica.schedule.primitive.split import Split


@given(st.integers(1, 64), st.integers(1, 200), st.sampled_from((8, 16, 32)), st.booleans())
def test_a_tile_fits(vectors: int, steps: int, registers: int, exact: bool) -> None:
    tile = best_tile(vectors, steps, registers, exact=exact)
    assert fits(tile, registers)
    assert not exact or (vectors % tile.vectors == 0 and steps % tile.steps == 0)
    assert cost(tile, vectors, steps) <= cost(RegisterTile(1, 1), vectors, steps)


@given(st.integers(1, 8), st.integers(1, 3), st.integers(1, 20), st.integers(1, 12))
def test_vectors_that_wait_are_counted(terms: int, near: int, steps: int, apart: int) -> None:
    apart = apart if apart < 4 else 4 * apart  # rows begin where vectors do
    touched = [(k * near + s * apart) // 4 for k in range(terms) for s in range(steps)]
    last = {vector: at for at, vector in enumerate(touched)}
    under_way = [{v for v in touched[: at + 1] if last[v] >= at} for at in range(len(touched))]
    assert max(map(len, under_way)) <= (waiting(((terms, near), (steps, apart)), 4) or 0)


@given(st.integers(24, 99), st.integers(26, 99), st.sampled_from((16, 32, 64)))
def test_short_vectors_beside_rows_count_for_their_part_of_a_line(
    vectors: int, steps: int, size: int
) -> None:
    assert bytes_of_line(size, 4) == LINE
    assert bytes_of_line(size, 4 * steps) == size
    beside = best_tile(vectors, steps, 29, size=bytes_of_line(size, 4 * steps))
    assert beside.vectors >= best_tile(vectors, steps, 29).vectors


@pytest.mark.parametrize(
    ("terms", "dtype", "most"),
    [(20, f32, 4), (21, f32, 3), (25, f32, 5), (49, f32, 7), (22, f64, 2), (31, f32, 1)],
)
def test_one_vector_reads_its_elements_without_an_index(
    terms: int, dtype: DType, most: int
) -> None:
    """Enough terms are unrolled that the stride is no index scale, if a factor divides them."""
    machine = Machine(512, 32)
    lanes = machine.lanes(dtype)
    x, w = placeholder("x", (18, terms), dtype), placeholder("w", (terms, lanes), dtype)
    product = stage(
        "y", (18, lanes), lambda m, n: reduce("sum", (terms,), lambda k: x[m, k] * w[k, n])
    )
    made = formed(stages((x, w), (product,)), Facts((False, True)), machine)
    assert made is not None
    trace = default_trace(kernel_of(hoist(made.stages, (False, True)).rest), machine)
    assert trace is not None
    splits = [each.instruction for each in trace.steps if isinstance(each.instruction, Split)]
    written = [each.factors[1] for each in splits if each.factors[1:] == (most,)]
    assert bool(written) == (most > 1)
    assert most == 1 or (most * dtype.bytes > SCALED and most * 18 <= LONGEST)


@pytest.mark.parametrize("terms", [3, 5, 20, 21, 31])
def test_such_products_are_right(terms: int) -> None:
    text = PRODUCT.format(terms=terms)
    given = [np.random.default_rng(terms).integers(-3, 3, shape).astype(np.float32)
             for shape in ((41, terms), (terms, 13))]  # fmt: skip
    found = plica.compile(from_text(text), threads=1)(*given)
    np.testing.assert_array_equal(found, given[0] @ given[1])


PRODUCT = """
import plica
from plica import op
from plica.script import Tensor, f32

@plica.function
def main(x: Tensor[(41, {terms}), f32], w: Tensor[({terms}, 13), f32]) -> Tensor[(41, 13), f32]:
    return op.matmul(x, w)
"""
