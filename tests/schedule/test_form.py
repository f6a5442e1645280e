"""Forms as a population: whatever one makes of random stages means what these meant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import prod
from typing import Final

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plica.codegen.dot import DOTS
from plica.codegen.lower.passes import lower
from plica.ir.dtype import DType
from plica.ir.run import run_kernel
from plica.ir.stage import Each
from plica.ir.stages import Stages, evaluate_stages
from plica.schedule.default import FORMS, Machine, default_schedule
from plica.schedule.form import Form
from plica.schedule.hoist import hoist
from tests.schedule.begun import begun, read_after
from tests.schedule.population import KINDS, Array, Case, shape_of

EXAMPLES: Final = max(10, settings().max_examples // 2)

_DOTS = {dot.lanes: dot for *_, dot in DOTS}
MACHINES: Final = tuple([
    Machine(bits, registers, cores=cores, dot=_DOTS[bits // 32])
    for bits, registers in ((512, 32), (256, 16), (128, 32)) for cores in (1, 2)
])  # fmt: skip

REACHED: Final = {
    "product": ("lanes-over-n", "lanes-over-row", "column-panels", "partial-sums"),
    "window": ("window", "lanes-over-n", "lanes-over-row", "split-groups"),
    "pool": ("window", "lanes-over-row"),
    "reduction": ("row-pools", "partial-sums"),
    "chain": ("row-chain",),
    "elementwise": ("share-rows",),
    "concat": ("split-concat",),
    "transpose": ("transpose-tiles",),
    "quantised": ("dot-by-four",),
    "winograd": ("winograd-tiles",),
}
"""Which forms must apply to some stages of a kind."""


def agrees(found: Array, wanted: Array, near: float, who: str) -> None:
    """The same numbers in the same order, to the bit unless they may be off."""
    assert found.size == wanted.size, f"{who} gives {found.shape} instead of {wanted.shape}"
    message = f"{who} means something else"
    flat = found.reshape(wanted.shape)
    if near:
        about = float(np.abs(wanted[np.isfinite(wanted)]).max(initial=1))
        np.testing.assert_allclose(flat, wanted, near, near * about, err_msg=message)
    else:
        np.testing.assert_array_equal(flat, wanted, message)


def kept(of: Stages) -> list[tuple[int, DType]]:
    """What must stay of inputs and the result: their order, elements and dtypes."""
    return [(prod(shape_of(each)), each.dtype) for each in (*of.inputs, of.result)]


def held(of: Case, forms: Sequence[Form], machine: Machine) -> Counter[str]:
    """Checks whatever forms make of a case; says how often each of them applied."""
    wanted = np.asarray(evaluate_stages(of.stages, of.arrays))
    count: Counter[str] = Counter()
    for form in forms:
        for each in form.reach(of.stages, of.facts, machine):
            count[form.name] += 1
            meant(each.stages, of, machine, wanted, f"The form {form.name}")
    return count


def meant(made: Stages, of: Case, machine: Machine, wanted: Array, who: str) -> None:
    """Stages that a form made mean what was wanted, hoisted or not, scheduled or not."""
    assert kept(made) == kept(of.stages), f"{who} changes what is read or made"
    if all(isinstance(each, Each) for each in made.stages):
        agrees(evaluate_stages(made, of.arrays), wanted, of.near, who)
    constant = of.facts.constant
    arrays = read_after(made, constant, of.arrays)
    rest = hoist(made, constant).rest
    if all(isinstance(each, Each) for each in rest.stages):
        agrees(evaluate_stages(rest, arrays), wanted, of.near, f"{who}, hoisted,")
    kernel = begun(made, constant)
    agrees(run_kernel(kernel, arrays)[-1], wanted, of.near, f"The kernel of {who}")
    scheduled = default_schedule(kernel, machine)
    if scheduled is not None:
        lowered = lower(scheduled[1], "cpu")
        agrees(run_kernel(lowered, arrays)[-1], wanted, of.near, f"The schedule of {who}")


@pytest.mark.parametrize("kind", KINDS)
def test_forms_keep_the_meaning(kind: str) -> None:
    count: Counter[str] = Counter()

    @settings(max_examples=EXAMPLES)
    @given(KINDS[kind](), st.sampled_from(MACHINES))
    def check(of: Case, machine: Machine) -> None:
        count.update(held(of, FORMS, machine))

    with np.errstate(all="ignore"):
        check()
    missing = [form for form in REACHED[kind] if not count[form]]
    assert not missing, f"{missing} never applied, but {dict(count)}"


def test_every_form_is_reached() -> None:
    reached = {form for forms in REACHED.values() for form in forms}
    assert reached == {form.name for form in FORMS}
    assert len(reached) == len(FORMS)
