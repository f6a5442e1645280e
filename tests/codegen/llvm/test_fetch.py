"""Weights of the next tile are fetched while this one is worked on, and nothing else changes."""

from __future__ import annotations

import numpy as np
import pytest

from plica.codegen.llvm.kernel import emit
from plica.core.name import Name
from plica.ir.interpret.kernel import run_kernel
from plica.ir.loop.scalar import Buffer, Lit, index
from plica.ir.loop.statement import Alloc, For, Kernel, Store, seq
from plica.ir.loop.tensor import axis, buffer
from plica.ir.type.dtype import f32
from tests.codegen.native import assert_same, native_kernel

TILES, PASSES, DEPTH, LANES = 3, 5, 12, 8


def product(passes: int = PASSES, lines: int = 1) -> Kernel:
    """y[t, p] = sum over k of x[p, k] * w[t, k], for each lane of w."""
    x = buffer("x", (PASSES, DEPTH), f32)
    w = buffer("w", (TILES, DEPTH, LANES), f32)
    y = buffer("y", (TILES, PASSES, LANES), f32)
    total = Buffer(Name("total"), (index(LANES),), f32, "local")
    t, p, k, u, v, o = (axis(each) for each in "tpkuvo")
    start = For(u, index(LANES), "vectorized", Store(total, (u,), Lit(0, f32)))
    step = For(v, index(LANES), "vectorized", Store(total, (v,), total[v] + x[p, k] * w[t, k, v]))
    note = (("fetch_next", (DEPTH * LANES, passes, lines)),)
    end = For(o, index(LANES), "vectorized", Store(y, (t, p, o), total[o]))
    body = Alloc(total, seq(start, For(k, index(DEPTH), "serial", step, note), end))
    inner = For(p, index(PASSES), "serial", body)
    return Kernel((), (x, w, y), 2, For(t, index(TILES), "serial", inner))


@pytest.mark.parametrize("lines", [1, 3])
def test_shares_are_fetched(lines: int) -> None:
    text = "\n".join(emit(product(lines=lines), "k").lines)
    assert text.count("@llvm.prefetch.p0(") == lines


@pytest.mark.parametrize("passes", [PASSES - 1, PASSES + 2])
def test_another_loop_around_fetches_nothing(passes: int) -> None:
    assert "prefetch" not in "\n".join(emit(product(passes=passes), "k").lines)


def test_fetching_changes_no_result() -> None:
    kernel = product(lines=2)
    random = np.random.default_rng(0)
    x = random.integers(-4, 5, (PASSES, DEPTH)).astype(np.float32)
    w = random.integers(-4, 5, (TILES, DEPTH, LANES)).astype(np.float32)
    code, (found,) = native_kernel(kernel, [x, w])
    assert code == 0
    assert_same(found, run_kernel(kernel, [x, w])[0])
