"""Access: lanes a few elements apart come from whole vectors, and nothing outside is touched."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from plica.codegen.llvm.fold import emit
from plica.codegen.llvm.writer import CodeTraits
from plica.codegen.lower.nest import nest
from plica.ir.interpret.kernel import run_kernel
from plica.ir.loop.scalar import And, Cast, Le, Lit, Lt, Max, Min, Scalar, Select, index
from plica.ir.loop.stage import stage
from plica.ir.loop.stages import stages
from plica.ir.loop.statement import For, Kernel, Store
from plica.ir.loop.tensor import axis, buffer
from plica.ir.type.dtype import DType, f32, f64, i32, i64
from tests.codegen.native import assert_same, native_kernel

FEW = settings(max_examples=max(8, settings().max_examples // 2))


def windows(  # noqa: PLR0917  # a window is these things
    count: int, lanes: int, step: int, start: int, fill: float, of: DType, *, guarded: bool = True
) -> Kernel:
    """y[j] = x[j * step + start] where that is inside, else a number."""
    x, y, j = buffer("x", (count,), of), buffer("y", (lanes,), of), axis("j")
    place = j * step + start
    inside = And(Le(index(0), place), Lt(place, index(count)))
    value: Scalar = Select(inside, x[place], Lit(fill, of)) if guarded else x[place]
    return Kernel((), (x, y), 1, For(j, index(lanes), "vectorized", Store(y, (j,), value)))


@FEW
@given(
    st.integers(1, 40), st.sampled_from((2, 4, 8, 16)), st.sampled_from((-3, -2, -1, 1, 2, 3, 4)),
    st.integers(-20, 60), st.sampled_from((0, 3)), st.sampled_from((f32, f64, i32)),
)  # fmt: skip
def test_guarded_lanes_read_what_is_inside(  # noqa: PLR0917  # as above
    count: int, lanes: int, step: int, start: int, fill: float, of: DType
) -> None:
    kernel = windows(count, lanes, step, start, fill, of)
    values = np.arange(1, count + 1).astype(of.numpy)
    code, (found,) = native_kernel(kernel, [values])
    assert code == 0
    assert_same(found, run_kernel(kernel, [values])[0])


@FEW
@given(
    st.integers(4, 40), st.sampled_from((4, 8)), st.integers(1, 4), st.integers(-20, 60),
    st.sampled_from((f32, f64)),
)  # fmt: skip
def test_vectors_that_are_read_whole_stay_in_their_row(
    count: int, lanes: int, step: int, start: int, of: DType
) -> None:
    """Where no part of a vector is read a vector beside is moved, if the row is as long."""
    kernel = windows(count, lanes, step, start, 0, of)
    text = "\n".join(emit(kernel, "k", traits=CodeTraits(whole=True)).lines)
    inside = [0 <= start + step * lane < count for lane in range(lanes)]
    if count >= lanes and any(inside) and not all(inside):
        assert "masked" not in text
        vectors = re.findall(rf"load <{lanes} x \w+>, ptr (%\w+),", text)
        places = dict(re.findall(r"(%\w+) = getelementptr \S+ \S+, ptr %b0, i64 (-?\d+)", text))
        places |= dict(re.findall(r"(%\w+) = getelementptr \w+, ptr %b0, i64 (-?\d+)", text))
        starts = [int(places.get(each, 0)) for each in vectors]
        assert all(0 <= each <= count - lanes for each in starts)


@FEW
@given(
    st.sampled_from((4, 8)), st.integers(2, 4), st.integers(0, 5), st.integers(0, 5),
    st.sampled_from((f32, f64, i32)),
)  # fmt: skip
def test_strides_are_read_as_vectors_one_behind_the_other(
    lanes: int, step: int, start: int, behind: int, of: DType
) -> None:
    count = start + step * (lanes - 1) + 1 + behind
    kernel = windows(count, lanes, step, start, 0, of, guarded=False)
    values = np.arange(count).astype(of.numpy)
    code, (found,) = native_kernel(kernel, [values])
    assert code == 0
    assert_same(found, run_kernel(kernel, [values])[0])


@pytest.mark.parametrize("step", [2, 3, 4])
def test_vectors_end_with_the_last_lane(step: int) -> None:
    """No element behind the last that is wanted is read: the buffer ends there."""
    kernel = windows(step * 7 + 1, 8, step, 0, 0, f32, guarded=False)
    text = "\n".join(emit(kernel, "k").lines)
    assert "load <8 x float>" in text
    places = [int(each) for each in re.findall(r"getelementptr \S+, ptr %b0, i64 (\d+)", text)]
    assert max(places) + 8 == step * 7 + 1
    values = np.arange(step * 7 + 1, dtype=np.float32)
    assert_same(native_kernel(kernel, [values])[1][0], run_kernel(kernel, [values])[0])


def test_a_guard_that_says_inside_is_no_choice() -> None:
    """What is not read is 0 already; any other number has to be chosen."""
    zero, other = (windows(20, 8, 2, -3, fill, f32) for fill in (0, 3))
    texts = ["\n".join(emit(each, "k").lines) for each in (zero, other)]
    assert ["select" in text for text in texts] == [False, True]
    assert all("masked.load" in text and "gather" not in text for text in texts)


def test_a_guard_that_says_more_is_a_choice() -> None:
    x, y, j = buffer("x", (20,), f32), buffer("y", (8,), f32), axis("j")
    inside = And(Le(index(0), j - 3), Lt(j, index(6)))
    store = Store(y, (j,), Select(inside, x[j - 3], Lit(0, f32)))
    kernel = Kernel((), (x, y), 1, For(j, index(8), "vectorized", store))
    values = np.arange(1, 21, dtype=np.float32)
    assert native_kernel(kernel, [values])[1][0].tolist() == [0, 0, 0, 1, 2, 3, 0, 0]


def columns(step: int, start: int, above: int) -> Kernel:
    """y[i, 8 * s + lane] = x[i + above, step * (8 * s + lane) + start] where that is inside."""
    x, y = buffer("x", (4, 21), f32), buffer("y", (5, 24), f32)
    s, i, lane = axis("s"), axis("i"), axis("lane")
    row, column = i + above, (s * 8 + lane) * step + start
    inside = And(Le(index(0), row), Lt(row, index(4)))
    inside = And(inside, And(Le(index(0), column), Lt(column, index(21))))
    one = Store(y, (i, s * 8 + lane), Select(inside, x[row, column], Lit(7, f32)))
    rows = For(i, index(5), "serial", For(lane, index(8), "vectorized", one))
    return Kernel((), (x, y), 1, For(s, index(3), "serial", rows))


@FEW
@given(st.integers(1, 4), st.integers(-9, 9), st.integers(-3, 3))
def test_lanes_of_rows_that_may_be_outside(step: int, start: int, above: int) -> None:
    kernel = columns(step, start, above)
    values = np.arange(84, dtype=np.float32).reshape(4, 21)
    assert_same(native_kernel(kernel, [values])[1][0], run_kernel(kernel, [values])[0])


def test_which_lanes_take_part_is_asked_before_loops_that_do_not_matter() -> None:
    lines = emit(columns(2, -1, -1), "k").lines
    loops = [at for at, line in enumerate(lines) if line.startswith("body.")]
    asked = [at for at, line in enumerate(lines) if "icmp ult <8 x i64>" in line]
    assert asked
    assert loops[0] < min(asked) <= max(asked) < loops[1]


@FEW
@given(
    st.integers(1, 20), st.integers(1, 3), st.integers(4, 40), st.sampled_from((f32, f64, i32)),
    st.data(),
)  # fmt: skip
def test_lanes_read_where_a_table_says(
    size: int, rows: int, lanes: int, of: DType, data: st.DataObject
) -> None:
    """Rows by places that are brought inside: all of a row at once, and nothing outside."""
    x, at = buffer("x", (rows, size), of), buffer("at", (lanes,), i32)

    def element(i: Scalar, j: Scalar) -> Scalar:
        return x[i, Cast(Max(Lit(0, i32), Min(at[j], Lit(size - 1, i32))), i64)]

    picked = stage("y", (rows, lanes), element)
    kernel = nest(stages((x, at), (picked,)))
    text = "\n".join(emit(kernel, "k").lines)
    assert "masked.gather" in text
    assert "x i32> %" in text
    places = data.draw(st.lists(st.integers(-3, size + 3), min_size=lanes, max_size=lanes))
    values = np.arange(rows * size).reshape(rows, size).astype(of.numpy)
    code, (found,) = native_kernel(kernel, [values, np.array(places, np.int32)])
    assert code == 0
    assert_same(found, values[:, np.clip(places, 0, size - 1)])
