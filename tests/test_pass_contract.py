"""Float contracts of passes: declared, refused under stricter ones, and checked by interpreting."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

import plica
from plica import op
from plica.cli.fuzz.graph import shaped
from plica.codegen.backend import TARGETS, backend_named
from plica.codegen.compilation_check import StateChecks
from plica.core.fold import map_bottom_up
from plica.core.term import Term
from plica.extending.check import CHECKS
from plica.ir.contract import DEFAULT_CONTRACT, Contract, approx, exact, join, reassociates
from plica.ir.driver import PassBroke, check_contracts
from plica.ir.graph.expression import Apply
from plica.ir.graph.module import Module
from plica.ir.passes import Pass, PassError, Pipeline, exact_pass
from plica.ir.text.script import from_text
from plica.ir.type.infer import infer
from plica.pipeline import lower, pipeline_of, target_of
from plica.rewrite import holes
from plica.rewrite.fuzz.case import Case, cases
from plica.rewrite.fuzz.difference import Meaning, unlike
from plica.rewrite.history import History, begun
from plica.rewrite.packs.precision import precision_pass
from plica.rewrite.packs.scale import FOLD_SCALES
from plica.rewrite.rule_pass import Setting, through
from plica.runtime.error import UnsupportedError

SOURCE = """
import plica
from plica import op
from plica.script import Tensor, f32

@plica.function
def main(x: Tensor[(64,), f32], y: Tensor[(64,), f32]) -> Tensor[(64,), f32]:
    return op.exp((x + y) + 0.1)
"""
CONVOLUTION = """
import plica
from plica import op
from plica.script import Tensor, f32

@plica.function
def main(x: Tensor[(4, 8, 6, 6), f32], w: Tensor[(16, 8, 3, 3), f32]) -> Tensor[(4, 16, 4, 4), f32]:
    return op.nn.relu(op.nn.conv(x, w))
"""
CPU = pipeline_of("cpu")
x, y, z = holes("x y z")


def regrouped(node: Term) -> Term:
    match node:
        case Apply("add", (Apply("add", (a, b)), c)):
            return op.add(a, op.add(b, c))
    return node


def regroup(module: Module) -> Module:
    return infer(map_bottom_up(regrouped, module))


def regrouping(contract: Contract = DEFAULT_CONTRACT) -> Pass:
    found = (x + y) + z
    return Pass("regroup", "Sums are regrouped.", regroup, contract=contract, looks_for=(found,))


def with_pass(each: Pass) -> Pipeline:
    return CPU.insert(each, before="infer")


@pytest.mark.parametrize(
    ("declared", "asked"),
    [
        (DEFAULT_CONTRACT, exact),  # nothing was declared
        (DEFAULT_CONTRACT, reassociates),
        (DEFAULT_CONTRACT, approx(1e-5)),
        (reassociates, exact),
        (approx(1e-2), DEFAULT_CONTRACT),
    ],
    ids=str,
)
def test_a_looser_pass_is_refused_before_any_work(declared: Contract, asked: Contract) -> None:
    pipeline, module = with_pass(regrouping(declared)), from_text(SOURCE)
    for refused in (
        lambda: plica.compile(module, passes=pipeline, contract=asked),
        lambda: lower(module, pipeline=pipeline, contract=asked),
        lambda: through(pipeline.of("graph", "rules"), begun(infer(module)), Setting(asked)),
    ):
        with pytest.raises(PassError, match="The pass regroup does not keep") as error:
            refused()
        said = error.value.diagnostics[0]
        assert (said.code, said.expected, said.found) == ("loose-pass", str(asked), str(declared))
        assert f"contract='{declared}'" in (said.suggestion or "")


def test_every_loose_pass_is_named_at_once() -> None:
    two = Pipeline((regrouping(), FOLD_SCALES, exact_pass("same", "Nothing.", lambda of: of)))
    assert two.contract is DEFAULT_CONTRACT
    with pytest.raises(PassError) as error:
        check_contracts(two, exact)
    assert len(error.value.diagnostics) == 2


def test_a_pass_runs_under_the_contract_it_declares_and_the_derivation_says_so() -> None:
    pipeline, module = with_pass(regrouping(reassociates)), from_text(SOURCE)
    assert (
        lower(module, pipeline=pipeline, contract=reassociates).derivation.contract is reassociates
    )
    given_ = [np.linspace(-1, 1, 64, dtype=np.float32)] * 2
    found = plica.compile(module, passes=pipeline, contract="reassociates")(*given_)
    np.testing.assert_allclose(found, plica.interpret(module, *given_), rtol=1e-5)


def test_a_pass_that_is_given_the_contract_may_not_leave_it() -> None:
    def loose(history: History, setting: Setting) -> History:
        return history.made(guilty, regroup(history.module), reassociates)

    guilty = Pass("loose-rules", "Sums are regrouped.", loose, kind="rules")
    module = from_text(SOURCE)
    lower(module, pipeline=with_pass(guilty), contract=reassociates)
    with pytest.raises(PassError, match="The pass loose-rules does not keep the contract exact"):
        lower(module, pipeline=with_pass(guilty), contract=exact)


def test_a_pass_that_breaks_the_contract_it_declares_is_named() -> None:
    pipeline = with_pass(regrouping(exact))
    with pytest.raises(PassBroke, match="After regroup: the contract exact is broken"):
        lower(
            from_text(SOURCE), pipeline=pipeline, contract=exact, checks=StateChecks(meaning=True)
        )
    lower(
        from_text(SOURCE), pipeline=with_pass(regrouping(reassociates)), contract=reassociates,
        checks=StateChecks(meaning=True),
    )  # fmt: skip


@pytest.mark.parametrize(("declared", "word"), [(exact, "refuted"), (reassociates, "tested")])
def test_a_package_is_checked_by_the_contract_that_its_pass_declares(
    declared: Contract, word: str
) -> None:
    (found,) = CHECKS["plica.passes"]("regroup", regrouping(declared), 25, 0)
    assert found.word == word


def own_pages() -> list[Pipeline]:
    backends = [backend_named(name) for name in TARGETS.own]
    every = [*backends, *[each for one in backends if (each := one.with_objects()) is not None]]
    return [pipeline for backend in every for pipeline in backend.pipelines.values()]


def test_own_pages_can_be_run_under_every_contract() -> None:
    pipelines = own_pages()
    assert len(pipelines) > 10
    assert join(pipeline.contract for pipeline in pipelines) is exact


def test_passes_that_move_floats_say_so() -> None:
    assert FOLD_SCALES.contract >= reassociates
    assert precision_pass().contract > approx(1e-4)


def test_a_gpu_keeps_the_order_of_sums_under_exact() -> None:
    module, target = from_text(CONVOLUTION), target_of("cuda:sm_90")
    kept = lower(module, exact, target=target, checks=StateChecks(meaning=True)).derivation
    free = lower(module, reassociates, target=target).derivation
    assert "channels-last" not in [step.rule.name for step in kept.steps]
    assert "channels-last" in [step.rule.name for step in free.steps]


@given(cases())
@settings(max_examples=12)
def test_own_passes_keep_exact_and_so_does_the_code(case: Case) -> None:
    module, inputs = case
    meaning = Meaning(module, inputs, exact)
    if not meaning.defined:
        return
    for name in ("cpu", "cuda:sm_90"):
        try:
            lower(module, exact, target=target_of(name), checks=StateChecks(meaning=True))
        except UnsupportedError:  # data and recursion have other pipelines
            continue
    try:
        found = plica.compile(module, contract=exact, threads=1, cache=False)(*inputs)
    except UnsupportedError:
        return
    assert unlike(meaning.value, shaped(found, module), exact) is None
