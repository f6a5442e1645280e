"""Spaces of work: the default is the default, and every point means what the work means."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from plica import op
from plica.analysis.site import map_of
from plica.codegen.llvm.toolchain import host
from plica.codegen.lower.processor import on_processor
from plica.core.digest import digest
from plica.core.extension import ExtensionPoint, SkippedExtension, provisionally
from plica.core.name import Name
from plica.ir.contract import exact
from plica.ir.graph.expression import Apply, Var
from plica.ir.loop.scalar import Buffer, Lit
from plica.ir.loop.stage import Stage, placeholder, stage
from plica.ir.loop.stages import stages
from plica.ir.type.dtype import f32
from plica.ir.type.term import tensor
from plica.schedule import form as forms, resample, undecided
from plica.schedule.default import Machine
from plica.schedule.form import Facts
from plica.schedule.problem import ScheduleRefused
from plica.schedule.replay import scheduled as replayed
from plica.schedule.trace import Trace
from plica.schedule.unlowered import run_unlowered
from plica.search.sketch.general import tiling_forms
from plica.search.sketch.near import located_forms, located_traces, scalar_traces
from plica.search.sketch_rule import SCHEDULE_RULES, Query, SketchRule, hoisted_kernel
from plica.search.space import Point
from plica.search.space_of import (
    RULES,
    first_space_of,
    form_named,
    query_of,
    space_of,
    space_of_kernel,
)
from plica.search.task import DEFAULT_CONTRACT, Task, tasks
from tests.conftest import Golden
from tests.deep import spread
from tests.schedule.kernel import matmul
from tests.search.work import (
    SMALL,
    computed,
    conv,
    doubled,
    meant,
    of_main,
    product,
    summed,
    task as task_of,
)

WIDE = Machine(512, 32, (48 * 1024, 2 * 1024 * 1024))
SHARED = Machine(256, 16, cores=2)

WORK = {
    "product": product(16, 16, 12),
    "product of inputs": product(14, 16, 12, constant=False),
    "product with a rest": product(16, 8, 24),
    "conv": conv(3, 8, 8, 3),
    "conv in steps": conv(4, 8, 9, 3, 2),
    "pointwise": conv(8, 16, 6, 1),
    "sum": summed(6, 24),
    "each": doubled(6, 24),
}
LARGE = {
    "gemm": product(512, 512, 512),
    "conv": conv(64, 64, 56, 3),
    "conv in steps": conv(128, 256, 28, 3, 2),
    "pointwise": conv(64, 128, 56, 1, 2),
}


def kinds() -> dict[str, Task]:
    """Work that has a form of its own each."""
    x, y = Var(Name("x"), tensor((1, 8, 10, 10), "f32")), Var(Name("y"), tensor((8, 32), "f32"))
    each, some = (Var(Name("w"), tensor((16, n, 3, 3), "f32")) for n in (1, 4))
    wide = Var(Name("x"), tensor((1, 16, 10, 10), "f32"))
    border = ((1, 1), (1, 1))
    # fmt: off
    return {
        "depthwise": task_of(op.nn.conv2d(wide, each, padding=border, groups=16), wide, each,
                             constant=(False, True)),
        "grouped":   task_of(op.nn.conv2d(x, some, padding=border, groups=2), x, some,
                             constant=(False, True)),
        "pool":      task_of(op.nn.max_pool2d(x, (2, 2), strides=(2, 2)), x),
        "transpose": task_of(op.transpose(y, (1, 0)), y),
        "softmax":   tasks(of_main(op.nn.softmax(y), y), DEFAULT_CONTRACT, (), host())[0],
    }
    # fmt: on


KINDS = kinds()


@pytest.mark.parametrize("name", spread(WORK, 5))
@settings(max_examples=max(3, settings().max_examples // 6))
@given(seed=st.integers(0, 2**32), machine=st.sampled_from((SMALL, SHARED)))
def test_every_point_is_refused_or_means_the_work(name: str, seed: int, machine: Machine) -> None:
    space = space_of(WORK[name], machine)
    point = space.drawn(Random(seed))
    sketch = space.sketches[point.sketch]
    assert hoisted_kernel(sketch.form, WORK[name].facts.constant).kernel is sketch.kernel
    try:
        kernel = replayed(space.trace(point), sketch.kernel)
    except ScheduleRefused:
        return
    arrays, expected = meant(WORK[name])
    found = computed(WORK[name], sketch.form, kernel, arrays)
    np.testing.assert_allclose(found.ravel(), expected.ravel(), rtol=1e-5)


@settings(max_examples=6)
@given(
    rows=st.integers(2, 9),
    length=st.integers(2, 9),
    kind=st.sampled_from(("each", "sum", "product")),
    seed=st.integers(0, 2**32),
)
def test_lanes_along_any_axis_and_sums_side_by_side_mean_the_work(
    rows: int, length: int, kind: str, seed: int
) -> None:
    of = {"each": doubled(rows, length), "sum": summed(rows, 2 * length),
          "product": product(rows, length, 4, constant=False)}[kind]  # fmt: skip
    space = space_of(of, SMALL)
    words = {"each": ("joined", "along0"), "sum": ("over1",),
             "product": ("over2", "along0", "packed0", "packed1")}[kind]  # fmt: skip
    names = [each.name.split("/") for each in space.sketches]
    assert set(words) <= {name[2] for name in names if name[0] in ("each", "sums", "tiling")}
    arrays, expected = meant(of)
    for number, (rule, _, word) in enumerate(names):
        if rule not in ("each", "sums", "tiling") or word not in (*words, "filled"):
            continue
        sketch = space.sketches[number]
        decisions = tuple([Random(seed).choice(each.members) for each in sketch.supports])
        for point in (Point(number, sketch.default), Point(number, decisions)):
            kernel = replayed(space.trace(point), sketch.kernel)
            found = computed(of, sketch.form, kernel, arrays)
            np.testing.assert_allclose(found.ravel(), expected.ravel(), rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "machine"),
    [*[(name, WIDE) for name in LARGE], ("gemm", SHARED), ("conv in steps", SHARED)],
    ids=lambda of: of if isinstance(of, str) else f"{of.vector}-{of.cores}",
)
def test_the_default_point_is_the_default_schedule(name: str, machine: Machine) -> None:
    task = LARGE[name]
    space = first_space_of(task, machine)
    kernel = replayed(space.trace(space.default), space.sketches[0].kernel)
    expected = on_processor(task.function, task.facts, machine)
    assert digest(kernel) == digest(expected.kernel)
    hoisted = hoisted_kernel(space.sketches[0].form, task.facts.constant).hoisted
    assert expected.hoisted is not None
    assert hoisted.before == expected.hoisted.before
    assert (hoisted.reads, hoisted.rest.scratch) == (expected.reads, expected.scratch)


@pytest.mark.parametrize("name", ["product", "sum", "each"])
def test_small_defaults_are_those_of_a_build(name: str) -> None:
    task = WORK[name]
    space = first_space_of(task, SMALL)
    expected = on_processor(task.function, task.facts, SMALL)
    kernel = replayed(space.trace(space.default), space.sketches[0].kernel)
    assert digest(kernel) == digest(expected.kernel)
    assert expected.origin is not None
    is_general = space.sketches[0].name == "general/unchanged/default"
    assert (expected.origin.form == "unchanged") == is_general


@settings(max_examples=12)
@given(
    shape=st.lists(st.integers(1, 7), min_size=2, max_size=3).map(lambda sizes: (*sizes, 12)),
    kind=st.sampled_from(("product", "softmax", "mean", "each", "turned")),
    machine=st.sampled_from((SMALL, SHARED, WIDE)),
)
def test_the_default_of_work_on_several_axes_is_that_of_a_build(
    shape: tuple[int, ...], kind: str, machine: Machine
) -> None:
    x, w = Var(Name("x"), tensor(shape, "f32")), Var(Name("w"), tensor((12, 40), "f32"))
    value = {
        "product": lambda: op.relu(op.matmul(x, w)),
        "softmax": lambda: op.nn.softmax(x),
        "mean": lambda: op.mean(op.relu(x), axis=(0, 1)),
        "each": lambda: op.exp(op.add(x, 1.0)),
        "turned": lambda: op.transpose(x, (len(shape) - 1, *range(len(shape) - 1))),
    }[kind]()
    given = (x, w) if kind == "product" else (x,)
    for task in tasks(of_main(value, *given), DEFAULT_CONTRACT, (), host()):
        space = first_space_of(task, machine)
        kernel = replayed(space.trace(space.default), space.sketches[0].kernel)
        assert digest(kernel) == digest(on_processor(task.function, task.facts, machine).kernel)


@pytest.mark.parametrize(
    ("name", "machine"),
    [
        pytest.param(name, machine, marks=pytest.mark.slow if (row + column) % 2 else ())
        for row, name in enumerate(KINDS)
        for column, machine in enumerate((SMALL, SHARED))
    ],
    ids=lambda of: of if isinstance(of, str) else "shared" if of.cores > 1 else "small",
)
def test_the_default_of_every_kind_of_work_is_a_point(name: str, machine: Machine) -> None:
    task = KINDS[name]
    space = space_of(task, machine)
    kernel = replayed(space.trace(space.default), space.sketches[0].kernel)
    assert digest(kernel) == digest(on_processor(task.function, task.facts, machine).kernel)
    arrays, expected = meant(task)
    for each in space.sketches[:3]:
        made = replayed(each.trace, each.kernel)
        found = computed(task, each.form, made, arrays)
        np.testing.assert_allclose(found.ravel(), expected.ravel(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", spread(LARGE, 2))
def test_most_points_are_legal(name: str) -> None:
    space, random, legal = space_of(LARGE[name], WIDE), Random(name), 0
    points = [space.drawn(random) for _ in range(10)]
    for point in points:
        try:
            replayed(space.trace(point), space.sketches[point.sketch].kernel)
        except ScheduleRefused:
            continue
        legal += 1
    assert legal >= 0.8 * len(points)
    assert space.size > 1000


def of_stages(*made: Stage, inputs: Sequence[Buffer]) -> Query:
    return Query(stages(tuple(inputs), made), Facts((False,) * len(inputs)))


def several() -> Query:
    """Three stages, the first of which reads nothing."""
    x = placeholder("x", (6, 8), f32)
    half = stage("half", (1,), lambda i: Lit(0.5, f32))
    twice = stage("twice", (6, 8), lambda i, j: x[i, j] * 2)
    last = stage("last", (6, 8), lambda i, j: twice[i, 7 - j] + half[0])
    return of_stages(half, twice, last, inputs=(x,))


@pytest.mark.parametrize("rule", RULES, ids=lambda each: each.name)
def test_each_rule_alone_gives_legal_traces_that_mean_the_work(rule: SketchRule) -> None:
    """Each on the works it has something to say about."""
    said = 0
    for name, of in (
        (name, (WORK | KINDS)[name]) for name in ("product", "sum", "each", "softmax")
    ):
        for _, form in rule.forms(query_of(of), SMALL):
            for _, trace in rule.traces(hoisted_kernel(form, of.facts.constant).kernel, SMALL):
                kernel = replayed(trace, hoisted_kernel(form, of.facts.constant).kernel)
                arrays, expected = meant(of)
                found = computed(of, form, kernel, arrays)
                np.testing.assert_allclose(
                    found.ravel(), expected.ravel(), 1e-4, 1e-5, err_msg=name
                )
                said += 1
                break  # one of a form is enough: all points are drawn from above
            else:
                continue
            break
    asked = several()
    data = np.arange(48, dtype=np.float32).reshape(6, 8)
    for _, form in rule.forms(asked, SMALL):
        for _, trace in rule.traces(hoisted_kernel(form, (False,)).kernel, SMALL):
            kernel = replayed(trace, hoisted_kernel(form, (False,)).kernel)
            np.testing.assert_array_equal(
                run_unlowered(kernel, [data])[-1].ravel(), (data[:, ::-1] * 2 + 0.5).ravel()
            )
            said += 1
    of_more = ("loops", "near", "narrow", "other", "padded", "plan", "untuned")
    assert said or rule.name in of_more


def test_places_are_decided_and_scalars_put_in() -> None:
    (plain,) = located_forms(several(), SMALL)
    kernel = hoisted_kernel(plain[1], (False,)).kernel
    ((_, drawn),) = located_traces(kernel, SMALL)
    assert drawn.decisions()
    assert len({resample(undecided(drawn), kernel, seed=each) for each in range(12)}) > 1
    ((_, inlined),) = scalar_traces(kernel, SMALL)
    assert len(map_of(replayed(inlined, kernel)).blocks) == len(map_of(kernel).blocks) - 1


def test_sketches_are_stable(golden: Golden) -> None:
    lines = []
    for name, task in (*WORK.items(), *[(f"large {n}", each) for n, each in LARGE.items()]):
        machine = WIDE if name.startswith("large") else SMALL
        lines.append(name)
        for each in space_of(task, machine).sketches:
            sizes = " x ".join([str(len(of.members)) for of in each.supports])
            lines.append(f"    {each.name}  {sizes or 1}")
    golden("\n".join(lines))


def test_names_are_unique_and_find_their_kernel() -> None:
    for task in WORK.values():
        space = space_of(task, SMALL)
        names = [each.name for each in space.sketches]
        assert len(set(names)) == len(names)
        for each in space.sketches:
            assert form_named(each.name, task, SMALL) is each.form
    assert form_named("thumb/other/default", WORK["conv"], SMALL) is None
    assert form_named("nobody/default/default", WORK["conv"], SMALL) is None


def test_names_of_buffers_change_nothing() -> None:
    x, w = Var(Name("a"), tensor((16, 12), "f32")), Var(Name("b"), tensor((12, 16), "f32"))
    renamed = task_of(Apply("matmul", (x, w)), x, w, constant=(False, True))
    assert renamed.key == WORK["product"].key
    one, other = space_of(WORK["product"], SMALL), space_of(renamed, SMALL)
    assert [each.name for each in one.sketches] == [each.name for each in other.sketches]


def test_a_kernel_somebody_wrote_has_a_space() -> None:
    kernel = matmul(16, 16, 8)
    space = space_of_kernel(kernel, SMALL)
    assert [each.name.removeprefix("tiling/kernel/") for each in space.sketches] == [
        "nest/kernel/as_is", "tiled", "along0", "packed0", "packed1",
    ]  # fmt: skip
    random = Random(0)
    for _ in range(5):
        point = space.drawn(random)
        replayed(space.trace(point), kernel)


MINE = SketchRule("mine", tiling_forms, lambda kernel, machine: [("nothing", Trace(()))])
FORM = forms.Form(
    "my-form", "Nothing is changed.", exact, lambda of, facts, machine: (of,), rank=99
)


def point(group: str, name: str, value: str) -> ExtensionPoint:
    return ExtensionPoint(group, name, f"tests.search.test_space_of:{value}", "mine", "1")


def test_installed_rules_add_sketches() -> None:
    task = product(20, 16, 12)
    mine = point(SCHEDULE_RULES.name, "mine", "MINE")
    with provisionally([mine]):
        names = [each.name for each in space_of(task, SMALL).sketches]
        assert "mine/plain/nothing" in names
        assert form_named("mine/plain/nothing", task, SMALL) is not None
    with (
        provisionally([mine, point(SCHEDULE_RULES.name, "other", "SMALL")]),
        pytest.warns(SkippedExtension, match="no schedule rule"),
    ):
        found = space_of(product(24, 16, 12), SMALL).sketches
    assert "mine/plain/nothing" in [each.name for each in found]


def test_installed_forms_are_tried() -> None:
    with provisionally([point(forms.FORM_RULES.name, "my", "FORM")]):
        task = doubled(28, 24)
        found = [each for each in space_of(task, SMALL).sketches if "/my-form/" in each.name]
        assert found
        assert task.stages in [each.form for each in found]
        for each in found:
            assert form_named(each.name, task, SMALL) is each.form


def test_a_copy_of_the_data_may_be_made_near() -> None:
    space = space_of(LARGE["conv"], WIDE)
    near = [each for each in space.sketches if each.name.startswith("near/")]
    assert near
    for each in near:
        assert hoisted_kernel(each.form, (False, True)).hoisted.rest.scratch == ()
