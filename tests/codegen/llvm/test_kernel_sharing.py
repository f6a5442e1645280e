"""Kernels that differ in numbers alone: one function serves them, and means what each meant."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import plica
from plica import op
from plica.codegen.llvm import unit
from plica.codegen.llvm.fold import kernel_text
from plica.codegen.llvm.kernel_sharing import Shared, sharing
from plica.codegen.llvm.toolchain import host
from plica.core.name import Name
from plica.core.term import Term
from plica.ir.graph.expression import Expr, Function, Var, const
from plica.ir.graph.module import module
from plica.ir.interpret.kernel import run_kernel
from plica.ir.loop.statement import Kernel
from plica.ir.type.dim import dim_var
from plica.ir.type.term import tensor
from tests.codegen.lower.kernels import inputs, read

ROWS = """
def f(x: Buffer[("n", {c}, {k}), f32], w: Buffer[({c},), f32], y: Buffer[("n", {c}, {k}), f32]):
    for i, c in grid(n, {c}):
        for j in range({k}):
            y[i, c, j] = x[i, c, j] * w[c] + x[i, {c} - 1, j]
"""


def rows(channels: int, width: int = 3) -> Kernel:
    return read(ROWS.format(c=channels, k=width))


@settings(max_examples=12)
@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 4)), min_size=2, max_size=4))
def test_a_shared_kernel_at_its_numbers_is_each_of_them(sizes: list[tuple[int, int]]) -> None:
    kernels = [rows(*each) for each in sizes]
    for kernel, (one, told) in zip(kernels, sharing(kernels), strict=True):
        arrays = inputs(kernel, {"n": 2})
        numbers: dict[Term, int] = dict(zip(one.dims, (2, *told), strict=True))
        (ours,) = run_kernel(one, arrays, numbers)
        (theirs,) = run_kernel(kernel, arrays, {kernel.dims[0]: 2})
        np.testing.assert_array_equal(ours, theirs)
    assert len({one for one, _ in sharing(kernels)}) == 1 or len({*kernels}) == 1


def test_what_is_a_multiple_stays_one() -> None:
    first, second = sharing([rows(4, 8), rows(5, 10)])
    assert first == (second[0], (4,))
    assert second[1] == (5,)


LANES = """
def f(x: Buffer[("n", {c}, {k}), f32], y: Buffer[("n", {c}, {k}), f32]):
    for i in range(n):
        for c in {kind}({c}):
            for j in {lanes}(4):
                y[i, c, {at}] = x[i, c, {at}]
"""


@pytest.mark.parametrize(
    ("few", "many"),
    [
        # how many copies there are
        ({"c": 2, "k": 4, "kind": "unrolled", "lanes": "range", "at": "j"},
         {"c": 3, "k": 4, "kind": "unrolled", "lanes": "range", "at": "j"}),
        # what each element is divided by
        ({"c": 4, "k": 4, "kind": "range", "lanes": "range", "at": "j // 2"},
         {"c": 4, "k": 4, "kind": "range", "lanes": "range", "at": "j // 3"}),
        # what is less than nothing
        ({"c": 2, "k": 9, "kind": "range", "lanes": "range", "at": "max(j + -3, 0)"},
         {"c": 2, "k": 9, "kind": "range", "lanes": "range", "at": "max(j + -2, 0)"}),
        # how far lanes are apart
        ({"c": 2, "k": 8, "kind": "range", "lanes": "vectorized", "at": "j * 2"},
         {"c": 2, "k": 8, "kind": "range", "lanes": "vectorized", "at": "j * 1"}),
    ],
)  # fmt: skip
def test_numbers_that_decide_what_code_looks_like_stay(
    few: dict[str, object], many: dict[str, object]
) -> None:
    kernels = [read(LANES.format(**each)) for each in (few, many)]
    assert sharing(kernels) == [(each, ()) for each in kernels]


def test_copies_are_a_told_distance_apart_where_that_is_asked_for() -> None:
    text = """
def f(x: Buffer[("n", 2, {k}), f32], y: Buffer[("n", 2, {k}), f32]):
    for i, j in grid(n, {k}):
        for c in unrolled(2):
            y[i, c, j] = x[i, c, j]
"""
    kernels = [read(text.format(k=each)) for each in (4, 7)]
    assert sharing(kernels, apart=False) == [(each, ()) for each in kernels]
    assert sharing(kernels)[0][0] is sharing(kernels)[1][0]


def test_sizes_that_are_all_known_are_nobody_elses() -> None:
    text = """
def f(x: Buffer[({c},), f32], y: Buffer[({c},), f32]):
    for i in range({c}):
        y[i] = x[i]
"""
    kernels = [read(text.format(c=each)) for each in (4, 7)]
    assert sharing(kernels) == [(each, ()) for each in kernels]


def test_layers_of_other_widths_are_one_function() -> None:
    module = plica.from_text("""
@plica.function
def main(
    x: Tensor[(1, 4, "h", "w"), f32], a: Tensor[(6, 1, 3, 3), f32], b: Tensor[(8, 1, 3, 3), f32]
):
    y = op.concatenate((x, op.slice(x, (0, 0, 0, 0), (1, 2, "h", "w"))), axis=1)
    y = nn.conv(y, a, padding=1, groups=6)
    y = op.concatenate((y, op.slice(y, (0, 0, 0, 0), (1, 2, "h", "w"))), axis=1)
    return nn.conv(y, b, padding=1, groups=8)
""")
    exe = plica.compile(module, cache=False)
    random = np.random.default_rng(0)
    a, b = (random.standard_normal((each, 1, 3, 3)).astype(np.float32) for each in (6, 8))
    for size in ((5, 9), (12, 4), (1, 1)):
        x = random.standard_normal((1, 4, *size)).astype(np.float32)
        np.testing.assert_allclose(exe(x, a, b), plica.interpret(module, x, a, b), atol=1e-4)


FOUND = """
def f(at: Buffer[("n",), i64], x: Buffer[({c},), f32], y: Buffer[("n",), f32]):
    for i in range(n):
        y[i] = x[at[i]]
"""


def test_no_kernel_looks_where_none_of_its_own_does() -> None:
    """Products of several sizes, whose places are inside by what their sizes are."""
    kernels = [rows(4, 8), rows(5, 9)]
    (shared, _), _ = sharing(kernels)
    assert shared not in kernels
    assert sharing(kernels, looks=lambda of: of is shared) == [(each, ()) for each in kernels]
    found = [read(FOUND.format(c=count)) for count in (3, 7)]  # which look in any case
    assert len({of for of, _ in sharing(found, looks=lambda of: True)}) == 1


def test_what_cannot_be_written_serves_nobody() -> None:
    """An instruction whose memory is shown to be its own for known sizes, not for told ones."""
    kernels = [rows(4, 8), rows(5, 9)]
    own = [(each, ()) for each in kernels]
    assert sharing(kernels, looks=lambda of: True if of in kernels else None) == own
    assert sharing(kernels, looks=lambda of: False if of in kernels else None) == own


def test_products_of_open_rows_never_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products that differ in their sizes alone took six times as long where they were one."""
    served: list[Kernel] = []

    def noted(kernels: Sequence[Kernel], **how: Any) -> list[Shared]:
        found = sharing(kernels, **how)
        served.extend(kernel for kernel, _ in found)
        return found

    monkeypatch.setattr(unit, "sharing", noted)
    random = np.random.default_rng(0)
    dims = dim_var("n"), dim_var("m")
    x = Var(Name("x"), tensor((*dims, 56), "f32"))
    body: Expr = x
    for wide, long in ((56, 256), (256, 128), (128, 56)):
        weight = random.standard_normal((wide, long)).astype(np.float32)
        body = op.matmul(body, const(weight)) + const(weight[0])
    main = Var(Name("main"), None)
    of = module({main: Function(dims, (), (x,), None, body)}, main)
    plica.compile(of, threads=1, cache=False)
    assert len(served) > 1
    assert not any(kernel_text(each, None, "k", host()).can_fail for each in served)
