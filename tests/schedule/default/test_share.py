"""Which loops cores share: what they take, and that products of any size are right on several."""

from __future__ import annotations

from typing import Final

import numpy as np
from hypothesis import given, settings, strategies as st
from onnx import TensorProto, helper, numpy_helper

import plica
from plica.schedule.default.machine import Machine
from plica.schedule.default.share import EVEN, SharedReads, Side, read_times, share_of, shares

LOOPS = st.lists(
    st.tuples(st.integers(1, 40), st.sampled_from([0.0, 0.0, 0.25, 0.9])), min_size=1, max_size=5
)


@given(LOOPS, st.integers(2, 16), st.sampled_from([0.0, 0.01, 0.3]))
def test_what_is_shared_is_about_as_good_as_anything(
    extents: list[tuple[int, float]], cores: int, region: float
) -> None:
    loops = [(at, *each) for at, each in enumerate(extents)]
    every = shares(loops, cores, region=region)
    chosen = share_of(loops, cores, region=region)
    assert chosen == list(range(chosen[0], chosen[-1] + 1))  # neighbours
    least = min(each.time for each in every)
    assert least >= 1 / cores
    found = next(each for each in every if list(each.loops) == chosen)
    assert EVEN * found.time <= least
    if len(chosen) > 1:  # the end of a loop that is cut short could not be peeled off
        assert all(extents[at][0] == 1 or not extents[at][1] for at in chosen)


@given(st.integers(2, 8))
def test_what_is_peeled_off_is_done_alone(cores: int) -> None:
    (whole,) = shares([("x", cores, 0.0)], cores)
    (cut,) = shares([("x", cores + 1, 0.5)], cores)
    assert whole.time == 1 / cores
    assert cut.time == 1.5 / (cores + 0.5)


PIXELS: Final[frozenset[Side]] = frozenset(("data",))
OUTPUTS: Final[frozenset[Side]] = frozenset(("weight",))


@given(st.integers(2, 8), st.integers(1, 5), st.integers(1, 5))
def test_cores_share_what_is_longer_to_read(cores: int, groups: int, tiles: int) -> None:
    loops = [("outputs", groups * cores, 0.0), ("pixels", tiles * cores, 0.0)]
    machine = Machine(512, 32, cores=cores)
    for data, weight, chosen in ((1 << 24, 1 << 10, "pixels"), (1 << 10, 1 << 24, "outputs")):
        times = read_times(machine, data, weight, 1e5)
        found = share_of(loops, cores, reads=SharedReads(*times, (OUTPUTS, PIXELS)))
        assert found[0] == chosen


@given(LOOPS, st.integers(2, 8))
def test_reading_takes_no_less_than_a_part_of_everything(
    extents: list[tuple[int, float]], cores: int
) -> None:
    loops = [(at, *each) for at, each in enumerate(extents)]
    reads = SharedReads(0.5, 0.25, tuple([(PIXELS, OUTPUTS)[at % 2] for at in range(len(loops))]))
    alone = shares(loops, cores)
    for before, after in zip(alone, shares(loops, cores, reads=reads), strict=True):
        assert 0.75 / cores <= after.time - before.time + 1e-9
        assert after.time - before.time <= 0.75 + 1e-9


@settings(max_examples=6, deadline=None)
@given(st.integers(1, 90), st.integers(8, 300), st.integers(1, 400), st.integers(2, 3))
def test_products_that_cores_share_are_right(m: int, k: int, n: int, threads: int) -> None:
    draw = np.random.default_rng(m + k + n)
    x, w = draw.standard_normal((m, k), np.float32), draw.standard_normal((k, n), np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "product",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [m, k])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [m, n])],
        [numpy_helper.from_array(w, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    exe = plica.compile(model, threads=threads, cache=False)
    wide = x.astype(np.float64) @ w.astype(np.float64)
    np.testing.assert_allclose(np.asarray(exe(x)), wide, atol=2e-4 * np.sqrt(k))
