"""Random models against onnxruntime: the same numbers, and no crash."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from hypothesis import given, settings, strategies as st
from onnx import helper

from tests.frontend.onnx.build import Array, agrees, model

UNARY = [
    "Relu", "Abs", "Neg", "Sigmoid", "Tanh", "Exp", "Erf", "Softplus", "Softsign", "Floor", "Ceil",
    "Round", "Sign", "Sin", "Cos", "Elu", "Selu", "LeakyRelu", "HardSigmoid", "HardSwish",
    "Identity", "Mish",
]  # fmt: skip
BINARY = ["Add", "Sub", "Mul", "Max", "Min"]
REDUCE = ["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceSumSquare"]


@st.composite
def models(draw: st.DrawFn) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """A model of one to eight nodes over one or two inputs, and values for them."""
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    inputs = {"x": random.normal(size=shape).astype(np.float32)}
    if draw(st.booleans()):
        other = tuple(1 if draw(st.booleans()) else size for size in shape)
        inputs["z"] = random.normal(size=other).astype(np.float32)
    shapes: dict[str, tuple[int, ...]] = {name: each.shape for name, each in inputs.items()}
    stored: dict[str, Array] = {}
    nodes: list[onnx.NodeProto] = []

    def constant(array: Any) -> str:
        name = f"c{len(stored)}"
        stored[name] = np.asarray(array)
        return name

    for number in range(draw(st.integers(1, 8))):
        x = draw(st.sampled_from(sorted(shapes)))
        of, out = shapes[x], f"v{number}"
        attrs: dict[str, Any] = {}
        axis = draw(st.integers(-len(of), len(of) - 1)) if of else 0
        names = [x]
        kinds = ["unary", "binary", "cast"]
        kinds += ["reduce", "transpose", "softmax", "slice", "pad", "concat", "gather",
                  "reshape", "unsqueeze", "split", "where"] if of else []  # fmt: skip
        match draw(st.sampled_from(kinds)):
            case "unary":
                kind, made = draw(st.sampled_from(UNARY)), of
            case "binary":
                kind = draw(st.sampled_from(BINARY))
                fitting = [y for y in sorted(shapes) if _broadcast(of, shapes[y]) is not None]
                y = draw(st.sampled_from(fitting))
                names.append(y)
                made = _broadcast(of, shapes[y]) or ()
            case "cast":
                names = [out + "i"]
                nodes.append(helper.make_node("Cast", [x], names, to=onnx.TensorProto.INT32))
                kind, made, attrs = "Cast", of, {"to": onnx.TensorProto.FLOAT}
            case "reduce":
                kind = draw(st.sampled_from(REDUCE))
                keep = draw(st.booleans())
                names.append(constant(np.asarray([axis])))
                attrs = {"keepdims": int(keep)}
                at = axis % len(of)
                made = (*of[:at], *((1,) if keep else ()), *of[at + 1 :])
            case "transpose":
                perm = draw(st.permutations(range(len(of))))
                kind, made, attrs = "Transpose", tuple(of[p] for p in perm), {"perm": perm}
            case "softmax":
                kind, made, attrs = "Softmax", of, {"axis": axis}
            case "slice":
                start, stop = (draw(st.integers(-5, 5)) for _ in range(2))
                step = draw(st.sampled_from([-2, -1, 1, 2]))
                length = len(range(*slice(start, stop, step).indices(of[axis])))
                if not length:
                    continue
                kind = "Slice"
                names += [constant(np.asarray([each])) for each in (start, stop, axis, step)]
                made = _with(of, axis, length)
            case "pad":
                widths = [draw(st.integers(0, 2)) for _ in range(2 * len(of))]
                names += [constant(np.asarray(widths)), constant(np.float32(0.5))]
                pairs = zip(of, widths[: len(of)], widths[len(of) :], strict=True)
                kind, made = "Pad", tuple(a + b + c for a, b, c in pairs)
            case "concat":
                kind, names, attrs = "Concat", [x, x], {"axis": axis}
                made = _with(of, axis, 2 * of[axis])
            case "gather":
                chosen = [draw(st.integers(-of[axis], of[axis] - 1)) for _ in range(2)]
                names.append(constant(np.asarray(chosen)))
                kind, made, attrs = "Gather", _with(of, axis, 2), {"axis": axis}
            case "reshape":
                names.append(constant(np.asarray([0, -1])))
                kind, made = "Reshape", (of[0], int(np.prod(of[1:], dtype=int)))
            case "unsqueeze":
                names.append(constant(np.asarray([0])))
                kind, made = "Unsqueeze", (1, *of)
            case "split":
                kind, made, attrs = "Split", of, {"axis": axis, "num_outputs": 1}
            case _:
                nodes.append(helper.make_node("Greater", [x, constant(np.float32(0))], [out + "c"]))
                kind, made, names = "Where", of, [out + "c", x, constant(np.float32(2))]
        if int(np.prod(made, dtype=int)) > 512 or len(made) > 5:
            continue
        nodes.append(helper.make_node(kind, names, [out], name=out, **attrs))
        shapes[out] = made
    outputs = [name for name in shapes if name.startswith("v")] or ["x"]
    if outputs == ["x"]:
        nodes.append(helper.make_node("Identity", ["x"], ["y"]))
        outputs = ["y"]
    return model(nodes, inputs, outputs, stored, opset=20), inputs


def _with(of: tuple[int, ...], axis: int, size: int) -> tuple[int, ...]:
    at = axis % len(of)
    return (*of[:at], size, *of[at + 1 :])


def _broadcast(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...] | None:
    both = (1,) * (len(b) - len(a)) + a, (1,) * (len(a) - len(b)) + b
    if any(x != y and 1 not in (x, y) for x, y in zip(*both, strict=True)):
        return None
    return tuple(max(x, y) for x, y in zip(*both, strict=True))


@given(models())
@settings(max_examples=min(600, 2 * settings().max_examples))
def test_a_random_model_is_what_onnxruntime_says(case: tuple[onnx.ModelProto, Any]) -> None:
    made, given_ = case
    agrees(made, given_, rtol=1e-3)
