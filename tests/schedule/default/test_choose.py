"""Which form work begins with, where that is not for its estimate to say."""

from __future__ import annotations

import pytest
from attrs import evolve

from plica.analysis.site import map_of
from plica.core.name import Name
from plica.ir.contract import reassociates
from plica.ir.loop.stage import stage
from plica.ir.loop.stages import Stages, stages
from plica.ir.loop.statement import For, statements
from plica.ir.loop.tensor import buffer, reduce
from plica.ir.type.dim import known
from plica.ir.type.dtype import f32
from plica.schedule.default import Machine
from plica.schedule.default.choose import FORMS, TEMPLATES, by_template, default_schedule, formed
from plica.schedule.default.register_tile import beside
from plica.schedule.default.role import Roles
from plica.schedule.default.tile import RegisterTile
from plica.schedule.form import Facts
from tests.schedule.begun import begun

MACHINE = Machine(512, 32, (48 * 1024, 2048 * 1024))


BARE = Facts((False, False))
REASSOCIATES = Facts((False, False), contract=reassociates)


def dense(outputs: int, rows: int = 64) -> Stages:
    x, w = buffer("x", (rows, 96), f32), buffer("w", (outputs, 96), f32)
    product = stage(
        "y", (rows, outputs), lambda i, o: reduce("sum", (96,), lambda k: x[i, k] * w[o, k])
    )
    return stages((x, w), (product,))


@pytest.mark.parametrize("rows", [8, 12])
def test_elements_too_few_for_tiles_are_sums_along_rows(rows: int) -> None:
    found = formed(dense(3, rows), REASSOCIATES, MACHINE)
    assert found is not None
    assert found.form == "partial-sums"
    kernel = begun(found.stages, BARE.constant)
    assert isinstance(default_schedule(kernel, MACHINE), tuple)


def test_sums_along_rows_are_for_those_who_reassociate() -> None:
    found = formed(dense(3, 8), BARE, MACHINE)
    assert found is not None
    assert found.form == "lanes-over-n"


@pytest.mark.parametrize("outputs", [5, 10, 31])
def test_outputs_that_lanes_do_not_divide_are_padded(outputs: int) -> None:
    found = formed(dense(outputs), BARE, MACHINE)
    assert found is not None
    total = found.stages.find("sum")
    assert total is not None
    assert [known(size) for size in found.stages.result.shape] == [64, outputs]
    assert (known(total.out.shape[-1]) or 0) >= outputs


def test_outputs_enough_for_lanes_are_not() -> None:
    found = formed(dense(32), REASSOCIATES, MACHINE)
    assert found is not None
    assert Name("part") not in map_of(begun(found.stages, BARE.constant)).blocks


@pytest.mark.parametrize("turned", [False, True])
def test_weights_are_packed_along_the_rows_they_have(turned: bool) -> None:
    """Of (in, out) rows are outputs, so places come first; of (out, in) tiles of outputs do."""
    x = buffer("x", (640, 96), f32)  # of which more would have to be packed
    w = buffer("w", (64, 96) if turned else (96, 64), f32)
    product = stage(
        "y",
        (640, 64),
        lambda i, o: reduce("sum", (96,), lambda k: x[i, k] * (w[o, k] if turned else w[k, o])),
    )
    found = formed(stages((x, w), (product,)), BARE, MACHINE, "lanes-over-n")
    assert found is not None
    made = default_schedule(begun(found.stages, BARE.constant), MACHINE)
    assert isinstance(made, tuple)
    loops: list[int] = []
    for each in statements(made[1].body):
        if isinstance(each, For) and len(loops) < 2:
            loops.append(each.extent.value)  # type: ignore[attr-defined]  # sizes are numbers here
    assert loops == ([4, 96 // 16] if turned else [96, 4])  # squares of 16 are transposed


def test_small_tiles_of_groups_take_a_loop_in() -> None:
    of = Roles(
        batch=(0,), around=(1, 2), steps=4, lane=5, terms=(6, 7),
        extents=(128, 16, 3, 2, 3, 32, 14, 14), blocked=True, dtype=f32, result=(1, 0, 3, 5, 2, 4),
        sliding=False,
    )  # fmt: skip
    few, more = RegisterTile(2, 3), RegisterTile(2, 4)
    assert beside(of, few, MACHINE, 16) == (few, 2)
    assert beside(of, more, MACHINE, 16) == (more, None)  # sums enough
    assert beside(evolve(of, batch=()), few, MACHINE, 16) == (few, None)
    assert beside(of, few, Machine(128, 16), 16) == (few, None)  # no registers


def test_weights_that_do_not_stay_near_come_once_for_all_pixels_of_a_tile() -> None:
    of = Roles(
        batch=(), around=(0,), steps=1, lane=2, terms=(3, 4, 5),
        extents=(4, 4, 512, 512, 3, 3), blocked=True, dtype=f32, result=(2, 0, 1),
        sliding=False, depth=4608,
    )  # fmt: skip
    wide = RegisterTile(7, 4)
    assert beside(of, wide, MACHINE, 16) == (RegisterTile(1, 4), 0)
    near = evolve(of, depth=256)
    assert beside(near, wide, MACHINE, 16) == (wide, None)
    large = evolve(of, extents=(14, 14, 512, 512, 3, 3))  # more pixels than registers
    assert beside(large, wide, MACHINE, 16) == (wide, None)


def test_forms_name_templates_that_there_are() -> None:
    named = {name for each in FORMS for name in each.templates}
    assert named == set(TEMPLATES)


def test_no_other_template_is_asked_than_the_form_names() -> None:
    found = formed(dense(32), REASSOCIATES, MACHINE)
    assert found is not None
    assert found.templates == ("register-tile",)
    kernel = begun(found.stages, BARE.constant)
    assert by_template(kernel, MACHINE, names=("rows", "dot-tiles")) is None
    for names in ((), found.templates):  # any template, where a form names none
        made = by_template(kernel, MACHINE, names=names)
        assert made is not None
        assert made[0] == "register-tile"
