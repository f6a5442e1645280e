# ruff: noqa: E501  # rows of a table
"""Sizes, bounds, steps and counts that a model computes from open sizes, beside onnxruntime.

Each row is one operator with one or two numbers that are unknown when it is compiled: `v0` is the
size of an input less `OFFSET`, so it takes negative values too.  All values of a small domain are
tried: what onnxruntime takes must be right, and nothing else may end in an internal error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any, Final

import attrs
import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

import plica
from plica.frontend.onnx.fuzz.peer import answers, by_reference
from tests.deep import spread

Array = np.ndarray[Any, Any]
OFFSET: Final = 4
FAR: Final = 2**62
SMALL: Final = (0, 1, 2, 3, 5)
SPREAD: Final = 24
TRIED: Final = 36
"""Rows and calls of each row in every run; the deep run tries all."""

node = helper.make_node


@attrs.frozen
class Row:
    """An operator that takes computed numbers: nodes from x, v0, v1 … to y."""

    name: str
    nodes: list[NodeProto]
    x: tuple[int | str, ...] = ("n",)
    sizes: Sequence[int] = SMALL
    values: Sequence[Sequence[int]] = (range(-4, 8),)
    stored: dict[str, Any] = attrs.field(factory=dict)
    of: str = "float32"
    opset: int = 19

    def model(self) -> ModelProto:
        """The model; `s0` is the number `v0` without an axis."""
        made = [self._computed(at) for at in range(len(self.values))]
        inputs = [_port("x", self.of, self.x)]
        inputs += [_port(f"c{at}", "float32", (f"m{at}",)) for at in range(len(self.values))]
        stored = {**_CONSTANTS, **self.stored}
        graph = helper.make_graph(
            [each for some in made for each in some] + self.nodes, self.name, inputs,
            [helper.make_empty_tensor_value_info("y")],
            [numpy_helper.from_array(np.asarray(each), name) for name, each in stored.items()],
        )  # fmt: skip
        return helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=9
        )

    def _computed(self, at: int) -> list[NodeProto]:
        return [
            node("Shape", [f"c{at}"], [f"d{at}"]),
            node("Sub", [f"d{at}", "offset"], [f"v{at}"]),
            node("Squeeze", [f"v{at}", "first"], [f"s{at}"]),
        ][: 3 if self.opset >= 13 else 2]

    def calls(self) -> Iterator[tuple[dict[str, Array], str]]:
        """Every call of the domain: its inputs, and the numbers in it."""
        open_ = [each for each in dict.fromkeys(self.x) if isinstance(each, str)]
        for sizes in product(self.sizes, repeat=len(open_)):
            of = dict(zip(open_, sizes, strict=True))
            shape = tuple(of[each] if isinstance(each, str) else each for each in self.x)
            count = math.prod(shape)
            x = (np.arange(count).reshape(shape) % 7 + 1).astype(self.of)
            for values in product(*self.values):
                given = {f"c{at}": np.zeros(v + OFFSET, "f4") for at, v in enumerate(values)}
                yield {"x": x, **given}, f"x{shape} v{values}"


_CONSTANTS: Final[dict[str, Any]] = {
    "offset": np.array([OFFSET]), "first": np.array([0]), "minus": np.array([-1]),
    "zero": np.array(0), "one": np.array(1), "two": np.array(2), "four": np.array(4),
    "ones": np.array([1]), "far": np.array([FAR]), "low": np.array([-FAR]),
    "twos": np.array([2]), "three": np.array([3]),
}  # fmt: skip


def _port(name: str, of: str, shape: Sequence[int | str]) -> Any:  # Any: a message of protobuf
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(of))
    return helper.make_tensor_value_info(name, kind, shape)


def _slices() -> Iterator[Row]:
    for step in (1, 2, -1, -2, -3):
        by = {"by": np.array([step])}
        for start, stop in (("v0", "far"), ("v0", "low"), ("v0", "twos"), ("first", "v0"),
                            ("far", "v0"), ("minus", "v0"), ("v0", "v1")):  # fmt: skip
            two = (range(-4, 5, 2), range(-3, 6, 2))
            yield Row(
                f"Slice {start}:{stop}:{step}",
                [node("Slice", ["x", start, stop, "first", "by"], ["y"])],
                sizes=(0, 1, 2, 5),
                values=two if stop == "v1" else (range(-4, 8),),
                stored=by,
            )


def _pads() -> Iterator[Row]:
    for mode in ("constant", "edge", "reflect", "wrap"):
        yield Row(
            f"Pad {mode}",
            [
                node("Concat", ["v0", "v1"], ["p"], axis=0),
                node("Pad", ["x", "p"], ["y"], mode=mode),
            ],
            values=(range(-3, 4), range(-3, 4)),
        )
        yield Row(
            f"Pad {mode} of one side, by an axis",
            [node("Concat", ["first", "v0"], ["p"], axis=0),
             node("Pad", ["x", "p", "", "ones"], ["y"], mode=mode)],
            x=("k", "n"), sizes=(0, 1, 3),
        )  # fmt: skip


_BODY = helper.make_graph(
    [node("Add", ["a", "a"], ["b"]), node("Identity", ["c"], ["d"])], "body",
    [helper.make_tensor_value_info("i", TensorProto.INT64, ()),
     helper.make_tensor_value_info("c", TensorProto.BOOL, ()),
     helper.make_tensor_value_info("a", TensorProto.FLOAT, ("n",))],
    [helper.make_tensor_value_info("d", TensorProto.BOOL, ()),
     helper.make_tensor_value_info("b", TensorProto.FLOAT, ("n",))],
)  # fmt: skip
_SQUARE = ("n", "k")
_FEW = (range(-2, 5),)
_AXES = (range(-3, 3),)

ROWS: Final[tuple[Row, ...]] = (
    *_slices(),
    *_pads(),
    Row("Range to v0", [node("Range", ["zero", "s0", "one"], ["y"])]),
    Row("Range from v0", [node("Range", ["s0", "two", "one"], ["y"])]),
    Row("Range by two", [node("Range", ["one", "s0", "two"], ["y"])]),
    Row("Range by a step", [node("Range", ["zero", "four", "s0"], ["y"])]),
    Row("Range of both", [node("Range", ["s0", "s1", "two"], ["y"])], sizes=(1,),
        values=(range(-3, 4), range(-3, 4))),
    Row("Sum of Range", [node("Range", ["zero", "s0", "one"], ["r"]),
                         node("ReduceSum", ["r"], ["y"], keepdims=0)]),
    Row("Concat with Range", [node("Range", ["zero", "s0", "one"], ["r"]),
                              node("Cast", ["r"], ["f"], to=1),
                              node("Concat", ["x", "f"], ["y"], axis=0)]),
    Row("Reshape to v0, -1", [node("Concat", ["v0", "minus"], ["s"], axis=0),
                              node("Reshape", ["x", "s"], ["y"])], x=_SQUARE),
    Row("Reshape to -1, v0", [node("Concat", ["minus", "v0"], ["s"], axis=0),
                              node("Reshape", ["x", "s"], ["y"])], x=_SQUARE),
    Row("Reshape to v0, v1", [node("Concat", ["v0", "v1"], ["s"], axis=0),
                              node("Reshape", ["x", "s"], ["y"])], x=(6,),
        values=(range(7), range(7))),
    Row("Reshape by allowzero", [node("Concat", ["v0", "minus"], ["s"], axis=0),
                                 node("Reshape", ["x", "s"], ["y"], allowzero=1)], x=_SQUARE,
        values=(range(1, 8),)),
    Row("Reshape to the size of another axis",
        [node("Shape", ["x"], ["d"]), node("Slice", ["d", "first", "ones"], ["k"]),
         node("Concat", ["minus", "k"], ["s"], axis=0), node("Reshape", ["x", "s"], ["y"])],
        x=_SQUARE, values=()),
    Row("Expand", [node("Expand", ["x", "v0"], ["y"])], x=(1,)),
    Row("Expand of an open size", [node("Expand", ["x", "v0"], ["y"])], sizes=(0, 1, 2)),
    Row("Expand by an axis", [node("Concat", ["v0", "ones"], ["s"], axis=0),
                              node("Expand", ["x", "s"], ["y"])]),
    Row("Tile", [node("Tile", ["x", "v0"], ["y"])]),
    Row("ConstantOfShape", [node("ConstantOfShape", ["v0"], ["y"])], sizes=(1,)),
    Row("Sum of ConstantOfShape", [node("ConstantOfShape", ["v0"], ["f"]),
                                   node("ReduceSum", ["f"], ["y"], keepdims=0)], sizes=(1,)),
    Row("Resize", [node("Resize", ["x", "", "", "v0"], ["y"], mode="nearest")]),
    Row("Resize linear", [node("Resize", ["x", "", "", "v0"], ["y"], mode="linear")]),
    Row("Resize by a scale", [node("Cast", ["v0"], ["f"], to=1),
                              node("Resize", ["x", "", "f"], ["y"], mode="nearest")]),
    Row("Upsample", [node("Cast", ["v0"], ["f"], to=1), node("Upsample", ["x", "f"], ["y"])],
        opset=9),
    Row("CenterCropPad", [node("CenterCropPad", ["x", "v0"], ["y"], axes=[0])],
        values=(range(8),)),
    Row("CenterCropPad of two axes", [node("Concat", ["v0", "v1"], ["s"], axis=0),
                                      node("CenterCropPad", ["x", "s"], ["y"])],
        x=_SQUARE, sizes=(0, 1, 3), values=(range(5), range(5))),
    Row("TopK", [node("TopK", ["x", "v0"], ["y", "i"])]),
    Row("TopK of rows", [node("TopK", ["x", "v0"], ["y", "i"], axis=0)], x=_SQUARE, sizes=(0, 1, 3)),
    Row("OneHot", [node("OneHot", ["x", "s0", "values"], ["y"])], of="int64",
        stored={"values": np.array([0.0, 1.0], "f4")}),
    Row("Split", [node("Concat", ["v0", "v1"], ["s"], axis=0), node("Split", ["x", "s"], ["y", "z"])],
        values=(range(-1, 6), range(-1, 6))),
    Row("Gather", [node("Gather", ["x", "v0"], ["y"])]),
    Row("Gather along an axis", [node("Gather", ["x", "s0"], ["y"], axis=1)], x=_SQUARE),
    Row("GatherElements", [node("GatherElements", ["x", "v0"], ["y"])]),
    Row("GatherND", [node("Concat", ["v0", "v1"], ["s"], axis=0), node("GatherND", ["x", "s"], ["y"])],
        x=_SQUARE, sizes=(0, 1, 3), values=(range(-3, 4), range(-3, 4))),
    Row("ScatterND", [node("Unsqueeze", ["v0", "first"], ["i"]),
                      node("ScatterND", ["x", "i", "u"], ["y"])],
        stored={"u": np.array([9.0], "f4")}),
    Row("ScatterElements", [node("ScatterElements", ["x", "v0", "u"], ["y"])],
        stored={"u": np.array([9.0], "f4")}),
    Row("Trilu", [node("Trilu", ["x", "s0"], ["y"])], x=_SQUARE, sizes=(0, 1, 3)),
    Row("Trilu below", [node("Trilu", ["x", "s0"], ["y"], upper=0)], x=_SQUARE, sizes=(0, 1, 3)),
    Row("EyeLike", [node("ConstantOfShape", ["v0"], ["f"]), node("Unsqueeze", ["f", "first"], ["m"]),
                    node("EyeLike", ["m"], ["y"], k=1)], sizes=(1,)),
    Row("CumSum", [node("CumSum", ["x", "s0"], ["y"])], x=_SQUARE, sizes=(1, 3), values=_AXES),
    Row("CumSum of nothing", [node("CumSum", ["x", "s0"], ["y"])], x=_SQUARE, sizes=(0, 3),
        values=(range(-2, 2),)),
    Row("ReduceSum", [node("ReduceSum", ["x", "v0"], ["y"])], x=_SQUARE, sizes=(1, 3),
        values=_AXES),
    Row("ReduceSum of nothing", [node("ReduceSum", ["x", "v0"], ["y"])], x=_SQUARE, sizes=(0, 3),
        values=(range(-2, 2),)),
    Row("ReduceMax", [node("ReduceMax", ["x", "v0"], ["y"])], x=_SQUARE, sizes=(1, 3), values=_AXES),
    Row("Unsqueeze", [node("Unsqueeze", ["x", "v0"], ["y"])], x=_SQUARE, sizes=(0, 3),
        values=(range(-4, 4),)),
    Row("Squeeze", [node("Squeeze", ["x", "v0"], ["y"])], x=(1, "n", 1), sizes=(0, 1, 3),
        values=(range(-4, 4),)),
    Row("DepthToSpace", [node("Slice", ["x", "first", "v0", "ones"], ["c"]),
                         node("DepthToSpace", ["c"], ["y"], blocksize=2)],
        x=(1, 8, "n", 2), sizes=(0, 2), values=(range(-4, 9),)),
    Row("SpaceToDepth", [node("Slice", ["x", "first", "v0", "twos"], ["c"]),
                         node("SpaceToDepth", ["c"], ["y"], blocksize=2)],
        x=(1, 2, 4, "n"), sizes=(0, 2, 4), values=(range(-4, 5),)),
    Row("ReverseSequence", [node("ReverseSequence", ["x", "v0"], ["y"])], x=("n", 1),
        values=(range(6),)),
    Row("Compress", [node("Less", ["c0", "ones_"], ["b"]), node("Compress", ["x", "b"], ["y"], axis=0)],
        stored={"ones_": np.float32(1)}),
    Row("Compress of all", [node("Less", ["c0", "ones_"], ["b"]), node("Compress", ["x", "b"], ["y"])],
        x=_SQUARE, sizes=(0, 1, 3), stored={"ones_": np.float32(1)}),
    Row("DFT", [node("Unsqueeze", ["x", "axes"], ["r"]), node("DFT", ["r", "s0"], ["y"], axis=1)],
        stored={"axes": np.array([0, 2])}, sizes=(1, 2, 5)),
    Row("HannWindow", [node("HannWindow", ["s0"], ["y"])], sizes=(1,)),
    Row("Loop", [node("Loop", ["s0", "true", "x"], ["y"], body=_BODY)],
        stored={"true": np.array(True)}, values=_FEW),
    Row("MaxUnpool", [node("Concat", ["ones", "ones", "v0"], ["s"], axis=0),
                      node("MaxPool", ["x"], ["p", "i"], kernel_shape=[2], strides=[2]),
                      node("MaxUnpool", ["p", "i", "s"], ["y"], kernel_shape=[2], strides=[2])],
        x=(1, 1, "n"), sizes=(2, 4)),
    Row("Col2Im", [node("Col2Im", ["x", "v0", "twos"], ["y"])], x=(1, 2, "n"), sizes=(1, 2, 4)),
    Row("Add of cut tensors", [node("Slice", ["x", "v0", "far"], ["a"]),
                               node("Slice", ["x", "v0", "far"], ["b"]), node("Add", ["a", "b"], ["y"])]),
    Row("MatMul of a cut tensor", [node("Slice", ["x", "first", "v0", "ones"], ["a"]),
                                   node("Transpose", ["a"], ["b"]), node("MatMul", ["a", "b"], ["y"])],
        x=_SQUARE, sizes=(0, 1, 3)),
    Row("Softmax of a cut tensor", [node("Slice", ["x", "v0", "far", "ones"], ["a"]),
                                    node("Softmax", ["a"], ["y"])], x=_SQUARE, sizes=(0, 1, 3)),
)  # fmt: skip


def same(a: Array, b: Array) -> bool:
    """Whether two results are one up to rounding."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return bool(np.allclose(a, b, rtol=1e-4, atol=1e-5, equal_nan=True))


def faults(row: Row, only: int | None = None) -> list[str]:
    """The calls that are wrong, or refused though onnxruntime takes them."""
    model, every, wrong = row.model(), list(row.calls()), []
    step = 1 if only is None else max(1, len(every) // only)
    executable = plica.compile(model, cache=False, threads=1)
    for given, said in every[::step]:
        wanted = answers(model, given)
        try:
            found = executable(**given)
        except plica.PlicaError as error:
            if wanted is not None:
                wrong.append(f"{said}: refused ({error.code}), wanted {wanted[0].tolist()}")
            continue
        first = found[0] if isinstance(found, tuple) else found
        if wanted is not None and same(first, wanted[0]):
            continue
        other = by_reference(model, given)
        judges = [each[0] for each in (wanted, other) if each is not None]
        if judges and not any(same(first, each) for each in judges):
            wrong.append(f"{said}: {first.tolist()}, wanted {[e.tolist() for e in judges]}")
    return wrong


@pytest.mark.parametrize("row", spread(ROWS, TRIED), ids=lambda row: row.name)
def test_some_values_of_every_operator(row: Row) -> None:
    assert faults(row, SPREAD) == []


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_all_values_of_every_operator(row: Row) -> None:
    assert faults(row) == []


_FORMS: Final[dict[str, tuple[list[NodeProto], Callable[[int], int]]]] = {
    "m": ([], lambda m: m),
    "-m": ([node("Neg", ["d"], ["e"])], lambda m: -m),
    "2m": ([node("Mul", ["d", "twos"], ["e"])], lambda m: 2 * m),
    "-2m": ([node("Mul", ["d", "twos"], ["f"]), node("Neg", ["f"], ["e"])], lambda m: -2 * m),
    "m-2": ([node("Sub", ["d", "twos"], ["e"])], lambda m: m - 2),
    "m//2": ([node("Div", ["d", "twos"], ["e"])], lambda m: m // 2),
    "-(m//2)": ([node("Div", ["d", "twos"], ["f"]), node("Neg", ["f"], ["e"])], lambda m: -(m // 2)),
    "m+2": ([node("Add", ["d", "twos"], ["e"])], lambda m: m + 2),
    "2-m": ([node("Sub", ["twos", "d"], ["e"])], lambda m: 2 - m),
}  # fmt: skip
_BOUNDS: Final = {"start": (FAR, -FAR, 3, -3), "stop": (0, -FAR, FAR, 2, -2)}


@pytest.mark.parametrize(
    ("which", "form", "step"), spread(product(_BOUNDS, _FORMS, (1, 2, -1, -2, -3)), 12)
)
def test_slices_count_from_the_end_as_the_standard_says(which: str, form: str, step: int) -> None:
    nodes, value = _FORMS[form]
    bound = "e" if nodes else "d"
    for other in _BOUNDS[which]:
        ends = [bound, "other"] if which == "start" else ["other", bound]
        row = Row(form, [node("Shape", ["c0"], ["d"]), *nodes,
                         node("Slice", ["x", *ends, "first", "by"], ["y"])],
                  stored={"other": np.array([other]), "by": np.array([step])})  # fmt: skip
        executable = plica.compile(row.model(), cache=False, threads=1)
        for n, m in product((0, 1, 2, 3, 5, 8), (0, 1, 2, 3, 4, 7)):
            start, stop = (value(m), other) if which == "start" else (other, value(m))
            start, stop = (each + n if each < 0 else each for each in (start, stop))
            low, high = (0, n) if step > 0 else (-1, n - 1)
            first = min(max(start, 0), high)
            places = range(first, min(max(stop, low), high), step) if n else range(0)
            x = np.arange(n, dtype="f4")
            np.testing.assert_array_equal(executable(x, np.zeros(m, "f4")), x[list(places)])


def test_a_size_of_0_copies_the_axis_where_a_program_is_cut() -> None:
    row = next(each for each in ROWS if each.name == "Reshape to the size of another axis")
    model = row.model()
    model.graph.node.append(node("Unique", ["x"], ["u"]))
    model.graph.output.append(helper.make_empty_tensor_value_info("u"))
    found = plica.compile(model, cache=False)(np.ones((0, 3), "f4"))
    assert found[0].shape == (0, 3)


@pytest.mark.parametrize(
    ("kind", "value", "code"),
    [("ConstantOfShape", -1, "input-shape"), ("Expand", -2, "input-shape"), ("Tile", -1, "input-shape"),
     ("CenterCropPad", -1, "input-shape"), ("Reshape by allowzero", 0, "input-shape"), ("Split", -1, "input-shape"),
     ("Sum of ConstantOfShape", -1, "input-shape"), ("TopK", 4, "input-shape"), ("CumSum", 2, "input-value")],
)  # fmt: skip
def test_a_size_that_no_tensor_has_is_refused(kind: str, value: int, code: str) -> None:
    row = next(each for each in ROWS if each.name == kind)
    values = [np.zeros(value + OFFSET, "f4") for _ in row.values]
    shape = [each if isinstance(each, int) else 3 for each in row.x]
    x = np.ones(shape, row.of)
    with pytest.raises(plica.PlicaError) as found:
        plica.compile(row.model(), cache=False)(x, *values)
    assert found.value.code == code


def _branch(name: str, nodes: list[NodeProto]) -> Any:  # Any: a message of protobuf
    return helper.make_graph(nodes, name, [], [helper.make_empty_tensor_value_info(name)])


def test_a_branch_is_refused_for_its_sizes_only_where_it_is_taken() -> None:
    taken = [node("ConstantOfShape", ["v0"], ["c"]), node("Exp", ["c"], ["e"]),
             node("CumSum", ["e", "zero"], ["f"]), node("ReduceSum", ["f"], ["a"], keepdims=0)]  # fmt: skip
    other = [node("ReduceSum", ["x"], ["b"], keepdims=0)]
    row = Row("If", [
        node("Cast", ["first_x"], ["condition"], to=TensorProto.BOOL),
        node("If", ["condition"], ["y"], then_branch=_branch("a", taken), else_branch=_branch("b", other)),
    ])  # fmt: skip
    row.nodes.insert(0, node("Gather", ["x", "zero"], ["first_x"]))
    executable = plica.compile(row.model(), cache=False)
    carrier = [np.zeros(value + OFFSET, "f4") for value in (-3, 2)]
    for at in range(2):
        assert executable(f32(0, 2, 3), carrier[at]) == 5
    assert executable(f32(1, 2, 3), carrier[1]) == 3
    with pytest.raises(plica.PlicaError):
        executable(f32(1, 2, 3), carrier[0])


def f32(*values: float) -> Array:
    """A vector of floats."""
    return np.array(values, "f4")
