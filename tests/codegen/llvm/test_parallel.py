"""Parallel loops run on the pool and mean what they mean on one thread."""

from __future__ import annotations

import ctypes
from typing import Any

import attrs
import numpy as np
import pytest
from hypothesis import assume, given, strategies as st

from plica.codegen.llvm import pool, toolchain
from plica.codegen.llvm.fold import fold
from plica.codegen.memory_plan import workspace_plan
from plica.codegen.program import Launch, Program, Slot
from plica.core.binding import free_vars
from plica.ir.interpret.evaluate import evaluate
from plica.ir.loop.statement import For, Kernel
from plica.ir.loop.tensor import buffer, compute, reduce
from plica.ir.type.dim import known
from plica.ir.type.dtype import f32, i64
from plica.runtime.link import LinkedCode, can_link, use_threads
from tests.codegen.native import assert_close, shape_of
from tests.codegen.nests import nest
from tests.strategies import arrays, computes

pytestmark = pytest.mark.skipif(not can_link(), reason="objects are not loaded here")


def run(kernel: Kernel, *arrays: Any, threads: int = 3) -> tuple[int, list[Any]]:
    """The code a kernel ends with on some threads, and what it writes."""
    slots = [
        Slot(
            "input" if number < kernel.inputs else "output",
            number if number < kernel.inputs else number - kernel.inputs,
            shape_of(each),
            each.dtype,
        )
        for number, each in enumerate(kernel.params)
    ]
    steps = (Launch(0, tuple(range(len(slots))), "kernel"),)
    program = Program((kernel,), ("kernel",), tuple(slots), (steps,), 0, ())
    here = toolchain.host()
    text = fold(program, workspace_plan(program), here)
    assert f"call void @{pool.PARALLEL}(" in text
    native = toolchain.build(text, here)
    assert isinstance(native.engine, LinkedCode)
    use_threads(native.engine, threads)
    made = [np.zeros(each.fixed, each.dtype.numpy) for each in slots[kernel.inputs :]]
    table = np.array([each.ctypes.data for each in (*arrays, *made)] + [0], np.uintp)
    code = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(native.address)(table.ctypes.data)
    return code, made


def in_parallel(kernel: Kernel) -> Kernel:
    """The kernel with its outermost loop made parallel."""
    assert isinstance(kernel.body, For)
    return attrs.evolve(kernel, body=attrs.evolve(kernel.body, kind="parallel"))


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_a_product_of_matrices(threads: int) -> None:
    a, b = buffer("a", (37, 19), f32), buffer("b", (19, 23), f32)
    made = compute((a, b), (37, 23), lambda i, j: reduce("sum", (19,), lambda k: a[i, k] * b[k, j]))
    random = np.random.default_rng(0)
    x, y = (random.standard_normal(s).astype(np.float32) for s in ((37, 19), (19, 23)))
    code, (found,) = run(in_parallel(nest(made)), x, y, threads=threads)
    assert code == 0
    assert_close(found, x @ y)


def test_a_loop_around_is_known_inside() -> None:
    a = buffer("a", (6, 40), f32)
    kernel = nest(compute((a,), (6, 40), lambda i, j: a[i, j] * 2.0 + 1.0))
    outer = kernel.body
    assert isinstance(outer, For)
    inner = outer.body
    assert isinstance(inner, For)
    body = attrs.evolve(outer, body=attrs.evolve(inner, kind="parallel"))
    x = np.arange(240, dtype=np.float32).reshape(6, 40)
    code, (found,) = run(attrs.evolve(kernel, body=body), x)
    assert code == 0
    assert np.array_equal(found, x * 2 + 1)


def test_a_failed_check_in_one_chunk_is_told() -> None:
    values, at = buffer("values", (5,), f32), buffer("at", (64,), i64)
    kernel = in_parallel(nest(compute((values, at), (64,), lambda i: values[at[i]])))
    x = np.arange(5, dtype=np.float32)
    where = np.arange(64) % 5
    code, (found,) = run(kernel, x, where)
    assert code == 0
    assert np.array_equal(found, x[where])
    where[50] = 9
    assert run(kernel, x, where)[0] == 1


@given(st.data())
def test_any_parallel_loop_means_what_it_meant(data: st.DataObject) -> None:
    of = data.draw(computes())
    assume(not free_vars(of) and isinstance(nest(of).body, For))
    kernel = in_parallel(nest(of))
    extent = kernel.body.extent if isinstance(kernel.body, For) else None
    assume(extent is not None and (known(extent) or 0) > 1)
    given_ = [data.draw(arrays(each.dtype, shape_of(each))) for each in of.inputs]
    code, (found,) = run(kernel, *given_)
    assert code == 0
    assert_close(found, np.asarray(evaluate(of, given_)))
