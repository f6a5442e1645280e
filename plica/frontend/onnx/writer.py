"""Modules out: a program of Plica as an ONNX model, which other runtimes read.

>>> from plica.ir.text.script import from_text
>>> module = from_text('''# plica 1
... from __future__ import annotations
... import plica
... from plica import op
... from plica.script import Tensor, f32
...
... @plica.function
... def main(x: Tensor[(2, 3), f32], w: Tensor[(4, 3), f32]) -> Tensor[(2, 4), f32]:
...     return op.tanh(op.nn.dense(x, w))
... ''')
>>> [node.op_type for node in to_onnx(module).graph.node]
['Gemm', 'Tanh', 'Identity']
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from string import ascii_letters
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from plica.core.collector import paused
from plica.frontend.onnx.operator_node import BOUNDS, NODES
from plica.frontend.onnx.order import every_node, names_read
from plica.frontend.whole_array.dialect import Array, ArrayDialect, ArrayValue, Block
from plica.frontend.whole_array.program import flat_types, gathered, sized_main, write_program
from plica.frontend.whole_array.scalar import number, refuse
from plica.ir.graph.expression import Apply, attr
from plica.ir.graph.module import Module
from plica.ir.loop.scalar import Combiner
from plica.ir.op import find
from plica.ir.text.script.mark import Scripted
from plica.ir.type import DType, TensorType, bool_, i32, i64, static_shape, tensor

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, ValueInfoProto

OPSET: Final = 18
IR_VERSION: Final = 9

WORDS: Final = {
    "add": "Add", "subtract": "Sub", "multiply": "Mul", "divide": "Div", "minimum": "Min",
    "maximum": "Max", "power": "Pow", "exponential": "Exp", "log": "Log", "sqrt": "Sqrt",
    "sine": "Sin", "cosine": "Cos", "tan": "Tan", "tanh": "Tanh", "floor": "Floor",
    "ceil": "Ceil", "round_nearest_even": "Round", "asin": "Asin", "acos": "Acos", "atan": "Atan",
    "sinh": "Sinh", "cosh": "Cosh", "asinh": "Asinh", "acosh": "Acosh", "atanh": "Atanh",
    "erf": "Erf", "negate": "Neg", "abs": "Abs",
}  # fmt: skip
LOGIC: Final = {"and": "And", "or": "Or", "xor": "Xor", "not": "Not"}
ORDERS: Final = {
    "EQ": "Equal", "LT": "Less", "LE": "LessOrEqual", "GT": "Greater", "GE": "GreaterOrEqual",
}  # fmt: skip
REDUCTIONS: Final[dict[Combiner, str]] = {
    "sum": "ReduceSum", "prod": "ReduceProd", "max": "ReduceMax", "min": "ReduceMin",
    "all": "ReduceMin", "any": "ReduceMax",
}  # fmt: skip
TYPES: Final = {
    "f16": "float16", "bf16": "bfloat16", "f32": "float", "f64": "double", "bool": "bool",
    "f8e4m3fn": "float8e4m3fn", "f8e5m2": "float8e5m2", "f8e4m3fnuz": "float8e4m3fnuz",
    "f8e5m2fnuz": "float8e5m2fnuz",
    **{f"i{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
    **{f"u{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)},
}  # fmt: skip
"""ONNX's names of element types."""
LEAST: Final = -(1 << 63)


def to_onnx(
    of: Module | Scripted, *, sizes: Mapping[str, int] | None = None, finite: bool = False
) -> ModelProto:
    """The ONNX model of a module or a decorated function, its tensors in and out under their names.

    `sizes` are numbers for its open sizes.  Tuples are flat; kernels, externs, data types,
    recursion that is no loop, and what ONNX has no operator for are refused.  The standard does
    not say what `MaxPool` makes of nan, so nan is carried beside it, unless tensors are `finite`.
    """
    from onnx import helper

    with paused():
        whole, main = sized_main(of, sizes or {})
        d = OnnxDialect(finite)
        inputs: list[ArrayValue] = []
        params = []
        for param in main.params:
            kinds = flat_types(param.type)
            word = str(param.name)
            names = [word] if len(kinds) == 1 else [f"{word}.{at}" for at in range(len(kinds))]
            arrays = [ArrayValue(n, s, t) for n, (s, t) in zip(names, kinds, strict=True)]
            d.names.update(names)
            inputs += arrays
            params.append(gathered(param.type, iter(arrays)))
        results = write_program(d, whole, params)
        outputs = []
        named = attr(main, "outputs", ())
        for at, result in enumerate(results):
            name = named[at] if len(named) == len(results) else f"out{at}"
            outputs.append(d.node("Identity", [result], result.shape, result.dtype, d.fresh(name)))
        d.nodes = _reached(d.nodes, outputs)
        graph = d.graph("main", inputs, outputs)
        model_proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
    model_proto.ir_version = IR_VERSION
    return model_proto


@lru_cache(maxsize=256)
def admitted(kind: str, at: int) -> frozenset[str]:
    """The types that the standard admits for an input of an operator."""
    from onnx import defs

    schema = defs.get_schema(kind, OPSET)
    return frozenset(schema.inputs[min(at, len(schema.inputs) - 1)].types)


def element_of(of: DType) -> int:
    """ONNX's number of an element type."""
    from onnx import TensorProto

    return int(TensorProto.DataType.Value(_word(of).upper()))


def _word(of: DType) -> str:
    """ONNX's name of an element type."""
    if (name := TYPES.get(of.name)) is None:
        refuse(OnnxDialect(), "constant", of)
    return name


class OnnxDialect(ArrayDialect):
    """Nodes and stored tensors; operands of nodes are broadcast by ONNX."""

    name = "ONNX"

    def __init__(self, finite: bool = False) -> None:
        self.finite = finite  # no tensor holds nan
        self.nodes: list[NodeProto] = []
        self.stored: dict[tuple[bytes, tuple[int, ...], str], str] = {}
        self.values: dict[str, Array] = {}  # what is stored, by name
        self.names: set[str] = set()
        self.count = 0

    def fresh(self, word: str) -> str:
        """A name that nothing has."""
        name = word
        while name in self.names:
            self.count += 1
            name = f"{word}_{self.count}"
        self.names.add(name)
        return name

    def node(
        self, kind: str, inputs: Sequence[ArrayValue], shape: Sequence[int], dtype: DType,
        name: str | None = None, **attributes: Any,
    ) -> ArrayValue:  # fmt: skip
        """The result of a new node."""
        from onnx import helper

        for at, array_value in enumerate(inputs):
            if (types := admitted(kind, at)) and f"tensor({_word(array_value.dtype)})" not in types:
                refuse(self, kind, array_value.dtype)
        value = ArrayValue(name or self.fresh(kind), tuple(shape), dtype)
        names = [array_value.name for array_value in inputs]
        self.nodes.append(helper.make_node(kind, names, [value.name], value.name, **attributes))
        return value

    def numbers(self, values: Sequence[int]) -> ArrayValue:
        """A stored list of integers."""
        return self.constant(np.asarray(values, np.int64), i64)

    def graph(
        self, word: str, inputs: Sequence[ArrayValue], outputs: Sequence[ArrayValue]
    ) -> GraphProto:
        """The nodes so far as a graph, with all that is stored."""
        from onnx import helper, numpy_helper

        used = {name for node, _ in every_node(self.nodes) for name in node.input}
        stored = [numpy_helper.from_array(array, name) for name, array in self.values.items()
                  if name in used]  # fmt: skip
        return helper.make_graph(self.nodes, word, _infos(inputs), _infos(outputs), stored)

    # --- arrays ----------------------------------------------------------------------------------

    def constant(self, of: Array, dtype: DType) -> ArrayValue:
        element_of(dtype)
        plain = np.ascontiguousarray(of).reshape(of.shape)
        key = (plain.tobytes(), plain.shape, str(dtype))
        if key not in self.stored:
            self.stored[key] = name = self.fresh("constant")
            self.values[name] = plain
        return ArrayValue(self.stored[key], plain.shape, dtype)

    def iota(self, size: int) -> ArrayValue:
        return self.constant(np.arange(size, dtype=np.int64), i64)

    def spread(
        self, x: ArrayValue, axes: Sequence[int], shape: Sequence[int], whole: bool = True
    ) -> ArrayValue:
        if x.shape == tuple(shape):
            return x
        form = [1] * len(shape)
        for axis, size in zip(axes, x.shape, strict=True):
            form[axis] = size
        placed = self.reshape(x, form) if x.shape else x
        if not whole or placed.shape == tuple(shape):
            return placed
        return self.node("Expand", [placed, self.numbers(shape)], shape, x.dtype)

    def reshape(self, x: ArrayValue, shape: Sequence[int]) -> ArrayValue:
        if x.shape == tuple(shape):
            return x
        if (stored := self.values.get(x.name)) is not None:
            return self.constant(stored.reshape(shape), x.dtype)
        given = [x, self.numbers(shape)]
        return self.node("Reshape", given, shape, x.dtype, allowzero=int(0 in shape))

    def transpose(self, x: ArrayValue, order: Sequence[int]) -> ArrayValue:
        if list(order) == list(range(len(x.shape))):
            return x
        if (stored := self.values.get(x.name)) is not None:
            return self.constant(stored.transpose(order), x.dtype)
        shape = [x.shape[at] for at in order]
        return self.node("Transpose", [x], shape, x.dtype, perm=list(order))

    def slice(
        self, x: ArrayValue, starts: Sequence[int], counts: Sequence[int], steps: Sequence[int]
    ) -> ArrayValue:
        stops = [a + n * s for a, n, s in zip(starts, counts, steps, strict=True)]
        ends = [stop if stop >= 0 else LEAST for stop in stops]
        lists = [starts, ends, range(len(counts)), steps]
        return self.node("Slice", [x, *map(self.numbers, map(list, lists))], counts, x.dtype)

    def pad(self, x: ArrayValue, low: Sequence[int], high: Sequence[int]) -> ArrayValue:
        shape = [a + size + b for a, size, b in zip(low, x.shape, high, strict=True)]
        return self.node("Pad", [x, self.numbers([*low, *high])], shape, x.dtype)

    def gather(self, x: ArrayValue, axes: Sequence[int], places: ArrayValue) -> ArrayValue:
        rest = [at for at in range(len(x.shape)) if at not in axes]
        first = self.transpose(x, [*axes, *rest])
        last = self.numbers([x.shape[at] - 1 for at in axes])
        inside = self.apply("minimum", self.apply("maximum", places, self.numbers([0])), last)
        shape = (*places.shape[:-1], *[x.shape[at] for at in rest])
        return self.node("GatherND", [first, inside], shape, x.dtype)

    def join(self, parts: Sequence[ArrayValue], axis: int) -> ArrayValue:
        sizes = list(parts[0].shape)
        sizes[axis] = sum(part.shape[axis] for part in parts)
        return self.node("Concat", parts, sizes, parts[0].dtype, axis=axis)

    # --- elements --------------------------------------------------------------------------------

    def apply(self, word: str, *values: ArrayValue) -> ArrayValue:
        x = values[0]
        shape = np.broadcast_shapes(*[value.shape for value in values])
        if word in LOGIC:
            kind = LOGIC[word] if x.dtype is bool_ else f"Bitwise{LOGIC[word]}"
            return self.node(kind, values, shape, x.dtype)
        if word == "remainder":
            return self.node("Mod", values, shape, x.dtype, fmod=1)
        if word in ("shift_left", "shift_right_logical") and x.dtype.kind == "uint":
            way = "LEFT" if word == "shift_left" else "RIGHT"
            return self.node("BitShift", values, shape, x.dtype, direction=way)
        if word == "exponential_minus_one":
            half = self.apply("tanh", self.apply("multiply", x, number(self, 0.5, x)))
            more = self.apply("add", self.apply("exponential", x), number(self, 1, x))
            return self.apply("multiply", half, more)
        if word == "log_plus_one":
            return self.log_plus_one(x)
        if word not in WORDS:
            refuse(self, word, x.dtype)
        return self.node(WORDS[word], values, shape, x.dtype)

    def log_plus_one(self, x: ArrayValue) -> ArrayValue:
        """`2 atanh(x / (2 + x))` near 0, where adding 1 would lose digits."""
        ratio = self.apply("divide", x, self.apply("add", x, number(self, 2, x)))
        near = self.apply("multiply", self.apply("atanh", ratio), number(self, 2, x))
        far = self.apply("log", self.apply("add", x, number(self, 1, x)))
        small = self.compare("LT", self.apply("abs", x), number(self, 0.5, x))
        return self.select(small, near, far)

    def compare(self, word: str, x: ArrayValue, y: ArrayValue) -> ArrayValue:
        if word == "NE":
            return self.apply("not", self.compare("EQ", x, y))
        shape = np.broadcast_shapes(x.shape, y.shape)
        return self.node(ORDERS[word], [x, y], shape, bool_)

    def select(self, condition: ArrayValue, x: ArrayValue, y: ArrayValue) -> ArrayValue:
        shape = np.broadcast_shapes(condition.shape, x.shape, y.shape)
        return self.node("Where", [condition, x, y], shape, x.dtype)

    def convert(self, x: ArrayValue, dtype: DType) -> ArrayValue:
        if x.dtype is dtype:
            return x
        return self.node("Cast", [x], x.shape, dtype, to=element_of(dtype))

    def bitcast(self, x: ArrayValue, dtype: DType) -> ArrayValue:
        refuse(self, "bits_of", x.dtype)

    def signbit(self, x: ArrayValue) -> ArrayValue:
        zero = number(self, 0, x)
        under = self.apply("divide", number(self, 1, x), x)
        either = self.compare("LT", x, zero), self.compare("LT", under, zero)
        return self.apply("or", *either)

    # --- folds -----------------------------------------------------------------------------------

    def reduce(self, how: Combiner, x: ArrayValue, axes: Sequence[int]) -> ArrayValue:
        shape = [size for at, size in enumerate(x.shape) if at not in axes]
        if x.dtype is bool_:
            array_value = self.reduce("max" if how in ("any", "max", "sum") else "min",
                                self.convert(x, i32), axes)  # fmt: skip
            return self.convert(array_value, bool_)
        if x.dtype in (DType("i16"), DType("u16")) and how in ("max", "min"):
            return self.convert(self.reduce(how, self.convert(x, i32), axes), x.dtype)
        given = [x, self.numbers(axes)]
        array_value = self.node(REDUCTIONS[how], given, shape, x.dtype, keepdims=0)
        if how not in ("max", "min") or not x.dtype.is_float:
            return array_value
        wrong = self.convert(self.compare("NE", x, x), i32)
        some = self.convert(self.reduce("max", wrong, axes), bool_)
        return self.select(some, number(self, float("nan"), array_value), array_value)

    def running(self, how: Combiner, x: ArrayValue, axis: int, reverse: bool) -> ArrayValue | None:
        if how != "sum" or x.dtype is bool_:
            return None
        place = self.constant(np.asarray(axis), i64)
        return self.node("CumSum", [x, place], x.shape, x.dtype, reverse=int(reverse))

    def dot(
        self, x: ArrayValue, y: ArrayValue, batch: Sequence[tuple[int, int]],
        sums: Sequence[tuple[int, int]],
    ) -> ArrayValue:  # fmt: skip
        letters = iter(ascii_letters)
        words = [[""] * len(x.shape), [""] * len(y.shape)]
        out = ""
        for pairs in (batch, sums):
            for a, b in pairs:
                words[0][a] = words[1][b] = next(letters)
                out += words[0][a] if pairs is batch else ""
        shape = [x.shape[a] for a, _ in batch]
        for side, array_value in enumerate((x, y)):
            for at, size in enumerate(array_value.shape):
                if not words[side][at]:
                    words[side][at] = next(letters)
                    out += words[side][at]
                    shape.append(size)
        equation = f"{''.join(words[0])},{''.join(words[1])}->{out}"
        return self.node("Einsum", [x, y], shape, x.dtype, equation=equation)

    # --- regions ---------------------------------------------------------------------------------

    def branch(self, condition: ArrayValue, then: Block, orelse: Block) -> list[ArrayValue]:
        results: list[ArrayValue] = []

        def noted(given: Sequence[ArrayValue]) -> Sequence[ArrayValue]:
            results[:] = then(given)
            return results

        graphs = [self.region("then", (), noted), self.region("else", (), orelse)]
        how = {"then_branch": graphs[0], "else_branch": graphs[1]}
        return self.regional("If", [condition], results, how)

    def loop(self, start: Sequence[ArrayValue], test: Block, step: Block) -> list[ArrayValue]:
        (first,) = test(start)
        given = [ArrayValue("again", (), i64), ArrayValue("goes_on", (), bool_), *start]

        def body(values: Sequence[ArrayValue]) -> Sequence[ArrayValue]:
            after = step(values[2:])
            return [*test(after), *after]

        most = self.constant(np.asarray(np.iinfo(np.int64).max), i64)
        how = {"body": self.region("body", given, body)}
        return self.regional("Loop", [most, first, *start], start, how)

    def region(self, word: str, given: Sequence[ArrayValue], block: Block) -> GraphProto:
        """A graph inside; what it stores the whole stores."""
        from onnx import helper

        nodes, self.nodes = self.nodes, []
        inputs = [ArrayValue(self.fresh(word), value.shape, value.dtype) for value in given]
        array_values = [self.node("Identity", [e], e.shape, e.dtype) for e in block(inputs)]
        graph_proto = helper.make_graph(self.nodes, word, _infos(inputs), _infos(array_values))
        self.nodes = nodes
        return graph_proto

    def regional(
        self, kind: str, given: Sequence[ArrayValue], results: Sequence[ArrayValue],
        graphs: Mapping[str, GraphProto],
    ) -> list[ArrayValue]:  # fmt: skip
        """The results of a node with graphs."""
        from onnx import helper

        values = [ArrayValue(self.fresh(kind), result.shape, result.dtype) for result in results]
        names = [array_value.name for array_value in given]
        outs = [array_value.name for array_value in values]
        self.nodes.append(helper.make_node(kind, names, outs, self.fresh(kind), **graphs))
        return values

    # --- operators -------------------------------------------------------------------------------

    def direct(self, node: Apply, args: Sequence[ArrayValue]) -> ArrayValue | None:
        attrs = dict(node.attrs)
        if node.op == "concat":
            return self.join(args, attrs["axis"] % len(args[0].shape))
        if node.op in ("add", "nn.bias_add") and (layer := self.biased(node, args)) is not None:
            return layer
        if (row := NODES.get(node.op)) is None or not args[0].dtype.is_float:
            return None
        kind, words = row
        record, types = find(node.op), [tensor(arg.shape, arg.dtype) for arg in args]
        of = None if record is None else record.relation(attrs, *types)
        if not isinstance(of, TensorType) or (said := words(attrs, of)) is None:
            return None
        if node.op == "nn.dense" and len(of.shape) != 2:  # Gemm multiplies two matrices
            kind, said, args = "MatMul", {}, [args[0], self.transpose(args[1], (1, 0))]
        if not self.admits(kind, args):
            return None
        bounds = [number(self, each, args[0]) for each in BOUNDS.get(node.op, ())]
        result = self.node(kind, [*args, *bounds], static_shape(of) or (), of.dtype, **said)
        if kind != "MaxPool" or self.finite:
            return result
        wrong = self.convert(self.compare("NE", args[0], args[0]), args[0].dtype)
        most = self.node(kind, [wrong], result.shape, of.dtype, **said)
        some = self.compare("LT", number(self, 0, most), most)
        return self.select(some, number(self, float("nan"), result), result)

    def admits(self, kind: str, args: Sequence[ArrayValue]) -> bool:
        """Whether the standard has an operator for operands of these types."""
        words = [f"tensor({_word(arg.dtype)})" for arg in args]
        return all(word in admitted(kind, at) for at, word in enumerate(words))

    def biased(self, node: Apply, args: Sequence[ArrayValue]) -> ArrayValue | None:
        """The node just written again with a bias on its channels, which are its second axis; None
        where it is no layer."""
        x, bias = args
        layer = self.nodes[-1] if self.nodes and x.name in self.nodes[-1].output else None
        if layer is None or layer.op_type not in ("Conv", "Gemm") or len(layer.input) != 2:
            return None
        axis = dict(node.attrs).get("axis", len(x.shape) - 1)
        if axis % len(x.shape) != 1 or bias.shape != x.shape[1:2] or bias.dtype is not x.dtype:
            return None
        array_value = ArrayValue(self.fresh(layer.op_type), x.shape, x.dtype)
        again = type(layer).FromString(layer.SerializeToString())
        again.input.append(bias.name)
        again.output[0] = again.name = array_value.name
        self.nodes.append(again)
        return array_value


def _infos(of: Sequence[ArrayValue]) -> list[ValueInfoProto]:
    """Values with their types."""
    from onnx import helper

    return [
        helper.make_tensor_value_info(each.name, element_of(each.dtype), each.shape) for each in of
    ]


def _reached(nodes: Sequence[NodeProto], outputs: Sequence[ArrayValue]) -> list[NodeProto]:
    """The nodes that outputs depend on."""
    wanted, found = {output.name for output in outputs}, []
    for node in reversed(nodes):
        if wanted.intersection(node.output):
            found.append(node)
            wanted.update(names_read(node))
    return found[::-1]
