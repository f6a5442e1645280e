"""Random stages along rows and of elements: reductions, running totals, scattered terms, merged
runs, first places, chains, concatenations, steps, transposes."""

from __future__ import annotations

import numpy as np
from attrs import evolve
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from plica.core import substitute
from plica.ir.loop import MEANING, Each, Scan, scalar as sc
from plica.ir.loop.stage import placeholder
from plica.ir.op.order import merged_place
from plica.ir.op.pad import guarded
from plica.ir.op.top_k import place_of_rank
from plica.ir.type import f16, f32, f64, i8, i32, i64
from plica.schedule.generate.stages.case import (
    FLOATS,
    Axes,
    StagesCase,
    axis_sizes,
    case,
    combiner,
    followed,
    product_with,
)


@st.composite
def reductions(draw: DrawFn) -> StagesCase:
    """Reductions along any axes of inputs, possibly transformed."""
    join = combiner(draw, "max", "min", "sum")
    axes = Axes()
    sizes = [
        *axis_sizes(draw, draw(st.integers(1, 2)), 24),
        draw(st.sampled_from((7, 16, 33, 70, 130, 283))),
    ]
    every = [axes(size) for size in sizes]
    terms = [every[-1], *draw(st.lists(st.sampled_from(every[:-1]), max_size=1))]
    if draw(st.sampled_from((False, False, True))):
        terms = draw(st.lists(st.sampled_from(every), min_size=1, unique=True))
    terms = [each for each in every if each in terms]
    dtype = draw(st.sampled_from(FLOATS if join == "sum" else (*FLOATS, i32, i64)))
    x = axes.read("x", every, dtype)
    body, inputs = product_with(draw, axes, x, x, [every])
    rest = [each for each in every if each not in terms]
    if draw(st.booleans()):  # an axis of length 1 where terms were
        rest = [each if each not in terms else axes(1) for each in every]
    fold = axes.stage("y0", rest, axes.reduced(join, terms, body))
    after, more = followed(draw, axes, fold, rest[-1:])
    return case(draw, [*inputs, *more], after)


@st.composite
def columns(draw: DrawFn) -> StagesCase:
    """Reductions across rows, which keep the last axis; over one more axis or none."""
    join = combiner(draw, "sum", "sum", "max", "min")
    axes = Axes()
    outer = [axes(size) for size in axis_sizes(draw, draw(st.integers(0, 2)), 4)]
    deep, kept = (
        axes(draw(st.sampled_from(of))) for of in ((3, 20, 47, 90), (2, 7, 8, 15, 40, 70))
    )
    terms = [*draw(st.lists(st.sampled_from(outer), max_size=1) if outer else st.just([])), deep]
    dtype = draw(st.sampled_from((f32, f32, f64, i32)))
    x = axes.read("x", [*outer, deep, kept], dtype)
    body = x * x if draw(st.booleans()) else x
    body, inputs = product_with(draw, axes, x, body, ([kept], [deep], [deep, kept]))
    rest = [each for each in (*outer, kept) if each not in terms]
    fold = axes.stage("y0", rest, axes.reduced(join, terms, body))
    after, more = followed(draw, axes, fold, rest[-1:])
    return case(draw, [*inputs, *more], after)


@st.composite
def chains(draw: DrawFn) -> StagesCase:
    """Chains of row stages: softmax, and normalisation by mean and scale."""
    axes = Axes()
    rows = [axes(size) for size in axis_sizes(draw, draw(st.integers(1, 2)), 12)]
    length = draw(st.sampled_from((5, 12, 16, 33, 64, 100, 200)))
    j, unit = axes(length), axes(1)
    dtype = draw(st.sampled_from((f32, f32, f64)))
    x = axes.read("x", (*rows, j), dtype)

    def one(of: Each) -> sc.Load:
        return sc.Load(of.out, (*rows, sc.index(0)))

    def total(name: str, combiner: sc.Combiner, of: sc.Scalar) -> Each:
        k = axes(length)
        body = substitute(of, {j: k})
        return axes.stage(name, (*rows, unit), axes.reduced(combiner, (k,), body))

    inputs = [x.buffer]
    if draw(st.booleans()):
        top = total("top", "max", x)
        away = axes.stage("away", (*rows, j), sc.Intrinsic("exp", (x - one(top),)))
        whole = total("whole", "sum", sc.Load(away.out, away.axes))
        last: sc.Scalar = sc.Load(away.out, away.axes) / one(whole)
        of = [top, away, whole]
    else:
        whole = total("whole", "sum", x)
        mean = axes.stage("mean", (*rows, unit), one(whole) / sc.Lit(length, dtype))
        moved = axes.stage("moved", (*rows, j), x - one(mean))
        again = sc.Load(moved.out, moved.axes)
        squares = total("squares", "sum", again * again)
        weight = axes.read("g", (j,), dtype)
        inputs.append(weight.buffer)
        root = sc.Intrinsic("sqrt", (one(squares) / sc.Lit(length, dtype) + sc.Lit(0.5, dtype),))
        last = again / root * weight
        of = [whole, mean, moved, squares]
    return case(draw, inputs, [*of, axes.stage("y", (*rows, j), last)], near=1e-4)


@st.composite
def column_chains(draw: DrawFn) -> StagesCase:
    """Chains of stages along rows followed by columns: softmax, and normalisation by column."""
    axes = Axes()
    outer = [axes(size) for size in axis_sizes(draw, draw(st.integers(0, 2)), 3)]
    length = draw(st.sampled_from((20, 32, 47, 64, 90)))
    deep, kept = axes(length), axes(draw(st.integers(2, 17)))
    dtype = draw(st.sampled_from((f32, f32, f64)))
    every, few = [*outer, deep, kept], [*outer, kept]
    x, scale = axes.read("x", every, dtype), axes.read("g", (kept,), dtype)

    def one(of: Each) -> sc.Load:
        return sc.Load(of.out, tuple(few))

    def total(name: str, combiner: sc.Combiner, of: sc.Scalar) -> Each:
        term = axes(length)
        body = substitute(of, {deep: term})
        return axes.stage(name, few, axes.reduced(combiner, (term,), body))

    if draw(st.booleans()):
        first = total("top", "max", x)
        away = axes.stage("away", every, sc.Intrinsic("exp", (x - one(first),)))
    else:
        first = total("whole", "sum", x)
        away = axes.stage("away", every, x * x - one(first) / sc.Lit(length, dtype))
    there = sc.Load(away.out, away.axes)
    again = total("again", "sum", there * there + sc.Lit(1, dtype))
    last = axes.stage("y", every, there / one(again) * scale)
    return case(draw, [x.buffer, scale.buffer], [first, away, again, last], near=1e-4)


@st.composite
def runnings(draw: DrawFn) -> StagesCase:
    """Scans along an axis, from either end, with or without one's own place."""
    axes = Axes()
    every = [axes(size) for size in axis_sizes(draw, draw(st.integers(1, 3)), 12)]
    at = draw(st.integers(0, len(every) - 1))
    dtype = draw(st.sampled_from((f32, f64, i32)))
    x = axes.read("x", every, dtype)
    each = axes.stage("y0", every, x)
    exclusive, reverse = draw(st.booleans()), draw(st.booleans())
    fold = Scan(each.out, each.axes, at, "sum", each.value, exclusive, reverse)
    after, more = followed(draw, axes, fold, every[-1:])
    return case(draw, [x.buffer, *more], after)


@st.composite
def mergings(draw: DrawFn) -> StagesCase:
    """Sorted runs that are merged two by two; the last may be shorter, or alone."""
    width, size = draw(st.integers(1, 9)), draw(st.integers(1, 90))
    rows = axis_sizes(draw, draw(st.integers(0, 2)), 4)
    descending, dtype = draw(st.booleans()), draw(st.sampled_from((f32, f64, i32, i64)))
    axes = Axes()
    every = [axes(each) for each in (*rows, size)]
    x = axes.read("x", every, dtype).buffer
    places = [sc.index(0) if n == 1 else each for n, each in zip((*rows, size), every, strict=True)]
    one = axes.stage("y", every, merged_place(x, places, width, descending))
    made = case(draw, [x], [one], whole=True)
    (whole,) = made.arrays
    runs = [np.sort(whole[..., at : at + width]) for at in range(0, size, width)]
    ordered = [run[..., ::-1] if descending else run for run in runs]
    return evolve(made, arrays=[np.concatenate(ordered, axis=-1)])


@st.composite
def selections(draw: DrawFn) -> StagesCase:
    """The places of the first elements of rows in their order; some are equal, or no numbers."""
    size = draw(st.integers(2, 60))
    kept = draw(st.integers(1, size))
    rows = axis_sizes(draw, draw(st.integers(0, 2)), 4)
    descending, dtype = draw(st.booleans()), draw(st.sampled_from((f32, f64, i32, i64)))
    axes = Axes()
    around = [axes(row) for row in rows]
    rank, *terms = axes(kept), axes(size), axes(size)
    x = axes.read("x", [*around, terms[0]], dtype).buffer
    places = [sc.index(0) if n == 1 else each for n, each in zip(rows, around, strict=True)]
    wanted = sc.index(0) if kept == 1 else rank
    value = place_of_rank(
        lambda at: x[(*places, at)], sc.index(size), wanted, (terms[0], terms[1]), descending
    )
    return case(draw, [x], [axes.stage("y", [*around, rank], value)])


@st.composite
def scattereds(draw: DrawFn) -> StagesCase:
    """Terms that are joined where integers say, or the last of them; some name no place."""
    axes = Axes()
    count, size = draw(st.integers(1, 20)), draw(st.integers(1, 9))
    before = [axes(axis_size) for axis_size in axis_sizes(draw, draw(st.integers(0, 1)), 4)]
    behind = [axes(axis_size) for axis_size in axis_sizes(draw, draw(st.integers(0, 1)), 20)]
    place, term = axes(size), axes(count)
    dtype = draw(st.sampled_from((f32, f64, i32)))
    own = before if draw(st.booleans()) else []
    where = axes.read("u", [*own, term], i32)
    x = axes.read("x", [*before, term, *behind], dtype)
    sides = sc.Cast(where, i64), place
    named = sc.Eq(*(sides if draw(st.booleans()) else sides[::-1]))
    every = [*before, place, *behind]
    join = combiner(draw, "sum", "prod", "max", "min")
    if draw(st.booleans()):
        start, _ = MEANING["max"]
        last_term = sc.Select(named, term, start(i64))
        last = axes.stage("y0", every, axes.reduced("max", (term,), last_term))
        number = sc.Load(last.out, tuple(every))
        base = axes.read("b", every, dtype)
        taken = sc.Load(x.buffer, (*before, sc.Max(number, sc.index(0)), *behind))
        put = axes.stage("y", every, sc.Select(sc.Le(sc.index(0), number), taken, base))
        return case(draw, [where.buffer, x.buffer, base.buffer], [last, put])
    start, _ = MEANING[join]
    value = sc.Select(named, x, start(dtype))
    fold = axes.stage("y0", every, axes.reduced(join, (term,), value))
    after, more = followed(draw, axes, fold, every[-1:])
    return case(draw, [where.buffer, x.buffer, *more], after)


@st.composite
def elements(draw: DrawFn) -> StagesCase:
    """Functions of each element; enough of them to be shared, or not."""
    axes = Axes()
    shapes = ((8, 2100), (16400,), (1, 3, 5600), (40, 17), (2, 9000), (130, 129))
    shape = draw(st.sampled_from(shapes))
    every = [axes(size) for size in shape]
    dtype = draw(st.sampled_from((f32, f64)))
    x, row = axes.read("x", every, dtype), axes.read("r", every[-1:], dtype)
    root = sc.Intrinsic("sqrt", (x * x + sc.Lit(0.5, dtype),))
    made = axes.stage("y", every, root + row)
    return case(draw, [x.buffer, row.buffer], [made], near=1e-6)


@st.composite
def concats(draw: DrawFn) -> StagesCase:
    """Tensors that are joined along an axis."""
    axes = Axes()
    along = draw(st.integers(0, 1))
    lengths = draw(st.lists(st.integers(1, 12), min_size=2, max_size=4))
    rest, row = draw(st.sampled_from((8, 20))), draw(st.sampled_from((5, 16, 33, 70)))
    dtype = draw(st.sampled_from((f32, f32, f64, i32)))
    sizes = [rest, rest, row]
    sizes[along] = sum(lengths)
    every = [axes(size) for size in sizes]
    value: sc.Scalar | None = None
    inputs, start = [], sum(lengths)
    for number, length in reversed(list(enumerate(lengths))):
        start -= length
        shape = [*sizes]
        shape[along] = length
        places: list[sc.Scalar] = [*every]
        places[along] = every[along] - start if start else every[along]
        load = sc.Load(placeholder(f"x{number}", shape, dtype), tuple(places))
        inputs.append(load.buffer)
        inside = sc.Lt(every[along], sc.index(start + length))
        value = load if value is None else sc.Select(inside, load, value)
    assert value is not None
    value = sc.Max(value, sc.Lit(0, dtype)) if draw(st.booleans()) else value
    return case(draw, inputs, [axes.stage("y", every, value)])


@st.composite
def steps(draw: DrawFn) -> StagesCase:
    """Elements placed with a stride, and a filler between them."""
    axes = Axes()
    every = [axes(draw(st.integers(9, 40))) for _ in range(2)]
    dtype = draw(st.sampled_from((f32, f32, f64, i32)))
    asked: list[sc.Scalar] = []
    places: list[sc.Scalar] = []
    sizes = []
    for axis in every:
        step, start = draw(st.integers(1, 4)), draw(st.integers(0, 5))
        away = axis - start if start else axis
        if step > 1:
            asked.append(sc.Eq(sc.FloorMod(away, sc.index(step)), sc.index(0)))
            away = sc.FloorDiv(away, sc.index(step))
        sizes.append(draw(st.integers(1, 12)))
        asked += [sc.Le(sc.index(0), away), sc.Lt(away, sc.index(sizes[-1]))]
        places.append(away)
    load = sc.Load(placeholder("x", sizes, dtype), tuple(places))
    value = guarded(asked, load, sc.Lit(2, dtype))
    return case(draw, [load.buffer], [axes.stage("y", every, value)])


@st.composite
def transposes(draw: DrawFn) -> StagesCase:
    """Transposes with elementwise operations."""
    axes = Axes()
    wide = st.sampled_from((7, 16, 17, 20, 33))
    every = [axes(size) for size in (draw(st.sampled_from((1, 2, 3))), draw(wide), draw(wide))]
    every = every[draw(st.integers(0, 1)) :]
    dtype = draw(st.sampled_from((f32, f32, i32, f16, i8, f64)))
    x = axes.read("x", draw(st.permutations(every)), dtype)
    other = axes.read("u", every, dtype)
    added = draw(st.booleans())
    value = x + other if added else x
    inputs = [x.buffer, other.buffer] if added else [x.buffer]
    return case(draw, inputs, [axes.stage("y", every, value)])
