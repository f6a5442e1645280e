"""Convolutions: bit by bit what they mean, for all tilings and threads."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from attrs import evolve
from hypothesis import assume, given, settings, strategies as st

from plica.codegen.accel.check import redundant
from plica.codegen.accel.conv import (
    Convolution,
    ConvTiling,
    convolution,
    pack_input,
    pack_weight,
    reference,
    unpack_output,
)
from plica.codegen.accel.cycle import simulate
from plica.codegen.accel.declaration import Accelerator
from plica.codegen.accel.device import run
from plica.codegen.accel.encode import from_bytes, show_stream, to_bytes
from plica.codegen.accel.instruction import Stream, operand
from plica.codegen.accel.order import legal_order
from plica.codegen.accel.stream import build
from plica.codegen.accel.tiling import fits, ranked
from plica.codegen.accel.vta import Configuration, osdi, vta
from plica.runtime.error import PlicaError, UnsupportedError
from tests.codegen.accel.machines import FEW, OUTER, TOY

TINY = vta(Configuration(uop=6, wgt=15))
"""So few micro-operations fit that they must be loaded again and again."""


@st.composite
def convolutions(draw: st.DrawFn) -> Convolution:
    kernel = draw(st.sampled_from([1, 1, 2, 3]))
    return Convolution(
        16 * draw(st.integers(1, 3)),
        draw(st.integers(kernel, 7)),
        draw(st.integers(kernel, 7)),
        16 * draw(st.integers(1, 3)),
        kernel,
        draw(st.integers(1, 2)),
        draw(st.integers(0, kernel - 1)),
        draw(st.integers(0, 12)),
        draw(st.booleans()),
        draw(st.sampled_from([-128, -3, 0])),
        draw(st.sampled_from([127, 5])),
        draw(st.booleans()),
    )


@st.composite
def tilings(draw: st.DrawFn) -> ConvTiling:
    return ConvTiling(
        draw(st.integers(1, 7)),
        draw(st.integers(1, 7)),
        draw(st.integers(1, 3)),
        draw(st.integers(1, 3)),
        draw(st.integers(1, 3)),
        draw(st.sampled_from(["height", "outputs"])),
        draw(st.booleans()),
    )


def _right(machine: Accelerator, of: Convolution, stream: Stream, order: list[int] | None) -> bool:
    random = np.random.default_rng(0)
    x = random.integers(-128, 128, (of.channels, of.height, of.width)).astype(np.int8)
    w = random.integers(-128, 128, (of.outputs, of.channels, of.kernel, of.kernel)).astype(np.int8)
    values = {"x": pack_input(machine, x), "w": pack_weight(machine, w)}
    b = random.integers(-9999, 9999, of.outputs, np.int32) if of.bias else None
    if b is not None:
        values["b"] = b
    shifts = random.integers(0, 32, of.outputs, np.int32) if of.each else None
    if shifts is not None:
        values["n"] = shifts
    found = run(machine, stream, values, order)["y"]
    return np.array_equal(unpack_output(machine, of, found), reference(of, x, w, b, shifts))


@pytest.mark.parametrize("machine", [osdi(), TINY], ids=["osdi", "tiny"])
@settings(max_examples=FEW)
@given(of=convolutions(), tiling=tilings(), seed=st.integers(0, 9))
def test_convolutions_are_exact(
    machine: Accelerator, of: Convolution, tiling: ConvTiling, seed: int
) -> None:
    assume(fits(machine, of, tiling))
    stream = build(machine, convolution(machine, of, tiling))  # checked: no race, no deadlock
    assert _right(machine, of, stream, None)
    assert _right(machine, of, stream, legal_order(machine, stream.code, seed))
    assert redundant(machine, stream) == []
    assert from_bytes(machine, to_bytes(machine, stream.code)) == stream.code
    assert simulate(machine, stream).turns >= 1


@settings(max_examples=FEW)
@given(of=convolutions(), tiling=tilings())
def test_threads_do_the_same_work(of: Convolution, tiling: ConvTiling) -> None:
    """One stream of several threads has the instructions of one thread, in another order."""
    machine = osdi()
    alone = evolve(tiling, threads=1, keep=False)
    both = evolve(tiling, threads=2, keep=False)
    assume(fits(machine, of, both))

    def counted(each: ConvTiling) -> Counter[str]:
        code = build(machine, convolution(machine, of, each)).code
        idle = (0,) * 16
        return Counter(i.name for i in code if i.operands != idle[: len(i.operands)])

    one, two = counted(alone), counted(both)
    assert {**one, "load.uop": 0} == {**two, "load.uop": 0}


def test_dense_layers_are_exact() -> None:
    machine = osdi()
    of = Convolution(48, 1, 5, 32, shift=7)  # a product of matrices, over a line of rows
    stream = build(machine, convolution(machine, of, ConvTiling(1, 2, 1, 2, 2, "outputs")))
    assert _right(machine, of, stream, None)


def test_micro_operations_are_put_out_and_loaded_again() -> None:
    of = Convolution(32, 5, 5, 32, 3, 1, 1)
    tiling = ConvTiling(2, 3, 1, 2, 2)
    many = build(TINY, convolution(TINY, of, tiling))
    once = build(osdi(), convolution(osdi(), of, tiling))
    assert _loads(osdi(), once) == 1
    assert _loads(TINY, many) > 3
    assert len(many.micro) > TINY.scope("uop").depth
    assert _right(TINY, of, many, None)


def _loads(machine: Accelerator, stream: Stream) -> int:
    """How often micro-operations are loaded; what only carries tokens loads none."""
    loads = [each for each in stream.code if each.name == "load.uop"]
    return sum(operand(machine, each, "x_size") > 0 for each in loads)


def test_latency_is_hidden() -> None:
    """The figures of the whole table are `benchmarks/accel.py`."""
    machine, of = osdi(), Convolution(512, 7, 7, 512, 3, 1, 1)
    best = [
        simulate(
            machine, build(machine, convolution(machine, of, ranked(machine, of, n)[0]), False)
        )
        for n in (1, 2)
    ]
    assert best[0].utilisation < 0.65
    assert best[1].utilisation > 0.9


@pytest.mark.parametrize("threads", [1, 2])
def test_the_toy_multiplies(threads: int) -> None:
    stream = build(OUTER, TOY.matrix_product(2, 5, 4, threads))
    random = np.random.default_rng(threads)
    x, w = (random.integers(-99, 99, (5, n, 8), np.int16) for n in (2, 4))
    found = run(OUTER, stream, {"x": x, "w": w})["y"].reshape(2, 4, 8, 8)
    assert np.array_equal(found, np.einsum("kri,kcj->rcij", x, w, dtype=np.int32))


def test_threads_make_the_toy_faster() -> None:
    one, two = (simulate(OUTER, build(OUTER, TOY.matrix_product(2, 6, 4, n))) for n in (1, 2))
    assert two.cycles < one.cycles


def test_the_stream_of_a_convolution(golden: object) -> None:
    assert callable(golden)
    of = Convolution(32, 4, 4, 16, 3, 1, 1)
    stream = build(osdi(), convolution(osdi(), of, ConvTiling(2, 4, 1, 1, 2)))
    golden(show_stream(osdi(), stream))


@pytest.mark.parametrize(
    ("of", "tiling", "message"),
    [
        (Convolution(64, 56, 56, 64, 3, 1, 1), ConvTiling(56, 56, 1, 1), "tiles of inp do not fit"),
        (Convolution(64, 8, 8, 256, 3, 1, 1), ConvTiling(1, 1, 16, 4), "tiles of wgt do not fit"),
        (Convolution(16, 30, 30, 64, 1, 1, 0), ConvTiling(30, 30, 4, 1), "tiles of acc do not fit"),
        (Convolution(20, 8, 8, 16), ConvTiling(1, 1, 1, 1), "blocks of 16"),
        (Convolution(16, 8, 8, 16, 3, 1, 3), ConvTiling(1, 1, 1, 1), "pads less"),
        (Convolution(16, 2, 2, 16, 3), ConvTiling(1, 1, 1, 1), "larger than its input"),
        (Convolution(16, 2, 2, 16, 1), ConvTiling(1, 0, 1, 1), "positive"),
    ],
)
def test_what_cannot_be_done_is_refused(of: Convolution, tiling: ConvTiling, message: str) -> None:
    with pytest.raises(UnsupportedError, match=message) as refused:
        build(osdi(), convolution(osdi(), of, tiling))
    assert isinstance(refused.value, PlicaError)
