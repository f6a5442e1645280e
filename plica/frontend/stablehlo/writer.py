"""Modules out: a program of Plica as StableHLO's text, which XLA, IREE and others compile.

>>> from plica.ir.text.script import from_text
>>> module = from_text('''# plica 1
... from __future__ import annotations
... import plica
... from plica import op
... from plica.script import Tensor, f32
...
... @plica.function
... def main(x: Tensor[(2, 3), f32]) -> Tensor[(2,), f32]:
...     return op.sum(x, axis=(1,))
... ''')
>>> print(to_stablehlo(module))
module {
  func.func public @main(%arg0: tensor<2x3xf32> loc("x")) -> tensor<2xf32> {
    %0 = stablehlo.constant dense<0.0> : tensor<f32>
    %1 = stablehlo.reduce(%arg0 init: %0) applies stablehlo.add across dimensions = [1] : (tensor<2x3xf32>, tensor<f32>) -> tensor<2xf32>
    return %1 : tensor<2xf32>
  }
}
<BLANKLINE>
"""  # noqa: E501  # a line of MLIR

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from plica.core.collector import paused
from plica.frontend.stablehlo.literal import ELEMENTS, dense
from plica.frontend.whole_array.dialect import Array, ArrayDialect, ArrayValue, Block
from plica.frontend.whole_array.program import flat_types, gathered, sized_main, write_program
from plica.ir.graph.expression import Apply
from plica.ir.graph.module import Module
from plica.ir.loop.combiner import MEANING
from plica.ir.loop.scalar import Combiner, Lit
from plica.ir.op.window import windows
from plica.ir.type.dtype import DType, bool_, i64, u8
from plica.runtime.error import UnsupportedError

CHLO: Final = frozenset({"asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "erf"})
"""Words of the dialect CHLO, which XLA has, too."""

JOINS: Final[dict[Combiner, str]] = {
    "sum": "add", "prod": "multiply", "max": "maximum", "min": "minimum", "all": "and", "any": "or",
}  # fmt: skip


def to_stablehlo(of: Module, *, sizes: Mapping[str, int] | None = None) -> str:
    """The StableHLO text of a module: one function `main` from its inputs to its outputs.

    `sizes` are numbers for its open sizes.  Tuples are flat; kernels, externs, data types and
    recursion that is no loop are refused.
    """
    with paused():
        whole, main = sized_main(of, sizes or {})
        d = HloWriter()
        given = []
        for param in main.params:
            arrays = [d.argument(shape, dtype) for shape, dtype in flat_types(param.type)]
            given.append(arrays)
        params = [
            gathered(param.type, iter(arrays))
            for param, arrays in zip(main.params, given, strict=True)
        ]
        results = write_program(d, whole, params)
    names = [str(param.name) for param, arrays in zip(main.params, given, strict=True)
             for _ in arrays]  # fmt: skip
    every = [array for arrays in given for array in arrays]
    inputs = [f'{v.name}: {kind(v)} loc("{n}")' for v, n in zip(every, names, strict=True)]
    kinds = [kind(result) for result in results]
    outputs = kinds[0] if len(kinds) == 1 else f"({', '.join(kinds)})"
    end = f"return {', '.join(result.name for result in results)} : {', '.join(kinds)}"
    head = f"  func.func public @main({', '.join(inputs)}) -> {outputs} {{"
    return "\n".join(["module {", head, *d.lines, f"    {end}", "  }", "}", ""])


def kind(of: ArrayValue) -> str:
    """The type of a value in MLIR's text."""
    if of.dtype not in ELEMENTS:
        message = f"StableHLO has no element type for {of.dtype}."
        raise UnsupportedError.of("unsupported", message, None, ", ".join(map(str, ELEMENTS)))
    return f"tensor<{''.join(f'{size}x' for size in of.shape)}{ELEMENTS[of.dtype]}>"


class HloWriter(ArrayDialect):
    """Lines of StableHLO."""

    name = "StableHLO"

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.count = self.arguments = 0
        self.indent = "    "

    def argument(self, shape: Sequence[int], dtype: DType) -> ArrayValue:
        """A new argument of a function or a region."""
        self.arguments += 1
        return ArrayValue(f"%arg{self.arguments - 1}", tuple(shape), dtype)

    def line(self, text: str, shape: Sequence[int], dtype: DType, *given: ArrayValue) -> ArrayValue:
        """A new line; with the operand and result types appended if `text` ends accordingly."""
        array_value = ArrayValue(f"%{self.count}", tuple(shape), dtype)
        self.count += 1
        types = f"({', '.join(map(kind, given))}) -> " if given else ""
        self.lines.append(f"{self.indent}{array_value.name} = {text} : {types}{kind(array_value)}")
        return array_value

    def constant(self, of: Array, dtype: DType) -> ArrayValue:
        if dtype is bool_ and of.size > 64:
            codes = self.constant(of.astype(np.uint8), u8)
            return self.convert(codes, bool_)
        if of.ndim and of.size and len({each.tobytes() for each in of.reshape(-1)[:2]}) == 1:
            first = np.ascontiguousarray(of).reshape(-1)
            if first.tobytes() == np.full_like(first, first[0]).tobytes():
                return self.spread(
                    self.constant(of.reshape(-1)[0].reshape(()), dtype), (), of.shape
                )
        return self.line(f"stablehlo.constant {dense(of)}", of.shape, dtype)

    def iota(self, size: int) -> ArrayValue:
        return self.line("stablehlo.iota dim = 0", (size,), i64)

    def spread(
        self, x: ArrayValue, axes: Sequence[int], shape: Sequence[int], whole: bool = True
    ) -> ArrayValue:
        if x.shape == tuple(shape):
            return x
        text = f"stablehlo.broadcast_in_dim {x.name}, dims = {list(axes)}"
        return self.line(text, shape, x.dtype, x)

    def reshape(self, x: ArrayValue, shape: Sequence[int]) -> ArrayValue:
        if x.shape == tuple(shape):
            return x
        return self.line(f"stablehlo.reshape {x.name}", shape, x.dtype, x)

    def transpose(self, x: ArrayValue, order: Sequence[int]) -> ArrayValue:
        shape = [x.shape[at] for at in order]
        return self.line(f"stablehlo.transpose {x.name}, dims = {list(order)}", shape, x.dtype, x)

    def slice(
        self, x: ArrayValue, starts: Sequence[int], counts: Sequence[int], steps: Sequence[int]
    ) -> ArrayValue:
        ranges = []
        for start, count, step in zip(starts, counts, steps, strict=True):
            last = start + (count - 1) * step
            low, high = min(start, last), max(start, last)
            ranges.append(f"{low}:{high + 1}:{abs(step)}")
        text = f"stablehlo.slice {x.name} [{', '.join(ranges)}]"
        array_value = self.line(text, counts, x.dtype, x)
        back = [at for at, step in enumerate(steps) if step < 0]
        if not back:
            return array_value
        return self.line(f"stablehlo.reverse {array_value.name}, dims = {back}", counts, x.dtype)

    def pad(self, x: ArrayValue, low: Sequence[int], high: Sequence[int]) -> ArrayValue:
        zero = self.constant(np.zeros((), x.dtype.numpy), x.dtype)
        shape = [a + size + b for a, size, b in zip(low, x.shape, high, strict=True)]
        text = (
            f"stablehlo.pad {x.name}, {zero.name}, low = {list(low)}, high = {list(high)}, "
            f"interior = {[0] * len(shape)}"
        )
        return self.line(text, shape, x.dtype, x, zero)

    def gather(self, x: ArrayValue, axes: Sequence[int], places: ArrayValue) -> ArrayValue:
        batch = len(places.shape) - 1
        rest = [at for at in range(len(x.shape)) if at not in axes]
        shape = (*places.shape[:-1], *[x.shape[at] for at in rest])
        numbers = (
            f"offset_dims = {list(range(batch, len(shape)))}, "
            f"collapsed_slice_dims = {list(axes)}, start_index_map = {list(axes)}, "
            f"index_vector_dim = {batch}"
        )
        widths = ", ".join("1" if at in axes else str(size) for at, size in enumerate(x.shape))
        text = (
            f'"stablehlo.gather"({x.name}, {places.name}) <{{dimension_numbers = '
            f"#stablehlo.gather<{numbers}>, indices_are_sorted = false, "
            f"slice_sizes = array<i64: {widths}>}}>"
        )
        return self.line(text, shape, x.dtype, x, places)

    def join(self, parts: Sequence[ArrayValue], axis: int) -> ArrayValue:
        first = parts[0]
        sizes = list(first.shape)
        sizes[axis] = sum(part.shape[axis] for part in parts)
        names = ", ".join(part.name for part in parts)
        return self.line(f"stablehlo.concatenate {names}, dim = {axis}", sizes, first.dtype, *parts)

    def apply(self, word: str, *values: ArrayValue) -> ArrayValue:
        x = values[0]
        names = ", ".join(value.name for value in values)
        if word in CHLO:
            return self.line(f'"chlo.{word}"({names})', x.shape, x.dtype, x)
        return self.line(f"stablehlo.{word} {names}", x.shape, x.dtype)

    def compare(self, word: str, x: ArrayValue, y: ArrayValue) -> ArrayValue:
        kind = {"float": "FLOAT", "int": "SIGNED"}.get(x.dtype.kind, "UNSIGNED")
        return self.line(
            f"stablehlo.compare {word}, {x.name}, {y.name}, {kind}", x.shape, bool_, x, y
        )

    def select(self, condition: ArrayValue, x: ArrayValue, y: ArrayValue) -> ArrayValue:
        text = f"stablehlo.select {condition.name}, {x.name}, {y.name} : {kind(condition)}"
        array_value = ArrayValue(f"%{self.count}", x.shape, x.dtype)
        self.count += 1
        self.lines.append(f"{self.indent}{array_value.name} = {text}, {kind(array_value)}")
        return array_value

    def convert(self, x: ArrayValue, dtype: DType) -> ArrayValue:
        if x.dtype is dtype:
            return x
        return self.line(f"stablehlo.convert {x.name}", x.shape, dtype, x)

    def bitcast(self, x: ArrayValue, dtype: DType) -> ArrayValue:
        return self.line(f"stablehlo.bitcast_convert {x.name}", x.shape, dtype, x)

    def unit(self, how: Combiner, dtype: DType) -> ArrayValue:
        """What nothing combines to."""
        first = MEANING[how][0](dtype)
        assert isinstance(first, Lit)
        return self.constant(np.asarray(first.value, dtype.numpy), dtype)

    def reduce(self, how: Combiner, x: ArrayValue, axes: Sequence[int]) -> ArrayValue:
        shape = [size for at, size in enumerate(x.shape) if at not in axes]
        unit = self.unit(how, x.dtype)
        text = (
            f"stablehlo.reduce({x.name} init: {unit.name}) applies stablehlo.{JOINS[how]} "
            f"across dimensions = {list(axes)}"
        )
        return self.line(text, shape, x.dtype, x, unit)

    def running(self, how: Combiner, x: ArrayValue, axis: int, reverse: bool) -> ArrayValue:
        unit = self.unit(how, x.dtype)
        rank, size = len(x.shape), x.shape[axis]
        widths = ", ".join(str(size if at == axis else 1) for at in range(rank))
        ends = [0, size - 1] if reverse else [size - 1, 0]
        pads = [ends if at == axis else [0, 0] for at in range(rank)]
        attributes = (
            f"padding = dense<{pads}> : tensor<{rank}x2xi64>, window_dimensions = "
            f"array<i64: {widths}>"
        )
        head = f'"stablehlo.reduce_window"({x.name}, {unit.name}) <{{{attributes}}}>'
        scalar = [ArrayValue("", (), x.dtype)] * 2
        body = self.region(scalar, lambda given: [self.apply(JOINS[how], *given)])
        return self.regional(head, [body], (x, unit), [x])[0]

    def dot(
        self, x: ArrayValue, y: ArrayValue, batch: Sequence[tuple[int, int]],
        sums: Sequence[tuple[int, int]],
    ) -> ArrayValue:  # fmt: skip
        used = [{pair[side] for pair in (*batch, *sums)} for side in (0, 1)]
        rest = [
            size for side, value in enumerate((x, y)) for at, size in enumerate(value.shape)
            if at not in used[side]
        ]  # fmt: skip
        shape = [*[x.shape[a] for a, _ in batch], *rest]
        words = [
            f"{word} = {[a for a, _ in pairs]} x {[b for _, b in pairs]}"
            for word, pairs in (("batching_dims", batch), ("contracting_dims", sums)) if pairs
        ]  # fmt: skip
        exact = "precision = [HIGHEST, HIGHEST]"
        text = f"stablehlo.dot_general {x.name}, {y.name}, {', '.join([*words, exact])}"
        return self.line(text, shape, x.dtype, x, y)

    # --- regions ---------------------------------------------------------------------------------

    def region(self, given: Sequence[ArrayValue], block: Block) -> str:
        """The text of a region with arguments of the types of values."""
        lines, indent = self.lines, self.indent
        self.lines, self.indent = [], f"{indent}  "
        arguments = [self.argument(array_value.shape, array_value.dtype) for array_value in given]
        results = block(arguments)
        kinds = ", ".join(map(kind, results))
        end = f'"stablehlo.return"({", ".join(value.name for value in results)}) : ({kinds}) -> ()'
        head = ", ".join(f"{argument.name}: {kind(argument)}" for argument in arguments)
        body = [*([f"{indent}^bb0({head}):"] if given else []), *self.lines, self.indent + end]
        self.lines, self.indent = lines, indent
        return "\n".join(["{", *body, f"{indent}}}"])

    def regional(
        self, head: str, regions: Sequence[str], given: Sequence[ArrayValue],
        results: Sequence[ArrayValue],
    ) -> list[ArrayValue]:  # fmt: skip
        """The results of an operation with regions, of the types of values."""
        name = f"%{self.count}"
        self.count += 1
        kinds = ", ".join(map(kind, results))
        types = f"({', '.join(map(kind, given))}) -> ({kinds})"
        many = f":{len(results)}" if len(results) > 1 else ""
        self.lines.append(f"{self.indent}{name}{many} = {head} ({', '.join(regions)}) : {types}")
        names = [f"{name}#{at}" for at in range(len(results))] if many else [name]
        return [ArrayValue(n, e.shape, e.dtype) for n, e in zip(names, results, strict=True)]

    def branch(self, condition: ArrayValue, then: Block, orelse: Block) -> list[ArrayValue]:
        results: list[ArrayValue] = []

        def noted(given: Sequence[ArrayValue]) -> Sequence[ArrayValue]:
            results[:] = then(given)
            return results

        regions = [self.region((), noted), self.region((), orelse)]
        return self.regional(f'"stablehlo.if"({condition.name})', regions, [condition], results)

    def loop(self, start: Sequence[ArrayValue], test: Block, step: Block) -> list[ArrayValue]:
        regions = [self.region(start, test), self.region(start, step)]
        names = ", ".join(array_value.name for array_value in start)
        return self.regional(f'"stablehlo.while"({names})', regions, start, start)

    # --- operators -------------------------------------------------------------------------------

    def direct(self, node: Apply, args: Sequence[ArrayValue]) -> ArrayValue | None:
        if node.op == "nn.conv":
            return self.convolution(dict(node.attrs), *args)
        if node.op == "concat":
            return self.join(args, dict(node.attrs)["axis"] % len(args[0].shape))
        return None

    def convolution(self, attrs: dict[str, Any], x: ArrayValue, w: ArrayValue) -> ArrayValue:
        """A convolution in its own operation."""
        sliding = windows("nn.conv", attrs, len(x.shape) - 2)
        sizes = [
            (size + each.before + each.after - (k - 1) * each.dilation - 1) // each.stride + 1
            for each, size, k in zip(sliding, x.shape[2:], w.shape[2:], strict=True)
        ]
        places = ", ".join(map(str, range(len(sliding))))
        text = (
            f"stablehlo.convolution({x.name}, {w.name}) dim_numbers = [b, f, {places}]x[o, i, "
            f"{places}]->[b, f, {places}], window = {{stride = {[e.stride for e in sliding]}, "
            f"pad = {[[e.before, e.after] for e in sliding]}, "
            f"rhs_dilate = {[e.dilation for e in sliding]}}} {{batch_group_count = 1 : i64, "
            f"feature_group_count = {attrs['groups']} : i64, precision_config = "
            "[#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]}"
        )
        return self.line(text, (x.shape[0], w.shape[0], *sizes), x.dtype, x, w)
