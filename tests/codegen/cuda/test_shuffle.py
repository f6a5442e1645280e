"""Reductions across threads in CUDA C++: shuffles in warps, beside the interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from plica.analysis.statement import LoweringRefused
from plica.codegen.cuda.fold import fold
from plica.codegen.lower.passes import lower
from plica.core.name import Name
from plica.ir.loop.scalar import Buffer, index
from plica.ir.loop.statement import Alloc, Branch, For, Invoke, Kernel, Region, Seq, Store
from plica.ir.loop.tensor import axis, buffer
from plica.ir.type.dtype import f32
from plica.schedule.default.gpu.warp_meaning import lanes_join
from tests.codegen.cuda.emulate import COMPILER, run as emulated
from tests.codegen.lower.kernels import inputs, read, run

ROWS = """
def rows(x: Buffer[(2, {high}, {length}), {dtype}], y: Buffer[(2, {high}), {dtype}]):
    for b in thread("blockIdx.x", 2):
        for a in thread("threadIdx.y", {high}):
            for t in thread("threadIdx.x", {threads}):
                for k in range({turns}):
                    with block(
                        "y", u=spatial(2, b), v=spatial({high}, a),
                        w=reduce({length}, k * {threads} + t), where=k * {threads} + t < {length},
                    ):
                        with init():
                            y[u, v] = {start}
                        y[u, v] = {join}
"""
SUM, MOST, LEAST = "y[u, v] + x[u, v, w]", "max(y[u, v], x[u, v, w])", "min(y[u, v], x[u, v, w])"


@pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")
@pytest.mark.parametrize(
    ("threads", "high", "dtype", "join"),
    [
        (8, 1, "f32", SUM), (32, 3, "f32", MOST), (64, 2, "f64", LEAST), (96, 1, "i64", SUM),
        (4, 19, "f32", MOST),
    ],
)  # fmt: skip
def test_any_number_of_threads_reduces_in_cuda(
    threads: int, high: int, dtype: str, join: str
) -> None:
    length = 3 * threads - 1
    kernel = read(ROWS.format(
        threads=threads, high=high, dtype=dtype, join=join, length=length, turns=3,
        start="1000" if join is LEAST else "-1000",
    ))  # fmt: skip
    (given,) = inputs(kernel, {})
    (wanted,) = run(kernel, [given], {})
    code = fold(lower(kernel, "gpu"), "k")
    assert "__shfl_xor_sync" in code.text
    found: Any = np.zeros_like(wanted)
    emulated(code, [np.ascontiguousarray(given), found])
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_a_shuffle_where_not_all_threads_come_is_refused() -> None:
    t, y = axis("t"), buffer("y", (32,), f32)
    held = Buffer(Name("held"), (index(32), index(1)), f32, "warp")
    own = Buffer(Name("own"), (index(1),), f32, "local")
    whole = Region(held, (index(0), index(0)), (index(32), index(1)))
    into = Region(own, (index(0),), (index(1),))
    join = Invoke(lanes_join("sum", f32, 32, 1).name, (whole, into))
    steps = Seq((
        Store(held, (t, index(0)), y[t]),
        Store(own, (index(0),), y[t]),
        Branch(t < 5, join, Seq(())),
        Store(y, (t,), own[0]),
    ))  # fmt: skip
    body = For(t, index(32), "threadIdx.x", Alloc(held, Alloc(own, steps)))
    with pytest.raises(LoweringRefused, match="cannot be done by a warp"):
        fold(Kernel((), (y,), 0, body), "k")
