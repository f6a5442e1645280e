# ruff: noqa: E501  # rows of a table
"""Hostile models: small files that ask for more than any machine has, or break the format.

`python -m tests.frontend.onnx.hostile` reads each of them in this process, whose memory and time
are limited, and prints what becomes of it.
"""

from __future__ import annotations

import resource
import signal
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, helper

from plica.frontend.onnx import from_onnx
from plica.runtime.error import PlicaError
from tests.frontend.onnx.build import Array, f32_like, model, one

MEMORY: Final = 1 << 28
"""Bytes that may be allocated beyond those of the process before it reads the first model."""

SECONDS: Final = 10
"""Processor time for one model; each takes far less, but machines differ."""

X: Final = f32_like(2, 3)
IMAGE: Final = f32_like(1, 1, 4, 4)
HUGE: Final = 1 << 40
node = helper.make_node


def i64(*values: int) -> Array:
    return np.asarray(values, np.int64)


def stored(kind: str, arrays: Sequence[Any], **attrs: Any) -> ModelProto:
    """A model of one node, all of whose inputs are stored."""
    return one(kind, [np.asarray(each) for each in arrays], stored=len(arrays), **attrs)


def last(kind: str, arrays: Sequence[Any], constants: int, **attrs: Any) -> ModelProto:
    """A model of one node, the last of whose inputs are stored."""
    return one(kind, [np.asarray(each) for each in arrays], stored=constants, **attrs)


def ports(kind: str, shape: Sequence[int], inputs: int = 1, **attrs: Any) -> ModelProto:
    """A model of one node on inputs of an absurd shape."""
    names = [f"x{at}" for at in range(inputs)]
    return model(
        [node(kind, names, ["y"], **attrs)], dict.fromkeys(names, ("float32", shape)), ["y"]
    )


def chain(kind: str, length: int, given: bool, **attrs: Any) -> ModelProto:
    """Each node takes the one before twice: the sizes double."""
    nodes = [node(kind, [f"v{at}", f"v{at}"], [f"v{at + 1}"], **attrs) for at in range(length)]
    return model(nodes, {"v0": X} if given else {}, [f"v{length}"], None if given else {"v0": X})


def nested(depth: int) -> bytes:
    """Graphs inside of graphs, as bytes: the writer of the format stops at some depth itself."""
    inner = node("Relu", ["x"], ["d0"]).SerializeToString()
    for at in range(depth):
        graph = _field(1, inner) + _field(12, _named(f"d{at}").SerializeToString())
        branches = [_field(1, name) + _field(6, graph) + b"\xa0\x01\x05"  # of the type GRAPH
                    for name in (b"then_branch", b"else_branch")[: 2 if at == 0 else 1]]  # fmt: skip
        ports = _field(1, b"c") + _field(2, f"d{at + 1}".encode()) + _field(4, b"If")
        inner = ports + b"".join(_field(5, each) for each in branches)
    whole = model([], {"x": X, "c": np.asarray(True)}, [f"d{depth}"])
    start: bytes = whole.SerializeToString()
    return start + _field(7, _field(1, inner))  # graphs of one field are joined


def _field(number: int, data: bytes) -> bytes:
    """A field of the format that holds bytes."""
    length, size = b"", len(data)
    while size >= 128:
        length, size = length + bytes([size % 128 + 128]), size // 128
    return bytes([8 * number + 2]) + length + bytes([size]) + data


def doubling(levels: int) -> ModelProto:
    """Functions each of which calls the one before twice."""
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("mine", 1)]
    functions = []
    for level in range(levels):
        kind, domain = (f"f{level - 1}", "mine") if level else ("Relu", "")
        nodes = [node(kind, [a], [b], domain=domain) for a, b in ("am", "mb")]
        functions.append(helper.make_function("mine", f"f{level}", ["a"], ["b"], nodes, opsets))
    graph = model([node(f"f{levels - 1}", ["x"], ["y"], domain="mine")], {"x": X}, ["y"]).graph
    return helper.make_model(graph, functions=functions, opset_imports=opsets)


def loop(body: Sequence[NodeProto], turns: int) -> ModelProto:
    """A loop over a stored tensor."""
    infos = [helper.make_tensor_value_info(n, kind, shape)
             for n, kind, shape in (("i", 7, []), ("go", 9, []), ("a", 1, [2, 3]))]  # fmt: skip
    nodes = [node("Identity", ["go"], ["on"]), *body]
    graph = helper.make_graph(nodes, "b", infos, [_named("on"), _named("b")])
    made = [node("Loop", ["n", "", "x"], ["y"], body=graph)]
    return model(made, {}, ["y"], {"n": np.asarray(turns), "x": X})


def endless() -> ModelProto:
    """A shape that is known once a loop has ended."""
    made = loop([node("Relu", ["a"], ["b"])], 1 << 62)
    made.graph.node.extend([node("Cast", ["y"], ["s"], to=7), node("Expand", ["x", "s"], ["e"])])
    made.graph.output[0].name = "e"
    return made


def _named(name: str) -> onnx.ValueInfoProto:
    return onnx.ValueInfoProto(name=name)


def axes(count: int) -> ModelProto:
    made = one("Add", [X, X], stored=1)
    del made.graph.initializer[0].dims[:]
    made.graph.initializer[0].dims.extend([1] * count)
    return made


# fmt: off
CASES: Final[dict[str, Callable[[], ModelProto | bytes]]] = {
    "constant-of-shape":      lambda: stored("ConstantOfShape", [i64(HUGE)]),
    "constant-of-shape-2^62": lambda: stored("ConstantOfShape", [i64(1 << 31, 1 << 31)]),
    "expand-stored":          lambda: stored("Expand", [X[:1, :1], i64(1 << 20, 1 << 20)]),
    "expand-given":           lambda: last("Expand", [X[:1, :1], i64(1 << 20, 1 << 20)], 1),
    "tile-stored":            lambda: stored("Tile", [X, i64(1 << 20, 1 << 20)]),
    "tile-given":             lambda: last("Tile", [X, i64(1 << 20, 1 << 20)], 1),
    "range":                  lambda: stored("Range", [i64(0)[0], i64(HUGE)[0], i64(1)[0]]),
    "range-of-floats":        lambda: stored("Range", [np.float32(0), np.float32(1e30), np.float32(1e-30)]),
    "range-of-nan":           lambda: stored("Range", [np.float32(0), np.float32("nan"), np.float32(1)]),
    "pad-stored":             lambda: stored("Pad", [X, i64(0, 0, HUGE, HUGE)]),
    "pad-given":              lambda: last("Pad", [X, i64(0, 0, HUGE, HUGE)], 1),
    "one-hot":                lambda: stored("OneHot", [i64(1, 2), i64(HUGE), np.asarray([0, 1], np.float32)]),
    "resize":                 lambda: last("Resize", [IMAGE, np.zeros(0, np.float32), np.asarray([1, 1, 2e5, 5e5], np.float32)], 2),
    "resize-by-infinity":     lambda: last("Resize", [IMAGE, np.zeros(0, np.float32), np.asarray([1, 1, np.inf, 1], np.float32)], 2),
    "hann-window":            lambda: stored("HannWindow", [i64(HUGE)[0]]),
    "long-transform":         lambda: last("DFT", [f32_like(1, 2, 1), i64(1 << 30)[0]], 1, opset=20),
    "col-2-im":               lambda: last("Col2Im", [f32_like(1, 4, 4), i64(1 << 20, 1 << 20), i64(2, 2)], 2),
    "many-axes":              lambda: last("Unsqueeze", [X, np.arange(100_000)], 1),
    "many-axes-of-shape":     lambda: last("Reshape", [X, np.ones(100_000, np.int64)], 1),
    "many-axes-stored":       lambda: axes(100),
    "many-axes-given":        lambda: ports("Relu", [1] * 1000),
    "huge-inputs":            lambda: ports("MatMul", [1 << 31, 1 << 31], 2),
    "huger-inputs":           lambda: ports("Mul", [1 << 62] * 3, 2),
    "flat-overflow":          lambda: ports("Flatten", [HUGE, HUGE], axis=0),
    "huge-window":            lambda: one("MaxPool", [IMAGE], kernel_shape=[HUGE, HUGE]),
    "huge-border":            lambda: last("Conv", [IMAGE, f32_like(1, 1, 3, 3)], 1, pads=[HUGE] * 4),
    "huge-dilation":          lambda: last("Conv", [IMAGE, f32_like(1, 1, 3, 3)], 1, dilations=[1 << 62] * 2),
    "huge-groups":            lambda: last("Conv", [IMAGE, f32_like(1, 1, 3, 3)], 1, group=1 << 62),
    "huge-block":             lambda: one("DepthToSpace", [f32_like(1, 4, 2, 2)], blocksize=HUGE),
    "huge-top-k":             lambda: last("TopK", [X, i64(HUGE)], 1, outputs=2),
    "doubling-stored":        lambda: chain("Concat", 50, False, axis=0),
    "doubling-given":         lambda: chain("Concat", 50, True, axis=0),
    "doubling-loop":          lambda: loop([node("Concat", ["a", "a"], ["b"], axis=0)], 60),
    "endless-loop":           endless,
    "nested-graphs":          lambda: nested(30),
    "deeply-nested-graphs":   lambda: nested(3_000),
    "doubling-functions":     lambda: doubling(50),
    "long-equation":          lambda: one("Einsum", [X], equation="i" * 100_000 + "->"),
    "long-names":             lambda: model([node("Absent", ["x"], [f"y{at}"], name="n" * 10_000) for at in range(500)], {"x": X}, ["y0"]),
    "cycle":                  lambda: model([node("Add", ["x", "b"], ["a"]), node("Relu", ["a"], ["b"])], {"x": X}, ["b"]),
    "wrong-type":             lambda: one("Relu", [np.asarray([True])]),
    "far-constant":           lambda: model([node("ConstantOfShape", ["s"], ["v0"]), *(node("Relu", [f"v{at}"], [f"v{at + 1}"]) for at in range(200)), node("ReduceSum", ["v200"], ["r"]), node("Cast", ["r"], ["k"], to=7), node("Expand", ["x", "k"], ["y"])], {"x": X[:1]}, ["y"], {"s": i64(1 << 24)}),
}
# fmt: on


def _bytes(of: ModelProto | bytes) -> bytes:
    return of if isinstance(of, bytes) else of.SerializeToString()


def main() -> None:
    """Read every model; what is no `PlicaError` ends this process, and so does each limit."""
    made = {name: _bytes(case()) for name, case in CASES.items()}
    from_onnx(one("Relu", [X]))  # what is imported once is no part of what a model costs
    with open("/proc/self/statm", encoding="ascii") as file:
        pages = int(file.read().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY,) * 2)
    for name, data in made.items():
        signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)  # which ends the process by default
        try:
            from_onnx(data)
        except PlicaError as error:
            print(name, type(error).__name__, error.code, flush=True)
        else:
            print(name, "read", flush=True)


if __name__ == "__main__":
    main()
