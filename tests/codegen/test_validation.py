"""Validation: kernels held to their stages; planted mistakes are found, and blamed by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial

import numpy as np
import pytest
from attrs import evolve

import plica
from plica.analysis.site import map_of
from plica.codegen.compilation import Lowered
from plica.codegen.lower.passes import LOWERING
from plica.codegen.lower.scheduled import ChosenSchedule, Schedule, Scheduled, Scheduler
from plica.codegen.native import llvm_entry
from plica.codegen.plant import planted, with_a_longer_loop, with_a_shorter_loop, wrong_entry
from plica.codegen.program import KernelOrigin
from plica.codegen.retrace import retraced
from plica.codegen.validation import Bench, ValidationFailed, difference, validated
from plica.core.digest import digest
from plica.core.fold import map_bottom_up
from plica.core.term import Term
from plica.frontend.zoo import mlp, transformer
from plica.ir.contract import Contract, approx, exact, fused, reassociates, signless_zero
from plica.ir.graph.expression import Function
from plica.ir.graph.module import Module
from plica.ir.loop.scalar import Mul, Sub
from plica.ir.loop.statement import Kernel
from plica.ir.passes import Pipeline
from plica.ir.text.script import from_text
from plica.pipeline import job_for, lower, pipeline_of, target_of
from plica.runtime.process import can_part
from plica.schedule import block, do, loops, reorder, split, trace_of
from plica.schedule.do import Body
from plica.schedule.form import Facts
from plica.schedule.replay import scheduled

pytestmark = pytest.mark.skipif(not can_part(), reason="code that may be wrong runs apart")

NEARLY = approx(1e-4)

MODEL = """
import plica
from plica import op

@plica.function
def main(x: Tensor[({rows}, 20), f32], w: Tensor[(20, 24), f32]) -> Tensor[({rows}, 24), f32]:
    return op.nn.softmax(op.matmul(x, w) - 1.5, axis=-1)
"""


def model(rows: object = 6) -> Module:
    return from_text(MODEL.format(rows=rows))


@lru_cache(maxsize=1)
def lowered() -> Lowered:
    return lower(model(), target=target_of("cpu"))


def scheduler() -> Scheduler:
    return job_for(target_of("cpu")).scheduler


def bench(contract: Contract = NEARLY) -> Bench:
    return Bench(contract, True, LOWERING["cpu"].passes, llvm_entry)


@pytest.mark.parametrize(
    ("rows", "contract"),
    [(6, "exact"), (6, "fused"), pytest.param('"n"', "approx(1e-4)", marks=pytest.mark.slow)],
)
def test_what_is_right_passes(rows: object, contract: str) -> None:
    plica.compile(model(rows), contract=contract, validate=True, cache=False)


def test_what_is_shown_of_a_kernel() -> None:
    of = lowered()
    for each in validated(of.program, scheduler(), bench()):
        assert (each.samples, each.open, each.unrun) == (2, (), "")
        assert each.proved > 2


def test_a_wrong_kernel_is_found() -> None:
    of = lowered()

    def wrong(kernel: Kernel) -> Kernel:
        def changed(node: Term) -> Term:
            return Mul(node.left, node.right) if isinstance(node, Sub) else node

        made = map_bottom_up(changed, kernel)
        assert isinstance(made, Kernel)
        return made

    program = evolve(of.program, kernels=tuple([wrong(each) for each in of.program.kernels]))
    with pytest.raises(ValidationFailed, match="the passes make another kernel"):
        validated(program, scheduler(), bench())


def test_a_wrong_pass_is_named() -> None:
    of = lowered()
    passes = planted("partition", with_a_shorter_loop)
    pipeline = pipeline_of("cpu")
    for each in passes:
        pipeline = pipeline.replace(each.name, each)
    with pytest.raises(ValidationFailed, match="the lowering pass partition is to blame"):
        plica.compile(model(), passes=pipeline, validate=True, cache=False)
    assert of.program.kernels


def test_a_wrong_emitter_is_named() -> None:
    of = lowered()
    with pytest.raises(ValidationFailed, match="the emitter of its code is to blame"):
        validated(of.program, scheduler(), evolve(bench(), entry=wrong_entry))


def test_a_wrong_trace_is_named() -> None:
    of = lowered()

    def cut(made: Scheduled) -> Scheduled:
        if made.origin is None:
            return made
        origin = KernelOrigin(made.origin.kernel, made.origin.trace.prefix(4))
        return evolve(made, origin=origin)

    with pytest.raises(ValidationFailed, match="taken again, makes another kernel"):
        validated(of.program, with_schedule(cut), bench())


def test_a_trace_beyond_the_contract_is_named() -> None:
    of = lower(model(), exact, target=target_of("cpu"))

    def mixed(made: Scheduled) -> Scheduled:
        """Scheduled anew from its stages, the terms of its sums in another order."""
        if made.origin is None:
            return made
        before = made.origin.kernel
        sums = [each for each in map_of(before).blocks.values() if "reduce" in each.node.kinds]
        if len(sums) != 1:
            return made

        @do
        def schedule() -> Body:
            *_, k = yield loops((yield block(str(sums[0].node.label))))
            outer, inner = yield split(k, (None, 5))
            yield reorder(inner, outer)

        trace = trace_of(schedule, before)
        kernel = scheduled(trace, before)
        return evolve(
            made, kernel=kernel, digest=digest(kernel), origin=KernelOrigin(before, trace)
        )

    with pytest.raises(ValidationFailed, match="keep reassociates, and exact was asked for"):
        validated(of.program, with_schedule(mixed), evolve(bench(exact), fused=False))


def test_a_wrong_bound_is_refuted() -> None:
    plain = "@plica.function\ndef main(x: Tensor[(5,), f32]):\n    return op.exp(x)\n"
    of = lower(plica.from_text(plain), target=target_of("cpu"))

    def longer(made: Scheduled) -> Scheduled:
        kernel = with_a_longer_loop(made.kernel)
        return evolve(made, kernel=kernel, digest=digest(kernel), origin=None)

    with pytest.raises(ValidationFailed, match="An access leaves its buffer"):
        validated(of.program, with_schedule(longer), bench())


def with_schedule(change: Callable[[Scheduled], Scheduled]) -> Scheduler:
    """The usual scheduler, whose kernels are changed afterwards."""
    usual = scheduler()

    def schedule(function: Function, facts: Facts, chosen: ChosenSchedule | None) -> Scheduled:
        return change(usual.schedule(function, facts, chosen))

    made: Schedule = schedule
    return evolve(usual, schedule=made)


def test_what_a_contract_allows() -> None:
    meant = np.array([1, -2, 0, np.nan], np.float32)
    off = np.array([1 + 2**-23, -2, 0, np.nan], np.float32)
    negative = np.array([1, -2, -0.0, np.nan], np.float32)
    for contract, allows_zero, allows_last in (
        (exact, False, False), (signless_zero, True, False), (fused, True, True),
        (reassociates, True, True), (approx(1e-3), True, True),
    ):  # fmt: skip
        assert difference(meant, meant, contract, True) is None
        assert (difference(negative, meant, contract, True) is None) == allows_zero
        assert (difference(off, meant, contract, True) is None) == allows_last
        assert difference(meant + 1, meant, contract, True) is not None
        assert difference(meant[:2], meant, contract, True) is not None
    whole = np.arange(200)
    tie = np.where(whole == 7, 8, whole)
    assert difference(tie, whole, approx(1e-3), True) is None
    assert difference(tie, whole, approx(1e-3), False) is not None
    assert difference(tie, whole, exact, True) is not None


@pytest.mark.slow
@pytest.mark.parametrize(
    "network", [mlp, partial(transformer, layers=1)], ids=["mlp", "transformer"]
)
def test_exact_networks_have_the_bits_of_the_interpreter(network: Callable[[], Module]) -> None:
    plica.compile(network(), contract="exact", validate=True, cache=False)


def test_kernels_of_other_machines_are_interpreted() -> None:
    target = target_of("cuda:sm_80")
    job = job_for(target)
    of = lower(model(), target=target)
    passes: Pipeline = LOWERING["gpu"]
    on_gpu = Bench(approx(1e-4), True, passes.passes, None)
    for each in validated(of.program, job.scheduler, on_gpu):
        assert each.samples == 2


def test_what_has_no_kernels_alone_is_refused() -> None:
    tree = from_text(RECURSIVE)
    with pytest.raises(plica.UnsupportedError, match="Only programs whose steps"):
        plica.compile(tree, validate=True, cache=False)


RECURSIVE = """
import plica
from plica import op

@plica.function
def down(n: Tensor[(), i64], x: Tensor[(2,), f32]) -> Tensor[(2,), f32]:
    return down(n - 1, x * 2.0) if n > 0 else x

@plica.function
def main(n: Tensor[(), i64], x: Tensor[(2,), f32]) -> Tensor[(2,), f32]:
    return down(n, x)
"""


def test_sizes_that_are_compared_before_a_kernel_runs_are_known() -> None:
    program = from_text("""
import plica
from plica import op

@plica.function
def main(x: Tensor[("n", 4), f32], y: Tensor[("t", 4), f32]) -> Tensor[("t", 4), f32]:
    return op.match_shape(x, shape=("t", 4)) * y
""")
    exe = plica.compile(program, threads=1, validate=True, cache=False)
    ones = np.ones((3, 4), np.float32)
    np.testing.assert_array_equal(exe(ones, 2 * ones), 2 * ones)
    with pytest.raises(plica.InputError):
        exe(ones, ones[:2])
    found = retraced(exe.artefact, exe.artefact.record(), prove=True)
    assert found.proved
    assert found.unproved == 1


@pytest.mark.parametrize("wide", [4, 33])
def test_places_that_data_names_are_asked_about_when_the_program_runs(wide: int) -> None:
    """Which row is read is a variable; that it may be none is no fault of the kernel."""
    text = f"""
import plica
from plica import op

@plica.function
def main(x: Tensor[(3, {wide}), f32], at: Tensor[(2,), i64]) -> Tensor[(2, {wide}), f32]:
    return op.take(x, at, axis=0)
"""
    assert plica.compile(from_text(text), validate=True, cache=False) is not None
