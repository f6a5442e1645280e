"""Kernels as C compute what they mean, whatever their schedule."""

from __future__ import annotations

import numpy as np
import pytest

from plica.codegen.c.assemble import entry
from plica.codegen.c.backend import BACKEND, parse
from plica.codegen.c.kernel import function
from plica.codegen.fuzz import fuzz
from plica.codegen.native import run_native
from plica.codegen.plant import PASSES
from plica.core.name import Name
from plica.ir.interpret.kernel import run_kernel
from plica.ir.interpret.value import Array
from plica.ir.loop.scalar import (
    Buffer,
    Cast,
    Lit,
    Lt,
    Max,
    Reduce,
    Scalar,
    ScalarVar,
    Select,
    index,
)
from plica.ir.loop.statement import Alloc, Branch, For, Kernel, Stmt, Store, seq
from plica.ir.loop.tensor import axis, buffer
from plica.ir.type.dtype import DTYPES, DType, f32, i32, i64
from plica.runtime.error import EvaluationError, UnsupportedError
from tests.conftest import PROFILE

EXAMPLES = {"ci": 6, "dev": 200}.get(PROFILE, 1_000)


def test_random_kernels_compute_what_they_mean() -> None:
    report = fuzz(EXAMPLES, seed=3, target="c")
    assert report.finding is None
    assert report.examples == EXAMPLES


@pytest.mark.slow
def test_planted_mistakes_are_found() -> None:
    report = fuzz(40, target="c", passes=PASSES["bound"], isolated=True)
    assert report.finding is not None
    assert 'entry_for("c")' in report.finding.pytest


def test_a_target_without_code_here_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="does not run in this process"):
        fuzz(1, target="accel")


def test_an_index_outside_is_told() -> None:
    x, z, y, i = buffer("x", (4,), f32), buffer("z", (3,), i64), buffer("y", (3,), f32), axis("i")
    kernel = Kernel((), (x, z, y), 2, For(i, index(3), "serial", Store(y, (i,), x[z[i]])))
    given: list[Array] = [np.arange(4, dtype=np.float32), np.array([3, 0, 1])]
    np.testing.assert_array_equal(run_native(kernel, given, entry=entry), [[3, 0, 1]])
    for wrong in (4, -1):
        with pytest.raises(EvaluationError):
            run_native(kernel, [given[0], np.array([3, wrong, 1])], entry=entry)


def test_what_a_branch_says_of_an_index_is_not_asked_again() -> None:
    x, y, i, j = buffer("x", (7,), f32), buffer("y", (7,), f32), axis("i"), axis("j")
    at = i * 4 + j
    here, before = Store(y, (at,), x[at]), Store(y, (at - 1,), x[at - 1])

    def of(inside: Stmt) -> Kernel:
        body = For(i, index(2), "serial", For(j, index(4), "serial", inside))
        return Kernel((), (x, y), 1, body)

    kernel = of(Branch(Lt(at, index(7)), here, before))
    assert "failed = true" not in function(kernel, "k", apart=True).text
    for each in (here, before):
        assert "failed = true" in function(of(each), "k", apart=True).text
    given: list[Array] = [np.arange(7, dtype=np.float32)]
    np.testing.assert_array_equal(run_native(kernel, given, entry=entry), [given[0]])


def test_a_load_behind_a_false_guard_never_happens() -> None:
    x, z, y, i = buffer("x", (4,), f32), buffer("z", (3,), i64), buffer("y", (3,), f32), axis("i")
    value = Select(Lt(z[i], index(4)), x[z[i]], Lit(-1.0, f32))
    kernel = Kernel((), (x, z, y), 2, For(i, index(3), "serial", Store(y, (i,), value)))
    given: list[Array] = [np.arange(4, dtype=np.float32), np.array([3, 99, 1])]
    np.testing.assert_array_equal(run_native(kernel, given, entry=entry), [[3, -1, 1]])


def test_reductions_inside_terms() -> None:
    x, y, i, k, j = buffer("x", (4, 5), f32), buffer("y", (4,), f32), *map(axis, "ikj")
    inner = Reduce("max", (j,), (index(5),), x[i, j])
    value = inner + Reduce("sum", (k,), (index(5),), x[i, k] * inner)
    kernel = Kernel((), (x, y), 1, For(i, index(4), "serial", Store(y, (i,), value)))
    given: list[Array] = [np.random.default_rng(0).integers(-9, 9, (4, 5)).astype(np.float32)]
    found = run_native(kernel, given, entry=entry)
    np.testing.assert_array_equal(found, run_kernel(kernel, given))


def test_integers_wrap_around_and_equal_sides_do_not_warn() -> None:
    x, y, i = buffer("x", (2,), i32), buffer("y", (2,), i32), axis("i")
    twice: Scalar = x[i] + x[i]
    value = Select(Lt(x[i], x[i]), twice, Max(twice, twice))
    kernel = Kernel((), (x, y), 1, For(i, index(2), "serial", Store(y, (i,), value)))
    given: list[Array] = [np.array([2**31 - 1, 5], np.int32)]
    np.testing.assert_array_equal(run_native(kernel, given, entry=entry), [[-2, 10]])


@pytest.mark.parametrize("dtype", [each for each in DTYPES if each.is_coded], ids=str)
def test_every_code_of_a_dtype_that_c_has_not(dtype: DType) -> None:
    count = 1 << min(16, dtype.bits)
    x, y, i = buffer("x", (count,), dtype), buffer("y", (count,), dtype), axis("i")
    value = Cast(Cast(x[i], f32), dtype)
    kernel = Kernel((), (x, y), 1, For(i, index(count), "serial", Store(y, (i,), value)))
    codes = np.arange(count).astype(f"u{dtype.bytes}").view(dtype.numpy)
    with np.errstate(all="ignore"):
        (found,), (expected,) = (
            run_native(kernel, [codes], entry=entry),
            run_kernel(kernel, [codes]),
        )
    np.testing.assert_array_equal(
        found.astype(np.float32), expected.astype(np.float32), strict=True
    )


def test_open_sizes_are_refused() -> None:
    n = ScalarVar(Name("n"), i64)
    x, y, i = buffer("x", (n,), f32), buffer("y", (n,), f32), axis("i")
    kernel = Kernel((n,), (x, y), 1, For(i, n, "serial", Store(y, (i,), x[i])))
    with pytest.raises(UnsupportedError, match="open"):
        BACKEND.code_of(kernel, parse("c"))


def test_a_copy_that_nobody_reads_is_no_mistake() -> None:
    x, y, i = buffer("x", (3,), f32), buffer("y", (3,), f32), axis("i")
    copy = Buffer(Name("copy"), (index(1),), f32, "local")
    none = Buffer(Name("none"), (index(1),), f32, "local")
    stores = seq(Store(copy, (index(0),), x[i]), Store(y, (i,), x[i]))
    body = Alloc(none, Alloc(copy, stores))
    kernel = Kernel((), (x, y), 1, For(i, index(3), "serial", body))
    given = np.arange(3, dtype=np.float32)
    (found,) = run_native(kernel, [given], entry=entry)
    np.testing.assert_array_equal(found, given)
