"""Memory plans: nothing that is there at the same time overlaps, and little is wasted."""

from __future__ import annotations

from itertools import permutations
from random import Random

import pytest
from hypothesis import given, strategies as st

from plica.analysis.memory import (
    Allocation,
    MemoryPlan,
    MemoryStep,
    allocations_of,
    check_plan,
    checked,
    least,
    most,
    pack_arena,
    timeline,
)
from plica.analysis.memory.packing import blocks_of
from plica.core.diagnostic import CompilerBug


@st.composite
def lines(draw: st.DrawFn) -> tuple[list[MemoryStep], list[int], list[int], list[int]]:
    """A random sequence: its steps, the sizes of its values, those given and those kept."""
    given_ = list(range(draw(st.integers(0, 2))))
    sizes = [draw(st.integers(0, 200)) for _ in given_]
    known = list(given_)
    steps: list[MemoryStep] = []
    for _ in range(draw(st.integers(1, 12))):
        inputs = draw(st.lists(st.sampled_from(known), max_size=3)) if known else []
        out = len(sizes)
        views: list[tuple[int, int]] = []
        over: list[tuple[int, int]] = []
        size = draw(st.integers(0, 200))
        if inputs:
            kind = draw(st.sampled_from(("plain", "view", "over", "over")))
            if kind == "view":
                views, size = [(out, inputs[0])], sizes[inputs[0]]
                inputs = inputs[:1]
            elif kind == "over":
                over, size = [(out, inputs[0])], sizes[inputs[0]]
        sizes.append(size)
        known.append(out)
        steps.append(MemoryStep((out,), tuple(inputs), tuple(views), tuple(over)))
    kept = draw(st.lists(st.sampled_from(known), max_size=2))
    return steps, sizes, given_, kept


@given(lines())
def test_a_simulated_run_reads_what_was_written(
    line: tuple[list[MemoryStep], list[int], list[int], list[int]],
) -> None:
    """The independent witness: run the steps on real bytes, one number per content."""
    steps, sizes, given_, kept = line
    tenants = allocations_of(steps, sizes, given_, kept)
    plan = checked(pack_arena(tenants, 8))
    memory = [-1] * plan.size
    holds = dict(zip(given_, given_, strict=True))

    def spot(value: int) -> range:
        return range(plan.offsets[value], plan.offsets[value] + sizes[value])

    for value in given_:
        for at in spot(value):
            memory[at] = value
    for step in steps:
        for value in step.inputs:
            assert all(memory[at] == holds[value] for at in spot(value))
        shown = dict(step.views)
        for value in step.outputs:
            holds[value] = holds[shown[value]] if value in shown else value
            for at in spot(value):
                assert value not in shown or memory[at] == holds[value]
                memory[at] = holds[value]
    for value in kept:
        assert all(memory[at] == holds[value] for at in spot(value))


@given(lines(), st.sampled_from((1, 8, 64)))
def test_the_size_is_between_its_bounds(
    line: tuple[list[MemoryStep], list[int], list[int], list[int]], alignment: int
) -> None:
    steps, sizes, given_, kept = line
    tenants = allocations_of(steps, sizes, given_, kept)
    plan = pack_arena(tenants, alignment)
    assert check_plan(plan) == ()
    assert least(tenants, alignment) <= plan.size <= most(tenants, alignment)
    assert all(offset % alignment == 0 for offset in plan.offsets)


@st.composite
def tenancies(draw: st.DrawFn) -> list[Allocation]:
    found = []
    for _ in range(draw(st.integers(0, 5))):
        born = draw(st.integers(0, 6))
        found.append(Allocation(draw(st.integers(0, 9)), born, born + draw(st.integers(0, 4))))
    return found


def best(tenants: list[Allocation]) -> int:
    """The least arena: some order of placing each as low as it goes gives it."""
    found = most(tenants, 1)
    for order in permutations(range(len(tenants))):
        places: dict[int, int] = {}
        for number in order:
            each = tenants[number]
            met = [
                (places[n], places[n] + tenants[n].size)
                for n in places
                if tenants[n].born <= each.last and tenants[n].last >= each.born
            ]
            starts = sorted({0, *(end for _, end in met)})
            places[number] = next(
                at for at in starts if all(at >= e or at + each.size <= s for s, e in met)
            )
        found = min(found, max((places[n] + tenants[n].size for n in places), default=0))
    return found


@given(tenancies())
def test_few_tenants_are_arranged_nearly_as_well_as_can_be(tenants: list[Allocation]) -> None:
    plan = pack_arena(tenants, 1)
    assert check_plan(plan) == ()
    assert best(tenants) <= plan.size <= 2 * best(tenants)


@given(tenancies(), st.lists(st.integers(0, 12), min_size=5, max_size=5))
def test_the_checker_agrees_with_looking_at_every_byte(
    tenants: list[Allocation], offsets: list[int]
) -> None:
    plan = MemoryPlan(tuple(tenants), tuple(offsets[: len(tenants)]), 100, 1)
    clash = False
    for step in range(12):
        seen: set[int] = set()
        for each, offset in zip(plan.tenants, plan.offsets, strict=True):
            if each.born <= step <= each.last:
                mine = set(range(offset, offset + each.size))
                clash = clash or bool(seen & mine)
                seen |= mine
    assert bool(check_plan(plan)) == clash


WRONG = {
    "overlap at step 3": MemoryPlan((Allocation(8, 0, 3), Allocation(8, 3, 4)), (0, 0), 64),
    "outside of the arena": MemoryPlan((Allocation(65, 0, 0),), (0,), 64),
    "not aligned": MemoryPlan((Allocation(8, 0, 0),), (8,), 64),
    "ends before": MemoryPlan((Allocation(8, 2, 1),), (0,), 64),
    "does not lie on 0": MemoryPlan((Allocation(8, 0, 1), Allocation(8, 1, 1, 0)), (0, 64), 128),
    "is there before 0": MemoryPlan((Allocation(8, 2, 3), Allocation(8, 1, 1, 0)), (0, 0), 64),
    "in place of another": MemoryPlan((Allocation(8, 0, 1), Allocation(8, 1, 1, 0, 0)), (0, 0), 64),
    # the old value, or a view of it, is needed after the new one is written over it
    "0 and 1 overlap": MemoryPlan((Allocation(8, 0, 2), Allocation(8, 1, 2, None, 0)), (0, 0), 64),
    "1 and 2 overlap": MemoryPlan(
        (Allocation(8, 0, 2), Allocation(8, 1, 3, view_of=0), Allocation(8, 2, 3, in_place_of=0)),
        (0, 0, 0),
        64,
    ),
}


@pytest.mark.parametrize("message", WRONG)
def test_what_is_wrong_is_said(message: str) -> None:
    (first, *_) = check_plan(WRONG[message])
    assert message in str(first)
    with pytest.raises(CompilerBug, match="memory plan"):
        checked(WRONG[message])


def test_sharing_that_is_right() -> None:
    view = MemoryPlan((Allocation(8, 0, 3), Allocation(8, 1, 4, view_of=0)), (0, 0), 64)
    hand = MemoryPlan((Allocation(8, 0, 1), Allocation(8, 1, 4, in_place_of=0)), (0, 0), 64)
    assert check_plan(view) == check_plan(hand) == ()


@pytest.mark.parametrize(
    ("steps", "sizes", "message"),
    [
        ((MemoryStep((0,), (1,)), MemoryStep((1,), ())), (1, 1), "read before"),
        ((MemoryStep((0,), ()), MemoryStep((0,), ())), (1,), "written twice"),
        ((MemoryStep((0,), ()),), (1, 1), "never written"),
        ((MemoryStep((1,), ()), MemoryStep((0,), (1,), views=((0, 1),))), (1, 1), "a later one"),
    ],
)
def test_a_sequence_that_is_none_is_a_bug(
    steps: tuple[MemoryStep, ...], sizes: tuple[int, ...], message: str
) -> None:
    with pytest.raises(CompilerBug, match=message):
        allocations_of(steps, sizes)


def test_what_is_given_or_seen_elsewhere_is_not_written_over() -> None:
    over = ((1, 0),)
    (_, kept) = allocations_of((MemoryStep((1,), (0,), over=over),), (8, 8), given=(0,))
    assert kept.in_place_of is None
    steps = (
        MemoryStep((0,), ()),
        MemoryStep((1,), (0,), ((1, 0),)),
        MemoryStep((2,), (0, 1), over=((2, 0),)),
    )
    assert allocations_of(steps, (8, 8, 8))[2].in_place_of is None  # the view is read elsewhere
    steps = (
        MemoryStep((0,), ()),
        MemoryStep((1,), (0,), ((1, 0),)),
        MemoryStep((2,), (0,), over=((2, 0),)),
    )
    assert allocations_of(steps, (8, 8, 8), kept=(1,))[2].in_place_of is None  # the view lives on
    assert allocations_of(steps, (8, 8, 8))[2].in_place_of == 0


@given(lines())
def test_nothing_is_used_after_it_is_freed(
    line: tuple[list[MemoryStep], list[int], list[int], list[int]],
) -> None:
    steps, sizes, given_, kept = line
    plan = pack_arena(allocations_of(steps, sizes, given_, kept))
    there: set[int] = set()
    events = list(timeline(plan))
    at = 0
    for number, step in enumerate(steps):
        while at < len(events) and (events[at].step, events[at].what) < (number, "take"):
            _follow(events[at].what, events[at].tenant, there)
            at += 1
        while at < len(events) and (events[at].step, events[at].what) == (number, "take"):
            _follow(events[at].what, events[at].tenant, there)
            at += 1
        assert there.issuperset((*step.inputs, *step.outputs))
    for event in events[at:]:
        _follow(event.what, event.tenant, there)
    assert not there


def _follow(what: str, tenant: int, there: set[int]) -> None:
    if what == "take":
        assert tenant not in there
        there.add(tenant)
    else:
        there.remove(tenant)


def test_ten_thousand_tenants() -> None:
    random = Random(0)
    tenants = []
    for step in range(10_000):
        tenants.append(
            Allocation(random.randrange(1, 1 << 20), step, step + random.randrange(1, 40))
        )
    plan = pack_arena(tenants)
    assert check_plan(plan) == ()
    assert plan.size <= 1.2 * least(tenants)
    everything = [Allocation(64 * (n % 7), 0, 1) for n in range(10_000)]
    assert pack_arena(everything).size == most(everything)


def test_a_storage_lasts_as_long_as_its_last_view() -> None:
    tenants = (Allocation(8, 0, 1), Allocation(8, 1, 5, view_of=0), Allocation(8, 2, 3))
    owner, blocks = blocks_of(tenants, 64)
    assert owner == [0, 0, 1]
    assert (blocks[0].born, blocks[0].last) == (0, 5)
    assert pack_arena(tenants).offsets == (0, 0, 64)
    with pytest.raises(CompilerBug, match="later one"):
        pack_arena((Allocation(8, 0, 1, view_of=1), Allocation(8, 0, 1)))
