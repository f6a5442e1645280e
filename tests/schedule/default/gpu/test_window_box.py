"""Window boxes: every pixel is in one tile once; windows mean the same by the copy engine."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from plica.analysis.enclosing import simple
from plica.codegen.cuda.fold import fold
from plica.codegen.cuda.scheduled import refused
from plica.codegen.cuda.toolchain import compiled, path_of
from plica.codegen.lower.passes import lower
from plica.ir.contract import reassociates
from plica.ir.loop.scalar import index
from plica.ir.type.dim import known
from plica.ir.type.dtype import bf16
from plica.schedule.default.gpu import product_form
from plica.schedule.default.gpu.choose import GPU_FORMS, laid_out, template_of
from plica.schedule.default.gpu.machine import Gpu
from plica.schedule.default.gpu.operand import operands
from plica.schedule.default.gpu.window_box import box_for, can_be_box, is_boxed
from plica.schedule.form import Facts, reach
from plica.schedule.hoist import hoist
from tests.codegen.cuda.emulate import COMPILER
from tests.schedule.default.gpu.contractions import Case, dense, pixels

GPU = Gpu(processors=4, groups=True)
FORM = [each for each in GPU_FORMS if each.name == "wgmma-boxes"]
PROFILE = settings.get_current_profile_name()
MORE = pytest.mark.skipif(PROFILE == "ci", reason="takes seconds: other profiles than ci have it")


@given(
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=3).map(tuple),
    rows=st.sampled_from([8, 16]),
)
def test_each_pixel_is_one_row(sizes: tuple[int, ...], rows: int) -> None:
    box = box_for(sizes, rows)
    assert box.rows == rows
    seen = set()
    for place in np.ndindex(*sizes):
        tile, inner = (known(simple(each)) for each in box.number([*map(index, place)]))
        assert tile is not None
        assert inner is not None
        assert 0 <= tile < box.tiles
        assert 0 <= inner < rows
        assert (
            tuple([known(simple(each)) for each in box.pixel(index(tile), index(inner))]) == place
        )
        seen.add((tile, inner))
    assert len(seen) == np.prod(sizes)


WINDOWS = {
    "image": pixels((1, 9, 12), 64, 24, ends="bias"),
    "bias": pixels((2, 13, 17), 64, 24, ends="bias"),
    "lines": pixels((3, 70), 24, 40, 3, 1, bf16, ends="cast"),
    "one": pixels((1, 20, 30), 40, 33, 5, 2, ends="residual"),
    "inside": pixels((2, 19, 19), 64, 30, 3, 0, ends="cast"),
    "small": pixels((5, 7, 7), 72, 16, ends="wide"),
    "given": pixels((2, 21, 11), 64, 24, ends="bias", constant=False),
}


@pytest.mark.skipif(COMPILER is None, reason="no C++ compiler on this machine")
@pytest.mark.parametrize(
    "name", [name if name == "image" else pytest.param(name, marks=MORE) for name in WINDOWS]
)
def test_windows_by_the_copy_engine_mean_the_same(name: str) -> None:
    case = WINDOWS[name]
    facts = Facts(case.constant, (), reassociates)
    for number, formed in enumerate(reach(FORM, laid_out(case.of, facts), facts, GPU)):
        if number == (1 if PROFILE == "ci" else 3):
            break
        apart = hoist(formed.stages, facts.constant)
        made = template_of(formed.form)(apart.rest, GPU)
        assert made is not None
        assert not refused(made[1], GPU)
        code = fold(lower(made[1], "gpu"), "k")
        np.testing.assert_array_equal(case.runs(apart, code), case.expected(), case.name)
        if path_of() is not None:
            assert not any(usage.spilled for _, usage in compiled(code.text, "sm_90a").usage)


@pytest.mark.parametrize(
    "case",
    [dense((40,), 64, 64), pixels((2, 9, 9), 12, 16), pixels((2, 9, 9), 64, 16, 1, 0)],
    ids=["no window", "channels that are no octets", "one pixel"],
)
def test_what_is_no_window_has_no_boxes(case: Case) -> None:
    found = operands(case.of)
    assert found is not None
    assert not is_boxed(found)


TOGETHER = [each for each in GPU_FORMS if each.name == "wgmma-tiles"]


@pytest.mark.parametrize("name", ["bias", "inside"])
def test_tiles_that_are_no_boxes_are_not_offered(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is left out could not be lowered."""
    case = WINDOWS[name]
    facts = Facts(case.constant, (), reassociates)
    of = laid_out(case.of, facts)
    assert not [*reach(TOGETHER, of, facts, GPU)]
    monkeypatch.setattr(product_form, "can_be_box", lambda of, rows: True)
    formed = next(iter(reach(TOGETHER, of, facts, GPU)))
    made = template_of(formed.form)(hoist(formed.stages, facts.constant).rest, GPU)
    assert made is not None
    assert "no tile that the copy engine can fetch" in refused(made[1], GPU)


@pytest.mark.parametrize(
    ("wide", "rows", "may"), [(16, 64, True), (128, 64, True), (14, 64, False)]
)
def test_rows_of_a_window_are_a_box_where_its_width_says_so(
    wide: int, rows: int, may: bool
) -> None:
    found = operands(pixels((1, 9, wide), 64, 24).of)
    assert found is not None
    assert can_be_box(found, rows) == may
