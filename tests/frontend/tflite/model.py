"""Twenty models of TFLite, by name: what networks and what rows of the table need."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.frontend.tflite.build import Builder, options

SAME, VALID = 0, 1
RELU, RELU1, RELU6 = 1, 2, 3


def conv(  # noqa: PLR0917  # what a convolution is made of
    b: Builder, x: int, shape: tuple[int, ...], weight: tuple[int, ...], stride: int = 1,
    padding: int = SAME, act: int = 0, dilation: int = 1,
) -> int:  # fmt: skip
    how = options("Conv2D", padding=padding, strideH=stride, strideW=stride,
                  fusedActivationFunction=act, dilationHFactor=dilation,
                  dilationWFactor=dilation)  # fmt: skip
    args = [x, b.weight(*weight), b.weight(weight[0])]
    return int(b.op("CONV_2D", args, shape, options=how))


def depthwise(  # noqa: PLR0917  # as above
    b: Builder, x: int, shape: tuple[int, ...], weight: tuple[int, ...], stride: int = 1,
    many: int = 1,
) -> int:  # fmt: skip
    how = options("DepthwiseConv2D", padding=SAME, strideH=stride, strideW=stride,
                  depthMultiplier=many, fusedActivationFunction=RELU6, dilationHFactor=1,
                  dilationWFactor=1)  # fmt: skip
    args = [x, b.weight(*weight), b.weight(weight[3])]
    return int(b.op("DEPTHWISE_CONV_2D", args, shape, options=how))


def dense(b: Builder, x: int, shape: tuple[int, ...], size: int, act: int = 0) -> int:
    how = options("FullyConnected", fusedActivationFunction=act, keepNumDims=len(shape) > 2)
    args = [x, b.weight(shape[-1], size), b.weight(shape[-1])]
    return int(b.op("FULLY_CONNECTED", args, shape, options=how))


def pool(b: Builder, kind: str, x: int, shape: tuple[int, ...], padding: int) -> int:
    how = options("Pool2D", padding=padding, strideH=2, strideW=2, filterHeight=3, filterWidth=3)
    return int(b.op(kind, [x], shape, options=how))


def add(b: Builder, x: int, y: int, shape: tuple[int, ...], act: int = 0) -> int:
    return int(b.op("ADD", [x, y], shape, options=options("Add", fusedActivationFunction=act)))


def mlp(b: Builder) -> list[int]:
    x = dense(b, b.input(3, 8), (3, 16), 8, RELU)
    x = dense(b, dense(b, x, (3, 16), 16, RELU1), (3, 5), 16)
    return [b.op("SOFTMAX", [x], (3, 5), options=options("Softmax", beta=1.5))]


def convolutions(b: Builder) -> list[int]:
    x = conv(b, b.input(1, 15, 13, 3), (1, 8, 7, 8), (8, 3, 3, 3), 2, act=RELU6)
    x = pool(b, "MAX_POOL_2D", x, (1, 4, 4, 8), SAME)
    x = conv(b, x, (1, 2, 2, 4), (4, 3, 3, 8), padding=VALID, act=RELU)
    x = b.op("RESHAPE", [x, b.constant([1, 16])], (1, 16))
    return [dense(b, x, (1, 10), 16)]


def dilated(b: Builder) -> list[int]:
    x = conv(b, b.input(2, 9, 9, 4), (2, 9, 9, 4), (4, 3, 3, 4), dilation=2, act=RELU1)
    return [conv(b, x, (2, 5, 5, 2), (2, 3, 3, 4), dilation=2, padding=VALID)]


def grouped(b: Builder) -> list[int]:
    return [conv(b, b.input(1, 6, 6, 4), (1, 6, 6, 8), (8, 3, 3, 2))]


def mobile(b: Builder) -> list[int]:
    x = conv(b, b.input(1, 16, 16, 3), (1, 8, 8, 8), (8, 3, 3, 3), 2, act=RELU6)
    y = depthwise(b, x, (1, 8, 8, 8), (1, 3, 3, 8))
    y = conv(b, y, (1, 8, 8, 8), (8, 1, 1, 8))
    z = add(b, x, y, (1, 8, 8, 8))
    z = depthwise(b, z, (1, 4, 4, 16), (1, 5, 5, 16), 2, many=2)
    z = b.op("MEAN", [z, b.constant([1, 2])], (1, 16), options=options("Reducer", keepDims=False))
    return [dense(b, z, (1, 4), 16)]


def residual(b: Builder) -> list[int]:
    x = b.input(2, 8, 8, 4)
    y = conv(b, x, (2, 8, 8, 4), (4, 3, 3, 4), act=RELU)
    x = add(b, x, conv(b, y, (2, 8, 8, 4), (4, 3, 3, 4)), (2, 8, 8, 4), RELU)
    return [pool(b, "AVERAGE_POOL_2D", x, (2, 4, 4, 4), SAME), x]


def pools(b: Builder) -> list[int]:
    x = b.input(2, 9, 11, 3)
    return [pool(b, kind, x, shape, padding) for kind in ("AVERAGE_POOL_2D", "MAX_POOL_2D")
            for padding, shape in ((SAME, (2, 5, 6, 3)), (VALID, (2, 4, 5, 3)))]  # fmt: skip


def attention(b: Builder) -> list[int]:
    x, parts = b.input(1, 6, 8), []
    for _ in range(3):
        y = dense(b, x, (1, 6, 8), 8)
        y = b.op("RESHAPE", [y, b.constant([1, 6, 2, 4])], (1, 6, 2, 4))
        parts.append(b.op("TRANSPOSE", [y, b.constant([0, 2, 1, 3])], (1, 2, 6, 4)))
    q, k, v = parts
    s = b.op("BATCH_MATMUL", [q, k], (1, 2, 6, 6), options=options("BatchMatMul", adjY=True))
    s = b.op("MUL", [s, b.constant(0.5, "float32")], (1, 2, 6, 6), options=options("Mul"))
    s = b.op("SOFTMAX", [s], (1, 2, 6, 6), options=options("Softmax", beta=1.0))
    y = b.op("BATCH_MATMUL", [s, v], (1, 2, 6, 4), options=options("BatchMatMul"))
    y = b.op("TRANSPOSE", [y, b.constant([0, 2, 1, 3])], (1, 6, 2, 4))
    return [b.op("RESHAPE", [y, b.constant([1, 6, 8])], (1, 6, 8))]


def norm(b: Builder) -> list[int]:
    x, keep = b.input(4, 16), options("Reducer", keepDims=True)
    mean = b.op("MEAN", [x, b.constant([1])], (4, 1), options=keep)
    var = b.op("SQUARED_DIFFERENCE", [x, mean], (4, 16))
    var = b.op("MEAN", [var, b.constant([-1])], (4, 1), options=keep)
    scale = b.op("RSQRT", [add(b, var, b.constant(1e-5, "float32"), (4, 1))], (4, 1))
    y = b.op("SUB", [x, mean], (4, 16), options=options("Sub"))
    y = b.op("MUL", [y, scale], (4, 16), options=options("Mul", fusedActivationFunction=RELU))
    return [y, b.op("L2_NORMALIZATION", [x], (4, 16), options=options("L2Norm"))]


UNARY = ("ABS", "NEG", "FLOOR", "CEIL", "ROUND", "EXP", "SIN", "COS", "SQUARE", "LOGISTIC", "TANH",
         "RELU", "RELU6", "RELU_N1_TO_1", "ELU", "HARD_SWISH", "SIGN", "ZEROS_LIKE",
         "LOG_SOFTMAX")  # fmt: skip


def unary(b: Builder) -> list[int]:
    x = b.input(3, 7)
    return [b.op(each, [x], (3, 7)) for each in UNARY]


def positive(b: Builder) -> list[int]:
    x = b.op("EXP", [b.input(3, 7)], (3, 7))
    return [b.op(each, [x], (3, 7)) for each in ("LOG", "SQRT", "RSQRT")]


def activations(b: Builder) -> list[int]:
    x = b.input(2, 3, 3, 4)
    return [
        b.op("PRELU", [x, b.weight(1, 1, 4)], (2, 3, 3, 4)),
        b.op("LEAKY_RELU", [x], (2, 3, 3, 4), options=options("LeakyRelu", alpha=0.2)),
        b.op("GELU", [x], (2, 3, 3, 4), options=options("Gelu", approximate=False)),
        b.op("GELU", [x], (2, 3, 3, 4), options=options("Gelu", approximate=True)),
    ]


def binary(b: Builder) -> list[int]:
    x, y = b.input(2, 3, 4), b.input(3, 1)
    found = [b.op(each, [x, y], (2, 3, 4)) for each in ("MAXIMUM", "MINIMUM")]
    found.append(b.op("DIV", [x, y], (2, 3, 4), options=options("Div")))
    positive = b.op("EXP", [x], (2, 3, 4))
    return [*found, b.op("POW", [positive, y], (2, 3, 4))]


def comparisons(b: Builder) -> list[int]:
    x, y = b.input(2, 3), b.input(2, 3)
    names = ("LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL", "EQUAL", "NOT_EQUAL")
    found = [b.op(each, [x, y], (2, 3), dtype="bool") for each in names]
    both = b.op("LOGICAL_AND", [found[0], found[5]], (2, 3), dtype="bool")
    other = b.op("LOGICAL_OR", [found[2], found[4]], (2, 3), dtype="bool")
    none = b.op("LOGICAL_NOT", [both], (2, 3), dtype="bool")
    chosen = b.op("SELECT_V2", [both, x, y], (2, 3))
    return [*found, both, other, none, chosen, b.op("SELECT", [other, y, x], (2, 3))]


def reductions(b: Builder) -> list[int]:
    x, axes = b.input(2, 3, 4), b.constant([0, -1])
    found = []
    for each in ("SUM", "MEAN", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD"):
        found.append(b.op(each, [x, axes], (3,), options=options("Reducer", keepDims=False)))
        found.append(b.op(each, [x, axes], (1, 3, 1), options=options("Reducer", keepDims=True)))
    for each in ("ARG_MAX", "ARG_MIN"):
        kind = options("ArgMax" if each == "ARG_MAX" else "ArgMin", outputType=2)
        found.append(b.op(each, [x, b.constant([1])], (2, 4), dtype="int32", options=kind))
    return found


def slices(b: Builder) -> list[int]:
    x = b.input(4, 6, 5)
    found = [b.op("SLICE", [x, b.constant([1, 0, 2]), b.constant([2, -1, 3])], (2, 6, 3))]
    for begin, end, step, masks, shape in (
        ([0, 1, 0], [4, 6, 5], [2, 2, 1], {}, (2, 3, 5)),
        ([1, 5, -1], [0, 0, -6], [1, -2, -1], {"endMask": 1}, (3, 3, 5)),
        ([1, 0, -1], [2, 3, 0], [1, 1, 1], {"shrinkAxisMask": 5, "beginMask": 2}, (3,)),
    ):
        args = [x, *map(b.constant, (begin, end, step))]
        found.append(b.op("STRIDED_SLICE", args, shape, options=options("StridedSlice", **masks)))
    return found


def parts(b: Builder) -> list[int]:
    x = b.input(4, 6)
    left, right = b.op("SPLIT", [b.constant(1), x], (4, 3), (4, 3),
                       options=options("Split", numSplits=2))  # fmt: skip
    joined = b.op("CONCATENATION", [right, x, left], (4, 12),
                  options=options("Concatenation", axis=-1)
                  )  # fmt: skip
    packed = b.op("PACK", [left, right], (4, 2, 3), options=options("Pack", valuesCount=2, axis=1))
    rows = b.op("UNPACK", [packed], *[(2, 3)] * 4, options=options("Unpack", num=4, axis=0))
    return [joined, packed, *rows]


def layout(b: Builder) -> list[int]:
    x = b.input(1, 4, 4, 4)
    return [
        b.op("DEPTH_TO_SPACE", [x], (1, 8, 8, 1), options=options("DepthToSpace", blockSize=2)),
        b.op("SPACE_TO_DEPTH", [x], (1, 2, 2, 16), options=options("SpaceToDepth", blockSize=2)),
        b.op("SQUEEZE", [x], (4, 4, 4), options=options("Squeeze", squeezeDims=[0])),
        b.op("EXPAND_DIMS", [x, b.constant(2)], (1, 4, 1, 4, 4)),
        b.op("TILE", [x, b.constant([2, 1, 1, 2])], (2, 4, 4, 8)),
        b.op("REVERSE_V2", [x, b.constant([1])], (1, 4, 4, 4)),
        b.op("PAD", [x, b.constant([[0, 0], [1, 2], [0, 1], [0, 0]])], (1, 7, 5, 4)),
        b.op("BATCH_TO_SPACE_ND", [
            b.op("SPACE_TO_BATCH_ND", [x, b.constant([2, 2]), b.constant([[1, 1], [0, 2]])],
                 (4, 3, 3, 4)),
            b.constant([2, 2]), b.constant([[1, 0], [0, 1]]),
        ], (1, 5, 5, 4)),
        b.op("PADV2", [x, b.constant([[0, 0], [1, 2], [0, 1], [0, 0]]),
                       b.constant(-3.5, "float32")], (1, 7, 5, 4)),
        b.op("BROADCAST_TO", [x, b.constant([3, 4, 4, 4])], (3, 4, 4, 4)),
    ]  # fmt: skip


def gathered(b: Builder) -> list[int]:
    x, at = b.input(5, 4), b.constant(np.array([[3, 0], [4, 1]]))
    found = b.op("GATHER", [x, at], (2, 2, 4), options=options("Gather", axis=0))
    other = b.op("GATHER", [x, b.constant([2, 2, 0])], (5, 3), options=options("Gather", axis=1))
    whole = b.op("CAST", [x], (5, 4), dtype="int32", options=options("Cast"))
    return [found, other, whole, b.op("CAST", [whole], (5, 4), options=options("Cast"))]


def half(b: Builder) -> list[int]:
    x = b.input(2, 6)
    w = b.constant(b.draw.normal(0, 0.4, (4, 6)), "float16")
    wide = b.op("DEQUANTIZE", [w], (4, 6))
    how = options("FullyConnected")
    return [b.op("FULLY_CONNECTED", [x, wide, -1], (2, 4), options=how)]


MODELS: dict[str, Callable[[Builder], list[int]]] = {
    each.__name__: each
    for each in (
        mlp, convolutions, dilated, grouped, mobile, residual, pools, attention, norm, unary,
        positive, activations, binary, comparisons, reductions, slices, parts, layout, gathered,
        half,
    )
}  # fmt: skip
