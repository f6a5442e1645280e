"""Reductions of what comes in pieces: phases, slices, pads, concatenations, tiles, on every target.

A reduction is fused with what is in front of it where that is a slice, a pad or a choice of pieces;
the result of a transposed convolution with strides is interleaved phases, of which a slice is cut.
A table of usual pairs is tried first; then pairs are drawn: one or two producers, one after the
other, and a reduction over any set of axes (Note [Missed by 2,000 kernels] says why they are).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Final, TypeAlias

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.strategies import DrawFn

import plica
from plica import op
from plica.codegen.backend import backend_of, find_target
from plica.core.name import Name
from plica.ir.graph.expression import Expr, Function, Tuple, Var, const
from plica.ir.graph.module import Module, module
from plica.ir.interpret.value import Array
from plica.ir.type.dim import known
from plica.ir.type.infer import infer_expr, type_of
from plica.ir.type.term import TensorType, tensor
from tests.conftest import PROFILE
from tests.deep import spread

PRODUCERS: Final = {
    "prefix": "op.slice({x}, (0, 0), (11, 11), axes=(2, 3))",
    "phases": "op.nn.conv_transpose({x}, w, strides=(2, 2), padding=1)",
    "dilated phases": "op.nn.conv_transpose({x}, w, strides=(3, 2), padding=1, dilation=2)",
    "phases of one axis": "op.nn.conv_transpose({x}, w, strides=(1, 2), padding=(1, 1))",
    "middle": "op.slice({x}, (1, 2), (12, 13), axes=(2, 3))",
    "steps": "op.slice({x}, (0, 1), (12, 13), (2, 3), axes=(2, 3))",
    "pad": "op.pad({x}, ((0, 0), (0, 0), (1, 0), (2, 3)))",
    "mirror": "op.pad({x}, ((0, 0), (0, 0), (1, 0), (2, 3)), mode='reflect')",
    "concat": "op.concat((op.slice({x}, (0,), (11,), axes=(3,)), {x}), axis=3)",
    "channels": "op.concat(({x}, op.flip({x}, axis=(2,))), axis=1)",
    "winograd": "op.nn.conv({x}, op.transpose(w, (1, 0, 2, 3)), padding=1)",
    "window": "op.nn.conv({x}, op.transpose(w, (1, 0, 2, 3)), strides=2, padding=((2, 0), (0, 2)))",
    "pool": "op.nn.max_pool({x}, kernel=(3, 3), strides=(2, 2), padding=1)",
    "flip": "op.flip({x}, axis=(2, 3))",
}
REDUCTIONS: Final = (
    "op.mean({}, axis=(2, 3))", "op.sum({}, axis=(3,))", "op.max({}, axis=(0, 2, 3))",
    "op.sum({}, axis=(0, 2))", "op.var({}, axis=(1, 2, 3))", "op.argmax({}, axis=3)",
    "op.nn.softmax({}, axis=-1)", "op.mean({}, axis=(1,))", "op.nn.softmax({}, axis=1)",
)  # fmt: skip
TARGETS: Final = ("cuda-emulator", "cpu", "c")


def pairs(producer: str, reductions: Sequence[str]) -> str:
    """A program of some reductions, each of a producer of its own, which none shares."""
    names = [f"x{number}" for number in range(len(reductions))]
    x = ", ".join([f"{each}: Tensor[(2, 3, 12, 13), f32]" for each in names])
    results = [reduce.format(PRODUCERS[producer].format(x=each))
               for reduce, each in zip(reductions, names, strict=True)]  # fmt: skip
    return f"""
import plica
from plica import op
from plica.script import Tensor, f32

@plica.function
def main({x}, w: Tensor[(3, 4, 3, 3), f32]):
    return ({", ".join(results)},)
"""


def arrays(reductions: int) -> list[Array]:
    random = np.random.default_rng(0)
    shapes = [(2, 3, 12, 13)] * reductions + [(3, 4, 3, 3)]
    return [random.uniform(0.5, 1.5, shape).astype(np.float32) for shape in shapes]


def check(producer: str, target: str, reductions: Sequence[str]) -> None:
    skip_without(target)
    agree(plica.from_text(pairs(producer, reductions)), arrays(len(reductions)), target)


def skip_without(target: str) -> None:
    if missing := backend_of(find_target(target)).missing():
        pytest.skip(missing)


def agree(of: Module, inputs: Sequence[Array], target: str) -> None:
    """Code and interpreter give the same, up to rounding."""
    found = plica.compile(of, target=target, cache=False)(*inputs)
    meant = plica.interpret(of, *inputs)
    for number, (ours, wanted) in enumerate(zip(found, meant, strict=True)):
        np.testing.assert_allclose(ours, wanted, rtol=2e-4, atol=1e-5, err_msg=f"result {number}")


def test_the_mean_of_phases_is_right_on_a_gpu() -> None:
    check("phases", "cuda-emulator", REDUCTIONS[:1])


@pytest.mark.parametrize(("producer", "target"), spread(product(PRODUCERS, TARGETS), 3))
def test_a_reduction_of_pieces_is_right(producer: str, target: str) -> None:
    check(producer, target, REDUCTIONS)


# --- drawn pairs ----------------------------------------------------------------------------------

Producer: TypeAlias = Callable[[DrawFn, Expr], Expr]

DRAWN: Final = {"ci": 2, "dev": 40}.get(PROFILE, 500)
"""Programs for each target."""

EVERYWHERE: Final = (*TARGETS, "wasm", "opencl", "webgpu", "micro", "spirv", "accel")


def sizes_of(x: Expr) -> tuple[int, ...]:
    of = type_of(infer_expr(x))
    assert isinstance(of, TensorType)
    return tuple([known(size) or 0 for size in of.shape])


def some_axes(draw: DrawFn, rank: int) -> tuple[int, ...]:
    """Any set of axes but the empty one."""
    chosen = draw(st.lists(st.integers(0, rank - 1), min_size=1, unique=True))
    return tuple(sorted(chosen))


def spatial(draw: DrawFn, x: Expr, least: int, most: int) -> tuple[int, ...]:
    return tuple([draw(st.integers(least, most)) for _ in sizes_of(x)[2:]])


def weight(draw: DrawFn, *shape: int) -> Expr:
    random = np.random.default_rng(draw(st.integers(0, 9)))
    return const((random.uniform(0.5, 1.5, shape) / np.prod(shape[1:])).astype(np.float32))


def cut(draw: DrawFn, x: Expr) -> Expr:
    axes = some_axes(draw, len(sizes_of(x)))
    bounds = []
    for axis in axes:
        size = sizes_of(x)[axis]
        start = draw(st.sampled_from((0, 0, 0, 1, size - 1)))
        bounds.append((min(start, size - 1), draw(st.integers(1, max(1, size))) + start))
    steps = [draw(st.sampled_from((1, 1, 2, 3))) for _ in axes]
    starts, stops = zip(*bounds, strict=True)
    return op.slice(x, starts, stops, tuple(steps), axes=axes)


def padded(draw: DrawFn, x: Expr) -> Expr:
    mode = draw(st.sampled_from(("constant", "edge", "reflect", "symmetric", "wrap")))
    axes = some_axes(draw, len(sizes_of(x)))
    width = [
        (draw(st.integers(0, min(3, size - 1))), draw(st.integers(0, min(3, size - 1))))
        if axis in axes else (0, 0) for axis, size in enumerate(sizes_of(x))
    ]  # fmt: skip
    return op.pad(x, tuple(width), mode=mode)


def joined(draw: DrawFn, x: Expr) -> Expr:
    (axis, *_) = some_axes(draw, len(sizes_of(x)))
    size = sizes_of(x)[axis]
    part = op.slice(x, (0,), (draw(st.integers(1, size)),), axes=(axis,))
    return op.concat(draw(st.permutations((x, part))), axis=axis)


def turned(draw: DrawFn, x: Expr) -> Expr:
    rank = len(sizes_of(x))
    if draw(st.booleans()):
        return op.flip(x, axis=some_axes(draw, rank))
    return op.transpose(x, tuple(draw(st.permutations(range(rank)))))


def phases(draw: DrawFn, x: Expr) -> Expr:
    channels = sizes_of(x)[1]
    window = spatial(draw, x, 1, 3)
    w = weight(draw, channels, draw(st.integers(1, 5)), *window)
    padding = tuple([draw(st.integers(0, size - 1)) for size in window])
    return op.nn.conv_transpose(
        x, w, strides=spatial(draw, x, 1, 3), padding=padding, dilation=spatial(draw, x, 1, 2)
    )


def convolved(draw: DrawFn, x: Expr) -> Expr:
    window = draw(st.sampled_from(((3,) * len(sizes_of(x)[2:]), spatial(draw, x, 1, 3))))
    w = weight(draw, draw(st.integers(1, 5)), sizes_of(x)[1], *window)
    pads = tuple([(draw(st.integers(0, 2)), size - 1) for size in window])
    return op.nn.conv(x, w, strides=draw(st.sampled_from((1, 2))), padding=pads)


def pooled(draw: DrawFn, x: Expr) -> Expr:
    window = spatial(draw, x, 1, 3)
    pads = tuple([(draw(st.integers(0, size - 1)), size - 1) for size in window])
    pool = draw(st.sampled_from((op.nn.max_pool, op.nn.avg_pool)))
    return pool(x, kernel=window, strides=spatial(draw, x, 1, 3), padding=pads)


MOVED: Final[tuple[Producer, ...]] = (cut, padded, joined, turned)
WINDOWS: Final[tuple[Producer, ...]] = (phases, phases, convolved, pooled)

BETWEEN: Final[tuple[Callable[[Expr], Expr], ...]] = (
    lambda x: x, lambda x: x, op.nn.relu, lambda x: x * x,
    lambda x: x * const(np.float32(1.5)) + const(np.float32(0.25)),
    lambda x: x - op.mean(x, keepdims=True),
)  # fmt: skip

OVER_AXES: Final = (op.mean, op.mean, op.sum, op.max, op.min, op.prod, op.var, op.logsumexp)
ALONG_AN_AXIS: Final = (op.nn.softmax, op.cumsum, op.cumprod)


@st.composite
def shapes(draw: DrawFn) -> list[int]:
    """Rows, or images in one to three directions; long enough for forms of rows to be worth it."""
    rank = draw(st.sampled_from((2, 3, 4, 4, 5)))
    if rank == 2:
        return [draw(st.integers(1, 6)), draw(st.integers(100, 700))]
    least, most = {3: (20, 90), 4: (3, 17), 5: (2, 7)}[rank]
    sizes = [draw(st.integers(least, most)) for _ in range(rank - 2)]
    return [draw(st.integers(1, 3)), draw(st.integers(1, 6)), *sizes]


@st.composite
def reductions_of_producers(draw: DrawFn, results: int = 3) -> tuple[Module, list[Array]]:
    """Some reductions, each of producers and an input of its own."""
    inputs, bodies = [], []
    for number in range(results):
        shape = draw(shapes())
        rank = len(shape)
        inputs.append(Var(Name("x", number), tensor(shape, "f32")))
        x: Expr = inputs[-1]
        if rank > 2 and draw(st.integers(0, 2)):
            x = draw(st.sampled_from(WINDOWS))(draw, x)
        for _ in range(draw(st.sampled_from((0, 0, 1, 2) if rank > 2 else (1, 2)))):
            x = draw(st.sampled_from(MOVED))(draw, x)
        x = draw(st.sampled_from(BETWEEN))(x)
        last = tuple(range(draw(st.integers(max(1, rank - 3), rank - 1)), rank))
        axes = last if draw(st.booleans()) else some_axes(draw, rank)
        if draw(st.integers(0, 4)):
            x = draw(st.sampled_from(OVER_AXES))(x, axis=axes, keepdims=draw(st.booleans()))
        else:
            x = draw(st.sampled_from(ALONG_AN_AXIS))(x, axis=axes[0])
        bodies.append(x)
    random = np.random.default_rng(draw(st.integers(0, 99)))
    given_ = [random.uniform(0.5, 1.5, sizes_of(each)).astype(np.float32) for each in inputs]
    main = Var(Name("main"), None)
    return module({main: Function((), (), tuple(inputs), None, Tuple(tuple(bodies)))}, main), given_


@pytest.mark.parametrize("target", [
    pytest.param(each, marks=() if each in TARGETS else pytest.mark.slow) for each in EVERYWHERE
])  # fmt: skip
def test_a_drawn_reduction_of_producers_is_right(target: str) -> None:
    skip_without(target)

    @settings(max_examples=DRAWN)
    @given(reductions_of_producers())
    def check(case: tuple[Module, list[Array]]) -> None:
        agree(*case, target)

    check()
