"""Cases of `benchmarks/versus.py`: ONNX models with their inputs, by kind.

>>> [case.name for case in cases("scans", seed=0, count=0)][:2]
['cumsum 64x1000 axis 1', 'cumsum 1000x64 axis 0']
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import onnx

from benchmarks.drawn_model import Model, Random


class Case(NamedTuple):
    """A model and what it is called with."""

    name: str
    model: onnx.ModelProto
    inputs: list[np.ndarray[Any, Any]]


def built(name: str, build: Callable[..., str], *given: Any, opened: str = "") -> Case:
    """The case of a function that adds nodes to a model; letters are dims that are left open."""
    draft = Model(Random((0, len(name))))
    draft.opened = frozenset(opened)
    return Case(name, draft.made(build(draft, *given)), [values for _, values in draft.inputs])


def operators(seed: int, count: int) -> Iterator[Case]:
    """Operators drawn by the seed, as `benchmarks/cliffs.py` draws them."""
    from benchmarks.cliffs import drawn

    for number in range(count):
        text, model, inputs = drawn(seed, number)
        yield Case(f"{number} {text}", model, inputs)


def models(seed: int, count: int) -> Iterator[Case]:
    """The networks of `benchmarks/models.py`."""
    from benchmarks.models import model_of, names
    from plica.frontend import zoo

    for name in names(batch=1):
        if name in zoo.NETWORKS:
            model, values = model_of(name)
            yield Case(name, model, [values])


# fmt: off
ROWS: Final = ((64, 1000), (197, 384), (1024, 768), (10000, 7), (8, 20000), (333, 77))
COLUMNS: Final = ((4096, 64), (512, 333), (64, 4096), (20000, 5))
REDUCTIONS: Final = ("ReduceMean", "ReduceMax", "ReduceL2", "ReduceLogSumExp", "ReduceProd")
# fmt: on


def folds(seed: int, count: int) -> Iterator[Case]:
    """Rows, columns, short rows and chains of folds."""
    for shape in ROWS:
        text = "x".join(map(str, shape))
        yield built(f"softmax {text}", _along_rows, "Softmax", shape)
        yield built(f"log softmax {text}", _along_rows, "LogSoftmax", shape)
        yield built(f"layer norm {text}", _layer_norm, shape)
        yield built(f"argmax {text}", _along_rows, "ArgMax", shape)
    for shape in (*ROWS, *COLUMNS):
        for axis in (0, 1):
            for kind in ("ReduceSum", *REDUCTIONS) if shape in (ROWS[0], COLUMNS[0]) else ("sum",):
                text = f"{kind.removeprefix('Reduce').lower()} {shape[0]}x{shape[1]} axis {axis}"
                yield built(text, _reduced, kind, shape, axis)
    yield built("softmax 16x333x20 axis 1", _along_rows, "Softmax", (16, 333, 20))
    yield built("sum of 32x64x49 over 0 and 2", _reduced, "sum", (32, 64, 49), (0, 2))
    yield built("mean of everything 300x1000", _reduced, "ReduceMean", (300, 1000), (0, 1))
    yield built("instance norm 2x32x40x40", _instance_norm, (2, 32, 40, 40))
    yield built("batch statistics 8x32x28x28", _batch_statistics)
    yield built("exp, sum, division 64x500", _written_softmax)


def _along_rows(
    m: Model, kind: str, shape: tuple[int, ...], axis: int = 1, dtype: Any = np.float32
) -> str:
    return m.node(kind, m.given(m.random.standard_normal(shape).astype(dtype)), axis=axis)


def _instance_norm(m: Model, shape: tuple[int, ...]) -> str:
    channels = shape[1]
    return m.node("InstanceNormalization", m.input(*shape), m.normal(channels), m.normal(channels))


def _layer_norm(m: Model, shape: tuple[int, ...]) -> str:
    return m.node(
        "LayerNormalization", m.input(*shape), m.normal(shape[-1]), m.normal(shape[-1]), axis=-1
    )


def _reduced(m: Model, kind: str, shape: tuple[int, ...], axes: int | tuple[int, ...]) -> str:
    listed = [axes] if isinstance(axes, int) else [*axes]
    x = m.input(*shape, positive=True)
    if kind in ("sum", "ReduceSum"):
        return m.node("ReduceSum", x, m.weight(np.array(listed)), keepdims=0)
    return m.node(kind, x, axes=listed, keepdims=0)


def _batch_statistics(m: Model) -> str:
    x = m.input(8, 32, 28, 28)
    mean = m.node("ReduceMean", x, axes=[0, 2, 3], keepdims=1)
    away = m.node("Sub", x, mean)
    square = m.node("ReduceMean", m.node("Mul", away, away), axes=[0, 2, 3], keepdims=1)
    return m.node("Div", away, m.node("Sqrt", m.node("Add", square, m.weight(np.float32(1e-5)))))


def _written_softmax(m: Model) -> str:
    x = m.input(64, 500)
    powers = m.node("Exp", m.node("Sub", x, m.node("ReduceMax", x, axes=[1], keepdims=1)))
    total = m.node("ReduceSum", powers, m.weight(np.array([1])), keepdims=1)
    return m.node("Div", powers, total)


# fmt: off
SHORT_ROWS: Final = ((10000, 7), (10001, 7), (333, 12), (500, 15), (3, 40, 5), (64, 64, 4), (20, 5))
FEW_COLUMNS: Final = ((1, 1000, 5), (8, 333, 3), (100, 32, 2), (2, 999, 13), (4, 500, 8),
                      (30, 47, 15))
# fmt: on


def short_rows(seed: int, count: int) -> Iterator[Case]:
    """Rows that fill no vector: softmax, norms, functions of their elements; some are drawn."""
    draw = np.random.default_rng(seed)
    shapes: list[tuple[int, ...]] = [*SHORT_ROWS]
    for _ in range(count):
        shapes.append((int(draw.integers(16, 5000)), int(draw.integers(4, 16))))
    for shape in shapes:
        text = "x".join(map(str, shape))
        yield built(f"softmax {text}", _along_rows, "Softmax", shape, -1)
        yield built(f"log softmax {text}", _along_rows, "LogSoftmax", shape, -1)
        yield built(f"layer norm {text}", _layer_norm, shape)
        for kind in ("Tanh", "Sigmoid", "Exp", "Softplus"):
            name = f"{kind.lower()} of scaled"
            yield built(f"{name} rows {text}", _function_of_rows, kind, shape, (*shape[:-1], 1))
            yield built(f"{name} columns {text}", _function_of_rows, kind, shape, shape[-1:])


def few_columns(seed: int, count: int) -> Iterator[Case]:
    """Rows before few columns in stages: softmax and norms along the axis before the last."""
    draw = np.random.default_rng(seed)
    shapes: list[tuple[int, ...]] = [*FEW_COLUMNS]
    for _ in range(count):
        ends = ((1, 20), (32, 600), (2, 16))
        shapes.append(tuple(int(draw.integers(*each)) for each in ends))
    for shape in shapes:
        for dtype in (np.float32, np.float64) if shape in FEW_COLUMNS[:2] else (np.float32,):
            text = f"{'x'.join(map(str, shape))} {np.dtype(dtype).name}"
            yield built(f"softmax {text} axis 1", _along_rows, "Softmax", shape, 1, dtype)
            yield built(f"norm {text} axis 1", _normed, shape, dtype)


def _function_of_rows(m: Model, kind: str, shape: tuple[int, ...], other: tuple[int, ...]) -> str:
    return m.node(kind, m.node("Mul", m.input(*shape), m.input(*other)))


def _normed(m: Model, shape: tuple[int, ...], dtype: Any) -> str:
    x = m.given(m.random.standard_normal(shape).astype(dtype))
    away = m.node("Sub", x, m.node("ReduceMean", x, axes=[1], keepdims=1))
    square = m.node("ReduceMean", m.node("Mul", away, away), axes=[1], keepdims=1)
    return m.node("Div", away, m.node("Sqrt", m.node("Add", square, m.weight(dtype(1e-5)))))


# fmt: off
WINOGRAD: Final = {  # batch, channels, outputs, height, width
    "C2":   (1, 64, 64, 56, 56),    "C6":   (1, 128, 128, 28, 28), "C9":   (1, 256, 256, 14, 14),
    "C12":  (1, 512, 512, 7, 7),    "odd2": (1, 30, 50, 30, 30),   "odd3": (1, 48, 80, 45, 61),
    "wide": (1, 16, 16, 112, 112),  "two":  (2, 64, 96, 28, 28),   "few":  (1, 20, 20, 13, 13),
}
# fmt: on


def winograd(seed: int, count: int) -> Iterator[Case]:
    """Convolutions with windows of 3x3 and stride 1: ResNet's layers, odd ones, drawn ones."""
    layers = dict(WINOGRAD)
    draw = np.random.default_rng(seed)
    for number in range(count):
        channels, outputs = (int(draw.integers(8, 160)) for _ in range(2))
        height, width = (int(draw.integers(7, 64)) for _ in range(2))
        layers[f"drawn{number}"] = (int(draw.choice([1, 1, 2])), channels, outputs, height, width)
    for name, sizes in layers.items():
        text = f"{name} {'x'.join(map(str, sizes))}"
        yield built(text, _convolution, sizes)


def _convolution(m: Model, sizes: tuple[int, ...]) -> str:
    n, channels, outputs, height, width = sizes
    weight, bias = m.normal(outputs, channels, 3, 3), m.normal(outputs)
    made = m.node("Conv", m.input(n, channels, height, width), weight, bias, pads=[1] * 4)
    return m.node("Relu", made)


# fmt: off
LAYERS: Final = {  # channels, outputs, side, window, stride, groups
    "C1": (3, 64, 224, 7, 2, 1),   "C3": (64, 64, 56, 1, 1, 1),    "C4": (64, 128, 56, 3, 2, 1),
    "C5": (64, 128, 56, 1, 2, 1),  "C7": (128, 256, 28, 3, 2, 1),  "C11": (256, 512, 14, 1, 2, 1),
    "odd1": (17, 23, 31, 5, 1, 1), "D1": (32, 32, 112, 3, 1, 32),  "D2": (64, 64, 112, 3, 2, 64),
    "D5": (256, 256, 28, 3, 1, 256), "D8": (512, 512, 14, 3, 2, 512),
}
PRODUCTS: Final = ((512, 512, 512), (127, 131, 129), (256, 256, 7), (33, 768, 768), (1, 768, 3072))
# fmt: on


def contractions(seed: int, count: int) -> Iterator[Case]:
    """Products, strided, pointwise and depthwise convolutions; convolutions that are drawn."""
    for m_n_k in PRODUCTS:
        yield built(f"product {'x'.join(map(str, m_n_k))}", _product, *m_n_k)
    layers, draw = dict(LAYERS), np.random.default_rng(seed)
    for number in range(count):
        channels, outputs, side = (
            int(draw.integers(*ends)) for ends in ((5, 90), (9, 120), (9, 60))
        )
        window, stride = int(draw.choice([3, 3, 5])), int(draw.choice([1, 1, 2]))
        layers[f"drawn{number}"] = (channels, outputs, side, window, stride, 1)
    for name, sizes in layers.items():
        yield built(f"{name} {'x'.join(map(str, sizes))}", _layer, sizes)


def _product(m: Model, rows: int, depth: int, columns: int) -> str:
    return m.node("MatMul", m.input(rows, depth), m.normal(depth, columns))


def _layer(m: Model, sizes: tuple[int, ...]) -> str:
    channels, outputs, side, window, stride, groups = sizes
    x = m.input(1, channels, side, side)
    return m.node("Relu", _conv(m, x, (channels, outputs, window), stride, groups))


def scans(seed: int, count: int) -> Iterator[Case]:
    """Prefix sums along rows, columns and inner axes."""
    along = (((64, 1000), 1), ((1000, 64), 0), ((8, 20000), 1), ((1, 100000), 1), ((3000, 17), 1),
             ((20000,), 0), ((16, 200, 33), 1), ((333, 5), 0))  # fmt: skip
    for shape, axis in along:
        text = f"{'x'.join(map(str, shape))} axis {axis}"
        yield built(f"cumsum {text}", _scan, shape, axis)
    yield built("cumsum exclusive 64x1000", _scan, (64, 1000), 1, "exclusive")
    yield built("cumsum reversed 64x1000", _scan, (64, 1000), 1, "reverse")
    yield built("cumsum i32 64x1000", _scan, (64, 1000), 1, "", np.int32)
    yield built("cumsum of a product, scaled 64x777", _scan_in_chain)
    yield built("share of the total so far 64x500", _running_share)


def _scan(
    m: Model, shape: tuple[int, ...], axis: int, flag: str = "", dtype: Any = np.float32
) -> str:
    x = m.given(m.random.standard_normal(shape).astype(dtype))
    return m.node("CumSum", x, m.weight(np.array(axis)), **({flag: 1} if flag else {}))


def _scan_in_chain(m: Model) -> str:
    x, y = m.input(64, 777), m.input(64, 777)
    total = m.node("CumSum", m.node("Mul", x, y), m.weight(np.array(1)))
    return m.node("Mul", total, m.normal(777))


def _running_share(m: Model) -> str:
    x = m.input(64, 500, positive=True)
    total = m.node("ReduceSum", x, m.weight(np.array([1])), keepdims=1)
    return m.node("Div", m.node("CumSum", x, m.weight(np.array(1))), total)


# fmt: off
SCATTERS: Final = (  # rows, width, terms, how they are joined
    (1000, 64, 500, "none"), (1000, 64, 500, "add"), (64, 7, 40, "none"), (5000, 1, 3000, "add"),
    (30, 1000, 12, "max"), (200, 333, 100, "none"),
)
RANKS: Final = (  # shape, axis, how many are kept
    ((64, 1000), 1, 5), ((64, 1000), 1, 1), ((1, 50257), 1, 40), ((200, 300), 1, 20),
    ((1000, 64), 0, 2), ((8, 100, 33), 1, 4), ((16, 40), 1, 10), ((300, 5), 0, 3),
)
DOTS: Final = ((13, 117, 983), (1, 500, 300), (40, 40, 1000), (64, 64, 64), (7, 300, 4000))
# fmt: on


def places(seed: int, count: int) -> Iterator[Case]:
    """Scatters, first places in order, sorted rows, products of sides along their terms."""
    for rows, width, terms, kind in SCATTERS:
        text = f"{kind} {terms} of {rows}x{width}"
        yield built(f"scatter rows {text}", _scattered_rows, rows, width, terms, kind)
        yield built(f"scatter elements {text}", _scattered_elements, rows, width, terms, kind)
        yield built(f"open scatter {text}", _scattered_rows, rows, width, terms, kind, opened="nk")
    for shape, axis, kept in RANKS:
        text = f"{kept} of {'x'.join(map(str, shape))} axis {axis}"
        yield built(f"top {text}", _first_of, shape, axis, kept)
    for shape in ((16, 1000), (1, 5000)):
        yield built(f"sorted {'x'.join(map(str, shape))}", _first_of, shape, 1, shape[1])
    for rows, columns, depth in DOTS:
        yield built(f"dots {rows}x{columns}x{depth}", _dots, rows, columns, depth)


def _scattered_rows(m: Model, rows: int, width: int, terms: int, kind: str) -> str:
    x, at = m.input(rows, width, axes="n"), m.random.integers(0, rows, (terms, 1))
    updates = m.input(terms, width, axes="k")
    return m.node("ScatterND", x, m.given(at, "k"), updates, reduction=kind)


def _scattered_elements(m: Model, rows: int, width: int, terms: int, kind: str) -> str:
    x, at = m.input(rows, width), m.random.integers(0, rows, (terms, width))
    return m.node("ScatterElements", x, m.given(at), m.input(terms, width), axis=0, reduction=kind)


def _first_of(m: Model, shape: tuple[int, ...], axis: int, kept: int) -> str:
    values, _ = m.several("TopK", m.input(*shape), m.weight(np.array([kept])), outputs=2, axis=axis)
    return values


def _dots(m: Model, rows: int, columns: int, depth: int) -> str:
    turned = m.node("Transpose", m.input(columns, depth), perm=[1, 0])
    return m.node("MatMul", m.input(rows, depth), turned)


# fmt: off
TRANSPOSES: Final = (
    ((1024, 1024), (1, 0)), ((1000, 333), (1, 0)), ((64, 77, 64), (0, 2, 1)),
    ((8, 197, 12, 64), (0, 2, 1, 3)), ((8, 12, 197, 64), (0, 1, 3, 2)),
    ((1, 64, 56, 56), (0, 2, 3, 1)), ((1, 56, 56, 64), (0, 3, 1, 2)),
    ((40, 30, 20, 10), (3, 2, 1, 0)), ((100, 7, 333), (1, 0, 2)),
    ((16, 3, 224, 224), (0, 2, 3, 1)), ((5, 2000), (1, 0)), ((2000, 3), (1, 0)),
)
# fmt: on


def transposes(seed: int, count: int) -> Iterator[Case]:
    """Transposes of f32, bytes and halves."""
    for shape, perm in TRANSPOSES:
        for dtype in (np.float32, np.uint8, np.float16):
            if dtype is not np.float32 and len(shape) > 3:
                continue
            text = f"{np.dtype(dtype).name} {'x'.join(map(str, shape))} {perm}"
            yield built(text, _transpose, shape, perm, dtype)


def _transpose(m: Model, shape: tuple[int, ...], perm: tuple[int, ...], dtype: Any) -> str:
    x = m.given(m.random.integers(0, 100, shape).astype(dtype))
    return m.node("Transpose", x, perm=[*perm])


def open_sizes(seed: int, count: int) -> Iterator[Case]:
    """Models whose sizes come with the call, each at sizes drawn by the seed."""
    draw = np.random.default_rng(seed)
    for number in range(max(1, count)):
        rows, length, side = (int(draw.integers(*ends)) for ends in ((1, 130), (3, 160), (40, 160)))
        sized: tuple[tuple[str, str, Callable[..., str], int], ...] = (
            ("perceptron", "n", _perceptron, rows),
            ("block", "l", _block, length),
            ("separable", "hw", _separable, side),
            ("residual", "hw", _residual, side),
            ("speech", "t", _speech, 4 * length),
            ("rows", "n", lambda m, n: m.node("Softmax", m.input(n, 1000, axes="n")), rows),
            ("columns", "n", lambda m, n: m.node(
                "ReduceMean", m.input(n, 64, axes="n"), axes=[0], keepdims=0), 40 * rows),
            ("row length", "n", _layer_norm_open, 9 * length),
            ("totals", "n", lambda m, n: m.node(
                "CumSum", m.input(64, n, axes=".n"), m.weight(np.array(1))), 9 * length),
            ("transpose", "n", lambda m, n: m.node(
                "Transpose", m.input(n, 300, axes="n"), perm=[1, 0]), 4 * length),
        )  # fmt: skip
        for name, opened, build, size in sized:
            yield built(f"open {name} {number}: {opened} {size}", build, size, opened=opened)


def _dense(m: Model, x: str, inputs: int, outputs: int) -> str:
    return m.node("Add", m.node("MatMul", x, m.normal(inputs, outputs)), m.normal(outputs))


def _perceptron(m: Model, rows: int) -> str:
    y = m.node("Relu", _dense(m, m.input(rows, 300, axes="n"), 300, 512))
    y = m.node("LayerNormalization", y, m.normal(512), m.normal(512), axis=-1)
    return m.node("Softmax", _dense(m, m.node("Tanh", _dense(m, y, 512, 512)), 512, 20))


def _block(m: Model, length: int, width: int = 256, heads: int = 4) -> str:
    x = m.input(1, length, width, axes=".l")
    sizes = m.weight(np.array([0, 0, heads, width // heads]))

    def split(perm: list[int]) -> str:
        return m.node("Transpose", m.node("Reshape", _dense(m, x, width, width), sizes), perm=perm)

    scores = m.node("MatMul", split([0, 2, 1, 3]), split([0, 2, 3, 1]))
    scores = m.node("Softmax", m.node("Mul", scores, m.weight(np.float32(0.125))), axis=-1)
    mixed = m.node("Transpose", m.node("MatMul", scores, split([0, 2, 1, 3])), perm=[0, 2, 1, 3])
    mixed = m.node("Reshape", mixed, m.weight(np.array([0, 0, width])))
    y = m.node("Add", x, _dense(m, mixed, width, width))
    y = m.node("LayerNormalization", y, m.normal(width), m.normal(width), axis=-1)
    return m.node(
        "Add", y, _dense(m, m.node("Relu", _dense(m, y, width, 4 * width)), 4 * width, width)
    )


def _conv(m: Model, x: str, sizes: tuple[int, int, int], stride: int = 1, group: int = 1) -> str:
    inputs, outputs, window = sizes
    weight = m.normal(outputs, inputs // group, window, window)
    return m.node(
        "Conv", x, weight, m.normal(outputs), pads=[window // 2] * 4, strides=[stride] * 2,
        group=group,
    )  # fmt: skip


def _separable(m: Model, side: int) -> str:
    y = m.node("Relu", _conv(m, m.input(1, 3, side, side + 9, axes="..hw"), (3, 16, 3), 2))
    for channels, outputs, stride in ((16, 32, 2), (32, 64, 1), (64, 64, 2), (64, 128, 1)):
        y = m.node("Relu", _conv(m, y, (channels, channels, 3), stride, channels))
        y = m.node("Relu", _conv(m, y, (channels, outputs, 1)))
    return y


def _residual(m: Model, side: int) -> str:
    y = m.node("Relu", _conv(m, m.input(1, 3, side, side + 9, axes="..hw"), (3, 32, 7), 2))
    y = m.node("MaxPool", y, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    for channels, outputs, stride in ((32, 32, 1), (32, 64, 2), (64, 64, 1)):
        z = m.node("Relu", _conv(m, y, (channels, outputs, 3), stride))
        z = _conv(m, z, (outputs, outputs, 3))
        if channels != outputs:
            y = _conv(m, y, (channels, outputs, 1), stride)
        y = m.node("Relu", m.node("Add", y, z))
    return m.node("ReduceMean", y, axes=[2, 3], keepdims=0)


def _speech(m: Model, length: int) -> str:
    y = m.input(1, 40, length, axes="..t")
    for channels, outputs in ((40, 64), (64, 64), (64, 32)):
        y = m.node("Relu", m.node("Conv", y, m.normal(outputs, channels, 5), pads=[2, 2]))
    return m.node("Softmax", y, axis=1)


def _layer_norm_open(m: Model, length: int) -> str:
    x = m.input(64, length, axes=".n")
    away = m.node("Sub", x, m.node("ReduceMean", x, axes=[1], keepdims=1))
    square = m.node("ReduceMean", m.node("Mul", away, away), axes=[1], keepdims=1)
    return m.node("Div", away, m.node("Sqrt", m.node("Add", square, m.weight(np.float32(1e-5)))))


KINDS: Final[dict[str, Callable[[int, int], Iterator[Case]]]] = {
    "operators": operators, "models": models, "folds": folds, "winograd": winograd,
    "contractions": contractions, "scans": scans, "transposes": transposes, "open": open_sizes,
    "short-rows": short_rows, "few-columns": few_columns, "places": places,
}  # fmt: skip
"""What `--cases` chooses from; count is how many are drawn."""

COUNTS: Final = {"operators": 60, "open": 2}
"""How many are drawn unless the caller says."""


def cases(kind: str, seed: int, count: int | None) -> Iterator[Case]:
    """All cases of a kind, or of all kinds."""
    for each in KINDS if kind == "all" else (kind,):
        yield from KINDS[each](seed, COUNTS.get(each, 0) if count is None else count)
