"""Who owns what: printed programs, and laws of the steps that count."""

from __future__ import annotations

from typing import Final

import pytest
from attrs import evolve
from hypothesis import given, settings, strategies as st

from plica.codegen.dynamic.program import (
    Build,
    CallStep,
    ChooseStep,
    Drop,
    Dup,
    DynamicProgram,
    Routine,
    RoutineRegion,
    Unpack,
    Yield,
)  # fmt: skip
from plica.codegen.dynamic.reference_count import with_reference_counts
from plica.codegen.dynamic.show import show
from plica.core.diagnostic import EvaluationError, IllTyped
from plica.ir.contract import exact
from plica.ir.graph.module import Module
from plica.ir.graph.shape_specialisation import sized, sizes_of
from plica.ir.type.infer import infer
from plica.runtime.error import UnsupportedError
from tests.codegen.dynamic.agree import arrays_in, lower, text
from tests.codegen.dynamic.ownership import check
from tests.codegen.dynamic.test_program import NUMBERS, TREE
from tests.conftest import PROFILE, Golden
from tests.strategies import inputs_for, modules

EXAMPLES: Final = {"ci": 12, "dev": 100, "deep": 5_000}[PROFILE]


def one(*regions: RoutineRegion, params: int, registers: int) -> Routine:
    """A routine after counting."""
    routine = Routine("f", params, registers, 1, regions)
    return with_reference_counts(DynamicProgram((routine,), 0, (), (), (), ())).routines[0]


def test_what_is_used_again_is_shared_and_what_is_not_is_given_up() -> None:
    made = one(
        RoutineRegion((Build(1, 0, (0, 0)), Build(2, 0, (1, 1))), Yield((2,)), True),
        params=1,
        registers=3,
    )
    assert made.regions[0].steps == (Dup(0), Build(1, 0, (0, 0)), Dup(1), Build(2, 0, (1, 1)))


def test_nobody_keeps_what_nobody_needs() -> None:
    made = one(
        RoutineRegion((Build(2, 0, (0,)), CallStep(0, (), (3,))), Yield((3,)), True),
        params=2,
        registers=4,
    )
    assert made.regions[0].steps == (
        Drop(1), Build(2, 0, (0,)), Drop(2), CallStep(0, (), (3,)),
    )  # fmt: skip


def test_a_branch_gives_up_what_only_the_other_needs() -> None:
    made = one(
        RoutineRegion((ChooseStep(0, 1, 2, (3,)),), Yield((3,)), True),
        RoutineRegion((), Yield((1,))),
        RoutineRegion((), Yield((2,))),
        params=3,
        registers=4,
    )
    assert made.regions[1].steps == (Drop(0), Drop(2))
    assert made.regions[2].steps == (Drop(0), Drop(1))


def test_a_deep_nest_is_counted() -> None:
    depth = 5_000
    ordered = [RoutineRegion((ChooseStep(0, 1, 2, (1,)),), Yield((1,)), True)]
    for number in range(1, depth):
        ordered.append(RoutineRegion((), Yield((0,))))
        inside = 2 * number + 1
        ordered.append(RoutineRegion((ChooseStep(0, inside, inside + 1, (1,)),), Yield((1,))))
    ordered += [RoutineRegion((), Yield((0,))), RoutineRegion((), Yield((0,)))]
    made = one(*ordered, params=1, registers=2)
    assert len(made.regions) == 2 * depth + 1


def test_routines(golden: Golden) -> None:
    golden(show(lower(text(TREE), exact, ()).program) + "\n", "tree")
    source = (
        NUMBERS
        + """
@plica.function
def main(n: i64, a: bool_, b: bool_) -> tuple[i64, i64]:
    v = total(upto(n, Nil()), i64(0))
    x = v if a else n
    y = v * 2 if b else n
    return x, y
"""
    )
    golden(show(lower(text(source), exact, ()).program) + "\n", "cells")


@settings(max_examples=EXAMPLES)
@given(modules(depth=1), st.data())
def test_every_way_owns_what_it_uses_and_nothing_at_its_end(
    module: Module, data: st.DataObject
) -> None:
    known = infer(module)
    args = data.draw(inputs_for(known))
    try:
        if known.main_function().dims:
            known = sized(known, sizes_of(known, [each.shape for each in arrays_in(args)]))
        program = lower(known, exact, ()).program
    except (EvaluationError, IllTyped, UnsupportedError):
        return  # functions in the interface, operators without meaning at these sizes
    check(program)


def test_the_check_of_owners_can_fail() -> None:
    good = lower(text(TREE), exact, ()).program
    check(good)
    total = good.routines[1]
    for number, region in enumerate(total.regions):
        for at, step in enumerate(region.steps):
            if isinstance(step, Dup | Drop | Unpack):
                steps = region.steps[:at] + region.steps[at + 1 :]
                wrong = [*total.regions]
                wrong[number] = evolve(region, steps=steps)
                routines = (good.routines[0], evolve(total, regions=tuple(wrong)))
                with pytest.raises(AssertionError):
                    check(evolve(good, routines=routines))
