"""Mapping: layers brought into a form that fills a machine, where as they stand they would not.

    strips     one image on a machine whose elements hold several rows: the image is cut into strips
               that overlap as far as the kernel reaches, and these are the rows
    windows    what the kernel sees at each place as a row: a product of matrices, whose depth is
               all of a window, where channels alone would not fill a block or scopes hold few
    groups     a convolution of groups: one of each group, side by side

Each is an identity of integers, so the result is bit-equal. The machine is asked about the
rewritten layer (`plica.codegen.accel.layer`): only layers that then run there are changed, in the
way with the lowest estimated cycles. Groups become fewer, strips smaller, and windows become
products, so this terminates.

>>> from plica.codegen.accel.vta import vta
>>> from plica.ir.type.term import tensor
>>> x, main = Var(Name("x"), tensor((1, 32, 4, 4), "i8")), Var(Name("main"), None)
>>> w = cast(const(np.ones((32, 16, 1, 1), np.int8)), i32)
>>> y = integer_layer(conv(cast(x, i32), w, groups=2), None, 4, 0, 127)
>>> whole = infer(module({main: Function((), (), (x,), None, y)}, main))
>>> [each.groups for each in integer_convolutions(mapped(whole, vta()))]
[1, 1]
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

import numpy as np
from attrs import frozen

from plica.codegen.accel.declaration import Accelerator
from plica.codegen.accel.layer import AccelLayer, layer_of
from plica.codegen.accel.tiling import estimate, tilings
from plica.codegen.accel.units import units_of
from plica.core import Name, post_order
from plica.ir.graph import (
    Apply,
    Const,
    Expr,
    Function,
    Module,
    Var,
    attr,
    const,
    main_module,
    module,
)
from plica.ir.op.convolution import conv
from plica.ir.op.cut import slice_
from plica.ir.op.elementwise import cast
from plica.ir.op.join import concat
from plica.ir.op.linear import dense
from plica.ir.op.pad import pad
from plica.ir.op.record import tensor_of
from plica.ir.op.shape import reshape, transpose
from plica.ir.type import TensorType, i8, i32, infer, static_shape, type_of
from plica.rewrite.closed import is_closed
from plica.rewrite.graph.walk import expressions, operands as parts_of, with_operands
from plica.rewrite.quantise.annotate import LAYERS
from plica.rewrite.quantise.form import IntegerConvolution, integer_convolutions, integer_layer

NEVER: Final = (1 << 30, 0.0)  # more than any cost: nothing of it would run there

Rewritten = Callable[[IntegerConvolution, Expr, int], Expr | None]
"""The rewritten layer, over its data, for a number of rows; or None."""


def mapped(of: Module, machine: Accelerator) -> Module:
    """The module with its integer layers in forms the machine accepts."""
    changed: dict[Expr, tuple[IntegerConvolution, Rewritten]] = {}
    rows = units_of(machine).rows
    for convolution in integer_convolutions(of):
        if convolution.kind != "conv" or isinstance(layer_of(machine, convolution), AccelLayer):
            continue
        probe = Var(Name("data"), type_of(convolution.data))
        costs = [(_cost(how(convolution, probe, rows), machine), how) for how in _WAYS]
        least, how = min(costs, key=lambda found: found[0])
        if least < NEVER:
            changed[convolution.root] = convolution, how
    if not changed or of.main is None:
        return of
    main = of.main_function()
    memo: dict[Expr, Expr] = {}
    for node in expressions(main):
        if node in changed:
            layer, how = changed[node]
            expr = how(layer, memo[layer.data], rows)
            assert expr is not None  # it was made before, of the same sizes
            memo[node] = expr
        else:
            memo[node] = with_operands(node, tuple([memo[part] for part in parts_of(node)]))
    new = memo[main]
    assert isinstance(new, Function)
    rest = {name: value for name, value in of.items() if name is not of.main}
    return mapped(infer(module({**rest, of.main: new}, of.main)), machine)


def _cost(root: Expr | None, machine: Accelerator) -> tuple[int, float]:
    """The number of layers that stay on the processor, possibly after more rewriting, and the
    cycles of the others."""
    if root is None:
        return NEVER
    variables = tuple([each for each in expressions(root) if isinstance(each, Var)])
    whole = infer(main_module(Function((), (), variables, None, root)))
    found = [layer_of(machine, each) for each in integer_convolutions(mapped(whole, machine))]
    there = [each for each in found if isinstance(each, AccelLayer)]
    if not there:
        return NEVER
    return len(found) - len(there), sum(layer.batch * _cycles(machine, layer) for layer in there)


def _cycles(machine: Accelerator, of: AccelLayer) -> float:
    """The guess for its best tiling by one thread: one fits, or the layer would have stayed."""
    shape = of.convolution
    return min(estimate(machine, shape, tiling) for tiling in tilings(machine, shape, 1))


def strips(of: IntegerConvolution, data: Expr, rows: int) -> Expr | None:
    """The images of a batch that is too small, each cut into strips."""
    given = type_of(data)
    sizes = static_shape(given) if isinstance(given, TensorType) else None
    if sizes is None or len(sizes) != 4 or of.groups != 1 or any(e != 1 for e in of.dilation):
        return None
    if 0 in sizes:
        return None
    batch, _, height, _ = sizes
    kernel, stride = of.weight.shape[2], of.strides[0]
    (top, bottom), (left, right) = of.padding
    out = (height + top + bottom - kernel) // stride + 1
    count = min(-(-rows // batch), out)
    if count < 2:
        return None
    each = -(-out // count)
    reach = (each - 1) * stride + kernel
    below = max(0, (count - 1) * each * stride + reach - height - top)
    room = ((0, 0), (0, 0), (top, below), (left, right))
    wide = pad(data, room)
    whole = (None, None, None, None)
    cuts = [
        slice_(wide, (0, 0, at * each * stride, 0), (*whole[:2], at * each * stride + reach, None))
        for at in range(count)
    ]
    sums = conv(cast(concat(tuple(cuts), axis=0), i32), _weight(of.weight), strides=stride)
    y = _finished(of, sums, np.arange(of.outputs))
    made = static_shape(tensor_of(y))
    assert made is not None
    _, outputs, _, columns = made
    apart = reshape(y, (count, batch, outputs, each, columns))
    joined = reshape(transpose(apart, (1, 2, 0, 3, 4)), (batch, outputs, count * each, columns))
    return joined if count * each == out else slice_(joined, (0, 0, 0, 0), (None, None, out, None))


def windows(of: IntegerConvolution, data: Expr, rows: int) -> Expr | None:
    """The product of all windows, one a row, and the kernels."""
    del rows
    given = type_of(data)
    sizes = static_shape(given) if isinstance(given, TensorType) else None
    if sizes is None or len(sizes) != 4 or of.groups != 1 or 0 in sizes:
        return None
    steps, far = np.array(of.strides), np.array(of.dilation)
    span = (np.array(of.weight.shape[2:]) - 1) * far + 1
    out = (np.array(sizes[2:]) + np.array(of.padding).sum(1) - span) // steps + 1
    wide = pad(data, ((0, 0), (0, 0), *of.padding))
    seen: list[Expr] = []
    for place in np.ndindex(*of.weight.shape[2:]):
        first = np.array(place) * far
        ends = first + (out - 1) * steps + 1
        cut = tuple(first.tolist()), tuple(ends.tolist())
        seen.append(slice_(wide, *cut, axes=(2, 3), steps=of.strides))
    places = transpose(concat(tuple(seen), axis=1), (0, 2, 3, 1))
    high, across = out.tolist()
    table = reshape(places, (sizes[0] * high * across, len(seen) * sizes[1]))
    kernels = np.moveaxis(of.weight, 1, -1).reshape(of.outputs, -1)
    y = _finished(of, dense(cast(table, i32), _weight(kernels)), np.arange(of.outputs), 0)
    return transpose(reshape(y, (sizes[0], high, across, of.outputs)), (0, 3, 1, 2))


def groups(of: IntegerConvolution, data: Expr, rows: int) -> Expr | None:
    """Each group of channels as a separate convolution."""
    channels = of.weight.shape[1]
    if of.groups == 1 or channels == 1:
        return None
    many = of.outputs // of.groups
    parts: list[Expr] = []
    for group in range(of.groups):
        mine = np.arange(group * many, (group + 1) * many)
        piece = slice_(data, (group * channels,), ((group + 1) * channels,), axes=(1,))
        sums = conv(
            cast(piece, i32), _weight(of.weight[mine]), strides=of.strides, padding=of.padding,
            dilation=of.dilation,
        )  # fmt: skip
        parts.append(_finished(of, sums, mine))
    return concat(tuple(parts), axis=1)


_WAYS: Final[tuple[Rewritten, ...]] = (strips, windows, groups)


def _weight(of: np.ndarray[Any, Any]) -> Expr:
    return cast(const(np.ascontiguousarray(of)), i32)


def _finished(
    of: IntegerConvolution, sums: Expr, mine: np.ndarray[Any, Any], axes: int = 2
) -> Expr:
    """The sums of some outputs with their bias, shift and clip; a given number of axes follow the
    outputs."""
    shape = (-1, *(1,) * axes)
    bias = None if of.bias is None else of.bias[mine].reshape(shape)
    shift: Any = of.shift
    if shift is None:
        shift = np.array(of.shifts, np.int32)[mine].reshape(shape)
    return integer_layer(sums, bias, shift, of.low, of.high)


# --- reasons -----------------------------------------------------------------------------------


FORM: Final = "Make such layers: plica.quantise(model, samples, power_of_two=True)."
TIES: Final = (
    "A model that says itself what is quantised is made to round so by"
    " plica.quantise(model, power_of_two=True), without samples."
)
SIGNED: Final = "Quantise around zero: plica.quantise(model, samples, power_of_two=True)."
ONE_SCALE: Final = (
    "Quantise with one scale for a whole weight:"
    " plica.quantise(model, samples, power_of_two=True, per_channel=False)."
)
MATRIX: Final = "Reshape what it reads to a matrix, of which the last axis is multiplied."
SIZES: Final = "Compile it for known sizes."
LAST: Final = (
    "Only a layer whose result becomes bytes again is offloaded: one that is followed by"
    " another quantised layer."
)


@frozen
class Near:
    """A layer that is not in the integer form, why, and what would help."""

    op: str
    weight: str
    why: str
    hint: str

    def __str__(self) -> str:
        return f"{self.op} {self.weight}: {self.why}"


def near(module: Module, taken: Collection[Expr] = ()) -> tuple[Near, ...]:
    """The layers of a module that are not among those in the integer form."""
    known = infer(module)
    nodes = [
        node
        for node in post_order(*(function for _, function in known.functions()))
        if isinstance(node, Apply)
    ]
    users: dict[Expr, list[Apply]] = {}
    for node in nodes:
        for expr in dict.fromkeys(node.args):
            users.setdefault(expr, []).append(node)
    found = []
    for node in nodes:
        if node.op in LAYERS and node not in taken and not is_closed(node):
            shape = static_shape(_kind(node.args[1])) or ()
            why, hint = _reason(node, users)
            found.append(Near(node.op, "x".join(map(str, shape)) or "of open size", why, hint))
    return tuple(found)


def remedies(of: Sequence[Near]) -> str:
    """What would help, each thing once."""
    return " ".join(dict.fromkeys(each.hint for each in of)) or FORM


def _reason(layer: Apply, users: dict[Expr, list[Apply]]) -> tuple[str, str]:
    kind = _kind(layer)
    if kind.dtype is not i32:
        return f"it is computed in {kind.dtype}", FORM
    if layer.op == "matmul" and len(kind.shape) != 2:
        return f"it is a product of {len(kind.shape)} axes, and no matrix", MATRIX
    for data, what in ((layer.args[0], "what it reads"), (layer.args[1], "its weight")):
        if isinstance(data, Const):
            continue
        if isinstance(data, Apply) and data.op == "subtract":
            return f"{what} has a zero point", SIGNED
        if not isinstance(data, Apply) or data.op != "cast" or _kind(data.args[0]).dtype is not i8:
            return f"{what} is not of signed bytes", SIGNED
    if not is_closed(layer.args[1]):
        return "its weight is no constant", FORM
    if static_shape(kind) is None:
        return "its sizes are not known", SIZES
    return _after(layer, users)


def _after(layer: Apply, users: dict[Expr, list[Apply]]) -> tuple[str, str]:
    """What happens to the sums of a layer."""
    at: Apply = layer
    while True:
        above = users.get(at, [])
        if len(above) > 1:
            return "its sums of i32 are used more than once", LAST
        if not above or above[0].op == "dequantise":
            return "its sums stay in i32, since no quantised operator reads them", LAST
        at = above[0]
        if at.op == "fixed_multiply":
            return _multiplied(at)
        if at.op in ("right_shift", "clip"):
            return "what it gives is not of signed bytes, or differs along another axis", SIGNED
        if at.op != "add" or not any(map(is_closed, at.args)):
            return f"its sums of i32 go into {at.op}, and not into a shift and a clip", LAST


def _multiplied(of: Apply) -> tuple[str, str]:
    """Why a change of scale is a product, and no shift."""
    factor = of.args[1]
    values = factor.numpy().astype(np.int64) if isinstance(factor, Const) else np.zeros(1, np.int64)
    if np.any(values & (values - 1)) or np.any(values <= 0):
        return "its change of scale is a product, and no shift", FORM
    if attr(of, "rounding") == "even":
        return "its change of scale rounds ties to even, and a shift rounds them up", TIES
    return "its change of scale is a shift to the left, or of more than 31 bits", ONE_SCALE


def _kind(of: Expr) -> TensorType:
    found = type_of(of)
    assert isinstance(found, TensorType)  # layers and what they read are tensors
    return found
