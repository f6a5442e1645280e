"""Forms as a population: whatever one makes of random stages means what these meant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from math import prod
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from attrs import evolve
from hypothesis import Phase, given, settings, strategies as st

import plica
from plica.codegen.form_fuzz.judge import GPUS, MACHINES, FormWay, judge
from plica.core.diagnostic import RuleRefused
from plica.core.extension import SkippedExtension
from plica.core.fold import map_bottom_up, post_order
from plica.core.name import Name
from plica.core.term import Term
from plica.ir.contract import exact, reassociates
from plica.ir.graph.expression import Apply as Call, Function, Var
from plica.ir.graph.module import Module, module
from plica.ir.interpret.array_arithmetic import Array
from plica.ir.loop.scalar import (
    And,
    Buffer,
    Cast,
    Le,
    Lit,
    Load,
    Lt,
    Max,
    Reduce,
    Scalar,
    Select,
    dtype_of,
    index,
)
from plica.ir.loop.stage import Each, placeholder, stage
from plica.ir.loop.stages import Stages, kernel_of, stages
from plica.ir.loop.statement import For
from plica.ir.loop.tensor import reduce
from plica.ir.type.dim import known
from plica.ir.type.dtype import f32, f64, i8, i32, u8
from plica.ir.type.term import tensor
from plica.schedule.default import FORMS, Machine, fallback_schedule, formed
from plica.schedule.default.gpu import GPU_FORMS, Gpu, candidates as gpu_candidates
from plica.schedule.form import FORM_RULES, Apply, Facts, Form, installed, reach
from plica.schedule.generate.stages import GPU_KINDS, KINDS, ON_SMALL, StagesCase, shape_of
from plica.schedule.generate.stages.kind import MANY_ELEMENTS
from plica.schedule.unlowered import run_unlowered
from tests.library import Library

EXAMPLES: Final = max(6, 2 * settings().max_examples // 5)

REACHED: Final = {
    "product": ("lanes-over-n", "lanes-over-row"),
    "columns": ("lanes-over-row", "column-panels"),
    "window": ("lanes-over-n", "lanes-over-row"),
    "grouped": ("split-groups",),
    "depthwise": ("window",),
    "pool": ("window", "lanes-over-row"),
    "reduction": ("partial-sums",),
    "chain": ("row-chain", "short-rows"),
    "elementwise": ("share-rows",),
    "concat": ("split-pieces",),
    "transpose": ("transpose-tiles",),
    "quantised": ("dot-by-four", "byte-tiles"),
    "few bits": ("few-bits",),
    "coded": ("coded-rows", "coded-bytes", "coded-digits", "coded-panels"),
    "winograd": ("winograd-tiles",),
    "running": ("scan",),
    "scattered": ("scattered-terms",),
    "merged": ("merged-runs",),
    "selected": ("kept-places",),
    "across": ("column-sums",),
    "column chain": ("column-chain",),
    "stepped": ("split-pieces",),
}
"""Which forms must apply to some stages of a kind."""


def held(of: StagesCase, forms: Sequence[Form], machine: Machine | Gpu) -> Counter[str]:
    """Checks whatever forms make of a case; says how often each of them applied."""
    return judge(of, machine, FormWay(forms, forms))[0]


@pytest.mark.parametrize("kind", KINDS)
def test_forms_keep_the_meaning(kind: str) -> None:
    cases = st.tuples(KINDS[kind](), st.sampled_from(MACHINES))
    _until_reached(cases, FORMS, EXAMPLES, REACHED[kind])


def _until_reached(
    cases: st.SearchStrategy[tuple[StagesCase, Machine | Gpu]],
    forms: Sequence[Form],
    examples: int,
    wanted: Sequence[str],
) -> None:
    """Checks a given number of cases, and more of them for the forms that have not applied yet."""
    count: Counter[str] = Counter()

    def missing() -> list[Form]:
        return [form for form in forms if form.name in wanted and not count[form.name]]

    def drawn(more: bool) -> Callable[[], None]:
        @given(cases)
        def check(case: tuple[StagesCase, Machine | Gpu]) -> None:
            if asked := missing() if more else forms:
                count.update(held(case[0], asked, case[1]))

        return check

    for times in (1, 4, 16):
        with np.errstate(all="ignore"):
            settings(max_examples=times * examples)(drawn(times > 1))()
        if not missing():
            return
    never = [form.name for form in missing()]
    assert not never, f"{never} never applied, but {dict(count)}"


GPU_REACHED: Final = {
    "product": ("product-tiles",),
    "f16": ("tensor-core-tiles",),
    "octets": ("tensor-core-tiles", "wgmma-tiles"),
    "deep": ("product-tiles", "split-sums"),
    "window": ("product-tiles",),
    "transpose": ("transpose-tiles",),
    "reduction": ("row-sums", "shared-sums"),
    "across": ("column-sums",),
    "chain": ("block-rows", "uneven-rows", "kept-rows"),
    "column chain": ("kept-columns",),
    "elementwise": ("flat-elements",),
    "concat": ("thread-elements",),
    "running": ("running-blocks",),
}


@pytest.mark.parametrize("kind", GPU_KINDS)
def test_forms_of_gpus_keep_the_meaning(kind: str) -> None:
    gpus = GPUS if kind in ON_SMALL else GPUS[:1]
    cases = st.tuples(GPU_KINDS[kind](), st.sampled_from(gpus))
    _until_reached(cases, GPU_FORMS, EXAMPLES // 2, GPU_REACHED[kind])


def test_every_form_is_reached() -> None:
    reached = {form for forms in REACHED.values() for form in forms}
    assert reached == {form.name for form in FORMS}
    assert len(reached) == len(FORMS)
    on_gpus = {form for forms in GPU_REACHED.values() for form in forms}
    on_gpus |= {
        "online-softmax",
        "online-softmax-parts",
        "online-softmax-wgmma",
        "tensor-core-parts",
        "sorted-rows",
        "merged-tiles",
        "split-columns",
        "staged-rows",
        "staged-sums",
        "split-reductions",
        "split-online-softmax",
        "warp-gates",
        "few-bit-warps",
        "scan-rows",
        "wgmma-boxes",
    }  # of much: tests/schedule/default/gpu
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
    def check(of: StagesCase, machine: Machine) -> None:
        held(of, (planted,), machine)

    with np.errstate(all="ignore"), pytest.raises(AssertionError, match=message):
        check()


# --- libraries ------------------------------------------------------------------------------------

LIBRARY: Final = """
from plica.core.binding import substitute
from plica.ir.loop.scalar import Buffer, Load, Reduce, index
from plica.ir.loop.stage import Each
from plica.ir.loop.stages import Names, stages
from plica.ir.contract import exact, reassociates
from plica.schedule.form import Form


def flat(of, facts, machine):
    "A unit axis in front: the same elements in the same order."
    if len(of.stages) != 1 or not isinstance(of.stages[0], Each) or machine.vector != 77:
        return []
    (whole,) = of.stages
    unit = Names(of).var("unit")
    out = Buffer(whole.out.name, (index(1), *whole.out.shape), whole.out.dtype)
    return [stages(of.inputs, (Each(out, (unit, *whole.axes), whole.value),))]


def halves(of, facts, machine):
    "Half of each product first: a sum of two sums, in loops that no template knows."
    found = [each for each in of.stages if isinstance(each, Each)]
    if len(of.stages) != 1 or not isinstance(found[0].value, Reduce):
        return []
    (whole,), names = found, Names(of, anew=of.made)
    total, k = whole.value, whole.value.axes[-1]
    length = total.extents[-1].value
    if length % 2:
        return []
    sums = []
    for name, start in (("early", 0), ("late", length // 2)):
        body = substitute(total.body, {k: k + start})
        extents = (*total.extents[:-1], index(length // 2))
        out = Buffer(names.name(name), whole.out.shape, whole.out.dtype)
        sums.append(Each(out, whole.axes, Reduce(total.combiner, total.axes, extents, body)))
    both = Load(sums[0].out, whole.axes) + Load(sums[1].out, whole.axes)
    return [stages(of.inputs, (*sums, Each(whole.out, whole.axes, both)))]


HALVES = Form("mine-half-sums", "A sum in two halves.", reassociates, halves)
FIRST = Form("mine-half-sums", "A sum in two halves.", reassociates, halves, rank=-1)
FORM = Form("mine-unit-axis", "A unit axis in front.", exact, flat, rank=-1)
NEVER = Form("mine-never", "A form that never applies.", exact, lambda of, facts, machine: ())
MORE = (FORM, NEVER)
WRONG = "no form"
"""


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """A package that is installed as long as a test runs, and says which forms it has."""
    mine = Library(tmp_path, monkeypatch)

    def declare(*points: str) -> None:
        lines = "".join(f"{each}\n" for each in points)
        mine.install("mine-forms", f"[{FORM_RULES.name}]\n{lines}", mine_forms=LIBRARY)

    yield declare
    mine.remove()


def copies() -> Stages:
    x = placeholder("x", (3, 5), f32)
    return stages((x,), (stage("y", (3, 5), lambda i, j: x[i, j] * 2),))


def test_a_form_of_a_library_is_found_checked_and_used(library: Callable[..., None]) -> None:
    library("mine = mine_forms:FORM")
    assert [each.name for each in installed()] == ["mine-unit-axis"]
    of, machine = copies(), Machine(77, 32)
    made = formed(of, Facts((False,)), machine)
    assert made is not None
    assert made.form == "mine-unit-axis"
    assert shape_of(made.stages.result) == (1, 3, 5)
    values = np.arange(15, dtype=np.float32).reshape(3, 5)
    assert (
        held(StagesCase(of, Facts((False,)), [values]), installed(), machine)["mine-unit-axis"] == 1
    )
    library("mine = mine_forms:MORE")
    assert [each.name for each in installed()] == ["mine-unit-axis", "mine-never"]
    library()
    assert formed(of, Facts((False,)), machine) is None


def product(m: int, k: int, n: int) -> tuple[Module, list[Array]]:
    x, w = Var(Name("x"), tensor((m, k), "f32")), Var(Name("w"), tensor((k, n), "f32"))
    function = Function((), (), (x, w), tensor((m, n), "f32"), Call("matmul", (x, w)))
    draw = np.random.default_rng(m + k + n)
    main = Var(Name("main"), None)
    return module({main: function}, main), [
        draw.standard_normal(shape, np.float32) for shape in ((m, k), (k, n))
    ]


@pytest.mark.parametrize("target", ["cpu", "c"])
@pytest.mark.parametrize(
    ("form", "size", "used"),
    [
        ("HALVES", (3, 10, 5), True),  # nothing else helps
        ("HALVES", (48, 64, 80), False),  # tiles of registers take fewer cycles
        ("FIRST", (40, 64, 72), True),  # whoever wants to be asked first is
    ],
)
def test_a_form_without_a_template_is_compiled_where_it_takes_the_fewest_cycles(
    library: Callable[..., None], target: str, form: str, size: tuple[int, int, int], used: bool
) -> None:
    library(f"mine = mine_forms:{form}")
    of, arrays = product(*size)
    compiled = plica.compile(of, target=target, cache=False)
    assert ("late" in compiled.source("kernel")) == used  # the first half is summed in the result
    wanted = arrays[0].astype(np.float64) @ arrays[1].astype(np.float64)
    np.testing.assert_allclose(compiled(*arrays), wanted, rtol=1e-4, atol=1e-4)


def test_the_general_template_uses_vectors_and_cores(library: Callable[..., None]) -> None:
    library("mine = mine_forms:FIRST")
    x, w = placeholder("x", (64, 16), f32), placeholder("w", (16, 320), f32)
    body = lambda i, j: reduce("sum", (16,), lambda k: x[i, k] * w[k, j])  # noqa: E731
    of = stages((x, w), (stage("y", (64, 320), body),))
    facts, machine = Facts((False, False), (), reassociates), Machine(512, 32, cores=4)
    made = formed(of, facts, machine)
    assert made is not None
    assert made.form == "mine-half-sums"
    _, kernel = fallback_schedule(kernel_of(made.stages), machine)
    kinds = [node.kind for node in post_order(kernel) if isinstance(node, For)]
    assert kinds.count("vectorized") == 5
    assert kinds.count("parallel") == 1  # the sums and what joins them go row by row
    draw = np.random.default_rng(0)
    arrays = [draw.integers(-3, 4, shape).astype(np.float32) for shape in ((64, 16), (16, 320))]
    assert np.array_equal(run_unlowered(kernel, arrays)[-1], arrays[0] @ arrays[1])


def test_a_form_of_a_library_is_spread_over_the_threads_of_a_gpu(
    library: Callable[..., None],
) -> None:
    library("mine = mine_forms:HALVES")
    x, w = placeholder("x", (3, 10), f32), placeholder("w", (10, 5), f32)
    body = lambda i, j: reduce("sum", (10,), lambda k: x[i, k] * w[k, j])  # noqa: E731
    of = stages((x, w), (stage("y", (3, 5), body),))
    found = next(gpu_candidates(of, Facts((False, False), (), reassociates), Gpu()))
    assert found.form.form == "mine-half-sums"
    assert found.form.cycles > 0


@pytest.mark.parametrize(
    ("point", "found"),
    [
        ("mine_forms:WRONG", "no form"),
        ("mine_forms:missing", "missing"),
        ("not_there:FORM", "not_there"),
    ],
)
def test_a_broken_entry_point_is_reported_and_skipped(
    library: Callable[..., None], point: str, found: str
) -> None:
    library(f"mine-own = {point}", "mine = mine_forms:FORM")
    with pytest.warns(SkippedExtension, match="mine-own") as caught:
        made = formed(copies(), Facts((False,)), Machine(77, 32))
    assert found in str(caught[0].message)
    assert made is not None
    assert made.form == "mine-unit-axis"


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


# --- found by plica fuzz form ---------------------------------------------------------------------


def pool_without_batch() -> tuple[Stages, list[np.ndarray[Any, Any]]]:
    """Windows in strides whose unit axes are gone: their copy has no batch axis to be made at."""
    x, more = placeholder("x", (1, 8, 3, 81), f64), placeholder("residual", (8, 40), f64)
    total = stage(
        "y0",
        (1, 8, 1, 40),
        lambda b, c, i, j: reduce("sum", (3, 3), lambda k, m: x[b, c, i * 3 + k, j * 2 + m]),
    )
    last = stage("y", (8, 40), lambda c, j: Max(total.out[0, c, 0, j], Lit(0.0, f64)) + more[c, j])
    return stages((x, more), (total, last)), [np.ones((1, 8, 3, 81)), np.ones((8, 40))]


def window_in_strides() -> tuple[Stages, list[np.ndarray[Any, Any]]]:
    """A copy with room around it, of rows in strides: its places are not affine in the loops."""
    x, w = placeholder("x", (1, 206, 1, 14), f32), placeholder("w", (206, 2), f32)

    def element(b: Scalar, c: Scalar, i: Scalar, j: Scalar) -> Scalar:
        def term(k: Scalar) -> Scalar:
            place = j * 3 + k
            inside = And(Le(index(0), place), Lt(place, index(14)))
            return Select(inside, x[b, c, i, place], Lit(0.0, f32)) * w[c, k]

        return reduce("sum", (2,), term)

    made = stages((x, w), (stage("y", (1, 206, 1, 5), element),))
    return made, [np.ones((1, 206, 1, 14), np.float32), np.ones((206, 2), np.float32)]


def bytes_with_a_given_zero() -> tuple[Stages, list[np.ndarray[Any, Any]]]:
    """Products of bytes whose border is a zero point that is not known yet."""
    x, w = placeholder("x", (12, 9), u8), placeholder("w", (18, 12, 2), i8)
    zero = placeholder("zero", (), u8)

    def element(o: Scalar, i: Scalar) -> Scalar:
        def term(c: Scalar, k: Scalar) -> Scalar:
            return (Cast(x[c, i + k * 2], i32) - Cast(zero[()], i32)) * Cast(w[o, c, k], i32)

        return reduce("sum", (12, 2), term)

    made = stages((x, w, zero), (stage("y", (18, 7), element),))
    shapes = [((12, 9), np.uint8), ((18, 12, 2), np.int8), ((), np.uint8)]
    return made, [np.full(shape, 3, dtype) for shape, dtype in shapes]


FOUND: Final = (
    (pool_without_batch, "register-tile"),
    (window_in_strides, "register-tile"),
    (bytes_with_a_given_zero, "dot-by-four"),
)


@pytest.mark.parametrize(
    ("make", "template", "machine"),
    [
        pytest.param(*found, machine, marks=() if (row + column) % 3 == 0 else pytest.mark.slow)
        for row, found in enumerate(FOUND)
        for column, machine in enumerate(MACHINES)
    ],
)
def test_a_template_schedules_what_it_knows(
    make: Callable[[], tuple[Stages, list[np.ndarray[Any, Any]]]], template: str, machine: Machine
) -> None:
    of, arrays = make()
    case = StagesCase(of, Facts((False,) * len(arrays), contract=reassociates), arrays)
    assert judge(case, machine, FormWay())[1][template] > 0


@given(st.sampled_from(("octets", "deep")).flatmap(lambda name: GPU_KINDS[name]()))
def test_what_is_drawn_for_tiles_does_not_take_long(of: StagesCase) -> None:
    every = [each for each in of.stages.stages if isinstance(each, Each)]
    (fold,) = [each for each in every if isinstance(each.value, Reduce)]  # behind its producers
    assert isinstance(fold.value, Reduce)
    sizes = [known(size) for size in (*fold.out.shape, *fold.value.extents)]
    assert prod(size or 0 for size in sizes) <= 4 * MANY_ELEMENTS
