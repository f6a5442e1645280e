"""Spaces for GPUs: the default first, legal schedules that lower, and forms found by name."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from plica.analysis.site import map_of
from plica.codegen.cuda.fold import fold
from plica.codegen.cuda.scheduled import for_threads
from plica.codegen.lower.passes import lower
from plica.core.digest import digest
from plica.core.extension import ExtensionPoint, provisionally
from plica.core.name import Name
from plica.ir.contract import reassociates
from plica.ir.graph.expression import Apply, Function, Var
from plica.ir.loop.stages import Stages
from plica.ir.loop.statement import Kernel
from plica.ir.text.script import from_text
from plica.ir.type.term import tensor
from plica.rewrite.fuse.to_stages import to_stages
from plica.schedule import bind, block, do, loops, sample_tile, split, trace_of
from plica.schedule.default import Machine
from plica.schedule.default.gpu import Gpu
from plica.schedule.do import Body
from plica.schedule.form import Facts
from plica.schedule.replay import scheduled
from plica.schedule.trace import Trace
from plica.search.sketch import gpu as sketches
from plica.search.sketch.gpu import drafts, gpu_form_named, gpu_space_of, gpu_space_of_kernel
from plica.search.sketch_rule import SCHEDULE_RULES, Query, SketchRule, hoisted_kernel
from plica.search.space import DOUBLED

GPU = Gpu()


def asked(m: int, k: int, n: int, dtype: str = "f32") -> Query:
    x, w = Var(Name("x"), tensor((m, k), dtype)), Var(Name("w"), tensor((k, n), dtype))
    body = Apply("matmul", (x, w))
    function = Function((), (), (x, w), tensor((m, n), dtype), body)
    return Query(to_stages(function).stages, Facts((False, True), contract=reassociates))


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sketches, "TILES", 2)
    monkeypatch.setattr(sketches, "MADE", 2)
    sketches._space.cache_clear()


@pytest.mark.usefixtures("few")
def test_every_sketch_is_a_schedule_that_lowers() -> None:
    work = asked(64, 64, 64)
    space = gpu_space_of(work, GPU)
    names = [each.name for each in space.sketches]
    assert names[0] == "gpu/default/default"
    assert len(names) == len(set(names)) >= 3
    for point in space.points():
        each = space.sketches[point.sketch]
        kernel = scheduled(space.trace(point), each.kernel)
        assert fold(lower(kernel, "gpu"), "k").launches
        assert gpu_form_named(each.name, work, GPU) is each.form
        assert hoisted_kernel(each.form, work.facts.constant).kernel is each.kernel


def test_the_default_is_what_a_build_without_tuning_does() -> None:
    work = asked(96, 64, 80, "f16")
    first = gpu_space_of(work, GPU).sketches[0]
    x, w = Var(Name("x"), tensor((96, 64), "f16")), Var(Name("w"), tensor((64, 80), "f16"))
    function = Function((), (), (x, w), tensor((96, 80), "f16"), Apply("matmul", (x, w)))
    made = for_threads(function, work.facts, GPU)
    assert digest(scheduled(first.trace, first.kernel)) == made.digest


def test_products_of_f16_have_other_warps() -> None:
    names = [each.name for each in gpu_space_of(asked(128, 64, 128, "f16"), GPU).sketches]
    assert sum(name.startswith("gpu/warps-") for name in names) > 2


def test_what_a_form_makes_is_tried_in_the_order_it_is_reckoned() -> None:
    names = [name for name, _ in drafts(asked(128, 64, 128, "f16"), GPU)]
    tiles = [name for name in names if name.startswith("tensor-core-tiles")]
    assert tiles[:2] == ["tensor-core-tiles", "tensor-core-tiles-2"]


def test_each_element_by_a_thread_is_not_tried_where_that_is_hopeless() -> None:
    names = [name for name, _ in drafts(asked(1024, 1024, 1024, "f16"), GPU)]
    assert not [name for name in names if "thread" in name]


def test_a_name_that_is_there_no_longer_has_no_form() -> None:
    assert gpu_form_named("gpu/product-1x1x1-1x1-1-1-1/default", asked(64, 64, 64), GPU) is None
    assert gpu_form_named("thumb/default/default", asked(64, 64, 64), GPU) is None


def test_the_same_work_has_the_same_names() -> None:
    one = [name for name, _ in drafts(asked(96, 64, 256), GPU)]
    two = [name for name, _ in drafts(asked(96, 64, 256), GPU)]
    assert one == two
    assert any(name.startswith("product-") for name in one)


def test_a_kernel_somebody_wrote_has_numbers_of_threads() -> None:
    kernel = from_text(DOUBLED).values[0]
    space = gpu_space_of_kernel(kernel, GPU)  # type: ignore[arg-type]  # it is a kernel
    assert space.sketches[0].name == "gpu/threads-256/default"


def _whole(work: Query, machine: object) -> list[tuple[str, Stages]]:
    return [("whole", work.stages)]


def _by_threads(of: Kernel, machine: object) -> Iterator[tuple[str, Trace]]:
    """The rows of a product by threads, this many of which are decided."""

    @do
    def threads() -> Body:
        rows, *_ = yield loops((yield block(str(next(iter(map_of(of).blocks))))))
        outer, inner = yield split(rows, sample_tile(2, max_inner=16))
        yield bind(outer, "blockIdx.x")
        yield bind(inner, "threadIdx.x")

    yield "threads", trace_of(threads, of)


MINE = SketchRule("mine", _whole, _by_threads)
OTHERS = SketchRule("others", _whole, _by_threads, machines=(Machine,))


@pytest.mark.usefixtures("few")
def test_installed_rules_are_asked_on_gpus_too() -> None:
    here = "tests.search.gpu.test_space"
    points = [
        ExtensionPoint(SCHEDULE_RULES.name, name.lower(), f"{here}:{name}", "mine", "1")
        for name in ("MINE", "OTHERS")
    ]
    work = asked(64, 64, 64)
    with provisionally(points):
        sketches._space.cache_clear()
        space = gpu_space_of(work, GPU)
        names = [each.name for each in space.sketches]
        assert names[0] == "gpu/default/default"  # a library comes after what Plica does
        assert names[-1] == "mine/whole/threads"
        assert not any(each.startswith("others/") for each in names)
        found = space.sketches[-1]
        assert found.size > 1  # its decisions are open
        assert gpu_form_named(found.name, work, GPU) is found.form
        for decisions in (found.default, (found.supports[0].members[0],)):
            kernel = scheduled(found.decided(decisions), found.kernel)
            assert fold(lower(kernel, "gpu"), "k").launches
    sketches._space.cache_clear()
