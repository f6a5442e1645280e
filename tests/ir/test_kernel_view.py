"""Views of buffers: strides and an offset as numpy has them, and nothing outside of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.strategies import DrawFn
from numpy.lib.stride_tricks import as_strided

import plica
from plica.core.diagnostic import ScriptError
from plica.ir.graph.module import Module
from plica.runtime.error import EvaluationError

View = tuple[tuple[int, ...], tuple[int, int], tuple[int, int], int]
"""The shape of a whole; sizes, strides and where a view of it begins."""

COPY = """
@plica.kernel
def copy(x: Buffer[{whole}, f32], y: Buffer[({rows}, {columns}), f32]):
    v = view(x, Buffer[({rows}, {columns}), f32, strides({down}, {along})], offset={offset})
    for i, j in grid({rows}, {columns}):
        with block("y", spatial=(i, j)):
            y[i, j] = v[i, j] * 2.0
"""


@st.composite
def views(draw: DrawFn) -> View:
    """A whole, and a view of it: sizes, strides and where it begins."""
    whole = draw(st.sampled_from(((24,), (4, 6), (2, 3, 4))))
    sizes = draw(st.tuples(st.integers(1, 4), st.integers(1, 4)))
    steps = draw(st.tuples(st.integers(-4, 4), st.integers(-3, 3)))
    moves = [(size - 1) * step for size, step in zip(sizes, steps, strict=True)]
    low = -sum(min(0, each) for each in moves)
    high = 23 - sum(max(0, each) for each in moves)
    return whole, sizes, steps, draw(st.integers(low, high)) if low <= high else low


def copied(of: View) -> Module:
    whole, (rows, columns), (down, along), offset = of
    shape = f"({', '.join(map(str, whole))},)"
    return plica.from_text(
        COPY.format(whole=shape, rows=rows, columns=columns, down=down, along=along, offset=offset)
    )


@settings(max_examples=25)
@given(views())
def test_a_view_is_what_numpy_says(of: View) -> None:
    whole, sizes, steps, offset = of
    x = np.arange(24, dtype=np.float32)
    moves = [(size - 1) * step for size, step in zip(sizes, steps, strict=True)]
    low, high = (offset + sum(f(0, each) for each in moves) for f in (min, max))
    if low < 0 or high > 23:
        with pytest.raises(ScriptError, match="The view has the elements"):
            copied(of)
        return
    program = copied(of)
    expected = 2 * as_strided(x[offset:], sizes, [4 * step for step in steps])
    np.testing.assert_array_equal(plica.interpret(program, x.reshape(whole)), expected)
    again = plica.from_text(str(program))
    assert plica.digest(again) == plica.digest(program)


@pytest.mark.parametrize("whole", [(24,), (4, 6)])
def test_a_view_is_compiled(whole: tuple[int, ...]) -> None:
    x = np.arange(24, dtype=np.float32)
    exe = plica.compile(copied((whole, (3, 4), (6, 1), 2)), threads=1)
    np.testing.assert_array_equal(exe(x.reshape(whole)), 2 * x.reshape(4, 6)[:3, 2:])


def test_a_view_is_written_and_seen_through_another() -> None:
    program = plica.from_text("""
@plica.kernel
def odd(x: Buffer[("n",), f32], y: Buffer[("2*n",), f32]):
    even = view(y, Buffer[(n,), f32, strides(2)])
    rest = view(y, Buffer[(2 * n - 1,), f32], offset=1)
    odd = view(rest, Buffer[(n,), f32, strides(2)])
    for i in range(n):
        even[i] = x[i]
    for i in range(n):
        odd[i] = even[i] + 10.0
""")
    x = np.arange(3, dtype=np.float32)
    expected = np.stack([x, x + 10], -1).reshape(-1)
    np.testing.assert_array_equal(plica.interpret(program, x), expected)


LOOSE = """
@plica.kernel
def loose(x: Buffer[(9,), f32], p: Buffer[(1,), i64], y: Buffer[(3,), f32]):
    v = view(x, Buffer[(3,), f32], offset=2)
    for i in range(3):
        y[i] = v[i]
    for i in range({reach}):
        y[i] = v[{at}] + 1.0
"""


@pytest.mark.parametrize(("reach", "at", "p"), [(3, "i + 1", 0), (4, "i", 0), (3, "p[0]", 3)])
def test_what_is_outside_a_view_is_refused(reach: int, at: str, p: int) -> None:
    """The buffer has elements there, and another loop of that name ends sooner."""
    program = plica.from_text(LOOSE.format(reach=reach, at=at))
    with pytest.raises(EvaluationError) as caught:
        plica.interpret(program, np.ones(9, np.float32), np.array([p]))
    assert caught.value.code == "index-out-of-bounds"
    assert "'x'" in str(caught.value)


def test_an_index_from_memory_is_looked_at() -> None:
    program = plica.from_text(LOOSE.format(reach=3, at="p[0]"))
    x = np.arange(9, dtype=np.float32)
    exe = plica.compile(program, threads=1)
    for found in (plica.interpret(program, x, np.array([2])), exe(x, np.array([2]))):
        assert np.asarray(found).tolist() == [5, 5, 5]
    with pytest.raises(EvaluationError):
        exe(x, np.array([3]))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("v = view(x, Buffer[(3,), f32, strides(4)], offset=2)", "elements 2 to 10"),
        ("v = view(x, Buffer[(3,), i32])", "A view of f32"),
        ("v = view(x)", "no view of a buffer"),
        ("v = view(z, Buffer[(3,), f32])", "z"),
        ("v = view(x, Buffer[(3,), f32], begin=2)", "no view of a buffer"),
    ],
)
def test_what_is_no_view_is_refused(line: str, said: str) -> None:
    text = LOOSE.format(reach=3, at="i").replace("v = view(x, Buffer[(3,), f32], offset=2)", line)
    with pytest.raises(ScriptError, match=said):
        plica.from_text(text)


def test_an_intrinsic_takes_no_view() -> None:
    text = LOOSE.format(reach=3, at="i") + """    invoke("nothing", v[0:3])\n"""
    with pytest.raises(ScriptError, match="element by element"):
        plica.from_text(text)
