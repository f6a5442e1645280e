"""Digits: guards about high digits hold where they held before; registers are named by loops."""

from __future__ import annotations

from itertools import product

from hypothesis import given, strategies as st

from plica.analysis.enclosing import simple
from plica.analysis.index import EMPTY
from plica.analysis.index.context import conjuncts
from plica.codegen.lower.digit import coarser, digits, in_lowest
from plica.core.binding import free_vars, substitute
from plica.core.name import Name
from plica.ir.loop.scalar import Buffer, Le, Load, Lt, Scalar, Select, index, lit
from plica.ir.loop.statement import TRUE, Alloc, Branch, For, Kernel, Seq, Store, statements
from plica.ir.loop.tensor import axis, buffer
from plica.ir.type.dim import known
from plica.ir.type.dtype import f32

P, J, K = (axis(name) for name in "pjk")


@given(
    counts=st.tuples(*[st.integers(1, 4)] * 3), steps=st.tuples(*[st.integers(-3, 9)] * 3),
    limit=st.integers(-9, 60), strict=st.booleans(),
)  # fmt: skip
def test_a_coarser_guard_holds_where_the_guard_does(
    counts: tuple[int, int, int], steps: tuple[int, int, int], limit: int, strict: bool
) -> None:
    context = EMPTY
    place: Scalar = index(0)
    for var, count, step in zip((P, J, K), counts, steps, strict=True):
        context = context.loop(var, count)
        place = place + var * step
    guard = Lt(place, index(limit)) if strict else Le(place, index(limit))
    found = coarser(guard, context)
    for at in product(*map(range, counts)):
        told = dict(zip((P, J, K), map(index, at), strict=True))
        said = [known(simple(substitute(each, told))) for each in (guard, found)]
        assert said[0] == said[1]


@given(
    counts=st.tuples(*[st.integers(1, 4)] * 3), steps=st.tuples(*[st.integers(-1, 9)] * 3),
    limit=st.integers(-1, 20),
)  # fmt: skip
def test_a_bound_digit_by_digit_holds_where_the_bound_does(
    counts: tuple[int, int, int], steps: tuple[int, int, int], limit: int
) -> None:
    context = EMPTY
    place: Scalar = index(0)
    for var, count, step in zip((P, J, K), counts, steps, strict=True):
        context = context.loop(var, count)
        place = place + var * step
    guard = Lt(place, index(limit))
    found = in_lowest(guard, context)
    for at in product(*map(range, counts)):
        values = [evaluate(each, at) for each in (guard, found)]
        assert values[0] == values[1]


def evaluate(condition: Scalar, at: tuple[int, ...]) -> bool:
    """Whether a conjunction of bounds holds somewhere."""
    told = dict(zip((P, J, K), map(index, at), strict=True))
    holds = True
    for each in conjuncts(condition):
        assert isinstance(each, Lt)
        sides = [known(simple(substitute(side, told))) for side in (each.left, each.right)]
        assert None not in sides
        holds = holds and (sides[0] or 0) < (sides[1] or 0)
    return holds


def test_neighbours_are_inside_together() -> None:
    found = coarser(Lt(P * 8 + J * 2 + K, index(24)), EMPTY.loop(P, 4).loop(J, 4).loop(K, 2))
    assert free_vars(found) == {P}


def test_a_choice_may_be_none() -> None:
    out = buffer("out", (8,), f32)
    body = For(P, index(8), "serial", Store(out, (P,), Select(TRUE, lit(1.0, f32), lit(2.0, f32))))
    made = digits(Kernel((), (out,), 0, body))
    (store,) = [each for each in statements(made.body) if isinstance(each, Store)]
    assert isinstance(store.value, Select)
    assert store.value.condition is TRUE


def test_a_register_is_named_by_its_loops_whatever_a_guard_says() -> None:
    """Behind `i < 1` it would be the first one, which is written elsewhere as any."""
    own = Buffer(Name("own"), (index(2), index(4)), f32, "local")
    out = buffer("out", (8,), f32)
    whole = P * 4 + J
    fill = For(J, index(4), "serial", Store(own, (P, J), lit(1.0, f32)))
    read = Store(out, (whole,), Load(own, (whole // 4, whole % 4)))
    guarded = For(J, index(4), "serial", Branch(Lt(P, index(1)), read, Seq(())))
    body = For(P, index(2), "threadIdx.x", Alloc(own, Seq((fill, guarded))))
    made = digits(Kernel((), (out,), 0, body))
    (load,) = [
        each.value for each in statements(made.body)
        if isinstance(each, Store) and isinstance(each.value, Load)
    ]  # fmt: skip
    assert load.indices == (P, J)
