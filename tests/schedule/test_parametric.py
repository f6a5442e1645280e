"""Parametric traces: factors as functions of extents, learnt from several tuned sizes."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given, strategies as st

from plica.core.digest import digest
from plica.ir.loop.statement import Kernel
from plica.runtime.error import InputError
from plica.schedule import (
    Trace,
    block,
    do,
    fuse,
    loops,
    parallel,
    reorder,
    sample_tuple,
    split,
    trace_of,
    unroll,
    vectorize,
)
from plica.schedule.adapt import divisor
from plica.schedule.do import Body
from plica.schedule.parametric import (
    SizeRule,
    apart,
    extents,
    learn,
    learnt_size,
    literal,
    splits_of,
)
from plica.schedule.replay import kernel_of, scheduled
from tests.schedule.conv import RESNET18, Layer, conv2d
from tests.schedule.kernel import matmul, same_function

TUNED_ON = (RESNET18[1], RESNET18[5], RESNET18[8])


@do
def tiled(columns: int, channels: int, reduced: int) -> Body:
    """A convolution in tiles whose sizes are decided."""
    conv = yield block("conv")
    n, o, i, j, c, di, dj = yield loops(conv)
    lanes, wide, deep = yield sample_tuple(((channels, columns, reduced),))
    o0, o1 = yield split(o, (None, lanes))
    j0, j1 = yield split(j, (None, wide))
    c0, c1 = yield split(c, (None, deep))
    yield reorder(n, o0, i, j0, c0, di, dj, c1, j1, o1)
    yield unroll(j1)
    yield vectorize(o1)
    yield parallel((yield fuse(n, o0)))


def best(layer: Layer) -> Trace:
    """What a search might find: 16 lanes, rows of at most 28, a quarter of the channels."""
    width = (layer.size + 2 * (layer.window // 2) - layer.window) // layer.stride + 1
    schedule = tiled(divisor(width, 28), divisor(layer.outputs, 16), max(1, layer.inputs // 4))
    return trace_of(schedule, conv2d(layer))


def learnt(*layers: Layer) -> tuple[tuple[Trace, Kernel], ...]:
    return tuple([(best(each), conv2d(each)) for each in layers])


def test_the_rules_are_those_that_tuned() -> None:
    found = learn(learnt(*TUNED_ON))
    assert found.learnt == found.given == 3
    assert [factors for _, factors in found.rules] == [
        (None, SizeRule("divisor", 16)), (None, SizeRule("divisor", 28)),
        (None, SizeRule("parts", 4)),
    ]  # fmt: skip
    assert "split by what is left, the largest divisor up to 28" in str(found)


@pytest.mark.parametrize("layer", RESNET18[1:], ids=str)
def test_the_schedule_of_another_size_is_that_of_the_rules(layer: Layer) -> None:
    moved = learn(learnt(*TUNED_ON)).on(conv2d(layer))
    assert digest(kernel_of(moved.module)[2]) == digest(scheduled(best(layer), conv2d(layer)))
    assert moved.report.kept == 1.0


@pytest.mark.parametrize("layer", [each.small() for each in RESNET18], ids=str)
def test_other_sizes_keep_their_meaning(layer: Layer) -> None:
    kernel = conv2d(layer)
    assert same_function(kernel, kernel_of(learn(learnt(*TUNED_ON)).on(kernel).module)[2])


def test_numbers_are_written_into_splits() -> None:
    plain = literal(best(RESNET18[1]))
    assert "sample_tuple" not in [each.instruction.kind for each in plain.steps]
    assert digest(scheduled(plain, conv2d(RESNET18[1]))) == digest(
        scheduled(best(RESNET18[1]), conv2d(RESNET18[1]))
    )


def test_traces_of_another_skeleton_are_left_out() -> None:
    @do
    def other() -> Body:
        i, _j, _k = yield loops((yield block("C")))
        yield parallel(i)

    found = learn((*learnt(*TUNED_ON), (trace_of(other, matmul()), matmul())))
    assert (found.learnt, found.given) == (3, 4)


def test_the_nearest_program_decides_the_skeleton_and_what_no_rule_fits() -> None:
    @do
    def plain(columns: int) -> Body:
        _n, _o, rows, across, *_rest = yield loops((yield block("conv")))
        yield split(across, (None, columns))
        yield parallel(rows)

    def told(layer: Layer, columns: int) -> tuple[Trace, Kernel]:
        return trace_of(plain(columns), conv2d(layer)), conv2d(layer)

    far = learnt(RESNET18[1], RESNET18[5])
    near = told(RESNET18[8], 2), told(RESNET18[9], 7), told(RESNET18[11], 1)
    wanted = conv2d(RESNET18[9])
    found = learn((*near, *far, *far), near=wanted)
    assert (found.learnt, found.given) == (3, 7)
    assert [factors for _, factors in found.rules] == [(None, SizeRule("divisor", 7))]
    assert learn((*near, *far, *far)).learnt == 4
    assert apart(extents(wanted), extents(wanted)) == 0
    assert apart(extents(wanted), extents(matmul())) == inf


def test_nothing_teaches_nothing() -> None:
    with pytest.raises(InputError, match="nothing to learn from"):
        learn(())


@given(st.lists(st.tuples(st.integers(1, 64), st.integers(1, 64)), min_size=1, max_size=4))
def test_a_rule_that_fits_all_is_found_where_there_is_one(seen: list[tuple[int, int]]) -> None:
    number = max(factor for _, factor in seen)
    pairs = [(extent, divisor(extent, number)) for extent, _ in seen]
    rule = learnt_size(pairs)
    assert all(rule.at(extent) == factor for extent, factor in pairs)


def test_extents_are_those_where_the_step_is_taken() -> None:
    trace = literal(best(RESNET18[1]))
    assert [(extent, factors) for _, extent, factors in splits_of(trace, conv2d(RESNET18[1]))] == [
        (64, (None, 16)), (56, (None, 28)), (64, (None, 16)),
    ]  # fmt: skip
