"""Rows: how arguments of operators of one form are drawn.

Floats are of f64 and lie where the operator has a slope; indices and conditions are whole numbers,
which nothing is derived by.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from plica.ir.generate.draw import Array, Drawn, RealDraw, Row, Shape


def call(*args: Array, **settings: Any) -> Drawn:
    """Arguments and attributes of a call."""
    return args, settings


def one(d: RealDraw) -> Drawn:
    return call(d.real(*d.shape()))


def two(d: RealDraw) -> Drawn:
    shape = d.shape(0, 3)
    other = [size if d.random.random() < 0.7 else 1 for size in shape]
    other = other[d.random.randrange(len(shape) + 1) :]
    pair = d.real(*shape), d.real(*other)
    return (pair if d.maybe() else pair[::-1]), {}


def reduced(d: RealDraw) -> Drawn:
    shape = tuple([d.size(2, 4) for _ in range(d.random.randint(1, 3))])
    return call(d.real(*shape), axis=d.axes(len(shape)), keepdims=d.maybe())


def along(**more: Callable[[RealDraw], Any]) -> Row:
    """An operator along one axis."""

    def row(d: RealDraw) -> Drawn:
        shape = tuple([d.size(2, 4) for _ in range(d.random.randint(1, 3))])
        given = {name: value(d) for name, value in more.items()}
        return call(d.real(*shape), axis=d.axis(len(shape)), **given)

    return row


def shaped(least: int, most: int, settings: Callable[[RealDraw, Shape], Mapping[str, Any]]) -> Row:
    """An operator of one argument whose attributes depend on its shape."""

    def row(d: RealDraw) -> Drawn:
        shape = d.shape(least, most)
        return (d.real(*shape),), dict(settings(d, shape))

    return row


def image(
    settings: Callable[[RealDraw], Mapping[str, Any]],
    *,
    ranks: Sequence[int] = (1, 2),
    times: int = 1,
) -> Row:
    """An operator of an image; sides are of four to six."""

    def row(d: RealDraw) -> Drawn:
        sides = [times * d.random.randint(4, 6) for _ in range(d.pick(ranks))]
        return (d.real(d.size(1, 2), d.size(1, 2), *sides),), dict(settings(d))

    return row


def window(d: RealDraw) -> dict[str, Any]:
    return {"kernel": d.size(1, 3), "strides": d.size(1, 2), "padding": 0}


def pool(**more: Any) -> Row:
    def settings(d: RealDraw) -> dict[str, Any]:
        kernel = d.size(1, 3)
        given = {name: value(d) for name, value in more.items()}
        border = d.random.randint(0, kernel // 2)
        return {"kernel": kernel, "strides": d.size(1, 3), "padding": border,
                "ceil_mode": d.maybe(), **given}  # fmt: skip

    return image(settings)


def conv(d: RealDraw, rank: int | None = None, turned: bool = False) -> Drawn:
    rank = rank or d.pick((1, 2, 2))
    groups, own, out = (d.size(1, 2) for _ in range(3))
    kernel = [d.size(1, 3) for _ in range(rank)]
    sides = [k + d.random.randint(2, 3) for k in kernel]
    spread = not turned and min(sides) > 2 * max(kernel)
    said = {"strides": d.size(1, 2), "padding": d.random.randint(0, 1), "groups": groups,
            "dilation": d.size(1, 2) if spread else 1}  # fmt: skip
    weight = (groups * own, out, *kernel) if turned else (groups * out, own, *kernel)
    if turned and min(kernel) < 2:
        said["padding"] = 0
    return (d.real(d.size(1, 2), groups * own, *sides), d.real(*weight)), said


def laid(plain: Row, words: tuple[str, ...], logical: tuple[str, ...]) -> Row:
    """An operator of images of two axes in other layouts, which are orders of axes."""

    def row(d: RealDraw) -> Drawn:
        args, said = plain(d)
        turned = [np.ascontiguousarray(np.transpose(arg, [have.index(letter) for letter in word]))
                  for arg, word, have in zip(args, words, logical, strict=False)]  # fmt: skip
        return tuple(turned), {**said, "layouts": words}

    return row


def norm(count: int) -> Row:
    def row(d: RealDraw) -> Drawn:
        shape = (d.size(1, 3), *[d.size(2, 4) for _ in range(d.random.randint(1, 2))])
        at = d.random.randrange(1, len(shape))
        weights = [shape[at:]] * count
        return call(*[d.real(*each) for each in (shape, *weights)], axis=at, epsilon=0.01)

    return row


def channels(d: RealDraw, count: int, groups: int | None = None) -> Drawn:
    channels = (groups or 1) * d.size(1, 2)
    shape = (d.size(1, 2), channels, *[d.size(2, 3) for _ in range(d.random.randint(1, 2))])
    said: dict[str, Any] = {"epsilon": 0.01} | ({} if groups is None else {"groups": groups})
    return (d.real(*shape), *[d.real(channels) for _ in range(count)]), said


def slices(d: RealDraw, shape: Shape) -> dict[str, Any]:
    starts, stops, steps = [], [], []
    for size in shape:
        low = d.random.randrange(size)
        step = d.pick((1, 2, -1))
        starts.append(low if step > 0 else size - 1 - low)
        stops.append(size if step > 0 else None)
        steps.append(step)
    return {"starts": tuple(starts), "stops": tuple(stops), "steps": tuple(steps)}


def cut(d: RealDraw, shape: Shape, said: Mapping[str, Any]) -> Shape:
    cuts = tuple(map(slice, said["starts"], said["stops"], said["steps"]))
    return tuple(np.zeros(shape)[cuts].shape)


def strided_set(d: RealDraw) -> Drawn:
    shape = d.shape(1, 3)
    said = slices(d, shape)
    return (d.real(*shape), d.real(*cut(d, shape, said))), said


def unslice(d: RealDraw) -> Drawn:
    shape = d.shape(1, 3)
    said, axes = slices(d, shape), tuple(range(len(shape)))
    return call(d.real(*cut(d, shape, said)), **said, axes=axes, shape=shape)


def taken(d: RealDraw) -> Drawn:
    shape = d.shape(1, 3)
    at = d.random.randrange(len(shape))
    x, places = d.real(*shape), d.whole(shape[at], *d.shape(0, 2))
    return call(x, places, axis=at, mode=d.pick(("raise", "clip", "wrap")))


def taken_along(d: RealDraw) -> Drawn:
    shape = d.shape(1, 3)
    at = d.random.randrange(len(shape))
    wanted = (*shape[:at], d.size(), *shape[at + 1 :])
    return call(d.real(*shape), d.whole(shape[at], *wanted), axis=at, mode="raise")


def scatter_sum(d: RealDraw) -> Drawn:
    lead, tail, count, size = d.shape(0, 1), d.shape(0, 1), d.size(1, 4), d.size(1, 4)
    x, places = d.real(*lead, count, *tail), d.whole(size, count)
    return call(x, places, size=size, axis=len(lead), mode="raise")


def scatter_along(d: RealDraw) -> Drawn:
    shape = d.shape(1, 3)
    at = d.random.randrange(len(shape))
    wanted = (*shape[:at], d.size(), *shape[at + 1 :])
    x, places = d.real(*wanted), d.whole(shape[at], *wanted)
    return call(x, places, shape=shape, axis=at, mode="raise")


REDUCTIONS: Final = ("replace", "add", "mul", "max", "min")


def put_elements(d: RealDraw) -> Drawn:
    """Distinct places: replacing has one answer."""
    shape = d.shape(1, 3)
    at = d.random.randrange(len(shape))
    part = [d.size(1, size) for size in shape]
    places = np.argsort(d.real(*part), axis=at).astype(np.int64)
    return call(d.real(*shape), places, d.real(*part), axis=at, reduction=d.pick(REDUCTIONS))


def put_nd(d: RealDraw) -> Drawn:
    size, rest, count = d.size(2, 4), d.shape(0, 1), d.size(1, 2)
    places = np.asarray(d.random.sample(range(size), count), np.int64)[:, None]
    return call(d.real(size, *rest), places, d.real(count, *rest), reduction=d.pick(REDUCTIONS))


def put_rows(d: RealDraw) -> Drawn:
    (x, places, updates), how = put_nd(d)
    return (x, places[:, 0], updates), how


def gather_nd(d: RealDraw) -> Drawn:
    shape = d.shape(1, 3)
    depth = d.random.randint(1, len(shape))
    outer = d.shape(0, 2)
    x = d.real(*shape)
    return call(x, np.stack([d.whole(shape[at], *outer) for at in range(depth)], -1))


def sparse(d: RealDraw) -> Drawn:
    shape, count = d.shape(1, 2), d.size()
    cells = d.random.sample(list(np.ndindex(*shape)), min(count, math.prod(shape)))
    return call(np.asarray(cells, np.int64), d.real(len(cells)), shape=shape, default=1)


def sparse_dense(d: RealDraw) -> Drawn:
    rows, columns = d.size(), d.size()
    counts = [d.random.randint(0, 2) for _ in range(rows)]
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    x, values = d.real(d.size(), columns), d.real(sum(counts))
    return call(x, values, d.whole(columns, sum(counts)), starts)


def sequences(**more: Any) -> Row:
    def row(d: RealDraw) -> Drawn:
        shape = (d.size(), d.size(), *d.shape(0, 1))
        lengths = d.whole(shape[1] + 1, shape[0]).astype(np.int32)
        return call(d.real(*shape), lengths, axis=1, batch_axis=0, **more)

    return row


def loss(d: RealDraw) -> Drawn:
    n, classes, rest = d.size(), d.size(2, 3), d.shape(0, 1)
    args = d.real(n, classes, *rest), d.whole(classes, n, *rest), d.real(classes)
    return call(*args, reduction=d.pick(("mean", "sum", "none")), ignore_index=-1)


def deformed(d: RealDraw) -> Drawn:
    k, side, channels, out = d.size(1, 2), 3, d.size(1, 2), d.size(1, 2)
    made = side - k + 1
    return ((d.real(1, channels, side, side), d.real(1, 2 * k * k, made, made) * 0.4,
             d.real(1, k * k, made, made), d.real(out, channels, k, k)), {})  # fmt: skip


def roi(d: RealDraw) -> Drawn:
    x = d.real(2, d.size(1, 2), 5, 5)
    low = np.abs(d.real(2, 2)) * 0.7 + 0.13
    rois = np.concatenate([low, low + np.abs(d.real(2, 2)) + 0.57], 1)
    said, images = {"size": (2, 2), "scale": 1.0, "samples": 2}, d.whole(2, 2)
    return call(x, rois, images, **said, half_pixel=d.maybe(), mode=d.pick(("avg", "max")))


def einsum(d: RealDraw) -> Drawn:
    equation = d.pick(("ij,jk->ik", "ij->ji", "ij->", "bij,bjk->bik", "i,j->ij", "ii->i",
                       "ij,ij->i", "abc,cd,d->ab", "ijk->kj", "ij,kj->ik"))  # fmt: skip
    sizes = {letter: d.size() for letter in "abcdijk"}
    parts = equation.partition("->")[0].split(",")
    return tuple([d.real(*[sizes[c] for c in part]) for part in parts]), {"equation": equation}


def split_in(d: RealDraw, shape: Shape) -> dict[str, Any]:
    at = d.random.randrange(len(shape))
    cuts = tuple(sorted(d.random.choices(range(shape[at] + 1), k=d.random.randint(1, 2))))
    return {"indices_or_sections": cuts, "axis": at}


def joined(new: bool) -> Row:
    def row(d: RealDraw) -> Drawn:
        shape = list(d.shape(0 if new else 1, 3))
        at = d.random.randrange(len(shape) + new)
        args = []
        for _ in range(d.random.randint(1, 3)):
            if not new:
                shape[at] = d.size()
            args.append(d.real(*shape))
        return tuple(args), {"axis": at}

    return row


def padded(d: RealDraw, shape: Shape) -> dict[str, Any]:
    mode = d.pick(("constant", "edge", "reflect", "symmetric", "wrap"))
    room = {"reflect": -1}.get(mode, 0)
    ends = [max(0, size + room) for size in shape]
    width = [(d.random.randint(0, end), d.random.randint(0, end)) for end in ends]
    return {"pad_width": tuple(width), "mode": mode}


def spread_window(d: RealDraw) -> Drawn:
    side, said = d.random.randint(4, 6), window(d)
    count = (side - said["kernel"]) // said["strides"] + 1
    return (d.real(1, d.size(1, 2), count, count),), {**said, "size": (side, side)}


def window_places(put: bool) -> Row:
    def row(d: RealDraw) -> Drawn:
        side, said = d.random.randint(4, 6), window(d)
        count = (side - said["kernel"]) // said["strides"] + 1
        places = d.whole(said["kernel"] ** 2, 1, 2, count, count)
        if put:
            return (d.real(1, 2, count, count), places), {**said, "size": (side, side)}
        return (d.real(1, 2, side, side), places), said

    return row


def winograd(d: RealDraw) -> Drawn:
    tile, channels = d.pick((2, 4)), d.size(1, 2)
    weight = d.real((tile + 2) ** 2, channels, d.size(1, 2))
    x = d.real(1, channels, d.random.randint(3, 5), d.random.randint(3, 5))
    return call(x, weight, tile=tile, padding=d.random.randint(0, 1))


def matrices(d: RealDraw) -> Drawn:
    n, k, m = d.size(), d.size(), d.size()
    lead = d.shape(0, 1)
    return (d.real(*lead, n, k), d.real(*(lead if d.maybe() else ()), k, m)), {}


def batched(d: RealDraw) -> Drawn:
    b, n, k, m = d.size(), d.size(), d.size(), d.size()
    one, two = d.maybe(), d.maybe()
    x = d.real(b, k, n) if one else d.real(b, n, k)
    y = d.real(b, m, k) if two else d.real(b, k, m)
    return (x, y), {"transpose_x": one, "transpose_y": two}


def diagonal_set(d: RealDraw) -> Drawn:
    n, m = d.size(2, 3), d.size(2, 3)
    k = d.random.randint(-1, 1)
    return (d.real(n, m), d.real(len(np.diagonal(np.zeros((n, m)), k)))), {"k": k}


def blocks(back: bool) -> Row:
    def row(d: RealDraw) -> Drawn:
        block = d.size(1, 2)
        n = d.size(1, 2) * (block * block if back else 1)
        sides = (d.size(), d.size()) if back else (2 * block, 2 * block)
        x = d.real(n, *sides, *d.shape(0, 1))
        return call(x, block=(block, block), sides=((0, 0), (0, 0)))

    return row


def reshaped(d: RealDraw, shape: Shape) -> dict[str, Any]:
    turned = d.random.sample(shape, len(shape))
    return {"shape": tuple(turned) if d.maybe() else (-1,)}


def axis_of_length(d: RealDraw, shape: Shape) -> dict[str, Any]:
    at = d.random.randrange(len(shape))
    return {"axis": at, "k": d.random.randint(1, shape[at]), "largest": d.maybe()}


def pixels(back: bool) -> Row:
    def row(d: RealDraw) -> Drawn:
        b = d.size(1, 2)
        shape = (1, b * b * d.size(1, 2), 2, 3) if back else (1, d.size(1, 2), 2 * b, b)
        said: dict[str, Any] = {"block": b} | ({"column_row_depth": d.maybe()} if back else {})
        return (d.real(*shape),), said

    return row


def swapped(d: RealDraw, shape: Shape) -> dict[str, Any]:
    return {"axis1": d.axis(len(shape)), "axis2": d.axis(len(shape))}
