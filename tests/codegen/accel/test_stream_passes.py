"""The passes from flows to streams: what each establishes, and what all give."""

from __future__ import annotations

from itertools import pairwise

import pytest

from plica.codegen.accel.check import check
from plica.codegen.accel.conv import Convolution, ConvTiling, convolution
from plica.codegen.accel.flow import Threads, Transfer
from plica.codegen.accel.stream import STREAM, StreamState, build
from plica.codegen.accel.vta import osdi
from plica.core import CompilerBug, post_order
from plica.ir.passes import Pipeline

OF = Convolution(channels=32, height=6, width=6, outputs=32, kernel=3, pad=1, shift=8)
FLOW = convolution(osdi(), OF, ConvTiling(height=3, width=6, outputs=1, inputs=1, threads=2))


def after(name: str) -> StreamState:
    """The state after the pass of a name."""
    return run(Pipeline(STREAM.passes[: STREAM.names.index(name) + 1]))


def run(pipeline: Pipeline) -> StreamState:
    state = StreamState(osdi(), FLOW)
    for each in pipeline:
        made = each.run(state)
        assert isinstance(made, StreamState)
        state = made
    return state


def test_threads_are_gone_after_they_were_interleaved() -> None:
    assert any(isinstance(each, Threads) for each in post_order(FLOW))
    assert not any(isinstance(e, Threads) for e in post_order(after("interleave-threads").flow))


def test_tiles_and_tensors_do_not_overlap() -> None:
    state, machine = after("place-tensors"), osdi()
    for scope in machine.scopes:
        tiles = [each for each in state.flow.tiles if each.scope == scope.name]
        spans = sorted((state.bases[e], state.bases[e] + e.elements) for e in tiles)
        assert all(one[1] <= two[0] for one, two in pairwise(spans))
        assert all(stop <= scope.depth for _, stop in spans)
    sizes = {each.name: each.bytes for each in machine.scopes}
    spans = sorted(
        (e.at * sizes[e.scope], (e.at + e.elements) * sizes[e.scope]) for e in state.tensors
    )
    assert all(one[1] <= two[0] for one, two in pairwise(spans))


def test_moves_and_then_work_become_instructions() -> None:
    unrolled, moved, folded = (after(n) for n in ("unroll-flow", "inject-moves", "fold-loops"))
    leaves = [len([e for e in s.items if e and not hasattr(e[0], "words")])
              for s in (unrolled, moved, folded)]  # fmt: skip
    transfers = sum(isinstance(each[0], Transfer) for each in unrolled.items)
    assert leaves == [len(unrolled.items), len(unrolled.items) - transfers, 0]


def test_equal_sweeps_share_micro_operations() -> None:
    state = after("fold-loops")
    words = [step.words for each in state.items for step in each if step.words]  # type: ignore[union-attr]  # instructions by now
    assert len(after("share-micro-ops").stream.micro) == sum(map(len, set(words)))
    assert sum(map(len, set(words))) < sum(map(len, words))


def test_without_tokens_units_are_not_in_step() -> None:
    assert check(osdi(), after("share-micro-ops").stream)
    assert not check(osdi(), after("insert-tokens").stream)
    bare = STREAM.without("insert-tokens")
    with pytest.raises(CompilerBug, match="keep it in step"):
        run(bare)


def test_the_stream_is_that_of_all_passes() -> None:
    assert run(STREAM).stream == build(osdi(), FLOW) == build(osdi(), FLOW, checked=False)
