"""Differences and merges of traces."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings, strategies as st

from plica.core.diagnostic import Malformed
from plica.core.digest import digest
from plica.schedule import (
    Conflicts,
    Handle,
    Step,
    Trace,
    annotate,
    apply,
    block,
    diff,
    do,
    effects,
    loops,
    merge,
    reorder,
    split,
    trace_of,
    unroll,
)
from plica.schedule.align import signatures
from plica.schedule.diff import Insert, Keep, MovedStep
from plica.schedule.do import Body
from plica.schedule.generate.kernel import random_case
from plica.schedule.generate.step import walk
from plica.schedule.replay import scheduled
from plica.schedule.trace import handles
from tests.conftest import Golden
from tests.schedule.kernel import matmul, same_function
from tests.schedule.walk import moves, walked

FEW = settings(max_examples=max(5, settings().max_examples // 2))


@do
def plain(i_by: int = 2, j_by: int = 2, *, unrolled: bool = False, noted: bool = False) -> Body:
    c = yield block("C")
    i, j, k = yield loops(c)
    i0, i1 = yield split(i, (None, i_by))
    j0, j1 = yield split(j, (None, j_by))
    if noted:
        yield annotate(k, "pragma", "x")
    yield reorder(i0, j0, k, i1, j1)
    if unrolled:
        yield unroll(j1)


@st.composite
def cousins(draw: st.DrawFn) -> tuple[Trace, Trace]:
    """Two traces that have much in common: the one made from the other by a few changes."""
    choices = draw(moves)
    return walked(matmul(), choices), walked(matmul(), edited(draw, choices))


@given(cousins())
def test_applying_a_difference_gives_the_other_trace(pair: tuple[Trace, Trace]) -> None:
    a, b = pair
    found = diff(a, b)
    assert apply(found, a) is b
    assert apply(found, a, ()) is a
    assert apply(diff(b, a), b) is a
    assert all(isinstance(each, Keep) for each in diff(a, a).edits)


@given(cousins(), st.integers(0, 63))
def test_any_choice_of_hunks_is_a_trace(pair: tuple[Trace, Trace], choice: int) -> None:
    a, b = pair
    found = diff(a, b)
    chosen = [at for at in range(len(found.hunks)) if choice >> at & 1]
    some = apply(found, a, chosen)
    for number, step in enumerate(some.steps):
        assert all(each.step < number for each in handles(step.instruction))


def test_a_changed_attribute_keeps_what_comes_after() -> None:
    a, b = trace_of(plain(2), matmul()), trace_of(plain(3), matmul())
    found = diff(a, b)
    assert [[str(edit) for edit in hunk] for hunk in found.hunks] == [
        ["~ 2 split: factors (None, 2) -> (None, 3)"]
    ]


def test_inserted_and_deleted_steps() -> None:
    a, b = trace_of(plain(), matmul()), trace_of(plain(unrolled=True, noted=True), matmul())
    found = diff(a, b)
    assert [[str(edit)[0] for edit in hunk] for hunk in found.hunks] == [["+"], ["+"]]
    assert [[str(edit)[0] for edit in hunk] for hunk in diff(b, a).hunks] == [["-"], ["-"]]


def test_moved_steps() -> None:
    @do
    def ordered(*names: str) -> Body:
        c = yield block("C")
        i, j, k = yield loops(c)
        known = {"i": i, "j": j, "k": k}
        for name in names:
            yield annotate(known[name], "pragma", name)

    a = trace_of(ordered("i", "j", "k"), matmul())
    b = trace_of(ordered("k", "i", "j"), matmul())
    found = diff(a, b)
    assert [type(each).__name__ for each in found.edits if not isinstance(each, Keep)] == [
        "MovedStep",
        "Leave",
    ]
    assert apply(found, a) is b
    assert apply(found, a, ()) is a
    assert isinstance(found.hunks[0][0], MovedStep)


def test_decisions_are_told_apart() -> None:
    a = walked(matmul(12), [(2, 0)])
    (number,) = a.decisions()
    b = a.with_decision(number, (3, 4) if a.decisions()[number] != (3, 4) else (6, 2))
    ((edit,),) = diff(a, b).hunks
    assert "decision" in str(edit)


def test_a_difference_of_another_trace_is_refused() -> None:
    a, b = trace_of(plain(2), matmul()), trace_of(plain(3), matmul())
    with pytest.raises(Malformed, match="other-trace"):
        apply(diff(a, b), b)


def test_effects_add_up(golden: Golden) -> None:
    a, b = trace_of(plain(), matmul()), trace_of(plain(3, unrolled=True), matmul())
    found = diff(a, b)
    shown = effects(found, a, matmul(), cost=lambda module: float(len(digest(module))))
    assert [each.after for each in shown] == [32.0, 32.0]
    assert all(each.refused is None for each in shown)
    texts = []
    for hunk, effect in zip(found.hunks, shown, strict=True):
        texts += [*map(str, hunk), effect.text, ""]
    golden("\n".join(texts))


def test_an_effect_may_be_a_refusal() -> None:
    a = walked(matmul(), [(6, 0)])
    b = Trace((*a.steps, *a.steps[-1:]))
    assert "refused" in effects(diff(a, b), a, matmul())[0].text


@given(cousins())
def test_merging_with_no_change_is_nothing(pair: tuple[Trace, Trace]) -> None:
    base, a = pair
    assert merge(base, a, base, matmul()) is a
    assert merge(base, base, a, matmul()) is a
    assert merge(base, a, a, matmul()) is a


@FEW
@given(cousins(), moves)
def test_merging_is_symmetric(pair: tuple[Trace, Trace], choices: list[tuple[int, int]]) -> None:
    base, a = pair
    b = walked(matmul(), choices)
    one, other = merge(base, a, b, matmul()), merge(base, b, a, matmul())
    if isinstance(one, Trace):
        assert one is other
    else:
        assert isinstance(other, Conflicts)
        assert len(one.found) == len(other.found)
        assert str(one)


def edited(draw: st.DrawFn, choices: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """A walk with a few changes."""
    other = list(choices)
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(other)))
        step = (draw(st.integers(0, 10)), draw(st.integers(0, 7)))
        other[at : at + draw(st.integers(0, 1))] = [step] if draw(st.booleans()) else []
    return other


@given(st.data())
def test_a_merge_replays_or_names_a_conflict(data: st.DataObject) -> None:
    choices = data.draw(moves)
    sides = [data.draw(st.composite(edited)(choices)) for _ in range(2)]
    base, a, b = (walked(matmul(), each) for each in (choices, *sides))
    found = merge(base, a, b, matmul())
    if isinstance(found, Trace):
        assert same_function(matmul(), scheduled(found, matmul()))
    else:
        assert all(each.why and (each.ours or each.theirs) for each in found.found)


@given(st.integers(0, 1 << 32), st.integers(0, 12), st.integers(0, 6))
def test_merges_of_any_primitives_replay(seed: int, longer: int, other: int) -> None:
    kernel = random_case(Random(seed)).kernel
    base, a = (Trace(walk(kernel, Random(seed), n)[0]) for n in (6, longer))
    b = Trace(walk(kernel, Random(seed + 1), other)[0])
    if isinstance(found := merge(base, a, b, kernel), Trace):
        scheduled(found, kernel)


def test_changes_apart_are_both_made() -> None:
    base = trace_of(plain(2, 2), matmul())
    a = trace_of(plain(3, 2), matmul())
    b = trace_of(plain(2, 2, unrolled=True, noted=True), matmul())
    both = trace_of(plain(3, 2, unrolled=True, noted=True), matmul())
    assert merge(base, a, b, matmul()) is both
    assert same_function(matmul(), scheduled(both, matmul()))


def kinds_of(found: Trace | Conflicts) -> list[str]:
    assert isinstance(found, Conflicts)
    return [each.kind for each in found.found]


def test_one_step_changed_twice() -> None:
    base, a, b = (trace_of(plain(by), matmul()) for by in (2, 3, 4))
    assert kinds_of(merge(base, a, b, matmul())) == ["changed-both"]


def test_one_loop_split_twice() -> None:
    @do
    def one(by: int | None) -> Body:
        c = yield block("C")
        i, _, _ = yield loops(c)
        if by is not None:
            yield split(i, (None, by))

    base, a, b = (trace_of(one(by), matmul()) for by in (None, 2, 3))
    assert kinds_of(merge(base, a, b, matmul())) == ["same-target"]
    assert merge(base, a, a, matmul()) is a


def test_what_one_side_needs_and_the_other_takes_away() -> None:
    base = trace_of(plain(), matmul())
    short = base.prefix(3)
    b = trace_of(plain(unrolled=True), matmul())
    assert "needs-deleted" in kinds_of(merge(base, short, b, matmul()))
    changed = trace_of(plain(2, 3), matmul())
    assert "deleted-and-changed" in kinds_of(merge(base, short, changed, matmul()))


def test_a_merge_that_is_illegal() -> None:
    @do
    def one(what: str) -> Body:
        c = yield block("C")
        i, _, _ = yield loops(c)
        if what == "unroll":
            yield unroll(i)
        elif what == "split":
            yield split(i, (None, 2))

    base, a, b = (trace_of(one(word), matmul()) for word in ("", "unroll", "split"))
    found = merge(base, a, b, matmul())
    assert kinds_of(found) == ["illegal"]
    assert isinstance(found, Conflicts)
    refused = found.found[0]
    assert refused.step is None
    assert [each and each.instruction.kind for each in (refused.ours, refused.theirs)] in (
        ["unroll", None], [None, "split"],
    )  # fmt: skip


def test_identities_do_not_count_steps() -> None:
    found = Step(block(0, "ssr+init"))  # type: ignore[arg-type]  # with a role, an instruction
    around = [Step(loops(Handle(at, 0, "block"))) for at in (0, 1)]
    one, two = Trace((found, around[0])), Trace((found, found, around[1]))
    assert signatures(one)[1] == signatures(two)[2]
    assert isinstance(diff(one, two).hunks[0][0], Insert)
