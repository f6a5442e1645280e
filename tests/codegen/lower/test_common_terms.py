"""Common terms: computed once, meaning the same, and only where that is so."""

from __future__ import annotations

from hypothesis import given, settings

from plica.codegen.lower.common_terms import common_terms
from plica.codegen.lower.passes import lower
from plica.ir.loop.scalar import Intrinsic, Lit, Lt, Select, index
from plica.ir.loop.statement import Bind, For, Kernel, Seq, Stmt, Store, statements
from plica.ir.loop.tensor import axis, buffer
from plica.ir.type.dtype import f32, i64
from tests.codegen.lower.kernels import assert_same, scheduled


def kernel(*inner: Stmt) -> Kernel:
    body = For(ROW, index(24), "serial", Seq(inner))
    return Kernel((), (X, Y, Z), 1, body)


X, Y, Z = (buffer(name, (24,), f32) for name in "xyz")
ROW, J = axis("i"), axis("j")
HIGH = ROW // 5


def bindings(of: Kernel) -> list[Bind]:
    return [each for each in statements(of.body) if isinstance(each, Bind)]


def test_what_two_statements_compute_is_computed_once() -> None:
    before = kernel(Store(Y, (ROW,), X[HIGH]), Store(Z, (ROW,), X[HIGH + 1] + X[ROW % 5 + HIGH]))
    after = common_terms(before)
    (bound,) = bindings(after)
    assert bound.value is HIGH
    assert common_terms(after) is after
    assert_same(before, after)


def test_terms_are_bound_as_they_come_in_the_text() -> None:
    wanted = [ROW // by for by in range(2, 12)]
    both = sum((X[each] for each in wanted[1:]), X[wanted[0]])
    after = common_terms(kernel(Store(Y, (ROW,), both), Store(Z, (ROW,), both)))
    assert [each.value for each in bindings(after)] == wanted


def test_a_term_inside_another_goes_with_it() -> None:
    whole = HIGH * 2 % 3
    before = kernel(Store(Y, (ROW,), X[whole]), Store(Z, (ROW,), X[whole]))
    (bound,) = bindings(common_terms(before))
    assert bound.value is whole
    assert_same(before, common_terms(before))


def test_functions_are_shared() -> None:
    root = Intrinsic("exp", (Lit(0.5, f32) * Lit(1.0, f32),))
    far = Intrinsic("truncdiv", (ROW, Lit(7, i64)))
    before = kernel(Store(Y, (ROW,), X[far] * root), Store(Z, (ROW,), X[far]))
    after = common_terms(before)
    assert [each.value for each in bindings(after)] == [far]
    assert_same(before, after)


def test_what_reads_memory_or_belongs_to_a_loop_stays() -> None:
    read = Intrinsic("exp", (X[ROW],))
    before = kernel(Store(Y, (ROW,), read), Store(Z, (ROW,), read))
    assert common_terms(before) is before
    loops = [For(J, index(3), "serial", Store(each, (ROW,), X[(ROW + J) // 5])) for each in (Y, Z)]
    assert common_terms(kernel(*loops)) is kernel(*loops)


def in_lanes(*stores: Store) -> Kernel:
    """Eight lanes at a time, three times."""
    lanes = For(J, index(8), "vectorized", Seq(stores))
    return Kernel((), (X, Y, Z), 1, For(ROW, index(3), "serial", lanes))


def test_rows_in_a_vector_share_what_they_read_and_compute() -> None:
    here, left, right = ROW * 8 + J, X[J], X[J + 8]
    both = left - right
    before = in_lanes(
        Store(Y, (here,), both + Lit(2.0, f32) * right),
        Store(Z, (here,), left + Lit(2.0, f32) * right + both),
    )
    after = common_terms(before)
    assert [each.value for each in bindings(after)][:2] == [left, right]
    assert len(bindings(after)) == 3  # and their difference; no product
    assert common_terms(after) is after
    assert_same(before, after)


def test_rows_read_what_they_write_again() -> None:
    written = in_lanes(Store(Y, (J,), X[J]), Store(Y, (J,), Y[J] + Y[J]), Store(Z, (J,), Y[J]))
    assert common_terms(written) is written


def test_what_a_choice_leaves_out_is_not_read_before_it() -> None:
    here = ROW * 8 + J
    taken = Select(Lt(J, index(4)), X[J * 6], Lit(0.0, f32))
    apart = in_lanes(Store(Y, (here,), taken), Store(Z, (here,), Lit(1.0, f32) + taken.then))
    assert common_terms(apart) is apart
    both = in_lanes(Store(Y, (here,), taken), Store(Z, (here,), taken))
    assert [each.value for each in bindings(common_terms(both))] == [taken]
    assert_same(both, common_terms(both))


@given(scheduled())
@settings(max_examples=8)
def test_it_keeps_what_a_kernel_means(given_: tuple[Kernel, dict[str, int]]) -> None:
    lowered = lower(given_[0])
    after = common_terms(lowered)
    assert common_terms(after) is after
    assert_same(lowered, after, **given_[1])
