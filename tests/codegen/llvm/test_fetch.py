"""Weights of the next tile are fetched while this one is worked on, and nothing else changes."""

from __future__ import annotations

import numpy as np
import pytest

from plica.codegen.llvm.fold import emit
from plica.core.name import Name
from plica.ir.interpret.kernel import run_kernel
from plica.ir.loop.scalar import Buffer, Lit, index
from plica.ir.loop.statement import Alloc, For, Kernel, Store, seq
from plica.ir.loop.tensor import axis, buffer
from plica.ir.type.dtype import f32
from tests.codegen.native import assert_same, native_kernel

TILES, PASSES, DEPTH, LANES = 3, 5, 12, 8


def product(passes: int = PASSES, lines: int = 1, runs: int = 1) -> Kernel:
    """y[t, p] = sum over k of x[p, k] * w[t, k], for each lane of w; the sum is in a given number
    of runs."""
    x = buffer("x", (PASSES, DEPTH), f32)
    w = buffer("w", (TILES, DEPTH, LANES), f32)
    y = buffer("y", (TILES, PASSES, LANES), f32)
    total = Buffer(Name("total"), (index(LANES),), f32, "local")
    t, p, k, u, v, o, b = (axis(each) for each in "tpkuvob")
    start = For(u, index(LANES), "vectorized", Store(total, (u,), Lit(0, f32)))
    term = b * (DEPTH // runs) + k if runs > 1 else k
    added = total[v] + x[p, term] * w[t, term, v]
    step = For(v, index(LANES), "vectorized", Store(total, (v,), added))
    note = (("fetch_next", (DEPTH * LANES, passes, lines)),)
    end = For(o, index(LANES), "vectorized", Store(y, (t, p, o), total[o]))
    terms = For(k, index(DEPTH // runs), "serial", step, note)
    whole = For(b, index(runs), "serial", terms) if runs > 1 else terms
    body = Alloc(total, seq(start, whole, end))
    inner = For(p, index(PASSES), "serial", body)
    return Kernel((), (x, w, y), 2, For(t, index(TILES), "serial", inner))


@pytest.mark.parametrize("runs", [1, 2])
@pytest.mark.parametrize("lines", [1, 3])
def test_shares_are_fetched(lines: int, runs: int) -> None:
    text = "\n".join(emit(product(lines=lines, runs=runs), "k").lines)
    assert text.count("@llvm.prefetch.p0(") == lines


@pytest.mark.parametrize("passes", [PASSES - 1, PASSES + 2])
def test_another_loop_around_fetches_nothing(passes: int) -> None:
    assert "prefetch" not in "\n".join(emit(product(passes=passes), "k").lines)


@pytest.mark.parametrize("runs", [1, 2])
def test_fetching_changes_no_result(runs: int) -> None:
    kernel = product(lines=2, runs=runs)
    random = np.random.default_rng(0)
    x = random.integers(-4, 5, (PASSES, DEPTH)).astype(np.float32)
    w = random.integers(-4, 5, (TILES, DEPTH, LANES)).astype(np.float32)
    code, (found,) = native_kernel(kernel, [x, w])
    assert code == 0
    assert_same(found, run_kernel(kernel, [x, w])[0])
