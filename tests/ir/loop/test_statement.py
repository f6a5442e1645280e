"""Loop programs: scopes, and what a store needs."""

from __future__ import annotations

import pytest
from hypothesis import given

from plica.core.binding import free_vars
from plica.core.diagnostic import IllFormed
from plica.core.digest import alpha_equal
from plica.core.encode import from_json, to_json
from plica.core.name import Name
from plica.ir.loop.scalar import Buffer, Lit, ScalarVar
from plica.ir.loop.statement import Alloc, For, Kernel, Seq, Store
from plica.ir.type.dim import dim_var
from plica.ir.type.dtype import f32, i64
from tests.strategies import kernels

N = dim_var("n")
OUT = Buffer(Name("out"), (N,), f32)
ROW, COLUMN = ScalarVar(Name("i"), i64), ScalarVar(Name("j"), i64)


@given(kernels())
def test_generated_kernels_are_closed(kernel: Kernel) -> None:
    assert free_vars(kernel) == frozenset()
    assert from_json(to_json(kernel)) is kernel


def copying(var: ScalarVar) -> Kernel:
    source = Buffer(Name("x"), (N,), f32)
    loop = For(var, N, "serial", Store(OUT, (var,), source[var]))
    return Kernel((N,), (source, OUT), 1, loop)


def test_a_kernel_binds_its_dims_and_buffers_and_a_loop_its_variable() -> None:
    assert free_vars(copying(ROW)) == frozenset()
    assert alpha_equal(copying(ROW), copying(COLUMN))
    loop = For(ROW, ROW, "serial", Store(OUT, (ROW,), Lit(0, f32)))
    assert free_vars(loop) == {ROW, OUT, N}  # the extent is outside the loop


def test_an_allocated_buffer_lives_in_its_body() -> None:
    local = Buffer(Name("t"), (Lit(1, i64),), f32)
    store = Store(local, (Lit(0, i64),), Lit(1, f32))
    assert free_vars(Alloc(local, store)) == frozenset()
    assert free_vars(Seq((Alloc(local, store), store))) == {local}


def test_a_store_has_as_many_indices_as_its_buffer_dims() -> None:
    with pytest.raises(IllFormed, match="has rank 1, not 2"):
        Store(OUT, (ROW, ROW), Lit(0, f32))
