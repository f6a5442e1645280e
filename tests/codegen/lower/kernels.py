"""Kernels to lower, and the question whether two of them mean the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from plica.core.term import Term
from plica.ir.interpret.kernel import run_kernel
from plica.ir.loop.define import define, defined
from plica.ir.loop.scalar import And, Lit, Scalar, Select, index
from plica.ir.loop.stage import placeholder, stage
from plica.ir.loop.statement import Block, Kernel, statements
from plica.ir.loop.tensor import buffer, compute, reduce
from plica.ir.text.script import from_text
from plica.ir.type.dim import dim_var, evaluate
from plica.ir.type.dtype import f32, i32
from plica.schedule import ScheduleRefused, do, fuse, loops, record, reorder, split
from plica.schedule.primitive.look_up import block as find

Array = np.ndarray[Any, Any]


def read(text: str) -> Kernel:
    """The only kernel of a text."""
    (found,) = from_text("@plica.kernel\n" + text.lstrip(), "kernel.py").values
    assert isinstance(found, Kernel)
    return found


def sizes_of(kernel: Kernel, sizes: Mapping[str, int]) -> dict[Term, int]:
    """The sizes of a kernel's dims that are given by name."""
    return {each: sizes[str(each.name)] for each in kernel.dims if str(each.name) in sizes}


def inputs(kernel: Kernel, sizes: Mapping[str, int], seed: int = 0) -> list[Array]:
    """Small whole numbers for each input, so that sums are exact."""
    source = np.random.default_rng(seed)
    named = sizes_of(kernel, sizes)
    found = []
    for each in kernel.params[: kernel.inputs]:
        shape = [evaluate(size, named) or 0 for size in each.shape]
        found.append(source.integers(-4, 5, shape).astype(each.dtype.numpy))
    return found


def run(kernel: Kernel, arrays: list[Array], sizes: Mapping[str, int]) -> list[Array]:
    return list(run_kernel(kernel, arrays, sizes_of(kernel, sizes)))


def assert_same(before: Kernel, after: Kernel, **sizes: int) -> None:
    """That two kernels write the same."""
    arrays = inputs(before, sizes)
    for ours, theirs in zip(run(after, arrays, sizes), run(before, arrays, sizes), strict=True):
        np.testing.assert_array_equal(ours, theirs)


# --- a population --------------------------------------------------------------------------------


def matmul(m: Any, n: Any, p: Any) -> Kernel:
    a, b = buffer("a", (m, p), i32), buffer("b", (p, n), i32)
    return defined(
        compute((a, b), (m, n), lambda i, j: reduce("sum", (p,), lambda k: a[i, k] * b[k, j]))
    )


def conv(n: Any, w: int) -> Kernel:
    x, f = buffer("x", (n,), f32), buffer("f", (w,), f32)

    def element(i: Scalar) -> Scalar:
        def term(k: Scalar) -> Scalar:
            at = i + k - w // 2
            return Select(And(index(0) <= at, at < n), x[at], Lit(0, f32)) * f[k]

        return reduce("sum", (w,), term)

    return defined(compute((x, f), (n,), element))


def chain(n: Any, m: int) -> Kernel:
    x = placeholder("x", (n, m), i32)
    total = stage("total", (n,), lambda i: reduce("max", (m,), lambda k: x[i, k]))
    twice = stage("twice", (n, m), lambda i, j: x[i, j] * 2 - total[i])
    last = stage("last", (n,), lambda i: reduce("sum", (m,), lambda k: twice[i, k]))
    return define(total, twice, last)


@st.composite
def scheduled(draw: DrawFn) -> tuple[Kernel, dict[str, int]]:
    """A kernel with some loops split, fused and reordered, and sizes for its dims."""
    sizes = {"n": draw(st.integers(1, 7)), "m": draw(st.integers(1, 5))}
    n: Any = dim_var("n") if draw(st.booleans()) else sizes["n"]
    small = draw(st.integers(1, 4))
    makers: dict[str, Callable[[], Kernel]] = {
        "matmul": lambda: matmul(n, dim_var("m"), small),
        "conv": lambda: conv(n, 3),
        "chain": lambda: chain(n, small),
    }
    kernel = makers[draw(st.sampled_from(sorted(makers)))]()
    labels = [str(each.label) for each in statements(kernel.body) if isinstance(each, Block)]
    step = st.tuples(
        st.sampled_from(labels),
        st.integers(0, 3),
        st.integers(1, 4),
        st.sampled_from(("split", "fuse", "reorder", "split")),
    )
    steps = draw(st.lists(step, max_size=5))

    @do
    def schedule() -> Any:
        for label, at, factor, how in steps:
            found = yield find(label)
            around = yield loops(found)
            first = at % len(around)
            try:
                if how == "fuse":
                    yield fuse(*around[:2])
                elif how == "reorder":
                    yield reorder(*around[first:], *around[:first])
                else:
                    yield split(around[first], (None, factor))
            except ScheduleRefused:
                continue

    (new,) = record(schedule, kernel).module.values
    assert isinstance(new, Kernel)
    return new, sizes
