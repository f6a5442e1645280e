"""Poses: each class of blocks is recognised, and each reason for a refusal has its word."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from plica.analysis.dependence import outputs
from plica.analysis.site import Site, distinct
from plica.core.name import Name
from plica.ir.loop.scalar import And, Lit, Lt, Scalar, index
from plica.ir.loop.statement import (
    Alloc,
    Barrier,
    Branch,
    For,
    Kernel,
    Seq,
    Stmt,
    Store,
    block,
    seq,
)
from plica.ir.loop.tensor import axis, buffer
from plica.ir.type.dtype import f32
from plica.schedule.instruction import Scene
from plica.schedule.precondition import (
    affine,
    complete,
    complete_or_reduction,
    covered,
    independent_iterations,
    injective,
    intermediate,
    only_spatial_under,
    plain_loop,
    reduction,
    same_scope,
    sole_writer,
    stage_pipeline,
)
from plica.schedule.problem import Problem
from tests.schedule.example import conv2d, m, matmul, n, nest

i, j, k, o, v, w, u = (axis(name) for name in "ijkovwu")
x, y, z = (buffer(name, (n,), f32) for name in "xyz")
ZERO = Lit(0.0, f32)


def scene(*stmts: Stmt, dims: tuple[Scalar, ...] = (n, m)) -> Scene:
    return Scene(distinct(Kernel(dims, (x, y, z), 1, seq(*stmts))), {})  # type: ignore[arg-type]


def at(of: Scene, label: str) -> Site:  # type: ignore[type-arg]
    return of.map.blocks[Name(label)]


def word(problem: Problem | None) -> str | None:
    return None if problem is None else problem.precondition


def simple_block(body: Stmt, **more: object) -> Stmt:
    return For(i, n, "serial", block("b", (v,), (n,), "s", (i,), body, **more))  # type: ignore[arg-type]


@pytest.mark.parametrize("kernel", [matmul(), matmul(5, 4, 3), conv2d(), conv2d(size=n)])
def test_the_blocks_of_usual_kernels_pass(kernel: Kernel) -> None:
    here = Scene(distinct(kernel), {})
    for site in here.map.blocks.values():
        assert complete_or_reduction(here, site) is None
        assert affine(here, site) is None
        assert stage_pipeline(here, site) is None
        kind = reduction if site.node.init is not None else complete
        other = complete if site.node.init is not None else reduction
        assert kind(here, site) is None
        assert other(here, site) is not None
        for loop in site.loops:
            inside = here.map.loops[loop.var]
            spatial = only_spatial_under(here, inside) is None
            assert (independent_iterations(here, inside) is None) == spatial


COMPLETE: dict[str, tuple[str, Stmt]] = {
    "a reduce variable": (
        "spatial-only",
        For(i, n, "serial", block("b", (v,), (n,), "r", (i,), Store(y, (v,), x[v]))),
    ),
    "reads what it writes": ("no-self-read", simple_block(Store(y, (v,), y[v] + x[v]))),
    "writes one place twice": ("distinct-writes", simple_block(Store(y, (v // 2,), x[v]))),
    "writes one place": ("distinct-writes", simple_block(Store(y, (index(0),), x[v]))),
    "writes a window": (
        "distinct-writes",
        simple_block(For(j, index(3), "serial", Store(y, (v + j,), x[v]))),
    ),
    "waits": ("no-barrier", simple_block(Seq((Store(y, (v,), x[v]), Barrier("shared"))))),
    "two writers": (
        "sole-writer",
        seq(
            simple_block(Store(y, (v,), x[v])),
            For(j, n, "serial", block("c", (w,), (n,), "s", (j,), Store(y, (w,), x[w]))),
        ),
    ),
    "a store outside": (
        "stage-pipeline",
        seq(simple_block(Store(y, (v,), x[v])), For(j, n, "serial", Store(z, (j,), x[j]))),
    ),
}


@pytest.mark.parametrize("case", COMPLETE)
def test_why_a_block_is_not_complete(case: str) -> None:
    expected, stmt = COMPLETE[case]
    here = scene(stmt)
    assert word(complete(here, at(here, "b"))) == expected


def summed(body: Stmt, init: object = None, kinds: str = "sr") -> Stmt:
    inside = block("b", (v, w), (n, 4), kinds, (i, k), body, init)
    return nest([(i, n), (k, 4)], inside)


START = Store(y, (v,), ZERO)
REDUCTION: dict[str, tuple[str | None, Stmt]] = {
    "a sum": (None, summed(Store(y, (v,), y[v] + x[w]), START)),
    "a maximum, the other way round": (None, summed(Store(y, (v,), x[w] + y[v]), START)),
    "an ordered variable": (
        "reduce-kinds", summed(Store(y, (v,), y[v] + x[w]), START, "so"),
    ),
    "no reduce variable": ("reduce-kinds", summed(Store(y, (v,), y[v] + x[w]), START, "ss")),
    "no update": ("reducer", summed(Store(y, (v,), x[w]), START)),
    "order matters": ("reducer", summed(Store(y, (v,), y[v] * 2.0 + x[w]), START)),
    "looks at another element": ("reducer", summed(Store(y, (v,), y[v] + y[w]), START)),
    "no init": ("starts", summed(Store(y, (v,), y[v] + x[w]))),
    "an init of another": ("starts", summed(Store(y, (v,), y[v] + x[w]), Store(z, (v,), ZERO))),
    "an init that looks": ("starts", summed(Store(y, (v,), y[v] + x[w]), Store(y, (v,), y[v]))),
    "an element by reduce variable": (
        "same-element", summed(Store(y, (w,), y[w] + x[v]), Store(y, (w,), ZERO)),
    ),
    "one element for all": (
        "distinct-writes",
        summed(Store(y, (index(0),), y[0] + x[w]), Store(y, (index(0),), ZERO)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REDUCTION)
def test_why_a_block_is_no_reduction(case: str) -> None:
    expected, stmt = REDUCTION[case]
    here = scene(stmt)
    assert word(reduction(here, at(here, "b"))) == expected


def bound(extents: list[tuple[object, object]], binding: Scalar, **more: object) -> Scene:
    inside = block("b", (v,), (n,), "s", (binding,), Store(y, (v,), x[v]), **more)  # type: ignore[arg-type]
    return scene(nest(extents, inside))  # type: ignore[arg-type]


def test_bindings_that_run_each_instance_once() -> None:
    place = o * 4 + i
    tiles = bound([(o, (n + 3) // 4), (i, 4)], place, predicate=Lt(place, n))
    assert affine(tiles, at(tiles, "b")) is None
    twice = bound([(o, n), (i, 4)], o)
    assert word(affine(twice, at(twice, "b"))) == "affine"
    assert word(injective(twice, at(twice, "b"))) == "injective"
    half = bound([(i, n)], i, predicate=Lt(i * 2, n))
    assert word(affine(half, at(half, "b"))) == "affine"
    assert injective(half, at(half, "b")) is None
    some = bound([(o, (n + 3) // 4), (i, 4)], place, predicate=And(Lt(place, n), Lt(o, m)))
    assert word(affine(some, at(some, "b"))) == "affine"
    bent = bound([(o, n), (i, o + 1)], i)
    assert word(affine(bent, at(bent, "b"))) == "rectangular"
    inside = block("b", (v,), (n,), "s", (i,), Store(y, (v,), x[v]))
    branch = scene(For(i, n, "serial", Branch(Lt(i, m), inside, Seq(()))))
    assert word(affine(branch, at(branch, "b"))) == "rectangular"


def stages(first: Stmt, second: Stmt) -> Scene:
    return scene(seq(first, second))


def one(label: str, loop: object, body: Stmt, binding: Scalar | None = None) -> Stmt:
    variable = {"a": v, "b": w, "c": u}[label]
    place = loop if binding is None else binding
    return block(label, (variable,), (n,), "s", (place,), body)  # type: ignore[arg-type]


def test_writers_come_before_readers() -> None:
    first = For(i, n, "serial", one("a", i, Store(y, (v,), x[v])))
    second = For(j, n, "serial", one("b", j, Store(z, (w,), y[w])))
    right = stages(first, second)
    assert stage_pipeline(right, at(right, "a")) is None
    wrong = stages(second, first)
    assert word(stage_pipeline(wrong, at(wrong, "a"))) == "stage-pipeline"
    assert word(sole_writer(right, at(right, "a"))) is None


def test_what_is_read_in_a_shared_loop_is_written_in_the_same_iteration() -> None:
    def shared(write: Stmt, read: Stmt) -> Scene:
        return scene(For(i, n, "serial", seq(write, read)))

    here = shared(one("a", i, Store(y, (v,), x[v])), one("b", i, Store(z, (w,), y[w])))
    assert covered(here, at(here, "b")) is None
    late = shared(one("a", i, Store(y, (v,), x[v])), one("b", i, Store(z, (w,), y[w + 1])))
    assert word(covered(late, at(late, "b"))) == "covered"
    assert word(stage_pipeline(late, at(late, "a"))) == "covered"

    def tile(extent: object, read: Scalar, step: int = 1) -> Scene:
        place = o * 4 + k * step
        write = For(
            k,
            index(6),
            "serial",
            block("a", (v,), (n,), "s", (place,), Store(y, (v,), x[v]), predicate=Lt(place, n)),
        )
        use = For(j, index(4), "serial", block(
            "b", (w,), (n,), "s", (o * 4 + j,), Store(z, (w,), y[read]),
            predicate=Lt(o * 4 + j, n)))  # fmt: skip
        return scene(For(o, (n + 3) // 4, "serial", seq(write, use)))

    window = tile(6, w)
    assert covered(window, at(window, "b")) is None
    wide = tile(6, w + 2)
    assert covered(wide, at(wide, "b")) is None
    wider = tile(6, w + 3)
    assert word(covered(wider, at(wider, "b"))) == "covered"
    holes = tile(6, w, step=2)
    assert word(covered(holes, at(holes, "b"))) == "covered"


QUESTIONS: dict[str, Callable[[Scene], Problem | None]] = {
    "plain-loop": lambda here: plain_loop(For(i, n, "parallel", Seq(()))),
    "intermediate": lambda here: intermediate(here, here.kernel.params[0]),
    "spatial-loop": lambda here: only_spatial_under(here, here.map.loops[axis("k_C")]),
    "independent": lambda here: independent_iterations(here, here.map.loops[axis("k_C")]),
}


@pytest.mark.parametrize("expected", QUESTIONS)
def test_each_question_has_its_word(expected: str) -> None:
    here = Scene(distinct(matmul()), {})
    assert word(QUESTIONS[expected](here)) == expected


def test_scopes_and_outputs() -> None:
    inner = block("b", (w,), (1,), "s", (index(0),), Store(y, (v,), x[v]))
    here = scene(
        For(i, n, "serial", block("a", (v,), (n,), "s", (i,), inner)),
        For(j, n, "serial", block("c", (u,), (n,), "s", (j,), Store(z, (u,), y[u]))),
    )
    assert same_scope(here, at(here, "a"), at(here, "c")) is None
    assert word(same_scope(here, at(here, "a"), at(here, "b"))) == "same-scope"
    assert [str(each.label) for each in outputs(here.kernel)] == ["a", "c"]
    assert complete(here, at(here, "b")) is None
    assert complete(here, at(here, "a")) is None
    made = Alloc(buffer("t", (n,), f32), Seq(()))
    assert intermediate(here, made.buffer) is None
