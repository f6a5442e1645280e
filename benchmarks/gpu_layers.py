"""Layers of torch, drawn by a seed: what networks are made of, at sizes that divide by nothing.

Attention of every kind, products, convolutions in groups, dilated and transposed, reductions over
any axes, scans, sorts, gathers and scatters, norms, recurrent layers, quantised weights, and chains
of some of those with several results; in f32, f16, bf16 and whole numbers, from tensors that begin
anywhere, and some with a size that is known when it runs alone.

>>> layer_of(0, 3, 1 << 12).name == layer_of(0, 3, 1 << 12).name
True
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final

import attrs
import torch
from torch import nn
from torch.nn import functional

from benchmarks.gpu_layer_draw import Call, Draw, Drawn, Given, bent


@attrs.frozen
class Layer:
    """A network of torch, inputs for it, and how large its first axis is when it runs again."""

    name: str
    network: nn.Module
    dtype: torch.dtype
    given: tuple[Given, ...]
    seed: int
    again: int | None = None


class Whole(nn.Module):
    """A call on inputs and layers."""

    def __init__(self, call: Call, layers: Sequence[nn.Module]) -> None:
        super().__init__()
        self.call, self.layers = call, nn.ModuleList(layers)

    def forward(self, *given: Any) -> Any:
        return self.call(*given, *self.layers)


def linear(draw: Draw) -> Drawn:
    rank = draw.one(1, 2, 2, 3)
    deep, wide = draw.size(1, 700), draw.size(1, 700)
    rows = draw.shape(rank, max(4, draw.largest // max(deep, wide)))
    word, bend = bent(draw)
    residual = draw.coin(0.3) and deep == wide
    layer = nn.Linear(deep, wide, bias=draw.coin())

    def call(x: Any, of: Any) -> Any:
        return bend(of(x)) + x if residual else bend(of(x))

    return f"linear {rows}x{deep} to {wide} {word}", call, [layer], [Given((*rows, deep))]


def products(draw: Draw) -> Drawn:
    lots = draw.shape(draw.one(1, 1, 2), 64)
    m, n, k = (draw.size(1, 300) for _ in range(3))
    left, right = draw.coin(), draw.coin()
    alone = draw.coin(0.3)
    word, bend = bent(draw)

    def call(x: Any, y: Any) -> Any:
        return bend((x.mT if left else x) @ (y.mT if right else y))

    one = (*lots, *((k, m) if left else (m, k)))
    two = (*(() if alone else lots), *((n, k) if right else (k, n)))
    given = [Given(one), Given(two, "whole" if draw.coin() else "normal")]
    return f"products {one} {two} {left:d}{right:d} {word}", call, [], given


def few_bits(draw: Draw) -> Drawn:
    """A product with weights of i8, and a scale for each column."""
    rows, deep, wide = draw.size(1, 200), draw.size(4, 600), draw.size(4, 600)
    source = torch.Generator().manual_seed(draw.random.randrange(1 << 30))

    class Quantised(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            weight = torch.randint(-127, 128, (wide, deep), dtype=torch.int8, generator=source)
            self.register_buffer("weight", weight)
            self.register_buffer("scale", torch.rand(wide, generator=source) / 100)

        def forward(self, x: Any) -> Any:
            weight, scale = (each.to(x.dtype) for each in self.buffers())
            return functional.linear(x, weight) * scale

    name = f"i8 weights {rows}x{deep}x{wide}"
    return name, lambda x, of: of(x), [Quantised()], [Given((rows, deep))]


def whole_products(draw: Draw) -> Drawn:
    m, n, k = (draw.size(1, 300) for _ in range(3))
    turned = draw.coin()

    def call(x: Any, y: Any) -> Any:
        return x.to(torch.int32) @ (y.mT if turned else y).to(torch.int32)

    given = [Given((m, k), "i8"), Given((n, k) if turned else (k, n), "i8")]
    return f"i8 products {m}x{n}x{k} {turned:d}", call, [], given


def attention(draw: Draw) -> Drawn:
    lots, heads, width = draw.size(1, 3), draw.size(1, 6), draw.one(8, 16, 24, 32, 40, 64, 80, 128)
    queries, keys = draw.size(1, 300), draw.size(1, 300)
    kind = draw.one("plain", "causal", "bool", "bias", "window", "grouped", "capped", "lengths")
    if kind in ("causal", "window"):
        keys = queries
    shared = draw.one(1, 2, 3) if kind == "grouped" else 1
    wide = draw.one(width, width, 16)

    def call(q: Any, k: Any, v: Any, *more: Any) -> Any:
        if kind == "capped":
            scores = torch.tanh(q @ k.mT / math.sqrt(width) / 5.0) * 5.0
            return scores.softmax(-1) @ v
        if kind == "lengths":
            mask = torch.arange(keys, device=q.device) < more[0][:, None]
            return functional.scaled_dot_product_attention(q, k, v, mask[:, None, None, :])
        if kind == "window":
            at = torch.arange(queries, device=q.device)
            far = at[:, None] - at[None, :]
            return functional.scaled_dot_product_attention(q, k, v, (far >= 0) & (far < 7))
        if kind == "bool":
            return functional.scaled_dot_product_attention(q, k, v, more[0] > -3.0)
        mask = more[0] if kind == "bias" else None
        return functional.scaled_dot_product_attention(
            q, k, v, mask, is_causal=kind == "causal", enable_gqa=kind == "grouped"
        )

    given = [
        Given((lots, heads * shared, queries, width)),
        Given((lots, heads, keys, width)),
        Given((lots, heads, keys, wide)),
    ]
    if kind in ("bool", "bias"):
        given.append(Given((draw.one(1, lots), draw.one(1, heads), queries, keys)))
    if kind == "lengths":
        given.append(Given((lots,), "length", keys))
    name = f"attention {kind} {lots}x{heads}x{shared} {queries} of {keys} {width} {wide}"
    return name, call, [], given


def convolution(draw: Draw) -> Drawn:
    rank = draw.one(1, 2, 2, 2, 3)
    groups = draw.one(1, 1, 1, 2, 3, 8)
    deep, wide = groups * draw.size(1, 40 // groups + 2), groups * draw.size(1, 40 // groups + 2)
    if draw.coin(0.2):
        groups, wide = deep, deep * draw.one(1, 1, 2)
    kernel = tuple([draw.one(1, 2, 3, 3, 5) for _ in range(rank)])
    stride, apart = draw.one(1, 1, 2, 3), draw.one(1, 1, 1, 2, 3)
    padding = draw.one(0, 0, 1, 2)
    most = max(8, draw.largest // max(deep, wide))
    lots, *sides = draw.shape(rank + 1, most)
    sides = [max(each, apart * (k - 1) + 1) for each, k in zip(sides, kernel, strict=True)]
    turned = draw.coin(0.25)
    word, bend = bent(draw)
    if turned:
        layer: nn.Module = getattr(nn, f"ConvTranspose{rank}d")(
            deep, wide, kernel, stride, min(padding, min(kernel) - 1),
            draw.random.randrange(stride) if stride > 1 else 0, groups, draw.coin(), apart,
        )  # fmt: skip
    else:
        layer = getattr(nn, f"Conv{rank}d")(
            deep, wide, kernel, stride, padding, apart, groups, draw.coin()
        )
    name = (
        f"{'turned ' if turned else ''}conv {lots}x{deep}x{sides} to {wide} k{kernel} s{stride} "
        f"p{padding} d{apart} g{groups} {word}"
    )
    return name, lambda x, of: bend(of(x)), [layer], [Given((lots, deep, *sides))]


def pooled(draw: Draw) -> Drawn:
    rank = draw.one(1, 2, 2, 3)
    lots, deep, *sides = draw.shape(rank + 2)
    sides = [max(each, 5) for each in sides]
    kernel, stride, padding = draw.one(2, 3, 5), draw.one(1, 2, 3), draw.one(0, 0, 1)
    kind = draw.one("Max", "Avg", "AdaptiveAvg", "AdaptiveMax")
    layer = (
        getattr(nn, f"{kind}Pool{rank}d")(draw.one(1, 2, 3))
        if kind.startswith("Adaptive")
        else getattr(nn, f"{kind}Pool{rank}d")(kernel, stride, padding, ceil_mode=draw.coin(0.3))
    )
    return (
        f"{layer} {lots}x{deep}x{sides}",
        lambda x, of: of(x),
        [layer],
        [Given((lots, deep, *sides))],
    )


REDUCTIONS: Final[dict[str, Call]] = {
    "sum": lambda x, axes: x.sum(axes), "mean": lambda x, axes: x.mean(axes),
    "amax": lambda x, axes: x.amax(axes), "amin": lambda x, axes: x.amin(axes),
    "var": lambda x, axes: x.var(axes, correction=0), "norm": lambda x, axes: (x * x).sum(axes),
    "kept": lambda x, axes: x - x.mean(axes, keepdim=True),
    "logsumexp": lambda x, axes: x.logsumexp(axes),
    "both": lambda x, axes: (x.sum(axes), x.amax(axes)),
    "every": lambda x, axes: tuple([x.sum(axis) for axis in range(x.dim())]),
    "moments": lambda x, axes: (x.mean(axes), (x * x).mean(axes), x * 2),
    "any": lambda x, axes: (x > 1.5).any(axes[0]), "count": lambda x, axes: (x > 0).sum(axes),
}  # fmt: skip


def reduction(draw: Draw) -> Drawn:
    shape = draw.shape(draw.one(1, 2, 2, 3, 4))
    axes = draw.axes(len(shape))
    kind = draw.one(*REDUCTIONS)
    word, bend = bent(draw)
    cut = draw.one(0, 0, 1, 3) if shape[-1] > 4 else 0

    def call(x: Any) -> Any:
        return REDUCTIONS[kind](bend(x[..., cut:]), axes)

    return f"{kind} of {word} {shape} from {cut} over {axes}", call, [], [Given(shape)]


def whole_reduction(draw: Draw) -> Drawn:
    shape = draw.shape(draw.one(1, 2, 3))
    axes = draw.axes(len(shape))
    word = draw.one("sum", "amax", "amin", "argmax", "cumsum")
    numbers = draw.one("i8", "i32", "i64")
    calls: dict[str, Call] = {
        "sum": lambda x: x.sum(axes), "amax": lambda x: x.amax(axes),
        "amin": lambda x: x.amin(axes), "cumsum": lambda x: x.cumsum(axes[0]),
        "argmax": lambda x: (x.long() * (1 << 20) + torch.arange(shape[-1])).argmax(-1),
    }  # fmt: skip
    return f"{word} {numbers} {shape} over {axes}", calls[word], [], [Given(shape, numbers)]


def normalised(draw: Draw) -> Drawn:
    shape = draw.shape(draw.one(2, 2, 3, 4))
    kind = draw.one("layer", "softmax", "rms", "log_softmax", "batch", "group", "instance", "unit")
    axis, wide = draw.random.randrange(len(shape)), shape[-1]
    cut = draw.one(0, 0, 1, 2) if wide > 4 and kind in ("softmax", "log_softmax") else 0
    groups = next(each for each in (4, 3, 2, 1) if shape[1] % each == 0)
    layers: dict[str, list[nn.Module]] = {
        "layer": [nn.LayerNorm(wide)], "batch": [nn.BatchNorm1d(shape[1])],
        "group": [nn.GroupNorm(groups, shape[1])],
    }  # fmt: skip

    def call(x: Any, *more: Any) -> Any:
        x = x[..., cut:]
        match kind:
            case "softmax":
                return x.softmax(axis)
            case "log_softmax":
                return x.log_softmax(axis)
            case "rms":
                return x * (x * x).mean(-1, keepdim=True).add(1e-5).rsqrt()
            case "unit":
                return functional.normalize(x + 0.1, dim=axis)
            case "instance":
                centre = x - x.mean(-1, keepdim=True)
                return centre * (centre * centre).mean(-1, keepdim=True).add(1e-3).rsqrt()
            case "batch":
                return more[0](x.flatten(2) if x.dim() > 2 else x)
            case _:
                return more[0](x)

    name = f"{kind} {shape} axis {axis} from {cut}"
    return name, call, layers.get(kind, []), [Given(shape)]


def scanned(draw: Draw) -> Drawn:
    shape = draw.shape(draw.one(1, 2, 3))
    axis = draw.random.randrange(len(shape))
    kind = draw.one("cumsum", "cumprod", "cummax", "cummin", "flipped")
    calls: dict[str, Call] = {
        "cumsum": lambda x: x.cumsum(axis), "cumprod": lambda x: (1 + x / 64).cumprod(axis),
        "cummax": lambda x: x.cummax(axis).values, "cummin": lambda x: x.cummin(axis).values,
        "flipped": lambda x: x.flip(axis).cumsum(axis).flip(axis),
    }  # fmt: skip
    return f"{kind} {shape} along {axis}", calls[kind], [], [Given(shape, "near")]


def sorted_(draw: Draw) -> Drawn:
    shape = draw.shape(draw.one(1, 2, 3), 4096)
    axis = draw.random.randrange(len(shape))
    count, down = draw.random.randint(1, shape[axis]), draw.coin()
    kind = draw.one("sort", "topk", "argsort", "argmax", "argmin", "median")
    calls: dict[str, Call] = {
        "sort": lambda x: tuple(x.sort(axis, down)), "argsort": lambda x: x.argsort(axis, down),
        "topk": lambda x: tuple(x.topk(count, axis, down)), "argmax": lambda x: x.argmax(axis),
        "argmin": lambda x: x.argmin(axis), "median": lambda x: x.median(axis).values,
    }  # fmt: skip
    name = f"{kind} {shape} along {axis} {count} {down:d}"
    return name, calls[kind], [], [Given(shape, "distinct")]


def gathered(draw: Draw) -> Drawn:
    shape = draw.shape(draw.one(1, 2, 3))
    axis = draw.random.randrange(len(shape))
    many, below = draw.size(1, 300), shape[axis]
    kind = draw.one("select", "gather", "embedding", "take", "scatter", "add", "put", "scatter_add")
    along = tuple([many if at == axis else each for at, each in enumerate(shape)])
    index = Given((many,), "index", below)
    if kind in ("gather", "take", "scatter_add"):
        index = Given(along, "index", below)
    if kind in ("scatter", "put"):
        many = min(many, below)
        along = tuple([many if at == axis else each for at, each in enumerate(shape)])
        index = Given((many,), "places", below)
    calls: dict[str, Call] = {
        "select": lambda x, i, u: x.index_select(axis, i) + u,
        "gather": lambda x, i, u: x.gather(axis, i) * u,
        "take": lambda x, i, u: torch.take_along_dim(x, i, axis) - u,
        "embedding": lambda x, i, u: x.movedim(axis, 0)[i].movedim(0, axis) + u,
        "scatter": lambda x, i, u: x.index_copy(axis, i, u),
        "add": lambda x, i, u: x.index_add(axis, i, u),
        "put": lambda x, i, u: x.index_copy(axis, i, u) * 2,
        "scatter_add": lambda x, i, u: x.scatter_add(axis, i, u),
    }  # fmt: skip
    given = [Given(shape, "whole"), index, Given(along, "whole")]
    return f"{kind} {shape} along {axis} {many}", calls[kind], [], given


def moved(draw: Draw) -> Drawn:
    shape = draw.shape(draw.one(1, 2, 3, 4))
    rank, axis = len(shape), draw.random.randrange(len(shape))
    order = draw.random.sample(range(rank), rank)
    by, step = draw.random.randint(1, 5), draw.one(1, 2, 3)
    kind = draw.one("permute", "flip", "roll", "pad", "cat", "stack", "step", "repeat", "mixed",
                    "tril", "halves", "flat")  # fmt: skip
    calls: dict[str, Call] = {
        "permute": lambda x: x.permute(order).contiguous() + 1, "flip": lambda x: x.flip(axis) * 2,
        "roll": lambda x: x.roll(by, axis) + x, "step": lambda x: x.permute(order)[::step] + 1,
        "pad": lambda x: functional.pad(x, (by, step), value=0.5) * 2,
        "cat": lambda x: torch.cat([x, x * 2, x[:1]], 0),
        "repeat": lambda x: x.repeat_interleave(2, axis),
        "stack": lambda x: torch.stack([x, x + 1], axis),
        "flat": lambda x: x.permute(order).flatten() * 3,
        "mixed": lambda x: (x.permute(order) + 1, x.flip(axis), x.sum(axis)),
        "tril": lambda x: (x.tril() if rank > 1 else x, x * 2),
        "halves": lambda x: tuple([each * 2 for each in x.chunk(2, axis)]),
    }  # fmt: skip
    return f"{kind} {shape} axis {axis} {order} {by} {step}", calls[kind], [], [Given(shape)]


def elementwise(draw: Draw) -> Drawn:
    shape = draw.shape(draw.one(1, 2, 3, 4))
    others = [tuple([1 if draw.coin(0.4) else each for each in shape]) for _ in range(2)]
    (first, one), (second, two) = bent(draw), bent(draw)
    kind = draw.one("fma", "where", "casts", "several")
    calls: dict[str, Call] = {
        "fma": lambda x, y, z: two(one(x) * y + z),
        "where": lambda x, y, z: torch.where(x > y, one(x), two(z)),
        "casts": lambda x, y, z: (one(x) * 4).round().to(torch.int32) + (y > z).to(torch.int32),
        "several": lambda x, y, z: (one(x) + y, two(x) * z, x > y),
    }  # fmt: skip
    given = [Given(shape, "whole" if kind == "casts" else "normal"), *map(Given, others)]
    if kind == "casts":
        calls[kind] = lambda x, y, z: (x * 4).to(torch.int32) + (y > z).to(torch.int32)
    return f"{kind} {shape} {others} {first} {second}", calls[kind], [], given


def recurrent(draw: Draw) -> Drawn:
    lots, length = draw.size(1, 5), draw.size(1, 12)
    deep, wide = draw.size(1, 90), draw.size(1, 90)
    kind, both, many = draw.one("GRU", "LSTM", "RNN"), draw.coin(0.3), draw.one(1, 1, 2)
    layer = getattr(nn, kind)(deep, wide, many, batch_first=True, bidirectional=both)

    def call(x: Any, of: Any) -> Any:
        found, last = of(x)
        return (found, *last) if kind == "LSTM" else (found, last)

    name = f"{kind} {lots}x{length}x{deep} to {wide} both {both:d} layers {many}"
    return name, call, [layer], [Given((lots, length, deep))]


def resized(draw: Draw) -> Drawn:
    lots, deep, high, wide = draw.shape(4, draw.largest // 4)
    mode = draw.one("nearest", "bilinear", "bicubic", "shuffle", "unfold")
    times = draw.one(2, 1.5, 3)

    def call(x: Any) -> Any:
        if mode == "shuffle":
            return functional.pixel_shuffle(torch.cat([x] * 4, 1), 2)
        if mode == "unfold":
            return functional.unfold(x, 2, padding=1)
        more = {} if mode == "nearest" else {"align_corners": times == 3}
        return functional.interpolate(x, scale_factor=times, mode=mode, **more)

    return (
        f"{mode} {lots}x{deep}x{high}x{wide} by {times}",
        call,
        [],
        [Given((lots, deep, high, wide))],
    )


def chain(draw: Draw) -> Drawn:
    """A few layers that keep a matrix a matrix, and then results of several kinds."""
    rows, wide = draw.size(1, 300), draw.size(2, 300)
    layers: list[nn.Module] = []
    steps: list[tuple[str, Call]] = []
    for _ in range(draw.random.randint(2, 5)):
        word = draw.one("linear", "norm", "softmax", "bend", "rows", "columns", "cumsum", "turn",
                        "shift", "mask")  # fmt: skip
        if word == "linear":
            to = draw.size(2, 300)
            layers.append(nn.Linear(wide, to))
            wide = to
            steps.append((word, layers[-1]))
        elif word == "norm":
            layers.append(nn.LayerNorm(wide))
            steps.append((word, layers[-1]))
        elif word == "turn":
            if draw.coin():
                rows, wide = wide, rows
                steps.append((word, lambda x: x.mT))
        else:
            calls: dict[str, Call] = {
                "softmax": lambda x: x.softmax(-1) * 4, "bend": bent(draw)[1],
                "rows": lambda x: x - x.mean(1, keepdim=True),
                "columns": lambda x: x - x.amax(0, keepdim=True),
                "cumsum": lambda x: x.cumsum(1) / 16, "shift": lambda x: x.roll(1, 0) + x,
                "mask": lambda x: torch.where(x > 0.1, x, x * 0.25),
            }  # fmt: skip
            steps.append((word, calls[word]))
    last = draw.one("all", "rows", "columns", "both")

    def call(x: Any, *_: Any) -> Any:
        for _word, step in steps:
            x = step(x)
        match last:
            case "rows":
                return x.sum(1)
            case "columns":
                return x.sum(0), x.amax(0)
            case "both":
                return x, x.sum(1), x.mean(0)
            case _:
                return x

    shape = _entrance(steps, rows, wide)
    return (
        f"chain {shape} {' '.join(word for word, _ in steps)} {last}",
        call,
        layers,
        [Given(shape)],
    )


def _entrance(steps: Sequence[tuple[str, Call]], rows: int, wide: int) -> tuple[int, int]:
    """The sizes before steps, of those after them."""
    for word, step in reversed(steps):
        if word == "turn":
            rows, wide = wide, rows
        elif isinstance(step, nn.Linear):
            wide = step.in_features
    return rows, wide


FAMILIES: Final[tuple[Callable[[Draw], Drawn], ...]] = (
    linear, products, few_bits, whole_products, attention, attention, convolution, convolution,
    convolution, pooled, reduction, reduction, reduction, whole_reduction, normalised, normalised,
    scanned, sorted_, gathered, gathered, moved, elementwise, recurrent, resized, chain, chain,
    chain,
)  # fmt: skip

OPEN: Final = 0.15
"""How many have a first axis whose size is known when they run."""


def layer_of(seed: int, number: int, largest: int) -> Layer:
    """The layer of a number."""
    random = Random(f"{seed}/{number} layer")
    dtype = random.choice((torch.float32, torch.float16, torch.bfloat16, torch.float32))
    family = random.choice(FAMILIES)
    torch.manual_seed(random.randrange(1 << 30))
    name, call, layers, given = family(Draw(random, largest))
    network = Whole(call, layers).eval().to(dtype)
    again = None
    if random.random() < OPEN and len(given) == 1 and given[0].shape[0] > 2:
        again = random.randint(2, 2 * given[0].shape[0])
    word = str(dtype).removeprefix("torch.")
    said = f"{word} {name}" + ("" if again is None else f", open, then {again}")
    return Layer(said, network, dtype, tuple(given), random.randrange(1 << 30), again)
