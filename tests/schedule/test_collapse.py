"""Collapse: fewer axes, the same elements, and sums in the same order."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from hypothesis import given, settings, strategies as st

from plica.ir.loop.scalar import Cast, Load, Reduce, Scalar, ScalarVar, index
from plica.ir.loop.stage import Each, stage
from plica.ir.loop.stages import Stages, evaluate_stages, stages
from plica.ir.loop.tensor import axis, buffer, reduce
from plica.ir.type.dim import known
from plica.ir.type.dtype import f32
from plica.schedule.collapse import collapsed

Array = np.ndarray[Any, Any]
FEW = settings(max_examples=max(20, settings().max_examples))


@st.composite
def drawn(draw: st.DrawFn) -> tuple[Stages, list[Array]]:
    """One or two stages, which read tensors at some of their axes, in order or not."""
    rank = draw(st.integers(1, 4))
    sizes = [draw(st.integers(1, 4)) for _ in range(rank)]
    kept = draw(st.integers(0, rank))
    axes = tuple([axis("a", at) for at in range(rank)])
    length = dict(zip(axes, sizes, strict=True))
    inputs = []
    value: Scalar | None = None
    for number in range(draw(st.integers(1, 3))):
        chosen = draw(st.lists(st.sampled_from(axes), max_size=rank, unique=True))
        if draw(st.booleans()):
            chosen.sort(key=axes.index)
        dims, places = [], []
        for each in chosen:
            more = draw(st.sampled_from([0, 0, 0, 1]))
            dims.append(length[each] + more)
            places.append(each + more if draw(st.booleans()) and more else each)
        of = buffer(f"x{number}", tuple(dims), f32)
        inputs.append(of)
        read: Scalar = Load(of, tuple(places))
        if chosen and draw(st.integers(0, 5)) == 0:
            read = read * Cast(chosen[0], f32)
        value = read if value is None else value + read
    assert value is not None
    if kept < rank:
        extents = tuple([index(length[each]) for each in axes[kept:]])
        value = Reduce("sum", axes[kept:], extents, value)
    out = buffer("y", tuple(sizes[:kept]), f32)
    every = [Each(out, axes[:kept], value)]
    if draw(st.booleans()):
        again: list[ScalarVar] = [axis("b", at) for at in range(kept)]
        end = buffer("z", tuple(sizes[:kept]), f32)
        every.append(Each(end, tuple(again), Load(out, tuple(again)) * 2.0))
    random = np.random.default_rng(draw(st.integers(0, 99)))
    arrays = [
        random.standard_normal([known(n) or 0 for n in each.shape]).astype(np.float32)
        for each in inputs
    ]
    return stages(tuple(inputs), tuple(every)), arrays


@FEW
@given(drawn())
def test_it_means_the_same_to_the_bit(case: tuple[Stages, list[Array]]) -> None:
    of, arrays = case
    made = collapsed(of)
    found, wanted = evaluate_stages(made, arrays), evaluate_stages(of, arrays)
    assert found.reshape(-1).tobytes() == wanted.reshape(-1).tobytes()
    assert collapsed(made) is made
    assert len(made.result.shape) <= len(of.result.shape)
    assert prod(known(n) or 0 for n in made.result.shape) == wanted.size


def test_what_is_read_the_other_way_round_keeps_its_axes() -> None:
    x = buffer("x", (4, 5), f32)
    turned = stages((x,), (stage("y", (5, 4), lambda i, j: x[j, i]),))
    assert collapsed(turned) is turned


def test_a_window_keeps_its_axes_and_loses_those_around() -> None:
    x = buffer("x", (2, 3, 6), f32)
    of = stages((x,), (stage("y", (2, 3, 5), lambda n, c, i: x[n, c, i] + x[n, c, i + 1]),))
    assert [known(n) for n in collapsed(of).result.shape] == [6, 5]


def test_a_tensor_between_stages_is_walked_alike_in_both() -> None:
    """The second stage reads the first by rows alone, so neither may forget where rows end."""
    x = buffer("x", (3, 4), f32)
    first = stage("y", (3, 4), lambda i, j: x[i, j] + 1.0)
    kept = stages((x,), (first, stage("z", (4,), lambda j: first[2, j])))
    assert collapsed(kept) is kept


def test_axes_of_length_1_are_left_out_after_longer_ones() -> None:
    x = buffer("x", (1, 30, 5, 1), f32)
    of = stages((x,), (stage("y", (1, 30, 1), lambda n, i, u: reduce(
        "sum", (5,), lambda k: x[n, i, k, u])),))  # fmt: skip
    made = collapsed(of)
    assert [known(n) for n in made.result.shape] == [1, 30]
    assert [known(n) for n in made.inputs[0].shape] == [1, 30, 5]


def test_sums_in_runs_keep_axes_of_length_1_unless_order_is_free() -> None:
    """A run goes along the last axis, however long that is."""
    x = buffer("x", (4, 40, 1), f32)
    of = stages((x,), (stage("y", (4,), lambda i: reduce(
        "sum", (40, 1), lambda k, u: x[i, k, u], runs="row")),))  # fmt: skip
    assert collapsed(of) is of
    free = collapsed(of, True)
    assert [known(n) for n in free.inputs[0].shape] == [4, 40]
    given_ = np.random.default_rng(0).standard_normal((4, 40, 1)).astype(np.float32)
    found, wanted = evaluate_stages(free, [given_]), evaluate_stages(of, [given_])
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
