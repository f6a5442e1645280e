"""Forms as a population: whatever one makes of random stages means what these meant."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from importlib import invalidate_caches
from math import prod
from pathlib import Path
from typing import Final

import numpy as np
import pytest
from attrs import evolve
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from plica.codegen.dot import DOTS
from plica.codegen.lower.passes import lower
from plica.core.diagnostic import RuleRefused
from plica.core.fold import map_bottom_up
from plica.core.term import Term
from plica.ir.dtype import DType, f16, f32
from plica.ir.run import run_kernel
from plica.ir.scalar import Buffer, Lit, Load, Select, dtype_of
from plica.ir.stage import Each, placeholder, stage
from plica.ir.stages import Stages, evaluate_stages, stages
from plica.rewrite.contract import exact, reassociates
from plica.schedule.default import FORMS, Machine, default_schedule, formed
from plica.schedule.default.gpu import GPU_FORMS, Gpu
from plica.schedule.form import GROUP, Apply, Facts, Form, installed, reach
from plica.schedule.hoist import hoist
from tests.schedule.begun import begun, read_after
from tests.schedule.population import (
    KINDS,
    Array,
    Case,
    chains,
    products,
    shape_of,
    transposes,
    windows,
)

EXAMPLES: Final = max(10, 2 * settings().max_examples // 5)

_DOTS = {dot.lanes: dot for *_, dot in DOTS}
MACHINES: Final = tuple([
    Machine(bits, registers, cores=cores, dot=_DOTS[bits // 32])
    for bits, registers in ((512, 32), (256, 16), (128, 32)) for cores in (1, 2)
])  # fmt: skip

REACHED: Final = {
    "product": ("lanes-over-n", "lanes-over-row"),
    "columns": ("lanes-over-row", "column-panels"),
    "window": ("lanes-over-n", "lanes-over-row"),
    "grouped": ("split-groups",),
    "depthwise": ("window",),
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


def held(of: Case, forms: Sequence[Form], machine: Machine | Gpu) -> Counter[str]:
    """Checks whatever forms make of a case; says how often each of them applied."""
    wanted = np.asarray(evaluate_stages(of.stages, of.arrays))
    count: Counter[str] = Counter()
    for form in forms:
        found = form.reach(of.stages, of.facts, machine)
        if isinstance(machine, Gpu):  # tiles of many sizes, all of them large
            found = found[:: max(1, len(found) // 3)]
        for each in found:
            count[form.name] += 1
            meant(each.stages, of, machine, wanted, f"The form {form.name}")
    return count


def meant(made: Stages, of: Case, machine: Machine | Gpu, wanted: Array, who: str) -> None:
    """Stages that a form made mean what was wanted, hoisted or not, scheduled or not."""
    assert kept(made) == kept(of.stages), f"{who} changes what is read or made"
    if all(isinstance(each, Each) for each in made.stages):
        agrees(evaluate_stages(made, of.arrays), wanted, of.near, who)
    constant = of.facts.constant
    arrays = read_after(made, constant, of.arrays)
    rest = hoist(made, constant).rest
    if all(isinstance(each, Each) for each in rest.stages):
        agrees(evaluate_stages(rest, arrays), wanted, of.near, f"{who}, hoisted,")
    if isinstance(machine, Gpu):  # its schedules have tests of their own
        return
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


MANY: Final = 1 << 16
"""Products that are worth tiles on a GPU."""

GPU_KINDS: Final = {
    "product": (products(("rows", "columns", "any"), (f32,), MANY), ("product-tiles",)),
    "f16": (products(("rows", "columns"), (f16,), MANY), ("tensor-core-tiles",)),
    "octets": (products(("octets",), (f16,), MANY), ("tensor-core-tiles", "wgmma-tiles")),
    "deep": (products(("octets",), (f32,), MANY), ("product-tiles", "split-sums")),
    "window": (windows("all", MANY), ("product-tiles",)),
    "chain": (chains(), ("block-rows", "shared-sums", "thread-elements")),
    "transpose": (transposes(), ("transpose-tiles",)),
}


@pytest.mark.parametrize("kind", GPU_KINDS)
def test_forms_of_gpus_keep_the_meaning(kind: str) -> None:
    cases, reached = GPU_KINDS[kind]
    count: Counter[str] = Counter()

    @settings(max_examples=EXAMPLES // 2)
    @given(cases)
    def check(of: Case) -> None:
        count.update(held(of, GPU_FORMS, Gpu(groups=True)))

    with np.errstate(all="ignore"):
        check()
    missing = [form for form in reached if not count[form]]
    assert not missing, f"{missing} never applied, but {dict(count)}"


def test_every_form_is_reached() -> None:
    reached = {form for forms in REACHED.values() for form in forms}
    assert reached == {form.name for form in FORMS}
    assert len(reached) == len(FORMS)
    on_gpus = {form for _, forms in GPU_KINDS.values() for form in forms}
    assert on_gpus == {form.name for form in GPU_FORMS}


# --- wrong forms ----------------------------------------------------------------------------------


def padded_with_ones(of: Stages, _: Facts, __: Machine) -> list[Stages]:
    """The data of a guarded contraction, whose border is made of ones instead of zeros."""

    def ones(node: Term) -> Term:
        match node:
            case Select(condition, Load() as inside, Lit(0)):
                return Select(condition, inside, Lit(1, dtype_of(inside)))
            case _:
                return node

    found = [map_bottom_up(ones, each) for each in of.stages]
    if all(new is old for new, old in zip(found, of.stages, strict=True)):
        return []
    return [stages(of.inputs, [each for each in found if isinstance(each, Each)])]


def dropped(of: Stages, _: Facts, __: Machine) -> list[Stages]:
    """The stages without the last input."""
    return [stages(of.inputs[:-1], of.stages)] if len(of.inputs) > 1 else []


def turned(of: Stages, _: Facts, __: Machine) -> list[Stages]:
    """A matrix whose result has as many elements as it should, in the wrong order."""
    match of.stages[-1]:
        case Each(out, (first, last), value) if len(of.stages) == 1:
            other = Buffer(out.name, (out.shape[1], out.shape[0]), out.dtype)
            return [stages(of.inputs, (Each(other, (last, first), value),))]
        case _:
            return []


@pytest.mark.parametrize(
    ("kind", "apply", "message"),
    [
        ("window", padded_with_ones, "The form planted means something else"),
        ("product", dropped, "The form planted changes what is read or made"),
        ("transpose", turned, "The form planted means something else"),
    ],
)
def test_a_wrong_form_is_found_and_named(kind: str, apply: Apply, message: str) -> None:
    planted = Form("planted", "A form that is wrong.", exact, apply)

    @settings(max_examples=4 * EXAMPLES, report_multiple_bugs=False, phases=(Phase.generate,))
    @given(KINDS[kind](), st.sampled_from(MACHINES))
    def check(of: Case, machine: Machine) -> None:
        held(of, (planted,), machine)

    with np.errstate(all="ignore"), pytest.raises(AssertionError, match=message):
        check()


# --- libraries ------------------------------------------------------------------------------------

LIBRARY: Final = """
from plica.ir.scalar import Buffer, index
from plica.ir.stage import Each
from plica.ir.stages import Names, stages
from plica.rewrite.contract import exact
from plica.schedule.form import Form


def flat(of, facts, machine):
    "A unit axis in front: the same elements in the same order."
    if len(of.stages) != 1 or not isinstance(of.stages[0], Each) or machine.vector != 77:
        return []
    (whole,) = of.stages
    unit = Names(of).var("unit")
    out = Buffer(whole.out.name, (index(1), *whole.out.shape), whole.out.dtype)
    return [stages(of.inputs, (Each(out, (unit, *whole.axes), whole.value),))]


FORM = Form("add-unit-axis", "A unit axis in front.", exact, flat, rank=-1)
MORE = (FORM, Form("never", "A form that never applies.", exact, lambda of, facts, machine: ()))
WRONG = "no form"
"""


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """A package that is installed as long as a test runs, and says which forms it has."""
    folder = tmp_path / "mine_forms-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: mine-forms\nVersion: 1.0\n")
    (tmp_path / "mine_forms.py").write_text(LIBRARY)
    monkeypatch.syspath_prepend(tmp_path)

    def declare(*points: str) -> None:
        lines = "".join(f"{each}\n" for each in points)
        (folder / "entry_points.txt").write_text(f"[{GROUP}]\n{lines}")
        invalidate_caches()
        installed.cache_clear()

    yield declare
    installed.cache_clear()
    sys.modules.pop("mine_forms", None)


def copies() -> Stages:
    x = placeholder("x", (3, 5), f32)
    return stages((x,), (stage("y", (3, 5), lambda i, j: x[i, j] * 2),))


def test_a_form_of_a_library_is_found_checked_and_used(library: Callable[..., None]) -> None:
    library("mine = mine_forms:FORM")
    assert [each.name for each in installed()] == ["add-unit-axis"]
    of, machine = copies(), Machine(77, 32)
    made = formed(of, Facts((False,)), machine)
    assert made is not None
    assert made.form == "add-unit-axis"
    assert shape_of(made.stages.result) == (1, 3, 5)
    values = np.arange(15, dtype=np.float32).reshape(3, 5)
    assert held(Case(of, Facts((False,)), [values]), installed(), machine)["add-unit-axis"] == 1
    library("mine = mine_forms:MORE")
    assert [each.name for each in installed()] == ["add-unit-axis", "never"]
    library()
    assert formed(of, Facts((False,)), machine) is None


@pytest.mark.parametrize(
    ("point", "found"),
    [
        ("mine_forms:WRONG", "no form"),
        ("mine_forms:missing", "missing"),
        ("not_there:FORM", "not_there"),
    ],
)
def test_a_broken_entry_point_is_refused(
    library: Callable[..., None], point: str, found: str
) -> None:
    library(f"mine-own = {point}")
    with pytest.raises(RuleRefused, match="mine-own") as caught:
        formed(copies(), Facts((False,)), Machine(77, 32))
    assert found in str(caught.value)


# --- reaching -------------------------------------------------------------------------------------


def test_the_lowest_rank_that_applies_wins_and_then_the_fewest_cycles() -> None:
    of = copies()

    def costing(*cycles: float) -> Apply:
        return lambda of, facts, machine: [(each, lambda: of) for each in cycles]

    forms = (
        Form("late", "Comes after others.", exact, costing(1.0), 2),
        Form("dear", "Costs much.", exact, costing(9.0, 7.0), 1),
        Form("cheap", "Costs little.", exact, costing(8.0), 1),
        Form("free", "Needs more freedom.", reassociates, costing(0.0), 0),
        Form("never", "Does not apply.", exact, costing(), 0),
    )
    facts = Facts((False,))
    found = reach(forms, of, facts, None)
    assert [(each.form, each.cycles) for each in found] == [("dear", 7), ("cheap", 8), ("dear", 9)]
    allowed = reach(forms, of, evolve(facts, contract=reassociates), None)
    assert [each.form for each in allowed] == ["free"]
    assert [each.form for each in reach(forms, of, facts, None, "late")] == ["late"]
    assert reach(forms, of, facts, None, "unknown") == []


def test_names_of_forms_are_words_and_apart() -> None:
    names = [each.name for each in FORMS]
    assert len(set(names)) == len(names)
    assert all(each.why.endswith(".") for each in FORMS)
    with pytest.raises(RuleRefused, match="small letters"):
        Form("Pad_Axis", "A name that is none.", exact, lambda of, facts, machine: ())
