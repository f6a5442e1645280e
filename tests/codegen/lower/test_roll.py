"""Roll: loops over tiles mean what their copies mean, and are there where they are shorter."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from plica.codegen.lower.loop_kind import roll
from plica.codegen.lower.passes import lower
from plica.ir.loop.statement import Alloc, For, Kernel, statements
from plica.ir.text.show.kernel import show_kernel
from plica.ir.type.dim import known
from tests.codegen.lower.kernels import assert_same, read, scheduled
from tests.conftest import Golden

TILE = """
def tile(x: Buffer[(3, {n}, {m}), f32], y: Buffer[({n},), f32], out: Buffer[(3, {shape}), f32]):
    for i in range(3):
        with alloc(Buffer[({n}, {m}), f32, "local"]) as t:
            for j in unrolled({n}):
                for k in vectorized({m}):
                    t[j, k] = x[i, j, k]
            for {p} in unrolled({a}):
                for {q} in vectorized({b}):
                    {guard}out[i, {p}, {q}] = {value}
"""


def tile(rows: int, lanes: int, value: str, *, turned: bool = False, kept: int = 0) -> Kernel:
    """A tile of registers, and what is stored of each, or of the rows that are kept."""
    a, b, p, q = (lanes, rows, "k", "j") if turned else (rows, lanes, "j", "k")
    stored = (lanes, kept or rows) if turned else (kept or rows, lanes)
    text = TILE.format(
        n=rows, m=lanes, a=a, b=b, p=p, q=q, value=value,
        guard=f"if j < {kept}: " if kept else "", shape="{}, {}".format(*stored),
    )  # fmt: skip
    return read(text)


def counted(of: Kernel) -> list[For]:
    return [s for s in statements(of.body) if isinstance(s, For) and s.kind == "serial"]


def test_a_formula_of_a_tile_as_text(golden: Golden) -> None:
    before = tile(13, 16, "exp(t[j, k]) * 0.5")
    after = roll(before)
    assert_same(before, after)
    assert roll(after) is after
    golden(show_kernel(after))


@settings(max_examples=6)
@given(st.integers(5, 14), st.sampled_from((4, 5, 8, 16)), st.booleans(), st.sampled_from((0, 4)))
def test_loops_mean_the_same(rows: int, lanes: int, turned: bool, kept: int) -> None:
    before = tile(rows, lanes, "exp(t[j, k]) + t[j, k] + y[j]", turned=turned, kept=kept)
    after = roll(before)
    assert_same(before, after)
    assert_same(before, lower(after))
    assert roll(after) is after


@pytest.mark.parametrize(
    ("rows", "value"),
    [
        (13, "max(t[j, k] + y[0], 0.0)"),  # short, and the rows share what they read
        (2, "exp(t[j, k])"),  # few
        (13, "exp(x[i, j, k])"),  # of no register
        (13, "exp(t[i64(out[i, j, k]) * 0 + j, k])"),  # of a register that memory tells
    ],
)
def test_what_stays_written_out(rows: int, value: str) -> None:
    before = tile(rows, 16, value)
    assert roll(before) is before


def test_a_sum_of_rows_is_a_loop() -> None:
    after = roll(tile(13, 16, "x[i, j, k] + t[j, k] + y[j] + x[2 - i, j, k]"))
    assert len(counted(after)) == 2
    assert sum(isinstance(each, Alloc) for each in statements(after.body)) == 2


@pytest.mark.parametrize(("lanes", "together"), [(16, 2), (8, 4), (4, 8)])
def test_short_vectors_stay_side_by_side_in_greater_numbers(lanes: int, together: int) -> None:
    before = tile(32, lanes, "exp(t[j, k])")
    after = roll(before)
    assert [known(each.extent) for each in counted(after)] == [3, 32 // together]
    assert [known(each.extent) for each in counted(roll(before, soon=True))][1:] == [16]
    assert_same(before, after)


@settings(max_examples=10)
@given(scheduled())
def test_scheduled_kernels_mean_the_same(given_: tuple[Kernel, dict[str, int]]) -> None:
    kernel, sizes = given_
    assert_same(kernel, roll(kernel), **sizes)


SUMS = """
def sums(x: Buffer[(4, 6, {n}, 8), f32], out: Buffer[({n}, 8), f32]):
    with alloc(Buffer[({n}, 8), f64, "local"]) as total:
        with alloc(Buffer[({n}, 8), f32, "local"]) as part:
            for i in unrolled({n}):
                for j in vectorized(8):
                    total[i, j] = f64(0.0)
            for k in range(4):
                for i in unrolled({n}):
                    for j in vectorized(8):
                        part[i, j] = 0.0
                for l in range(6):
                    for i in unrolled({n}):
                        for j in vectorized(8):
                            part[i, j] = part[i, j] + x[k, l, i, j]
                for i in unrolled({n}):
                    for j in vectorized(8):
                        total[i, j] = total[i, j] + f64(part[i, j])
            for i in unrolled({n}):
                for j in vectorized(8):
                    out[i, j] = f32(total[i, j])
"""


@pytest.mark.parametrize("rows", [1, 13])
def test_who_wants_code_soon_has_registers_in_the_innermost_loops_alone(rows: int) -> None:
    before = read(SUMS.format(n=rows))
    after = roll(before, soon=True)
    held = {
        str(s.buffer.name): s.buffer.scope for s in statements(after.body) if isinstance(s, Alloc)
    }
    assert held["total"] == "global"
    assert held["part"] == "local"
    assert len(counted(after)) == (2 if rows == 1 else 5)
    assert_same(before, after)
    assert_same(before, lower(after))
