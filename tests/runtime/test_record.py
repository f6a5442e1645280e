"""Records: a derivation is followed by digests, and every kernel has its trace."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import plica
from plica.cli.rederive import rederive
from plica.codegen.llvm import toolchain
from plica.codegen.lower.passes import lower as lowered
from plica.codegen.native import run_native
from plica.codegen.record import spelled
from plica.core.digest import digest, digests
from plica.frontend.zoo import resnet
from plica.ir.graph.module import Module
from plica.ir.interpret.kernel import run_kernel
from plica.ir.text.script import from_text
from plica.pipeline import compile, lower, record
from plica.rewrite.packs import OWN, find_pack
from plica.rewrite.packs.winograd import Costs, winograd_for
from plica.runtime.artefact import Artefact
from plica.runtime.error import ArtefactError, InputError
from plica.runtime.executable import Executable
from plica.runtime.follow import CONTRACTS, derivation_problems, strictness
from plica.runtime.load import load
from plica.runtime.record import CompilationRecord, read_record, record_members
from plica.schedule import Trace, replay
from plica.schedule.replay import kernel_of
from tests.strategies import static_modules

NET = resnet(18, image=32, width=0.0625, classes=10)
DENSE = """
import plica
from plica import op

@plica.function
def main(x: Tensor[(32, 64), f32], w: Tensor[(64, 48), f32]) -> Tensor[(32, 48), f32]:
    return op.nn.relu(op.matmul(x, w))
"""


@lru_cache(maxsize=1)
def recorded() -> CompilationRecord:
    return record(lower(NET))


@lru_cache(maxsize=1)
def dense() -> Executable:
    return compile(from_text(DENSE), threads=1, cache=False)


def test_what_is_recorded_is_a_chain() -> None:
    of = recorded()
    assert len(of.stages) >= 3
    assert of.module == digest(NET)
    assert list(derivation_problems(of)) == []
    assert read_record(record_members(of)) == of


def _first_rule(of: CompilationRecord, **fields: str) -> CompilationRecord:
    return replace(of, rules=(replace(of.rules[0], **fields), *of.rules[1:]))


def _last_stage(of: CompilationRecord, name: str) -> CompilationRecord:
    return replace(of, stages=(*of.stages[:-1], replace(of.stages[-1], name=name)))


ZERO = "0" * 32
# fmt: off
WRONG: dict[str, tuple[str, Callable[[CompilationRecord], CompilationRecord]]] = {
    "source":     ("begins with another", lambda of: replace(of, module=ZERO)),
    "no-source":  ("where it starts",     lambda of: replace(of, module="?")),
    "result":     ("ends with another",   lambda of: replace(of, result=ZERO)),
    "no-stage":   ("begins with another", lambda of: replace(of, stages=of.stages[1:])),
    "last-stage": ("ends with another",   lambda of: replace(of, stages=of.stages[:-1])),
    "no-step":    ("are not its own",     lambda of: replace(of, steps=of.steps[:-1])),
    "more-steps": ("The stages have",     lambda of: replace(of, steps=of.steps + of.steps[:1])),
    "other-pass": ("are not its own",     lambda of: _last_stage(of, "x")),
    "no-rule":    ("does not know",       lambda of: replace(of, rules=of.rules[1:])),
    "rule-twice": ("have one name",       lambda of: replace(of, rules=of.rules + of.rules[:1])),
    "unknown":    ("not say what the",    lambda of: _first_rule(of, digest="x")),
    "unused":     ("no step uses: zzz",   lambda of: _first_rule(of, name="zzz")),
    "asked":      ("does not allow",      lambda of: replace(of, asked="exact")),
    "contract":   ("which exact does",    lambda of: replace(of, contract="exact")),
}
# fmt: on


@pytest.mark.parametrize("name", WRONG)
def test_a_derivation_that_is_no_chain_is_refused(name: str) -> None:
    words, change = WRONG[name]
    assert any(words in each for each in derivation_problems(change(recorded())))


def test_contracts_are_ordered() -> None:
    ordered = [*CONTRACTS, "approx(1e-06)", "approx(rel=0.1)", "anything"]
    assert sorted(ordered, key=strictness) == ordered


def test_a_derivation_is_taken_again() -> None:
    found = rederive(NET, recorded())
    assert found.steps == len(recorded().steps)
    assert 0 < found.rules < found.steps


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda of: replace(of, steps=(*of.steps[:3], of.steps[0], *of.steps[4:])), "step 3"),
        (lambda of: replace(of, steps=of.steps[:-1]), "number of steps"),
        (lambda of: replace(of, stages=of.stages[1:]), "chain of stages"),
        (lambda of: replace(of, result="0" * 32), "result"),
        (lambda of: replace(of, module="0" * 32), "model"),
        (lambda of: replace(of, rules=(replace(of.rules[0], digest="0" * 32),)), "rule"),
    ],
)
def test_other_steps_are_told(
    change: Callable[[CompilationRecord], CompilationRecord], words: str
) -> None:
    with pytest.raises(ArtefactError, match=words):
        rederive(NET, change(recorded()))


CONVOLVED = """
import plica
from plica import op

@plica.function
def main(x: Tensor[(1, 16, 16, 16), f32], v: Tensor[(4,), f32]) -> Tensor[(1, 16, 16, 16), f32]:
    w = op.reshape(op.arange(0.0, 2304.0, 1.0, dtype=f32), shape=(16, 16, 3, 3))
    return op.tanh(op.nn.conv(x, w * const(0.001, f32), padding=1)) + op.sum(v) * const(0.5, f32)
"""


@lru_cache(maxsize=1)
def convolved() -> tuple[Module, Artefact]:
    of = from_text(CONVOLVED)
    return of, plica.compile(of, threads=1, cache=False).artefact


def _first(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Something else as the first entry."""
    return lambda old: (change(old[0]), *old[1:])


def _in_a_tuple(old: Any) -> Any:
    return replace(old, single=False)


# fmt: off
PARTS: dict[str, tuple[str, str, Callable[[Any], Any]]] = {
    "weight":    ("entry 0 of the constants",   "constants", _first(lambda of: of ^ np.uint8(1))),
    "constants": ("length of the constants",    "constants", lambda old: old[1:]),
    "code":      ("entry 0 of the objects",     "objects",   _first(lambda of: of[:-1] + b"!")),
    "plan":      ("entry 0 of the memory plan", "plan",      _first(lambda of: None)),
    "no plan":   ("length of the memory plan",  "plan",      lambda old: ()),
    "launch":    ("entry 0 of the launches",    "launches",  _first(lambda of: None)),
    "launches":  ("length of the launches",     "launches",  lambda old: old[:-1]),
    "workspace": ("workspace",                  "workspace", lambda old: old + 64),
    "threads":   ("threads",                    "threads",   lambda old: old + 1),
    "interface": ("interface",                  "interface", _in_a_tuple),
}
# fmt: on


def test_an_artefact_is_made_again_as_a_whole() -> None:
    of, made = convolved()
    found = rederive(of, made.record(), made)
    assert (found.objects, found.not_made) == (len(made.objects), "")
    soon = plica.compile(of, threads=1, cache=False, effort="fast").artefact
    assert rederive(of, soon.record(), soon).objects == len(soon.objects)


@pytest.mark.parametrize("name", PARTS)
def test_every_part_that_was_changed_is_named(name: str) -> None:
    words, part, change = PARTS[name]
    of, made = convolved()
    with_part: Any = replace  # of a field whose name is a parameter here
    with pytest.raises(ArtefactError, match=f"The {words}.* differs"):
        rederive(of, made.record(), with_part(made, **{part: change(getattr(made, part))}))


def test_what_is_not_made_again_is_said() -> None:
    of, made = convolved()
    old = replace(made, versions=(("llvm", "1.0"), *made.versions[1:]))
    assert "other versions: llvm 1.0" in rederive(of, made.record(), old).not_made


def test_rules_are_told_of_alike_in_every_process() -> None:
    """Nothing that a rule is told of by is where something lies in memory."""
    packs = [find_pack(name) for name in OWN] + [winograd_for(Costs(8, 1 << 20))]
    said = [spelled((rule.left, rule.right, rule.when)) for each in packs for rule in each]
    assert len(said) > 500
    assert [each for each in said if " at 0x" in each] == []


@settings(max_examples=10)
@given(static_modules())
def test_every_module_has_a_chain_that_is_taken_again(of: Module) -> None:
    made = record(lower(of))
    assert list(derivation_problems(made)) == []
    assert rederive(of, made).steps == len(made.steps)


def test_the_same_digests_alone_and_together() -> None:
    body = NET.main_function().body
    assert digests([NET, body, NET]) == (digest(NET), digest(body), digest(NET))


def test_a_trace_makes_the_kernel_again() -> None:
    (name,) = {each.kernel for each in dense().artefact.launches}
    found = dense().trace(name)
    trace = Trace.from_json(found.to_json())
    assert len(trace) > 3
    assert Trace.from_python(str(found)) is trace
    assert found.to_python() == str(found)
    kernel = kernel_of(replay(trace, plica.from_text(found.before)))[2]
    start = kernel_of(plica.from_text(found.before))[2]
    random = np.random.default_rng(0)
    sizes = [[int(size.value) for size in each.shape] for each in start.params[: start.inputs]]  # type: ignore[attr-defined]  # all are numbers
    given = [random.standard_normal(size).astype(np.float32) for size in sizes]
    results = run_native(lowered(kernel), given)
    for ours, meant in zip(results, run_kernel(start, given), strict=True):
        np.testing.assert_allclose(ours, meant, rtol=1e-4, atol=1e-4)


def test_traces_are_in_the_artefact(tmp_path: Path) -> None:
    dense().save(tmp_path / "m.plica")
    back = load(tmp_path / "m.plica")
    for each in dense().artefact.launches:
        assert back.trace(each.kernel) == dense().trace(each.kernel)
        json.loads(back.trace(each.kernel).to_json())


def test_an_unknown_kernel_is_refused() -> None:
    (name,) = {each.kernel for each in dense().artefact.launches}
    with pytest.raises(InputError, match=name):
        dense().trace(name[:-1])


def test_kernels_without_a_schedule_have_an_empty_trace() -> None:
    made = record(lower(from_text(DENSE)))
    assert [len(Trace.from_json(each.json)) for each in made.traces] == [0]


def test_the_traces_are_for_the_machine() -> None:
    made = record(lower(from_text(DENSE), target=toolchain.host()))
    assert all(each.before for each in made.traces)
