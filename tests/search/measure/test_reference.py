"""References: small integers, and a difference that cannot be rounding."""

from __future__ import annotations

from time import monotonic

import numpy as np
import pytest
from attrs import evolve

from plica import op
from plica.codegen.llvm import toolchain
from plica.codegen.lower.passes import lower
from plica.codegen.lower.processor import machine_of
from plica.codegen.native import shape_of
from plica.core.deadline import DeadlinePassed, deadline
from plica.core.name import Name
from plica.ir.contract import reassociates
from plica.ir.graph.expression import Function, Var
from plica.ir.graph.module import module
from plica.ir.interpret.interpreter import interpret
from plica.ir.loop.stage import stage
from plica.ir.loop.stages import from_kernel, stages
from plica.ir.loop.tensor import buffer, reduce
from plica.ir.type.dtype import DType, f16, f32, f64, i32, u8
from plica.ir.type.infer import type_of
from plica.ir.type.term import tensor
from plica.schedule.form import Facts
from plica.schedule.hoist import hoist
from plica.schedule.trace import Trace
from plica.search.measure.build import Loaded, built, objects_of
from plica.search.measure.job import MeasureJob, job_of
from plica.search.measure.local import slot, slot_paths
from plica.search.measure.reference import (
    difference,
    disagreement,
    drawn,
    far,
    plain_nest,
    poisoned,
    reference_of,
)
from plica.search.space_of import space_of
from plica.search.task import Task
from tests.search.measure.work import DOUBLED, SQUARED, TARGET, TASK, kernel_of, product_space


def test_the_reference_is_what_the_interpreter_says() -> None:
    space = product_space()
    found = reference_of(job_of(TASK, space, space.default, TARGET))
    main = Var(Name("main"), None)
    meant = interpret(module({main: TASK.function}, main), *found.inputs)
    assert isinstance(meant, np.ndarray)
    assert np.array_equal(found.expected, meant)
    assert np.array_equal(found.expected, np.rint(found.expected))


def test_what_a_plain_nest_keeps_is_on_no_stack() -> None:
    """Scores of attention are more than a stack holds: such a reference ended its process."""
    many, few = 2048, 2
    x, v = buffer("x", (many, few), f32), buffer("v", (many, few), f32)
    scores = stage(
        "scores", (many, many), lambda i, j: reduce("sum", (few,), lambda k: x[i, k] * x[j, k])
    )
    mixed = stage(
        "y", (many, few), lambda i, c: reduce("sum", (many,), lambda j: scores[i, j] * v[j, c])
    )
    kernel = plain_nest(stages((x, v), (scores, mixed)))
    inputs = [drawn(np.random.default_rng(0), (many, few), f32, (-3, 3)) for _ in range(2)]
    made = [poisoned(shape_of(each), np.dtype("f4")) for each in kernel.params[2:]]
    assert sum(each.nbytes for each in made) > 8 << 20
    Loaded(objects_of(lower(kernel, "cpu"), TARGET, True)).run([*inputs, *made])
    assert np.array_equal(made[-1], inputs[0] @ inputs[0].T @ inputs[1])


@pytest.mark.parametrize("dtype", [f16, f32, f64, i32, u8], ids=str)
def test_one_missing_term_is_far(dtype: DType) -> None:
    random = np.random.default_rng(1)
    meant = drawn(random, (64,), dtype, (-3, 3)) + drawn(random, (64,), dtype, (1, 4))
    other = meant.copy()
    other[17] += 1
    assert np.flatnonzero(far(other, meant)).tolist() == [17]
    assert disagreement(meant.copy(), meant) == ""
    assert "Element [17]" in disagreement(other, meant)


def test_poison_is_never_taken_for_a_result() -> None:
    meant = np.zeros((4, 2), np.float32)
    assert far(poisoned((4, 2), np.dtype(np.float32)), meant).all()
    assert "8 of 8" in disagreement(poisoned((4, 2), np.dtype(np.float32)), meant)


def convolution() -> Task:
    """A small convolution whose weight is constant, so that its kernels want it packed."""
    x = Var(Name("x"), tensor((1, 4, 10, 10), "f32"))
    w = Var(Name("w"), tensor((32, 4, 3, 3), "f32"))
    body = op.nn.relu(op.nn.conv2d(x, w, padding=((1, 1), (1, 1))))
    function = Function((), (), (x, w), type_of(body), body)
    return Task(function, Facts((False, True), contract=reassociates))


@pytest.mark.parametrize("cores", [1, 2])
def test_every_sketch_computes_its_work(cores: int) -> None:
    task = convolution()
    target = evolve(toolchain.host(), cores=cores)
    space = space_of(task, machine_of(target))
    assert any(hoist(each.form, task.facts.constant).before for each in space.sketches)
    for point in space.defaults()[:4]:
        job = MeasureJob.from_json(job_of(task, space, point, target).to_json())
        assert difference(job, Loaded(built(job).objects, cores)) == ""


def test_a_kernel_is_its_own_reference() -> None:
    kernel = kernel_of(DOUBLED)
    whole, other = from_kernel(kernel), from_kernel(kernel_of(SQUARED))
    given = MeasureJob(whole, other, (False,), False, Trace(()), TARGET.describe())
    wrong = MeasureJob.from_json(given.to_json())
    assert "Element" in difference(wrong, Loaded(built(wrong).objects))
    right = evolve(given, form=whole)
    assert difference(right, Loaded(built(right).objects)) == ""


def test_the_slot_is_for_one() -> None:
    import fcntl

    with slot(), slot_paths()[-1].open("rb") as other, pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_whoever_has_a_deadline_waits_no_longer_for_the_slot() -> None:
    start = monotonic()
    with slot(), pytest.raises(DeadlinePassed), deadline(start + 0.1), slot():
        pass
    assert monotonic() - start < 2.0


def test_a_transformed_weight_is_one_that_a_weight_gave() -> None:
    x = Var(Name("x"), tensor((1, 16, 16, 40), "f32"))
    w = Var(Name("w"), tensor((36, 16, 16), "f32"))
    body = op.nn.conv_winograd(x, w, tile=4, padding=1)
    task = Task(
        Function((), (), (x, w), type_of(body), body), Facts((False, True), contract=reassociates)
    )
    space = space_of(task, machine_of(TARGET))
    assert "winograd-tiles" in space.sketches[0].name
    others = [e for e in space.defaults() if space.sketches[e.sketch].name.startswith("plan/")]
    assert others  # other blocks and tiles of registers, whatever this machine's are
    for point in (space.default, others[0]):
        job = job_of(task, space, point, TARGET)
        assert difference(job, Loaded(built(job).objects)) == ""
