"""The template of bilinear forms: traces that are replayed, changed and printed."""

from __future__ import annotations

import subprocess
import sys
from random import Random

import pytest
from attrs import evolve

from plica.analysis.race import races
from plica.analysis.statement import LoweringRefused
from plica.codegen.form_fuzz.decision import changed
from plica.codegen.lower.passes import lower
from plica.core.digest import digest
from plica.ir.loop.stage import stage
from plica.ir.loop.stages import Stages, evaluate_stages, kernel_of, stages
from plica.ir.loop.statement import Kernel
from plica.ir.loop.tensor import buffer, reduce
from plica.ir.text.show.kernel import show_kernel
from plica.ir.type.dtype import f32
from plica.schedule import Trace
from plica.schedule.default import Machine
from plica.schedule.default.bilinear import bilinear_form
from plica.schedule.default.bilinear_schedule import bilinear_schedule, planned_schedules
from plica.schedule.default.choose import default_schedule, recorded
from plica.schedule.default.winograd_plan import TileExtents, padded_grid, planned
from plica.schedule.problem import ScheduleRefused
from plica.schedule.replay import scheduled
from tests.conftest import Golden
from tests.schedule.begun import begun
from tests.schedule.default.test_winograd import KNOWN, numbers, off, run, transformed, work

WIDE = Machine(512, 32, (48 << 10, 2 << 20))
NARROW = Machine(128, 32, (4 << 10, 24 << 10))

REPLAY = """
import sys
from plica.core.digest import digest
from plica.ir.loop.stages import kernel_of, stages_of
from plica.ir.loop.tensor import buffer
from plica.ir.op.winograd import conv_winograd
from plica.ir.type.dtype import f32
from plica.schedule import Trace
from plica.schedule.default import Machine
from plica.schedule.default.bilinear import bilinear_form
from plica.schedule.form import Facts
from plica.schedule.hoist import hoist
from plica.schedule.replay import scheduled
x, w = buffer("x", (1, 16, 10, 9), f32), buffer("w", (36, 16, 16), f32)
of = stages_of(conv_winograd.compute({"tile": 4, "padding": 1}, x, w))
form = bilinear_form(of, Facts((False, True)), Machine(512, 32, (48 << 10, 2 << 20)))
kernel = kernel_of(hoist(form, (False, True)).rest)
print(digest(scheduled(Trace.from_json(sys.stdin.read()), kernel)))
"""


def formed(machine: Machine, channels: int = 16, size: int = 10) -> tuple[Stages, Kernel]:
    """A form, and the kernel that its trace begins with."""
    form = bilinear_form(work((1, channels, size, 9), channels, 4), KNOWN, machine)
    assert form is not None
    return form, begun(form, KNOWN.constant)


def test_a_trace_is_replayed_from_json_in_another_process() -> None:
    _, kernel = formed(WIDE)
    made = default_schedule(kernel, WIDE)
    assert isinstance(made, tuple)
    trace, result = made
    assert len(trace.steps) > 50
    assert Trace.from_json(trace.to_json()) == trace
    command = [sys.executable, "-c", REPLAY]
    said = subprocess.run(
        command, input=trace.to_json(), capture_output=True, text=True, check=True
    )
    assert said.stdout.strip() == digest(result)


@pytest.mark.parametrize("seed", range(3))
def test_changed_decisions_are_right_or_refused(seed: int) -> None:
    machine = NARROW if seed % 2 else evolve(NARROW, cores=2)
    form, kernel = formed(machine, 4, 6)
    made = default_schedule(kernel, machine)
    assert isinstance(made, tuple)
    x, w = numbers(seed, 1, 4, 6, 9), transformed(numbers(1, 4, 4, 3, 3), 4)
    wanted = evaluate_stages(work((1, 4, 6, 9), 4, 4), [x, w])
    random, right = Random(seed), 0
    for _ in range(6):
        trace, kinds = changed(made[0], random)
        try:
            other = scheduled(trace, kernel)
            low = lower(other, "cpu")
        except (ScheduleRefused, LoweringRefused):
            continue
        assert not list(races(other)), kinds
        assert off(run(form, low, x, w), wanted) < 5e-5, kinds
        right += 1
    assert right


@pytest.mark.parametrize("size", [3, 5, 13])
def test_ragged_images_have_a_trace(size: int) -> None:
    """Single tiles, rows that end inside a tile, and tiles that fill no pass."""
    for machine in (WIDE, NARROW):
        form = bilinear_form(work((2, 16, size, size + 1), 16, 4), KNOWN, machine)
        assert form is not None
        made = default_schedule(begun(form, KNOWN.constant), machine)
        assert isinstance(made, tuple), made
        x, w = numbers(0, 2, 16, size, size + 1), transformed(numbers(1, 16, 16, 3, 3), 4)
        wanted = evaluate_stages(work((2, 16, size, size + 1), 16, 4), [x, w])
        assert off(run(form, made[1], x, w), wanted) < 5e-5


@pytest.mark.parametrize(
    ("machine", "tiles"),
    [(Machine(512, 32, (48 << 10, 64 << 10)), 5), (Machine(256, 16, (32 << 10, 96 << 10)), 7)],
)
def test_grids_that_no_blocks_divide_are_padded(machine: Machine, tiles: int) -> None:
    """Blocks fit the cache although a prime number of tiles lie side by side."""
    grid = TileExtents(f32, 6, 4, 16, 16, (tiles, tiles))
    padded = padded_grid(grid, machine)
    down, across = padded.tiles
    assert down >= tiles
    assert across > tiles
    plan = planned(padded, machine)
    assert plan is not None
    assert plan.rows * plan.columns < tiles * tiles
    size = 4 * tiles - 1
    convolution = work((1, 16, size, size), 16, 4)
    form = bilinear_form(convolution, KNOWN, machine)
    assert form is not None
    scheduled_kernel = default_schedule(begun(form, KNOWN.constant), machine)
    assert isinstance(scheduled_kernel, tuple), scheduled_kernel
    x, w = numbers(0, 1, 16, size, size), transformed(numbers(1, 16, 16, 3, 3), 4)
    wanted = evaluate_stages(convolution, [x, w])
    assert off(run(form, scheduled_kernel[1], x, w), wanted) < 5e-5


def test_the_first_plan_is_the_default() -> None:
    _, kernel = formed(WIDE)
    made = default_schedule(kernel, WIDE)
    assert isinstance(made, tuple)
    (name, schedule), *others = planned_schedules(kernel, WIDE)
    assert recorded(schedule, kernel) == made
    assert others
    assert name.count("x") == 2


def test_the_weight_that_no_cache_holds_is_fetched() -> None:
    for channels, fetches in ((16, False), (256, True)):
        form = bilinear_form(work((1, channels, 14, 14), channels, 4), KNOWN, WIDE)
        assert form is not None
        made = default_schedule(begun(form, KNOWN.constant), WIDE)
        assert isinstance(made, tuple)
        assert ("fetch_next" in made[0].to_python()) == fetches


def test_other_kernels_are_not_taken_for_one() -> None:
    """Too few stages, stages in another order, and tiles that are not as many as places say."""
    x, w = buffer("x", (4, 8), f32), buffer("w", (8, 8), f32)
    product = stage("y", (4, 8), lambda i, j: reduce("sum", (8,), lambda k: x[i, k] * w[k, j]))
    assert bilinear_schedule(kernel_of(stages((x, w), (product,))), WIDE) is None
    form, _ = formed(WIDE)
    *first, image, _ = form.stages
    bare = stages(form.inputs, (*first, image))
    assert bilinear_schedule(begun(bare, KNOWN.constant), WIDE) is None
    chain = [stage("s0", (4, 8), lambda i, j: x[i, j] + 1.0)]
    for number in range(1, 7):
        last = chain[-1]
        chain.append(stage(f"s{number}", (4, 8), lambda i, j, last=last: last[i, j] + 1.0))
    assert bilinear_schedule(kernel_of(stages((x,), chain)), WIDE) is None


def test_text_of_a_trace(golden: Golden) -> None:
    _, kernel = formed(WIDE)
    made = default_schedule(kernel, WIDE)
    assert isinstance(made, tuple)
    golden(made[0].to_python() + "\n" + show_kernel(lower(made[1], "cpu"), "convolution"))
