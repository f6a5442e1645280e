"""Packing: a graph whose integer layers run on the accelerator, with their values in blocked
layouts.

    before:  def f(x): return integer(integer(x))              two layers in the integer form
    after:   launch0 reads pack(x); launch1 reads launch0; the result is unpack(launch1)

>>> import numpy as np
>>> from plica.codegen.accel.layer import layer_of
>>> from plica.codegen.accel.vta import vta
>>> from plica.ir.type.dtype import i32
>>> from plica.core import Name
>>> from plica.ir.graph.expression import const
>>> from plica.ir.type.infer import infer
>>> from plica.ir.op.convolution import conv
>>> from plica.ir.op.elementwise import cast
>>> from plica.ir.type.term import tensor
>>> from plica.rewrite.quantise.form import integer_convolutions, integer_layer
>>> w = cast(const(np.ones((16, 16, 1, 1), np.int8)), i32)
>>> x = Var(Name("x"), tensor((1, 16, 4, 4), "i8"))
>>> y = integer_layer(conv(cast(x, i32), w), None, 4, 0, 127)
>>> z = integer_layer(conv(cast(y, i32), w), None, 4, 0, 127)
>>> whole = infer(main_module(Function((), (), (x,), None, z)))
>>> layers = [layer_of(vta(), each) for each in integer_convolutions(whole)]
>>> first, second = packed(whole.main_function(), layers).launches
>>> second.data is first.result
True

Laws: with the launch variables replaced by their layers' meaning, in blocks, the packed graph
equals the original exactly; no launch depends on itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import frozen

from plica.codegen.accel.layer import AccelLayer
from plica.core import CompilerBug
from plica.ir.graph import Expr, Function, Project, Tuple, Var, main_module
from plica.ir.loop.layout import as_it_is
from plica.ir.loop.scalar import index
from plica.ir.op.elementwise import cast
from plica.ir.type import DType, TensorType, TupleType, Type, i8, known, type_of
from plica.rewrite.graph.fold import fold_constants
from plica.rewrite.graph.walk import NameSupply, operands
from plica.rewrite.layout.convert import LayoutConverter
from plica.rewrite.layout.rules import LAYOUT
from plica.rewrite.layout.transform import operator, shape_of, transform
from plica.rewrite.pack import rewrite


@frozen
class LayerLaunch:
    """A layer, the variable of its result, and its input, in blocks."""

    layer: AccelLayer
    result: Var
    data: Expr


@frozen
class Packed:
    """A graph with launches: its parameters, the launches in order, and its results."""

    params: tuple[Var, ...]
    launches: tuple[LayerLaunch, ...]
    outputs: tuple[Expr, ...]


def packed(of: Function, layers: Sequence[AccelLayer]) -> Packed:
    """The body of a resolved function with these layers launched; tuples are flattened."""
    packer = _Packer({layer.of.root: layer for layer in layers}, of)
    leaves = tensors(of.body)
    for leaf in leaves:
        packer.visit_all(leaf)
    outputs = [packer.plain(leaf) for leaf in leaves]
    launches = packer.launches
    whole = Tuple((*(launch.data for launch in launches), *outputs))
    params = (*of.params, *(launch.result for launch in launches))
    items = _tidy(Function((), (), params, None, whole))
    count = len(launches)
    return Packed(
        of.params,
        tuple(
            [
                LayerLaunch(launch.layer, launch.result, data)
                for launch, data in zip(launches, items[:count], strict=True)
            ]
        ),
        items[count:],
    )


def tensors(of: Expr) -> tuple[Expr, ...]:
    """The tensors that an expression of tensor or tuple type is made of, in order."""
    exprs: list[Expr] = []
    stack: list[tuple[Expr, Type]] = [(of, type_of(of))]
    while stack:
        each, kind = stack.pop()
        if not isinstance(kind, TupleType):
            exprs.append(each)
            continue
        items = [
            each.items[at] if isinstance(each, Tuple) else Project(each, at)
            for at in range(len(kind.items))
        ]
        stack += reversed(list(zip(items, kind.items, strict=True)))
    return tuple(exprs)


def _tidy(of: Function) -> tuple[Expr, ...]:
    """The results of a function after cancelling inverse transforms."""
    simple, _ = rewrite(of, LAYOUT)
    assert isinstance(simple, Function)
    folded = fold_constants(main_module(simple)).main_function().body
    if not isinstance(folded, Tuple):
        raise CompilerBug("constant folding took a tuple apart")
    return folded.items


class _Packer(LayoutConverter):
    """A converter to which the value of a layer is a variable in the layout of the machine."""

    def __init__(self, layers: Mapping[Expr, AccelLayer], of: Function) -> None:
        super().__init__({}, exact=True)
        self.layers = layers
        self.launches: list[LayerLaunch] = []
        self.supply = NameSupply(of)

    def visit_all(self, root: Expr) -> None:
        """Visits everything below, except the insides of layers."""
        stack: list[tuple[Expr, bool]] = [(root, False)]
        while stack:
            node, leaving = stack.pop()
            if node in self.plain_forms or node in self.made or node in self.several:
                continue
            if leaving:
                self.visit(node)
                continue
            stack.append((node, True))
            layer = self.layers.get(node)
            parts = operands(node) if layer is None else (layer.of.data,)
            stack += [(part, False) for part in reversed(parts)]

    def visit(self, node: Expr) -> None:
        """A layer is launched; all else is converted."""
        if (layer := self.layers.get(node)) is None:
            super().visit(node)
            return
        units, layout, logical = layer.units, layer.after, shape_of(node)
        sizes = [known(size) or 0 for size in logical]
        blocks = (units.rows, units.columns, *(1 for _ in sizes[2:]))
        filled = [-(-size // block) * block for size, block in zip(sizes, blocks, strict=True)]
        stored = layout.shape_of([index(size) for size in filled])
        assert stored is not None  # whole blocks
        result = Var(self.supply.name("launch"), TensorType(stored, units.result.scope.dtype))
        self.launches.append(LayerLaunch(layer, result, self.read_by(layer)))
        given = _as(result, i8)
        if filled != sizes:  # what fills up the last block is nobody's
            self.plain_forms[node] = transform(given, layout, as_it_is(layout.rank), logical)
        else:
            self.keep(node, layout, given)

    def read_by(self, layer: AccelLayer) -> Expr:
        """The input of a layer as its machine needs it: padded, in blocks, in the scope's type."""
        data, dtype = layer.of.data, layer.units.data.scope.dtype
        if not layer.pad:
            return _as(self.at(data, layer.layout), dtype)
        rank = layer.layout.rank
        widths = ((0, 0), (0, 0), *(((layer.pad, layer.pad),) * (rank - 2)))
        wide = operator("pad")(self.plain(data), pad_width=widths)
        return _as(transform(wide, as_it_is(rank), layer.layout, shape_of(wide)), dtype)


def _as(value: Expr, dtype: DType) -> Expr:
    """The value cast to an element type that holds it."""
    kind = type_of(value)
    assert isinstance(kind, TensorType)  # layers read and give tensors
    return value if kind.dtype is dtype else cast(value, dtype)
