"""Tensor intrinsics: what they do is what they mean, or they are not declared."""

from __future__ import annotations

import numpy as np
import pytest

from plica.core.diagnostic import EvaluationError, Malformed
from plica.ir.interpret.kernel import run_in_place, run_kernel
from plica.ir.loop.intrinsic import find_intrinsic, intrinsic, intrinsics
from plica.ir.loop.scalar import Buffer, Cast, Lit, Ramp, Scalar, index
from plica.ir.loop.statement import For, Invoke, Kernel, Region, Stmt, Store, seq
from plica.ir.loop.tensor import axis, buffer
from plica.ir.type.dim import dim_var
from plica.ir.type.dtype import i8, i32

n = dim_var("n")
i, j, k = axis("i"), axis("j"), axis("k")
a, b, c = buffer("a", (4,), i8), buffer("b", (4, 4), i8), buffer("c", (4,), i32)


def widened(load: Scalar) -> Scalar:
    return Cast(load, i32)


def dot(update: Scalar, rows: int = 4) -> Kernel:
    """`c[i] += sum over k of a[k] * b[i, k]`, as an instruction for dot products does it."""
    body: Stmt = For(i, index(rows), "serial", For(k, index(4), "serial", Store(c, (i,), update)))
    return Kernel((), (a, b, c), 2, body)


MEANING = dot(c[i] + widened(a[k]) * widened(b[i, k]))


def in_lanes() -> Kernel:
    lanes, steps = Ramp(index(0), index(1), 4), []
    for number in range(4):
        product = widened(a[Ramp(index(number), index(0), 4)]) * widened(b[lanes, index(number)])
        steps.append(Store(c, (lanes,), c[lanes] + product))
    return Kernel((), (a, b, c), 2, seq(*steps))


def test_an_implementation_that_does_what_it_means() -> None:
    made = intrinsic("test.dot", MEANING, in_lanes(), (("isa", "vnni"),))
    assert find_intrinsic("test.dot") is made
    assert made in intrinsics()
    assert intrinsic("test.dot", MEANING, in_lanes(), (("isa", "vnni"),)) is made


@pytest.mark.parametrize(
    "wrong",
    [
        dot(c[i] + widened(a[k]) * widened(b[k, i])),
        dot(c[i] + widened(a[i]) * widened(b[i, k])),
        dot(c[i] - widened(a[k]) * widened(b[i, k])),
        dot(widened(a[k]) * widened(b[i, k])),
        dot(c[i] + widened(a[k]) * widened(b[i, k]), rows=3),
    ],
)
def test_an_implementation_that_does_not(wrong: Kernel) -> None:
    with pytest.raises(EvaluationError) as caught:
        intrinsic("test.wrong", MEANING, wrong)
    (said,) = caught.value.diagnostics
    assert said.code == "bad-intrinsic"
    assert said.expected is not None
    assert said.expected.startswith("c[")
    assert find_intrinsic("test.wrong") is None


def test_an_implementation_of_something_else() -> None:
    other = Kernel((), (a, c), 1, Store(c, (index(0),), Lit(0, i32)))
    with pytest.raises(EvaluationError, match="other buffers"):
        intrinsic("test.other", MEANING, other)


def test_a_name_is_given_once() -> None:
    intrinsic("test.once", MEANING)
    with pytest.raises(EvaluationError, match="declared already") as refused:
        intrinsic("test.once", in_lanes())
    assert refused.value.diagnostics[0].found == "another meaning"
    assert refused.value.diagnostics[0].suggestion is not None
    with pytest.raises(Malformed):
        intrinsic("not a name", MEANING)


def symbolic(extent: Scalar) -> Kernel:
    p, q = buffer("p", (n,), i32), buffer("q", (n,), i32)
    return Kernel((n,), (p, q), 1, For(i, extent, "serial", Store(q, (i,), q[i] + p[i])))


def test_dims_of_an_intrinsic() -> None:
    intrinsic("test.add_n", symbolic(n), symbolic(n * 1))
    with pytest.raises(EvaluationError) as caught:
        intrinsic("test.add_less", symbolic(n), symbolic(n - 1))
    assert "n=1" in caught.value.diagnostics[0].message


rows, sums = buffer("rows", (3, 6), i32), buffer("sums", (6,), i32)
ROWS = np.arange(18, dtype=np.int32).reshape(3, 6)


def summed(*more: Scalar, source: Buffer = rows, width: int = 6) -> Kernel:
    intrinsic("test.add_n", symbolic(n), symbolic(n * 1))
    first = Region(source, (j, index(0)), (index(1), index(width)))
    call = Invoke("test.add_n", (first, Region(sums, (index(0),), (index(6),)), *more))
    start = For(i, index(6), "serial", Store(sums, (i,), Lit(0, i32)))
    return Kernel((), (rows, sums), 1, seq(start, For(j, index(3), "serial", call)))


@pytest.mark.parametrize("more", [(), (index(6),)])
def test_invoking_with_dims(more: tuple[Scalar, ...]) -> None:
    (found,) = run_kernel(summed(*more), (ROWS,))
    assert found.tolist() == ROWS.sum(0).tolist()


@pytest.mark.parametrize(
    ("kernel", "code"),
    [
        (summed(index(5)), "shape-conflict"),
        (summed(width=5), "shape-conflict"),
        (summed(index(6), index(6)), "wrong-arity"),
    ],
)
def test_operands_that_do_not_fit(kernel: Kernel, code: str) -> None:
    with pytest.raises(EvaluationError) as caught:
        run_kernel(kernel, (ROWS,))
    assert caught.value.code == code


def test_running_in_place() -> None:
    before = np.array([1, 2, 3], np.int32)
    one, two = run_in_place(symbolic(n), (before, before * 10))
    assert one.tolist() == [1, 2, 3]
    assert two.tolist() == [11, 22, 33]
