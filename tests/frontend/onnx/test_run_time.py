# ruff: noqa: E501  # rows of a table
"""Numbers that a model learns when it runs: one executable, several values and sizes, no compiler.

Every model is held to onnxruntime.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import plica
from plica.core import Malformed
from plica.frontend.onnx import from_onnx
from plica.frontend.onnx.polymorphic_model import ShapePolymorphicModel
from plica.runtime.error import PlicaError
from tests.frontend.onnx.build import model as built, runtime

Array = np.ndarray[Any, Any]
Feeds = list[dict[str, Array]]
F, INT, B = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def rows(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).random(shape).astype(np.float32)


def ints(*values: int) -> Array:
    return np.asarray(values, np.int64)


def one(value: float, of: str = "int64") -> Array:
    return np.asarray(value, of)


def ports(**given: Any) -> list[Any]:
    """Inputs or outputs: a type, and a shape or none."""
    return [helper.make_tensor_value_info(name, *each) for name, each in given.items()]


def model(
    nodes: list[Any], inputs: list[Any], outputs: list[Any], stored: dict[str, Array] | None = None,
    opset: int = 19,
) -> ModelProto:  # fmt: skip
    inits = [numpy_helper.from_array(value, name) for name, value in (stored or {}).items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, inits)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    made.ir_version = 9
    return made


def simple(
    kind: str, inputs: list[Any], *outputs: tuple[str, int], opset: int = 19, **attributes: Any
) -> ModelProto:
    named = outputs or (("y", F),)
    names = [each.name for each in inputs]
    node = helper.make_node(kind, names, [name for name, _ in named], **attributes)
    return model([node], inputs, ports(**{name: (of, None) for name, of in named}), None, opset)


X: Final = (F, ["n", 4])
V2: Final = (INT, [2])


def branches() -> ModelProto:
    """One side is as large as its input, the other as what is not zero in it."""
    then = helper.make_graph([helper.make_node("Relu", ["x"], ["t"])], "t", [], ports(t=(F, None)))
    nodes = [
        helper.make_node("NonZero", ["x"], ["z"]),
        helper.make_node("Cast", ["z"], ["e"], to=F),
    ]
    orelse = helper.make_graph(nodes, "e", [], ports(e=(F, None)))
    node = helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=orelse)
    return model([node], ports(c=(B, []), x=X), ports(y=(F, None)))


def loop(ends: bool) -> ModelProto:
    """Adds 1 as often as asked, or until a limit is reached, and collects what it has."""
    nodes = [
        helper.make_node("Add", ["s", "one"], ["s2"]),
        helper.make_node("Identity", ["s2"], ["o"]),
        helper.make_node("ReduceMax", ["s2"], ["most"], keepdims=0),
        helper.make_node("Less", ["most", "limit"], ["c2"])
        if ends
        else helper.make_node("Identity", ["c"], ["c2"]),
    ]
    inits = [numpy_helper.from_array(np.ones(1, np.float32), "one")]
    takes = ports(i=(INT, []), c=(B, []), s=(F, ["n"]))
    gives = ports(c2=(B, []), s2=(F, ["n"]), o=(F, ["n"]))
    body = helper.make_graph(nodes, "body", takes, gives, inits)
    extra: dict[str, Any] = {"limit": (F, [])} if ends else {"m": (INT, [])}
    count = "" if ends else "m"
    node = helper.make_node("Loop", [count, "", "x"], ["y", "z"], body=body)
    return model([node], ports(**extra, x=(F, ["n"])), ports(y=(F, None), z=(F, None)))


def scan() -> ModelProto:
    nodes = [
        helper.make_node("Add", ["s", "e"], ["s2"]),
        helper.make_node("Identity", ["s2"], ["o"]),
    ]
    takes, gives = ports(s=(F, [2]), e=(F, [2])), ports(s2=(F, [2]), o=(F, [2]))
    body = helper.make_graph(nodes, "body", takes, gives)
    node = helper.make_node(
        "Scan", ["s0", "x"], ["y", "z"], body=body, num_scan_inputs=1, scan_input_directions=[1]
    )
    return model([node], ports(s0=(F, [2]), x=(F, ["n", 2])), ports(y=(F, None), z=(F, None)))


def text() -> ModelProto:
    """The mask of a text, and its places, from its ids."""
    nodes = [
        helper.make_node("Shape", ["ids"], ["s"]),
        helper.make_node("Gather", ["s", "one"], ["n"]),
        helper.make_node("Unsqueeze", ["n", "zeros"], ["n1"]),
        helper.make_node("Concat", ["n1", "n1"], ["square"], axis=0),
        helper.make_node("ConstantOfShape", ["square"], ["full"]),
        helper.make_node("Trilu", ["full"], ["below"], upper=0),
        helper.make_node("Range", ["zero", "n", "one"], ["places"]),
        helper.make_node("Equal", ["ids", "zero"], ["padding"]),
        helper.make_node("Cast", ["padding"], ["p"], to=F),
        helper.make_node("Unsqueeze", ["p", "ones"], ["wide"]),
        helper.make_node("Add", ["below", "wide"], ["mask"]),
        helper.make_node("NonZero", ["ids"], ["words"]),
    ]
    stored = {"one": one(1), "zero": one(0), "zeros": ints(0), "ones": ints(1)}
    gives = ports(mask=(F, None), places=(INT, None), words=(INT, None))
    return model(nodes, ports(ids=(INT, ["b", "n"])), gives, stored)


def sequence() -> ModelProto:
    """Three tensors of different sizes: one is put in, one goes, and one is chosen by values."""
    nodes = [
        helper.make_node("SequenceConstruct", ["x", "y"], ["s"]),
        helper.make_node("SequenceInsert", ["s", "z", "into"], ["t"]),
        helper.make_node("SequenceErase", ["t", "out"], ["u"]),
        helper.make_node("SequenceAt", ["u", "at"], ["found"]),
    ]
    takes = ports(x=X, y=(F, [2, 4]), z=(F, ["m", 4]), into=(INT, []), out=(INT, []), at=(INT, []))
    return model(nodes, takes, ports(found=(F, None)))


def chosen(n: int, m: int, into: int, out: int, at: int) -> dict[str, Array]:
    places = {"into": one(into), "out": one(out), "at": one(at)}
    return {"x": rows(n, 4), "y": rows(2, 4), "z": rows(m, 4), **places}


def boxes(count: int, classes: int, most: int, overlap: float, least: float) -> dict[str, Array]:
    corner, size = rows(1, count, 2), rows(2, count, 2)[:1] / 2
    return {
        "b": np.concatenate([corner, corner + size], axis=-1),
        "s": rows(1, classes, count),
        "m": ints(most),
        "i": np.asarray([overlap], np.float32),
        "t": np.asarray([least], np.float32),
    }


FLAGS: Final = [(rows(n, 4) > 0.5).astype(np.float32) for n in (3, 0, 7)]
COUNTS: Final = [np.random.default_rng(n).integers(0, 4, n).astype(np.float32) for n in (1, 5, 12)]
NMS: Final = ports(b=(F, [1, "n", 4]), s=(F, [1, "c", "n"]), m=(INT, [1]), i=(F, [1]), t=(F, [1]))
UNIQUE: Final = (("y", F), ("f", INT), ("i", INT), ("c", INT))
PAIR: Final = (("y", F), ("i", INT))

# fmt: off
CASES: Final[dict[str, tuple[ModelProto, Feeds]]] = {
    "Reshape":   (simple("Reshape", ports(x=X, s=V2)), [{"x": rows(3, 4), "s": ints(2, 6)}, {"x": rows(6, 4), "s": ints(0, -1)}, {"x": rows(5, 4), "s": ints(-1, 2)}]),
    "Slice":     (simple("Slice", ports(x=X, a=V2, b=V2, ax=V2, s=V2)), [{"x": rows(3, 4), "a": ints(0, 1), "b": ints(2, 3), "ax": ints(0, 1), "s": ints(1, 1)}, {"x": rows(7, 4), "a": ints(0, -1), "b": ints(99, -99), "ax": ints(1, 0), "s": ints(2, -3)}]),
    "Expand":    (simple("Expand", ports(x=(F, ["n", 1]), s=(INT, [3]))), [{"x": rows(3, 1), "s": ints(2, 3, 6)}, {"x": rows(1, 1), "s": ints(2, 5, 1)}]),
    "Tile":      (simple("Tile", ports(x=X, s=V2)), [{"x": rows(3, 4), "s": ints(2, 3)}, {"x": rows(1, 4), "s": ints(0, 1)}]),
    "Pad":       (simple("Pad", ports(x=X, s=(INT, [4]), v=(F, []))), [{"x": rows(3, 4), "s": ints(1, 2, 0, 1), "v": one(3, "f4")}, {"x": rows(5, 4), "s": ints(-1, 0, 1, -3), "v": one(-3, "f4")}]),
    "reflect":   (simple("Pad", ports(x=X, s=(INT, [4])), mode="reflect"), [{"x": rows(3, 4), "s": ints(1, 2, 0, 1)}, {"x": rows(5, 4), "s": ints(4, 0, 0, 3)}]),
    "Split":     (simple("Split", ports(x=X, s=V2), ("y", F), ("z", F), axis=1), [{"x": rows(3, 4), "s": ints(1, 3)}, {"x": rows(2, 4), "s": ints(4, 0)}]),
    "Squeeze":   (simple("Squeeze", ports(x=(F, ["n", 1, 4, 1]), s=(INT, [1]))), [{"x": rows(3, 1, 4, 1), "s": ints(1)}, {"x": rows(2, 1, 4, 1), "s": ints(-1)}]),
    "Unsqueeze": (simple("Unsqueeze", ports(x=X, s=V2)), [{"x": rows(3, 4), "s": ints(1, 0)}, {"x": rows(2, 4), "s": ints(-1, 1)}]),
    "Range":     (simple("Range", ports(a=(F, []), b=(F, []), c=(F, []))), [{"a": one(0, "f4"), "b": one(7, "f4"), "c": one(0.3, "f4")}, {"a": one(5, "f4"), "b": one(-7, "f4"), "c": one(-3, "f4")}]),
    "OfShape":   (simple("ConstantOfShape", ports(s=V2)), [{"s": ints(2, 3)}, {"s": ints(0, 1)}]),
    "OneHot":    (simple("OneHot", ports(x=(INT, ["n"]), d=(INT, []), v=(F, [2]))), [{"x": ints(1, 2, 0), "d": one(3), "v": rows(2)}, {"x": ints(1, -2, 0, 4), "d": one(7), "v": rows(2)}]),
    "CumSum":    (simple("CumSum", ports(x=(F, ["n", 3, 2]), a=(INT, []))), [{"x": rows(2, 3, 2), "a": one(0)}, {"x": rows(3, 3, 2), "a": one(-1)}]),
    "ReduceSum": (simple("ReduceSum", ports(x=(F, ["n", 3, 2]), a=V2), keepdims=0), [{"x": rows(2, 3, 2), "a": ints(0, 1)}, {"x": rows(5, 3, 2), "a": ints(-1, 0)}]),
    "ReduceMax": (simple("ReduceMax", ports(x=(F, ["n", 3, 2]), a=(INT, ["k"]))), [{"x": rows(2, 3, 2), "a": ints(1)}, {"x": rows(5, 3, 2), "a": ints()}]),
    "Resize":    (simple("Resize", [*ports(x=(F, ["n", 4, "w"])), helper.make_tensor_value_info("r", F, [0]), *ports(s=(F, [3]))], mode="linear"), [{"x": rows(1, 4, 3), "r": rows(0), "s": np.asarray([1, 2, 1.5], "f4")}, {"x": rows(2, 4, 5), "r": rows(0), "s": np.asarray([1, 0.5, 3], "f4")}]),
    "NonZero":   (simple("NonZero", ports(x=X), ("y", INT)), [{"x": each} for each in FLAGS]),
    "Compress":  (simple("Compress", ports(x=X, c=(B, ["m"])), axis=0), [{"x": rows(3, 4), "c": np.asarray([True, False, True])}, {"x": rows(5, 4), "c": np.asarray([False, True])}]),
    "Unique":    (simple("Unique", ports(x=(F, ["n"])), *UNIQUE, sorted=0), [{"x": each} for each in COUNTS]),
    "TopK":      (simple("TopK", ports(x=(F, ["n", 6]), k=(INT, [1])), *PAIR), [{"x": rows(3, 6), "k": ints(2)}, {"x": rows(1, 6), "k": ints(6)}, {"x": rows(2, 6), "k": ints(0)}]),
    "NMS":       (simple("NonMaxSuppression", NMS, ("y", INT)), [boxes(6, 1, 3, 0.5, 0.0), boxes(40, 2, 50, 0.3, 0.4), boxes(9, 1, 3, 0.5, 2.0), boxes(0, 1, 3, 0.5, 0.0), boxes(4, 0, 3, 0.5, 0.0)]),
    "If":        (branches(), [{"c": np.asarray(c), "x": x} for c, x in ((True, FLAGS[0]), (False, FLAGS[0]), (False, FLAGS[2]))]),
    "Loop":      (loop(False), [{"m": one(m), "x": rows(n)} for m, n in ((3, 2), (5, 4))]),
    "while":     (loop(True), [{"limit": one(m, "f4"), "x": rows(n)} for m, n in ((3, 2), (5, 4))]),
    "Scan":      (scan(), [{"s0": rows(2), "x": rows(n, 2)} for n in (1, 5)]),
    "sequence":  (sequence(), [chosen(3, 5, 0, 1, 0), chosen(1, 7, -1, -1, 1), chosen(1, 2, 2, 0, -1)]),
    "broadcast": (simple("Add", ports(x=X, o=(F, ["m", 4]))), [{"x": rows(3, 4), "o": rows(3, 4)}, {"x": rows(1, 4), "o": rows(5, 4)}]),
    "text":      (text(), [{"ids": np.random.default_rng(n).integers(0, 3, (b, n))} for b, n in ((1, 5), (2, 3))]),
}
# fmt: on


@pytest.mark.parametrize("name", CASES)
def test_one_executable_serves_all_values_and_sizes(name: str) -> None:
    made, feeds = CASES[name]
    exe = plica.compile(made, threads=1, cache=False, effort="fast")
    for feed in feeds:
        found = exe(**feed)
        results = found if isinstance(found, tuple) else (found,)
        for mine, other in zip(results, runtime(made, feed), strict=True):
            assert (mine.dtype, mine.shape) == (other.dtype, other.shape)
            np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-6)
    assert exe.stats.at_call == 0


@pytest.mark.parametrize("name", CASES)
def test_a_module_means_what_the_model_means(name: str) -> None:
    made, feeds = CASES[name]
    module = from_onnx(made)
    assert ShapePolymorphicModel(made).module() is module  # what is compiled of either
    assert plica.digest(plica.from_text(str(module))) == plica.digest(module)
    params = [str(each.name) for each in module.main_function().params]
    found = plica.interpret(module, *[feeds[-1][name] for name in params])
    results = found if isinstance(found, tuple) else (found,)
    for mine, other in zip(results, runtime(made, feeds[-1]), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-6)


def test_a_border_up_to_a_known_size_gives_that_size() -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["n"], end=1),
        helper.make_node("Sub", ["whole", "n"], ["more"]),
        helper.make_node("Concat", ["none", "none", "more", "none"], ["s"], axis=0),
        helper.make_node("Pad", ["x", "s"], ["y"]),
    ]
    made = model(nodes, ports(x=X), ports(y=(F, None)), {"whole": ints(9), "none": ints(0)})
    assert "Tensor[(9, 4), f32]:" in str(from_onnx(made))
    exe = plica.compile(made, threads=1, effort="fast")
    for n in (3, 9, 14):  # what is longer is cut
        np.testing.assert_array_equal(exe(rows(n, 4)), runtime(made, {"x": rows(n, 4)})[0])


def test_bad_numbers_name_the_dim_and_the_input() -> None:
    exe = plica.compile(CASES["Reshape"][0], threads=1, effort="fast")
    for shape in (ints(5, 5), ints(-7, 2), ints(1 << 40, 1 << 40), ints(1 << 62, 1)):
        with pytest.raises(PlicaError, match="'s'") as caught:
            exe(rows(3, 4), shape)
        assert "y_0" in str(caught.value)
    far = plica.compile(CASES["OfShape"][0], threads=1, effort="fast")
    with pytest.raises(PlicaError, match="y_0 is 1099511627776") as large:
        far(ints(1 << 40, 1 << 40))
    assert large.value.code == "no-memory"
    np.testing.assert_array_equal(exe(rows(3, 4), ints(4, 3)), rows(3, 4).reshape(4, 3))


def test_sides_of_a_branch_have_known_sizes_that_differ() -> None:
    sides = []
    for name, stop in (("yes", 1), ("no", 16)):
        stored = {f"{name}_a": 0, f"{name}_b": stop, f"{name}_c": 0}
        sides.append(helper.make_graph(
            [helper.make_node("Slice", ["x", *stored], [f"{name}_part"]),
             helper.make_node("Neg", [f"{name}_part"], [f"{name}_out"])],
            name, [], [helper.make_tensor_value_info(f"{name}_out", 1, [None, 3])],
            [numpy_helper.from_array(np.array([v]), k) for k, v in stored.items()],
        ))  # fmt: skip
    node = helper.make_node("If", ["c"], ["y"], then_branch=sides[0], else_branch=sides[1])
    x = np.arange(60, dtype=np.float32).reshape(20, 3)
    whole = built([node], {"x": x, "c": np.array(True)}, ["y"])
    exe = plica.compile(whole, threads=1, cache=False)
    for condition, stop in ((True, 1), (False, 16)):
        np.testing.assert_array_equal(exe(x=x, c=np.array(condition)), -x[:stop])
    assert exe.stats.at_call == 0


def test_a_model_without_code_for_all_sizes_says_why() -> None:
    pool: dict[str, Any] = {"kernel_shape": [2, 2], "dilations": [2, 2], "ceil_mode": 1}
    node = helper.make_node("AveragePool", ["x"], ["y"], **pool)
    exe = plica.compile(model([node], ports(x=(F, [1, 1, "n", 9])), ports(y=(F, None))))
    assert "0 compiled, for each size: AveragePool(y): ceil_mode with dilations" in repr(exe)
    with pytest.raises(PlicaError, match=r"no one code of it(.|\n)*ceil_mode with dilations"):
        _ = exe.artefact


@pytest.mark.parametrize(
    ("equation", "why"),
    [
        ("ij,ik->..", "axes are letters"),
        ("ij,jk->iz", "in no argument"),
        ("ij,jk->ii", "twice after"),
        ("ij,jk,kl->il", "one group of letters"),
        ("ijk,jk->ik", "one letter for each axis"),
    ],
)
def test_a_wrong_equation_is_refused_before_sizes_are_known(equation: str, why: str) -> None:
    node = helper.make_node("Einsum", ["x", "w"], ["y"], equation=equation)
    whole = model([node], ports(x=(F, ["n", "m"]), w=(F, ["m", 4])), ports(y=(F, None)))
    with pytest.raises(Malformed, match=why) as caught:
        plica.compile(whole)
    (told,) = caught.value.diagnostics
    assert told.place is not None
    assert told.expected
    assert told.found


def test_rows_that_are_read_in_two_roles_unless_there_is_one() -> None:
    """A row alone is compared with its own maximum in place; of several each has two roles."""
    nodes = [
        helper.make_node("Hardmax", ["x"], ["v"], axis=3),
        helper.make_node("InstanceNormalization", ["v", "s", "b"], ["y"]),
    ]
    held = model(
        nodes, ports(x=(F, ["n", 2, 5, 6])), ports(y=(F, None)), dict.fromkeys("sb", rows(2))
    )
    exe = plica.compile(held)
    for n in (1, 3, 70):
        given = rows(n, 2, 5, 6)
        (expected,) = runtime(held, {"x": given})
        np.testing.assert_allclose(exe(given), expected, rtol=1e-4, atol=1e-5)


def test_vectors_over_several_rows_behind_a_choice() -> None:
    stored = {"c": np.asarray([[[2, -2, -1]]], np.float32)}
    nodes = [
        helper.make_node("Sign", ["x"], ["v"]),
        helper.make_node("Sub", ["v", "c"], ["s"]),
        helper.make_node("Concat", ["s", "z"], ["y"], axis=0),
    ]
    shape = (F, [1, 8, 3, 3])
    held = model(nodes, ports(x=shape, z=shape), ports(y=(F, None)), stored)
    x, z = rows(1, 8, 3, 3), rows(1, 8, 3, 3) + 1
    (expected,) = runtime(held, {"x": x, "z": z})
    np.testing.assert_array_equal(plica.compile(held)(x, z), expected)
