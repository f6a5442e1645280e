"""Rows that go in chunks: which functions have such, whatever their number is made of."""

from __future__ import annotations

import numpy as np
import pytest

from plica.codegen.lower.chunk import FAR, FEW, MANY, chunk, rows_of, sizes_of
from plica.codegen.lower.group import groups_of
from plica.codegen.lower.processor import processor
from plica.core.name import Name
from plica.ir.contract import reassociates
from plica.ir.graph.expression import Apply, Call, Expr, Function, Var, const
from plica.ir.graph.module import module
from plica.ir.loop.scalar import Max, Min, Scalar, index
from plica.ir.op.comparison import less
from plica.ir.op.create import dim_value, iota
from plica.ir.op.cut import slice_
from plica.ir.op.elementwise import add, cast, subtract
from plica.ir.op.index import where
from plica.ir.op.join import concat
from plica.ir.op.pad import pad
from plica.ir.op.record import scalar
from plica.ir.type.dim import dim_var, product
from plica.ir.type.dtype import f32, i64
from plica.ir.type.infer import type_of
from plica.ir.type.term import TensorType, static_shape, tensor
from plica.schedule.default.machine import Machine

n, m = dim_var("n"), dim_var("m")


def dense(first: tuple[Scalar, ...], columns: int, depth: int = 32) -> Function:
    x = Var(Name("x"), tensor((*first, depth), "f32"))
    w = Var(Name("w"), tensor((columns, depth), "f32"))
    return Function((), (), (x, w), None, Apply("nn.dense", (x, w)))


@pytest.mark.parametrize("columns", [8, 9000])
@pytest.mark.parametrize(
    "first", [(n,), (n, m), ((n + 1) // 2, m), (n * m,), ((n + 1) // 2 * 16,), (n + 1,)]
)
def test_rows_are_found_whatever_their_number_is(first: tuple[Scalar, ...], columns: int) -> None:
    rows = rows_of(dense(first, columns))
    assert rows is not None
    assert rows.count is product(first)
    part = type_of(chunk(rows, 16).body)
    assert isinstance(part, TensorType)
    assert static_shape(part) == (*[1] * (len(first) - 1), 16, columns)


def test_a_size_that_is_asked_for_is_no_number_of_rows() -> None:
    whole = dense(((n + 1) // 2,), 8)
    asked = add(whole.body, cast(dim_value(dim=n), f32))
    assert rows_of(Function((), (), whole.params, None, asked)) is None


def test_a_size_made_of_another_is_no_number_of_rows_of_its_own() -> None:
    x = Var(Name("x"), tensor((n, n), "f32"))
    both = concat((x, x), axis=1)
    near = less(iota(shape=(n, n + n), axis=1), scalar(1, i64))
    first = where(near, both, scalar(0.0, f32))
    assert rows_of(Function((), (), (x,), None, first)) is None


@pytest.mark.parametrize("size", [n + 1, Min(index(240), n) + 160, Max(n, index(2))])
def test_a_size_that_is_never_0_has_no_rows_that_may_be(size: Scalar) -> None:
    """`x - pad(x[:-1])` types if the size is at least 1, which a dim in place of it is not."""
    x = Var(Name("x"), tensor((m, size), "f32"))
    before = pad(slice_(x, (0,), (-1,), None, (1,)), ((0, 0), (1, 0)), mode="edge")
    of = Function((), (), (x,), None, subtract(x, before))
    assert isinstance(type_of(of.body), TensorType)
    assert rows_of(of) is None


def test_what_is_far_is_read_for_more_rows_at_once() -> None:
    near, far = (rows_of(dense((n,), FAR // 1024 + more, 1024)) for more in (0, 1))
    assert near is not None
    assert far is not None
    assert set(sizes_of(far)) - set(sizes_of(near)) >= {MANY, FEW}


@pytest.mark.parametrize("known", [False, True])
def test_what_is_made_beforehand_is_what_will_be_launched(known: bool) -> None:
    of = dense((n,), 256, 64)
    x = of.params[0]
    w: Expr = const(np.zeros((256, 64), np.float32)) if known else of.params[1]
    params = (x,) if known else of.params
    main = Var(Name("main"), None)
    whole = module({main: Function((n,), (), params, None, Call(of, (x, w)))}, main)
    scheduler = processor(Machine(512, 32), reassociates)
    assert scheduler.takes_all(of, scheduler.facts(of, (x, w))) is known
    made = [function for function, _ in groups_of(whole, scheduler)]
    rows, sizes = scheduler.rows(of, (x, w))
    assert made == ([of] if rows is None else [chunk(rows, size) for size in sizes])
    assert (rows is None) is known
