"""Spaces of work: the default is the default, and every point means what the work means."""

from __future__ import annotations

from importlib import metadata
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plica.codegen.lower.scheduled import scheduled
from plica.core.diagnostic import RuleRefused
from plica.core.digest import digest
from plica.schedule.default import Machine
from plica.schedule.problem import ScheduleRefused
from plica.schedule.replay import scheduled as replayed
from plica.schedule.trace import Trace
from plica.search.rule import GROUP, Rule
from plica.search.space_of import form_named, space_of, space_of_kernel
from plica.search.task import Task
from tests.conftest import Golden
from tests.schedule.kernel import matmul
from tests.search.work import SMALL, computed, conv, doubled, meant, product, summed

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


@pytest.mark.parametrize("name", WORK)
@settings(max_examples=max(4, settings().max_examples // 6))
@given(seed=st.integers(0, 2**32), machine=st.sampled_from((SMALL, SHARED)))
def test_every_point_is_refused_or_means_the_work(name: str, seed: int, machine: Machine) -> None:
    space = space_of(WORK[name], machine)
    point = space.drawn(Random(seed))
    sketch = space.sketches[point.sketch]
    assert sketch.form is not None
    assert sketch.form.kernel is sketch.kernel
    try:
        kernel = replayed(space.trace(point), sketch.kernel)
    except ScheduleRefused:
        return
    arrays, expected = meant(WORK[name])
    found = computed(kernel, sketch.form, arrays)
    np.testing.assert_allclose(found.ravel(), expected.ravel(), rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "machine"),
    [*[(name, WIDE) for name in LARGE], ("gemm", SHARED), ("conv in steps", SHARED)],
    ids=lambda of: of if isinstance(of, str) else f"{of.vector}-{of.cores}",
)
def test_the_default_point_is_the_default_schedule(name: str, machine: Machine) -> None:
    task = LARGE[name]
    space = space_of(task, machine)
    kernel = replayed(space.trace(space.default), space.sketches[0].kernel)
    expected = scheduled(task.function, task.constant, machine, task.reassociates)
    assert expected is not None
    assert digest(kernel) == expected.digest
    form = space.sketches[0].form
    assert form is not None
    assert (form.packings, form.scratch) == (expected.packings, expected.scratch)


@pytest.mark.parametrize("name", ["product", "sum", "each"])
def test_small_defaults_are_the_default_or_the_plain_nest(name: str) -> None:
    task = WORK[name]
    space = space_of(task, SMALL)
    expected = scheduled(task.function, task.constant, SMALL, task.reassociates)
    kernel = replayed(space.trace(space.default), space.sketches[0].kernel)
    if expected is None:
        assert space.sketches[0].name == "nest/plain/as_is"
    else:
        assert digest(kernel) == expected.digest


@pytest.mark.parametrize("name", LARGE)
def test_most_points_are_legal(name: str) -> None:
    space, random, legal = space_of(LARGE[name], WIDE), Random(name), 0
    points = [space.drawn(random) for _ in range(20)]
    for point in points:
        try:
            replayed(space.trace(point), space.sketches[point.sketch].kernel)
        except ScheduleRefused:
            continue
        legal += 1
    assert legal >= 0.8 * len(points)
    assert space.size > 1000


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
            form = form_named(each.name, task, SMALL)
            assert form is not None
            assert digest(form.kernel) == digest(each.kernel)
    assert form_named("thumb/other/default", WORK["conv"], SMALL) is None
    assert form_named("nobody/default/default", WORK["conv"], SMALL) is None


def test_names_of_buffers_change_nothing() -> None:
    renamed = Task(product(16, 16, 12).function, (False, True), True)
    one, other = space_of(WORK["product"], SMALL), space_of(renamed, SMALL)
    assert [each.name for each in one.sketches] == [each.name for each in other.sketches]


def test_a_kernel_somebody_wrote_has_a_space() -> None:
    kernel = matmul(16, 16, 8)
    space = space_of_kernel(kernel, SMALL)
    assert [each.name for each in space.sketches] == ["nest/kernel/as_is", "tiling/kernel/tiled"]
    random = Random(0)
    for _ in range(5):
        point = space.drawn(random)
        replayed(space.trace(point), kernel)


class _Point:
    def __init__(self, name: str, value: object) -> None:
        self.name, self.value = name, value

    def load(self) -> object:
        return self.value


def test_installed_rules_add_sketches(monkeypatch: pytest.MonkeyPatch) -> None:
    from plica.search.sketch.general import tiling_forms

    mine = Rule("mine", tiling_forms, lambda form, machine: [("nothing", Trace(()))])
    given: list[_Point] = [_Point("mine", mine)]

    def points(group: str) -> list[_Point]:
        return given if group == GROUP else []

    monkeypatch.setattr(metadata, "entry_points", points)
    task = product(20, 16, 12)
    names = [each.name for each in space_of(task, SMALL).sketches]
    assert "mine/plain/nothing" in names
    assert form_named("mine/plain/nothing", task, SMALL) is not None
    given.append(_Point("other", 7))
    with pytest.raises(RuleRefused, match="no schedule rule"):
        space_of(product(24, 16, 12), SMALL)


def test_a_copy_of_the_data_may_be_made_near() -> None:
    space = space_of(LARGE["conv"], WIDE)
    near = [each for each in space.sketches if each.name.startswith("near/")]
    assert near
    for each in near:
        assert each.form is not None
        assert each.form.scratch == ()


def test_room_may_make_the_best_tile_divide() -> None:
    names = [each.name for each in space_of(WORK["product with a rest"], SMALL).sketches]
    assert any(each.startswith("padded/") for each in names), names
