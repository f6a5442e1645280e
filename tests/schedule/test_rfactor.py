"""rfactor: partial results, then their combination."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from plica.ir.loop.scalar import BitXor, Lt, Max, Min, Mul, Scalar, lit
from plica.ir.loop.statement import For, Kernel, Seq, Stmt, Store, block as block_of
from plica.ir.loop.tensor import axis, buffer
from plica.ir.text.show import show_kernel
from plica.ir.type.dim import DimLike, dim, dim_var
from plica.ir.type.dtype import i32
from plica.schedule import bind, block, do, fuse, loops, parallel, reorder, rfactor, split
from plica.schedule.do import Body
from tests.conftest import Golden
from tests.schedule.hostile import after, keeps, nests, prepared, products, refusal
from tests.schedule.kernel import matmul, product_and_relu


@given(nests(), st.data())
def test_what_is_accepted_keeps_its_meaning(kernel: Kernel, data: st.DataObject) -> None:
    @do
    def schedule() -> Body:
        c = yield block("y0")
        yield rfactor(data.draw(st.sampled_from((yield loops(c)))), data.draw(st.integers(-2, 1)))

    keeps(kernel, schedule)


@given(products(), st.data())
def test_after_other_steps(product: tuple[Kernel, dict[str, int]], data: st.DataObject) -> None:
    @do
    def schedule() -> Body:
        _, _, k = yield loops((yield block("C")))
        factor = data.draw(st.integers(1, 4))
        parts = yield split(k, data.draw(st.sampled_from(((None, factor), (factor, None)))))
        yield prepared(data)
        yield rfactor(data.draw(st.sampled_from(parts)), data.draw(st.integers(-3, 2)))

    keeps(product[0], schedule, **product[1])


@pytest.mark.parametrize("at", [0, 1])
def test_partial_sums(at: int, golden: Golden) -> None:
    def schedule() -> Body:
        _, _, k = yield loops((yield block("C")))
        parts = yield split(k, (3, None))
        partial = yield rfactor(parts[at], at)
        around = yield loops(partial)
        yield reorder(around[-2 + at], *around[:2])
        yield parallel(around[-2 + at])

    kernel = after(matmul(3, 2, dim_var("depth")), schedule, depth=4)
    golden(show_kernel(kernel), f"rfactor_{at}")


def test_the_only_reduce_loop() -> None:
    def schedule() -> Body:
        _, _, k = yield loops((yield block("C")))
        yield rfactor(k, -1)

    after(matmul(), schedule)


def test_parts_that_no_iteration_belongs_to() -> None:
    """4 times 4 iterations for 5: the last parts are empty, and take the neutral value."""

    def schedule() -> Body:
        _, _, k = yield loops((yield block("C")))
        k0, _ = yield split(k, (4, 4))
        yield rfactor(k0, 0)

    after(matmul(2, 2, 5), schedule)


@pytest.mark.parametrize("operation", [Max, Min, Mul])
def test_other_operations(operation: type[Max] | type[Min] | type[Mul]) -> None:
    def schedule() -> Body:
        _, k = yield loops((yield block("y")))
        k0, _ = yield split(k, (2, None))
        yield rfactor(k0, 1)

    after(rows(operation), schedule)


def rows(operation: type[Max] | type[Min] | type[Mul], guard: bool = False) -> Kernel:
    x, y = buffer("x", (3, 5), i32), buffer("y", (3,), i32)
    i, k, v, w = (axis(each) for each in "ikvw")
    value: Scalar = operation(y[v], x[v, w])
    init = Store(y, (v,), lit(2, i32))
    total = block_of(
        "y", (v, w), (3, 5), "sr", (i, k), Store(y, (v,), value), init,
        **({"predicate": Lt(k, i + 3)} if guard else {}),  # type: ignore[arg-type]  # a scalar
    )  # fmt: skip
    return Kernel((), (x, y), 1, For(i, dim(3), "serial", For(k, dim(5), "serial", total)))


@pytest.mark.parametrize(
    "word",
    [
        "plain-loop",
        "one-block",
        "reduce-kinds",
        "axis",
        "begins",
        "reduce-loop",
        "no-reduce-thread",
    ],
)
def test_refusals(word: str) -> None:
    def schedule() -> Body:
        c, d = (yield block("C")), (yield block("D"))
        (i, j, k), (i2, _) = (yield loops(c)), (yield loops(d))
        k0, k1 = yield split(k, (None, 2))
        if word == "plain-loop":
            yield bind(k1, "threadIdx.x")
        if word == "no-reduce-thread":
            yield bind(k0, "threadIdx.x")
        if word == "begins":
            j = yield fuse(j, k0)
        target = {"reduce-kinds": i2, "reduce-loop": i}.get(word, k1)
        yield rfactor(target, 3 if word == "axis" else 0)

    if word == "one-block":
        assert refusal(two_in_one(), lambda: _first(1)) == word
        assert refusal(two_in_one(), lambda: _first(0)) == word
    else:
        assert refusal(product_and_relu(), schedule) == word


def _first(at: int) -> Body:
    around = yield loops((yield block("y")))
    yield rfactor(around[at], 0)


def two_in_one() -> Kernel:
    """Two sums in the body of one loop."""
    x, y, z = buffer("x", (3, 4), i32), buffer("y", (1,), i32), buffer("z", (1,), i32)
    i, k, p, q, r, s = (axis(each) for each in "ikpqrs")
    zero = lit(0, i32)
    one = block_of("y", (p, q), (3, 4), "rr", (i, k), Store(y, (zero_(),), y[0] + x[p, q]),
                   Store(y, (zero_(),), zero))  # fmt: skip
    two = block_of("z", (r, s), (3, 4), "rr", (i, k), Store(z, (zero_(),), z[0] + x[r, s]),
                   Store(z, (zero_(),), zero))  # fmt: skip
    inside = For(k, dim(4), "serial", Seq((one, two)))
    return Kernel((), (x, y, z), 1, For(i, dim(3), "serial", inside))


def zero_() -> Scalar:
    return dim(0)


def test_a_condition_on_loops_of_both_kinds() -> None:
    def schedule() -> Body:
        _, k = yield loops((yield block("y")))
        yield rfactor(k, 0)

    assert refusal(rows(Max, guard=True), schedule) == "separate-predicate"


def summed(update: Store, init: Stmt, extent: DimLike = 4) -> Kernel:
    """y[v] of x[v, w], updated in some way."""
    x, y = buffer("x", (3, 4), i32), buffer("y", (3,), i32)
    i, k = axis("i"), axis("k")
    total = block_of("y", (axis("v"), axis("w")), (3, 4), "sr", (i, k), update, init)
    nest = For(i, dim(3), "serial", For(k, dim(extent), "serial", total))
    return Kernel((), (x, y), 1, nest)


def test_what_cannot_be_taken_apart() -> None:
    def schedule() -> Body:
        _, k = yield loops((yield block("y")))
        yield rfactor(k, 0)

    x, y, v, w = buffer("x", (3, 4), i32), buffer("y", (3,), i32), axis("v"), axis("w")
    zero, plus = Store(y, (v,), lit(0, i32)), Store(y, (v,), y[v] + x[v, w])
    u = axis("u")
    many = For(u, dim(1), "serial", Store(y, (v,), lit(0, i32)))
    assert refusal(summed(plus, zero), schedule) == "accepted"
    assert refusal(summed(plus, many), schedule) == "single-store"
    assert refusal(summed(Store(y, (v,), BitXor(y[v], x[v, w])), zero), schedule) == "reducer"
    assert refusal(summed(Store(y, (v,), x[v, w] - y[v]), zero), schedule) == "reducer"


def test_an_extent_of_loops_around() -> None:
    x, y = buffer("x", (3, 4), i32), buffer("y", (3,), i32)
    i, k, v, w = (axis(each) for each in "ikvw")
    update, init = Store(y, (v,), y[v] + x[v, w]), Store(y, (v,), lit(0, i32))
    total = block_of("y", (v, w), (3, 4), "sr", (i, k), update, init)
    nest = For(i, dim(3), "serial", For(k, i + 1, "serial", total))

    def schedule() -> Body:
        _, around = yield loops((yield block("y")))
        yield rfactor(around, 0)

    assert refusal(Kernel((), (x, y), 1, nest), schedule) in ("begins", "extents")
