"""Producers for the inputs of random stages: slices of larger tensors, and concatenations.

    prefix       x[i, j]                           of an input that is longer along an axis
    slice        x[i + start, j * step]
    pad          x[i - before] inside, else a number
    concat       a[i] up to a place, b[i - place] from it on
    interleave   a[i // 2] where i is even, else b[i // 2], as phases of a strided window
    flip         x[n - 1 - i]

A kind of stages (`plica.schedule.generate.stages.kind`) reads inputs of exactly the sizes of its
axes. Models do not: fusion inlines a slice, a pad or a concatenation into its user. So inputs of a
case may be produced by these, possibly chained, inlined or as a separate stage. See Note [Missed by
2,000 kernels].

# Note [Missed by 2,000 kernels]
A mean of a strided transposed convolution read the wrong elements on GPUs: its phases are cut by a
prefix slice, and the form took rows of a longer tensor for rows that follow one another.  2,000
drawn GPU kernels and 500 drawn models did not meet it, for three reasons, each of which is mended:
(1) drawn stages read buffers of exactly the extents of their axes, so that comparing indices and
not extents was enough; (2) forms that write launches of their own were not interpreted by
`plica fuzz form`, and their thresholds (many elements for a large GPU) were above all drawn sizes:
small GPUs (`GPUS`) reach them; (3) models joined operators at random, so that few had a reduction
behind a producer in phases, and those few were small.  Pairs of a producer and a reduction over
any set of axes are now drawn as programs, too (tests/codegen/test_produced_reduction.py).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final, TypeAlias

from attrs import evolve
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from plica.core import Name, Term, map_bottom_up
from plica.ir.loop import Each, Scan, axis, scalar as sc
from plica.ir.loop.stage import placeholder
from plica.ir.type import known

MAX_DEPTH: Final = 2  # producers of one case, at most

Indices: TypeAlias = "tuple[sc.Scalar, ...]"

Source: TypeAlias = "tuple[list[sc.Buffer], Callable[[Indices], sc.Scalar]]"
"""The producer's inputs, and the element at an index of the original input."""


def with_source(
    draw: DrawFn,
    inputs: Sequence[sc.Buffer],
    of: Sequence[Each | Scan],
    kept: Collection[int],
    depth: int = 1,
) -> tuple[list[sc.Buffer], list[Each | Scan]]:
    """The stages with one input produced by a producer, possibly chained or with a second input;
    inputs in `kept`, by number, are unchanged. Additional operands come last."""
    choices = [n for n, each in enumerate(inputs) if n not in kept and each.shape]
    if not choices or depth > MAX_DEPTH or draw(st.integers(0, depth)) != depth:
        return [*inputs], [*of]
    number = draw(st.sampled_from(choices))
    replaced = inputs[number]
    named = evolve(replaced, name=Name(f"{replaced.name}_{depth}"))
    (first, *others), element = draw(st.sampled_from(_SOURCES))(draw, named)
    every = [*inputs[:number], first, *inputs[number + 1 :], *others]
    if draw(st.booleans()):  # a stage of its own
        axes = tuple([axis(f"s{depth}", at) for at in range(len(replaced.shape))])
        buffer = evolve(replaced, name=Name(f"source_{depth}"))
        produced = Each(buffer, axes, element(axes))
        made_of = [produced, *_reading(replaced, lambda at: sc.Load(buffer, at), of)]
    else:
        made_of = _reading(replaced, element, of)
    return with_source(draw, every, made_of, kept, depth + 1)


def _reading(
    of: sc.Buffer, element: Callable[[Indices], sc.Scalar], stages: Sequence[Each | Scan]
) -> list[Each | Scan]:
    def instead(node: Term) -> Term:
        return element(node.indices) if isinstance(node, sc.Load) and node.buffer is of else node

    return [evolve(stage, value=map_bottom_up(instead, stage.value)) for stage in stages]


def _prefix(draw: DrawFn, of: sc.Buffer) -> Source:
    along, size = _axis(draw, of)
    longer = _resized(of, along, size + draw(st.sampled_from((1, 2, 5))))
    return [longer], lambda at: sc.Load(longer, at)


def _slice(draw: DrawFn, of: sc.Buffer) -> Source:
    starts, steps, shape = [], [], []
    for size in _shape(of):
        start, step = draw(st.sampled_from((0, 0, 1, 3))), draw(st.sampled_from((1, 1, 1, 2)))
        starts.append(start)
        steps.append(step)
        shape.append(start + (size - 1) * step + 1 + draw(st.sampled_from((0, 1, 2, 5))))
    whole = placeholder(str(of.name), shape, of.dtype)

    def element(at: Indices) -> sc.Scalar:
        moved = zip(at, starts, steps, strict=True)
        return sc.Load(whole, tuple([_plus(_times(i, step), start) for i, start, step in moved]))

    return [whole], element


def _pad(draw: DrawFn, of: sc.Buffer) -> Source:
    along, size = _axis(draw, of)
    before = draw(st.integers(0, min(3, size - 1)))
    end = size - draw(st.integers(0, min(3, size - before - 1)))
    part, fill = _resized(of, along, end - before), sc.Lit(draw(st.sampled_from((0, 2))), of.dtype)

    def element(at: Indices) -> sc.Scalar:
        inside = sc.And(sc.Le(sc.index(before), at[along]), sc.Lt(at[along], sc.index(end)))
        return sc.Select(inside, _moved(part, at, along, _plus(at[along], -before)), fill)

    return [part], element


def _concat(draw: DrawFn, of: sc.Buffer) -> Source:
    along, size = _axis(draw, of)
    place = draw(st.integers(1, max(1, size - 1)))
    first, second = _resized(of, along, place), _other(of, along, max(1, size - place))

    def element(at: Indices) -> sc.Scalar:
        return sc.Select(
            sc.Lt(at[along], sc.index(place)), sc.Load(first, at),
            _moved(second, at, along, _plus(at[along], -place)),
        )  # fmt: skip

    return [first, second], element


def _interleave(draw: DrawFn, of: sc.Buffer) -> Source:
    along, size = _axis(draw, of)
    even, odd = _resized(of, along, (size + 1) // 2), _other(of, along, max(1, size // 2))

    def element(at: Indices) -> sc.Scalar:
        half = sc.FloorDiv(at[along], sc.index(2))
        is_even = sc.Eq(sc.FloorMod(at[along], sc.index(2)), sc.index(0))
        return sc.Select(is_even, _moved(even, at, along, half), _moved(odd, at, along, half))

    return [even, odd], element


def _flip(draw: DrawFn, of: sc.Buffer) -> Source:
    along, size = _axis(draw, of)
    same = _resized(of, along, size)
    return [same], lambda at: _moved(same, at, along, sc.index(size - 1) - at[along])


_SOURCES = (_prefix, _prefix, _slice, _pad, _concat, _interleave, _flip)


def _shape(of: sc.Buffer) -> list[int]:
    return [known(size) or 0 for size in of.shape]


def _axis(draw: DrawFn, of: sc.Buffer) -> tuple[int, int]:
    """An axis and its size; preferably one with several elements."""
    sizes = _shape(of)
    along = draw(st.sampled_from([n for n, size in enumerate(sizes) if size > 1] or [0]))
    return along, sizes[along]


def _resized(of: sc.Buffer, along: int, size: int) -> sc.Buffer:
    shape = _shape(of)
    shape[along] = size
    return placeholder(str(of.name), shape, of.dtype)


def _other(of: sc.Buffer, along: int, size: int) -> sc.Buffer:
    """One more operand like a buffer, of a given number of elements along an axis."""
    return evolve(_resized(of, along, size), name=Name(f"{of.name}_other"))


def _moved(of: sc.Buffer, at: Indices, along: int, place: sc.Scalar) -> sc.Load:
    return sc.Load(of, (*at[:along], place, *at[along + 1 :]))


def _plus(of: sc.Scalar, more: int) -> sc.Scalar:
    if isinstance(of, sc.Lit):
        return sc.index(int(of.value) + more)
    return of + more if more else of


def _times(of: sc.Scalar, step: int) -> sc.Scalar:
    if isinstance(of, sc.Lit):
        return sc.index(int(of.value) * step)
    return of * step if step > 1 else of


__all__ = ["with_source"]
