"""Laws of steps: each holds on generated kernels, a wrong one does not; normal forms use them."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings, strategies as st

from plica.analysis.site import map_of
from plica.ir.loop.scalar import ScalarVar
from plica.ir.loop.statement import Kernel
from plica.ir.type import known
from plica.schedule.handle import Output
from plica.schedule.law import (
    LAWS,
    UNDOING,
    A,
    Arguments,
    I,
    J,
    Law,
    agreement,
    given as gives,
    kernel_class,
    trace_class,
)
from plica.schedule.normalise import normalise
from plica.schedule.primitive.fuse import Fuse
from plica.schedule.primitive.loop_kind import Parallel, Unroll
from plica.schedule.primitive.reorder import Reorder
from plica.schedule.primitive.split import Split
from plica.schedule.replay import scheduled
from tests.schedule.kernel import chain, matmul, product_and_relu, stencil
from tests.schedule.walk import walked

SOME = settings(max_examples=max(20, settings().max_examples // 2))


def drawn_kernel(random: Random) -> Kernel:
    """A kernel, in the middle of a schedule."""

    def size(most: int) -> int:
        return random.randint(1, most)

    name, kernel = random.choice([
        ("C", matmul(size(6), size(6), size(6))),
        ("C", product_and_relu(size(5), size(5), 3)),
        ("B1", chain(size(12), lambda b, v: b[v] + 1, lambda b, v: b[v] * 2)),
        ("C", stencil(6, 3)),
    ])  # fmt: skip
    kinds = (*range(11), 7, 7, 7, 7)  # 7 annotates, which laws of `unannotate` need
    steps = [(random.choice(kinds), size(8) - 1) for _ in range(random.randrange(5))]
    return scheduled(walked(kernel, steps, name), kernel)


def drawn_arguments(law: Law, kernel: Kernel, random: Random) -> Arguments | None:
    """What a law may be about in a kernel: a block, loops around it, small numbers."""
    where = map_of(kernel)
    label = random.choice(list(where.blocks))
    around = [each.var for each in where.blocks[label].loops]
    wanted = [each for each in law.parameters if each.sort == "loop"]
    count = max((each.output + 1 for each in wanted), default=0)
    if len(around) < count:
        return None
    at = random.randint(0, len(around) - count)
    near = around[at : at + count] if random.random() < 0.7 else random.sample(around, count)
    found: dict[object, Output] = {}
    for each in law.parameters:
        if each.sort == "loop":
            found[each] = near[each.output]
        else:
            found[each] = label if each.sort == "block" else number(kernel, near, random)
    return found  # type: ignore[return-value]  # by handles


def number(kernel: Kernel, loops: list[ScalarVar], random: Random) -> int:
    """A small number, often the extent of one of some loops."""
    extents = [known(map_of(kernel).loops[each].node.extent) or 1 for each in loops]
    return random.choice([1, 2, 3, *extents])


def verdict(law: Law, seed: int) -> str:
    random = Random(seed)
    kernel = drawn_kernel(random)
    arguments = drawn_arguments(law, kernel, random)
    return "refused" if arguments is None else agreement(law, kernel, arguments)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
def test_a_law_holds(law: Law) -> None:
    verdicts = Counter(verdict(law, seed) for seed in range(5))
    assert not verdicts["different"], law


@pytest.mark.slow
def test_every_law_holds_on_many_programs_and_is_tried() -> None:
    for law in LAWS:
        verdicts = Counter(verdict(law, seed) for seed in range(300))
        assert not verdicts["different"], law
        assert verdicts["equal"] >= 1, law


def test_names_are_unique() -> None:
    assert len({each.name for each in LAWS}) == len(LAWS)


@pytest.mark.parametrize(
    "wrong",
    [
        Law("any-order", "commute", (Reorder((J, I)),), (Reorder((I, J)),)),
        Law("unroll-is-nothing", "unit", (Unroll(I),)),
        Law("parallel-is-unroll", "idempotent", (Parallel(I),), (Unroll(I),)),
        Law("inner-and-outer", "inverse", (Split(I, (None, A)), Fuse((gives(0), gives(0, 1)))),
            same=((gives(0), I),)),
    ],
    ids=lambda law: law.name,
)  # fmt: skip
def test_a_wrong_law_is_refuted(wrong: Law) -> None:
    assert any(verdict(wrong, seed) == "different" for seed in range(100))


@SOME
@given(st.lists(st.tuples(st.integers(0, 10), st.integers(0, 7)), max_size=8))
def test_normal_forms_stay_in_the_class(choices: list[tuple[int, int]]) -> None:
    trace = walked(matmul(), choices)
    assert trace_class(normalise(trace, matmul()), matmul()) == trace_class(trace, matmul())


def test_normal_forms_look_for_what_laws_undo() -> None:
    assert {("split", "fuse"), ("reorder", "reorder"), ("annotate", "unannotate")} <= UNDOING


def test_programs_that_differ_have_classes_that_differ() -> None:
    classes = {kernel_class(matmul(m, n, k)) for m in (2, 3) for n in (2, 3) for k in (2, 3)}
    assert len(classes) == 8


def test_a_law_prints_as_an_equation() -> None:
    (law,) = [each for each in LAWS if each.name == "fuse-of-a-fuse"]
    assert str(law) == "fuse-of-a-fuse (compose): fuse fuse = fuse"
