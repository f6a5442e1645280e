"""Dependence: who feeds whom; a loop said to have independent iterations has them."""

from __future__ import annotations

from itertools import combinations, product

from hypothesis import given, strategies as st
from hypothesis.strategies import DrawFn

from plica.analysis.dependence import (
    children,
    conflicts,
    consumers as after,
    is_private,
    outputs,
    producers as before,
    unblocked_statement,
)
from plica.analysis.index.point import value
from plica.core.binding import substitute
from plica.core.name import Name
from plica.ir.loop.scalar import Cast, Lit, Lt, Scalar, index
from plica.ir.loop.statement import TRUE, Alloc, For, Seq, Stmt, Store, block, seq
from plica.ir.loop.tensor import axis, buffer
from plica.ir.type.dtype import f32, i64
from plica.schedule import (
    block as named,
    child_blocks,
    consumers,
    do,
    output_blocks,
    producers,
    record,
    replay,
)
from plica.schedule.do import Body
from plica.schedule.handle import Handle
from plica.schedule.instruction import Scene
from tests.schedule.example import conv2d, m, matmul, n, nest

o, i, j, k = (axis(name) for name in "oijk")
x, y = buffer("x", (40,), f32), buffer("y", (40,), f32)
SIZES = {j: 3, k: 2}


@st.composite
def places(draw: DrawFn) -> Scalar:
    term: Scalar = o * draw(st.integers(0, 2))
    for var in draw(st.permutations((i, j, k))):
        term = term + var * draw(st.sampled_from((0, 1, 2, 3, 6)))
        if draw(st.integers(0, 4)) == 0:
            by = draw(st.sampled_from((2, 3)))
            term = draw(st.sampled_from((term // by, term % by)))
    return term + draw(st.integers(0, 1))


@given(places(), places(), st.integers(2, 4), st.integers(0, 2))
def test_iterations_said_to_be_independent_do_not_meet(
    write: Scalar, read: Scalar, size: int, outer: int
) -> None:
    for term in (write, read):
        inside = nest(list(SIZES.items()), Store(y, (write,), y[term]))
        loop = For(i, index(size), "serial", inside)
        if not conflicts(loop):
            assert_apart(loop, write, term, outer)


def assert_apart(loop: For, write: Scalar, read: Scalar, outer: int) -> None:
    elements: list[tuple[set[int], set[int]]] = []
    for at in range(value(loop.extent, {})):
        written, touched = set(), set()
        for point in product(*[range(each) for each in SIZES.values()]):
            here: dict[Scalar, int] = {o: outer, i: at, **dict(zip(SIZES, point, strict=True))}
            written.add(value(write, here))
            touched |= {value(read, here), value(write, here)}
        elements.append((written, touched))
    for (mine, all_mine), (theirs, all_theirs) in combinations(elements, 2):
        assert mine.isdisjoint(all_theirs)
        assert theirs.isdisjoint(all_mine)


def filled(place: Scalar, name: str, where: Scalar = TRUE) -> Stmt:
    """A block that fills one element in each iteration of a loop over `i`."""
    v, w = axis("v"), axis("w")
    own = {i: v, j: w}
    store = Store(y, (substitute(place, own),), Lit(1.0, f32))
    return block(name, (v, w), (10, 3), "ss", (i, j), store, predicate=where)


def test_disjoint_parts_of_one_buffer_do_not_meet() -> None:
    def met(*stmts: Stmt) -> bool:
        return bool(conflicts(For(i, index(10), "serial", For(j, index(3), "serial", seq(*stmts)))))

    assert not met(filled(i, "a"), filled(20 + i, "b"))
    assert not met(filled(2 * i, "a"), filled(2 * i + 1, "b"))
    assert met(filled(2 * i, "a"), filled(2 * i + 2, "b"))
    assert met(filled(i, "a"), filled(9 + i, "b"))
    assert not met(filled(i, "a", Lt(i, index(4))), filled(9 + i, "b"))  # as predicates say
    assert not met(filled(3 * i + j, "a"), filled(30 + i, "b"))
    assert met(filled(i + j, "a"), filled(30 + i, "b"))


def looped(*stmts: Stmt) -> For:
    return For(i, n, "serial", seq(*stmts))


def test_loops_with_and_without_conflicts() -> None:
    z, s = buffer("z", (n, m), f32), buffer("s", (), f32)
    apart = {
        "element by element": looped(Store(z, (i, j), z[i, j])),
        "a row": looped(For(j, m, "serial", Store(z, (i, j), z[i, m - 1 - j]))),
        "a tile": looped(For(j, index(4), "serial", Store(y, (i * 4 + j,), y[i * 4 + j // 2]))),
        "shifted alike": looped(Store(y, (i + o,), y[i + o])),
        "a symbolic row": looped(For(j, m, "serial", Store(y, (i * m + j,), y[i * m + j]))),
        "what it only reads": looped(Store(y, (i,), x[0])),
        "its own buffer": looped(Alloc(s, Seq((Store(s, (), x[i]), Store(y, (i,), s[()]))))),
        "one iteration": For(i, index(1), "serial", Store(y, (index(0),), y[0])),
    }
    meeting = {
        "the one before": looped(Store(y, (i + 1,), y[i])),
        "one place": looped(Store(y, (index(0),), x[i])),
        "a window": looped(For(j, index(3), "serial", Store(y, (i + j,), x[i]))),
        "a sum": looped(Store(s, (), s[()] + x[i])),
        "by data": looped(Store(y, (Cast(x[i], i64),), x[i])),
        "a shared buffer": looped(Seq((Store(s, (), x[i]), Store(y, (i,), s[()])))),
        "a stride too small": looped(For(j, index(5), "serial", Store(y, (i * 4 + j,), x[i]))),
    }
    assert {name for name, loop in apart.items() if conflicts(loop)} == set()
    assert {name for name, loop in meeting.items() if not conflicts(loop)} == set()
    assert is_private(apart["its own buffer"], s)
    assert not is_private(meeting["a shared buffer"], s)


def test_a_guarded_tile_is_independent_on_both_loops() -> None:
    v = axis("v")
    place = o * 4 + i
    inside = block("y", (v,), (n,), "s", (place,), Store(y, (v,), x[v]), predicate=Lt(place, n))
    inner = For(i, index(4), "serial", inside)
    assert conflicts(inner) == ()
    assert conflicts(For(o, (n + 3) // 4, "serial", inner)) == ()


def test_fused_loops_of_symbolic_sizes_are_independent_when_split() -> None:
    z = buffer("z", (n, m), f32)
    v, w = axis("v"), axis("w")
    place = o * 8 + i
    inside = block(
        "z", (v, w), (n, m), "ss", (place // m, place % m), Store(z, (v, w), x[v]),
        predicate=Lt(place, n * m),
    )  # fmt: skip
    inner = For(i, index(8), "serial", inside)
    assert conflicts(inner) == ()
    assert conflicts(For(o, (n * m + 7) // 8, "serial", inner)) == ()


def names(of: tuple[object, ...]) -> list[str]:
    return [str(each.label) for each in of]  # type: ignore[attr-defined]


def test_producers_consumers_children_and_outputs() -> None:
    body = conv2d().body
    assert names(before(body, Name("C"))) == ["P"]
    assert names(after(body, Name("C"))) == ["Y"]
    assert names(before(body, Name("P"))) == []
    assert names(after(body, Name("Y"))) == []
    assert names(outputs(conv2d())) == ["Y"]
    assert names(tuple(each.block for each in children(body))) == ["P", "C", "Y"]
    assert unblocked_statement(body) is None
    assert isinstance(unblocked_statement(looped(Store(y, (i,), x[i]))), Store)


def test_the_blocks_around_are_found_in_a_trace() -> None:
    @do
    def look() -> Body:
        conv = yield named("C")
        (pad,) = yield producers(conv)
        (relu,) = yield consumers(conv)
        (last,) = yield output_blocks()
        first = yield child_blocks(last)
        return conv, pad, relu, last, first

    trace = record(look, conv2d()).trace
    assert [step.instruction.kind for step in trace.steps] == [
        "block", "producers", "consumers", "output_blocks", "child_blocks",
    ]  # fmt: skip
    assert replay(trace, conv2d()) is not None


def test_a_number_has_no_blocks_inside() -> None:
    problem = child_blocks(Handle(0, 0, "number")).check(Scene(matmul(), {}))
    assert problem is not None
    assert problem.precondition == "parent"
