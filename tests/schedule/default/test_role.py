"""Roles of stages: what a block is for follows from who reads whom, whatever it is called."""

from __future__ import annotations

from typing import Any, Final

import pytest
from hypothesis import given, settings, strategies as st

from plica.codegen.form_fuzz.judge import MACHINES
from plica.core.binding import substitute
from plica.core.name import Name, fresh
from plica.core.term import Term
from plica.ir.loop.scalar import Buffer
from plica.ir.loop.stage import placeholder, stage
from plica.ir.loop.stages import Stages, kernel_of, stages
from plica.ir.loop.tensor import reduce
from plica.ir.type.dtype import f32
from plica.schedule.default import FORMS, Machine, default_schedule
from plica.schedule.default.gpu import GPU_FORMS, Gpu
from plica.schedule.default.gpu.choose import template_of
from plica.schedule.default.role import block_flow, contraction_blocks
from plica.schedule.form import Form, reach
from plica.schedule.generate.stages import GPU_KINDS, KINDS, StagesCase
from plica.schedule.hoist import hoist

EXAMPLES: Final = max(4, settings().max_examples // 10)

WORDS: Final = (
    "out", "sum", "part", "pad", "packed", "panel", "total", "stage", "each", "window", "quads",
    "kept", "joined", "few", "rest", "sampled", "joined_rows", "left", "right",
)  # fmt: skip
"""What forms call their stages, which another stage may be called as well."""


def renamed(of: Stages, names: list[str]) -> Stages:
    """The stages under other names; inputs keep theirs."""
    taken = {each.name for each in of.inputs}
    found: dict[Term, Buffer] = {}
    for number, each in enumerate(of.made):
        name = fresh(Name(names[number % len(names)]), taken)
        found[each] = Buffer(name, each.shape, each.dtype)
        taken.add(name)
    every: list[Any] = [substitute(each, found) for each in of.stages]  # stages stay such
    return stages(of.inputs, every, [found[each] for each in of.outputs])


@pytest.mark.parametrize("kind", list(KINDS))
def test_names_of_stages_change_no_schedule(kind: str) -> None:
    @settings(max_examples=EXAMPLES)
    @given(KINDS[kind](), st.sampled_from(MACHINES), st.permutations(WORDS))
    def check(case: StagesCase, machine: Machine, names: list[str]) -> None:
        for made in _every(FORMS, case, machine):
            one, other = (
                kernel_of(hoist(each, case.facts.constant).rest)
                for each in (made, renamed(made, names))
            )
            found, again = default_schedule(one, machine), default_schedule(other, machine)
            assert type(found) is type(again)
            if isinstance(found, tuple) and isinstance(again, tuple):
                assert found[0].to_json() == again[0].to_json()

    check()


@pytest.mark.parametrize("kind", ["f16", "product"])
def test_names_of_stages_change_no_schedule_of_a_gpu(kind: str) -> None:
    @settings(max_examples=1)
    @given(GPU_KINDS[kind](), st.permutations(WORDS))
    def check(case: StagesCase, names: list[str]) -> None:
        gpu = Gpu(groups=True)
        for form in GPU_FORMS:
            for made in [each.stages for each in form.reach(case.stages, case.facts, gpu)][:1]:
                one, other = (
                    template_of(form.name)(hoist(each, case.facts.constant).rest, gpu)
                    for each in (made, renamed(made, names))
                )
                assert (one is None) == (other is None)
                if one is not None and other is not None:
                    assert one[0].to_json() == other[0].to_json()

    check()


def _every(forms: tuple[Form, ...], case: StagesCase, machine: object) -> list[Stages]:
    return [
        made.stages
        for each in forms
        for made in reach((each,), case.stages, case.facts, machine)[:1]
    ]


def test_what_is_no_contraction_has_no_roles() -> None:
    x = placeholder("x", (4, 8), f32)
    once = stage("a", (4,), lambda i: reduce("sum", (8,), lambda k: x[i, k]))
    twice = stage("b", (4,), lambda i: reduce("max", (8,), lambda k: x[i, k]))
    both = stage("c", (4,), lambda i: once[i] + twice[i])
    alone = kernel_of(stages((x,), (once,)))
    assert block_flow(alone) is not None
    assert contraction_blocks(alone) is None  # nobody reads it
    assert contraction_blocks(kernel_of(stages((x,), (once, twice, both)))) is None
