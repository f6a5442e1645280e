"""What lowering refuses is passed over, and said: the next form is taken, then plain loops."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

import plica
from plica import op
from plica.analysis.statement import LoweringRefused, refused as refusal
from plica.codegen.lower import processor
from plica.codegen.lower.passes import LOWERING
from plica.codegen.lower.processor import on_processor
from plica.codegen.lower.scheduled import ChosenSchedule, plain
from plica.core.name import Name
from plica.ir.contract import reassociates
from plica.ir.graph.expression import Apply, Function, Var
from plica.ir.loop.stages import kernel_of
from plica.ir.loop.statement import Kernel
from plica.ir.passes import Pass
from plica.ir.type.term import tensor
from plica.pipeline import lower, target_of
from plica.rewrite.fuse.to_stages import to_stages
from plica.rewrite.optimise import DEFAULT_CONTRACT
from plica.schedule.default import FORMS, Machine, candidates
from plica.schedule.default.choose import PROCESSOR
from plica.schedule.do import Body, DoBlock, do
from plica.schedule.form import Facts, ScheduleTables
from plica.schedule.hoist import hoist
from plica.schedule.primitive import block, loops, reorder
from plica.schedule.trace import Trace

MACHINE = Machine(512, 32)
FACTS = Facts((False, True), (), reassociates)
TEXT = """
import plica
from plica import op
@plica.function
def main(x: Tensor[(24, 96), f32], w: Tensor[(96, 64), f32]):
    return op.matmul(x, w)
"""


def dense() -> Function:
    x, w = Var(Name("x"), tensor((24, 96), "f32")), Var(Name("w"), tensor((96, 64), "f32"))
    return Function((), (), (x, w), tensor((24, 64), "f32"), Apply("matmul", (x, w)))


@pytest.fixture
def refusing(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], None]]:
    """Lets lowering refuse the first kernels that it is given."""

    def begin(most: int) -> None:
        seen: dict[Kernel, None] = {}

        def lowered(kernel: Kernel, passes: tuple[Pass, ...]) -> Kernel:
            assert passes == LOWERING["cpu"].passes
            seen.setdefault(kernel)
            if list(seen).index(kernel) < most:
                raise refusal("This cannot be.", "i", "something else", "this")
            return kernel

        on_processor.cache_clear()
        monkeypatch.setattr(processor, "lowered", lowered)

    yield begin
    on_processor.cache_clear()


def convolution() -> Function:
    x = Var(Name("x"), tensor((1, 16, 12, 12), "f32"))
    w = Var(Name("w"), tensor((32, 16, 3, 3), "f32"))
    result = tensor((1, 32, 10, 10), "f32")
    return Function((), (), (x, w), result, op.nn.conv2d(x, w))


def test_the_next_form_is_taken(refusing: Callable[[int], None]) -> None:
    forms = list(candidates(to_stages(convolution()).stages, FACTS, MACHINE))
    assert len(forms) > 1
    refusing(1)
    made = on_processor(convolution(), FACTS, MACHINE)
    assert made.origin is not None
    assert made.passed_over == (
        f"{forms[0].form}: This cannot be. expected: something else; found: this",
    )


def test_a_template_that_is_refused_is_told_and_the_next_form_is_taken() -> None:
    forms = list(candidates(to_stages(convolution()).stages, FACTS, MACHINE))
    first = kernel_of(hoist(forms[0].stages, FACTS.constant).rest)

    def stuck(kernel: Kernel, _: Machine) -> DoBlock | None:
        @do
        def schedule() -> Body:
            one = yield block("sum")
            every = yield loops(one)
            yield reorder(every[0], every[0])

        return schedule() if kernel is first else None

    (name,) = forms[0].templates
    tables = ScheduleTables(FORMS, {**PROCESSOR.templates, name: stuck})
    made = on_processor(convolution(), FACTS, MACHINE, None, tables)
    (passed,) = made.passed_over
    told = f"{forms[0].form}: the template {name} is refused: reorder asks for "
    assert passed.startswith(told)
    assert made.origin is not None
    assert made.origin.kernel is not first
    alone = tuple([each for each in FORMS if each.name == forms[0].form])
    made = on_processor(convolution(), FACTS, MACHINE, None, ScheduleTables(alone, {name: stuck}))
    assert made.passed_over == (passed,)
    assert made.origin is not None
    assert len(made.origin.trace.steps) > 0  # by the general template


def test_plain_loops_come_last(refusing: Callable[[int], None]) -> None:
    refusing(1000)
    made = on_processor(dense(), FACTS, MACHINE)
    assert made.origin is None
    assert made.kernel is plain(dense(), MACHINE).kernel
    assert made.passed_over


def test_a_tuned_schedule_that_cannot_be_lowered_is_passed_over(
    refusing: Callable[[int], None],
) -> None:
    stages = to_stages(dense()).stages
    tuned = ChosenSchedule(stages, Trace(()), plain(dense()).kernel)
    refusing(1)
    made = on_processor(dense(), FACTS, MACHINE, tuned)
    assert made.passed_over[0].startswith("the tuned schedule: This cannot be.")
    assert made.kernel is not tuned.kernel


def test_the_user_gets_a_program_and_the_reason(refusing: Callable[[int], None]) -> None:
    refusing(1000)
    module = plica.from_text(TEXT)
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(n).astype(np.float32) for n in ((24, 96), (96, 64)))
    lowered = lower(module, DEFAULT_CONTRACT, (), target_of("cpu"))
    assert any("This cannot be." in each for each in lowered.program.passed_over)
    run = plica.compile(module, cache=False, threads=1)
    np.testing.assert_allclose(run(x, w), x @ w, rtol=1e-4, atol=1e-4)


def test_a_refusal_says_why() -> None:
    error = refusal("No.", "i", "yes", "no")
    assert isinstance(error, LoweringRefused)
    assert error.reason == "No. expected: yes; found: no"
