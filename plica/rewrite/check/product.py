"""Whether every float product inside some operators is exact on given data.

A fused multiply-add differs from a product and a sum only in not rounding the product. On data
whose products are exact, both must be equal: there, and only there, `fused` can be distinguished
from `reassociates`. Two factors with few binary digits suffice; an operator's products are read off
its tensor definition.

>>> binary_digits(np.array([1.0, 0.75, 5.0, 0.0, np.inf]))
3
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, Final

import attrs
import numpy as np

from plica.core import IllTyped, Name, Term, post_order
from plica.ir.graph import Apply, Attrs, Expr, Function, Operator, Var, find
from plica.ir.graph.module import main_module
from plica.ir.interpret.interpreter import interpret
from plica.ir.loop import Compute, scalar as sc
from plica.ir.type import TensorType, Type, bool_, infer, known, type_of

Array = np.ndarray[Any, Any]
F64_DIGITS: Final = 53  # binary digits of f64, in which numbers are looked at


def products_are_exact(values: Mapping[Expr, Array]) -> bool:
    """Whether no operator among the terms rounds a product that is added to something.

    Terms and arguments come with their values.
    """
    known = {node: _inside(node) for node in values if isinstance(node, Apply)}
    added = {arg for node, inside in known.items() if inside.adds for arg in node.args}
    for node, inside in known.items():
        if not inside.adds and node not in added:
            continue
        if inside.factors is None or any(node.args[i] not in values for i in inside.used):
            return False
        for pair in inside.factors:
            digits = sum(binary_digits(values[node.args[i]]) for i in pair)
            if digits > _digits(values[node]):
                return False
    return True


def sums_of_products(values: Mapping[Expr, Array]) -> float:
    """The largest magnitude of the products that an operator among the terms sums, all together.

    An operator that adds products of its arguments gives it where it is applied to their sizes.
    """
    heaviest = 0.0
    for node in values:
        if not isinstance(node, Apply) or any(arg not in values for arg in node.args):
            continue
        inside = _inside(node)
        if not inside.adds or not inside.factors:
            continue
        params = [Var(Name("x", at), type_of(arg)) for at, arg in enumerate(node.args)]
        module = main_module(
            Function((), (), tuple(params), None, Apply(node.op, tuple(params), node.attrs))
        )
        sizes = [np.abs(values[arg]) for arg in node.args]
        result = np.asarray(interpret(infer(module), *sizes), np.float64)
        heaviest = max(heaviest, float(result[np.isfinite(result)].sum()))
    return heaviest


def binary_digits(of: Array) -> int:
    """Of how many binary digits the longest of the numbers is, the zeros at its ends apart."""
    wide = np.abs(of.astype(np.float64)).ravel()
    fraction, _ = np.frexp(wide[np.isfinite(wide) & (wide != 0)])
    if not fraction.size:
        return 0
    whole = np.ldexp(fraction, F64_DIGITS).astype(np.int64)
    last = np.log2((whole & -whole).astype(np.float64)).min()
    return F64_DIGITS - int(last)


def _digits(of: Array) -> int:
    return {"float64": 53, "float32": 24, "float16": 11}.get(str(of.dtype), 8)


@attrs.frozen
class Arithmetic:
    """The arithmetic of an operator: whether it adds floats, and which arguments it multiplies.

    No factors are known where it multiplies something that it has computed, or a constant.
    """

    adds: bool
    factors: tuple[tuple[int, int], ...] | None
    source: int | None = None  # the argument whose elements it moves about, where it does only that

    @property
    def used(self) -> frozenset[int]:
        return frozenset(i for pair in self.factors or () for i in pair)


def _inside(node: Apply) -> Arithmetic:
    return _arithmetic(node.op, node.attrs, tuple(type_of(arg) for arg in node.args))


@functools.lru_cache(maxsize=4096)
def _arithmetic(op: str, attributes: Attrs, types: tuple[Type, ...]) -> Arithmetic:
    record = find(op)
    if record is None or not all(isinstance(each, TensorType) for each in types):
        return Arithmetic(True, None)
    tensors = [each for each in types if isinstance(each, TensorType)]
    if record.compute is None:
        return _of_others(record, attributes, tensors)
    buffers = [sc.Buffer(Name("x", i), each.shape, each.dtype) for i, each in enumerate(tensors)]
    made = record.compute(dict(attributes), *buffers)
    adds, found, told = False, list[tuple[int, int]](), True
    bodies = [each.body for each in ((made,) if isinstance(made, Compute) else made)]
    for node in post_order(sc.Select(sc.Lit(True, bool_), bodies[0], bodies[-1])):
        match node:
            case sc.Add() | sc.Sub():
                adds = adds or sc.dtype_of(node).is_float
            case sc.Reduce(combiner="sum", extents=extents):  # a sum of one term adds nothing
                adds = adds or (sc.dtype_of(node).is_float and any(known(n) != 1 for n in extents))
            case sc.Mul(left, right) if sc.dtype_of(node).is_float:
                a, b = _loaded(left), _loaded(right)
                if a is None or b is None:
                    told = False
                else:
                    found.append((buffers.index(a), buffers.index(b)))
    moved = _loaded(bodies[0]) if len(bodies) == 1 else None
    source = None if moved is None else buffers.index(moved)
    return Arithmetic(adds, tuple(found) if told else None, source)


def _of_others(record: Operator, attributes: Attrs, types: list[TensorType]) -> Arithmetic:
    """The arithmetic of a composite operator, as far as it applies to its own arguments."""
    assert record.decompose is not None
    params = [Var(Name("x", i), tensor_type) for i, tensor_type in enumerate(types)]
    sources: dict[Term, int] = {param: i for i, param in enumerate(params)}
    adds, found = False, list[tuple[int, int]]()
    for node in post_order(record.decompose(dict(attributes), *params)):
        if not isinstance(node, Apply):
            continue
        try:
            inside = _inside(node)
        except IllTyped:  # a literal whose dtype its neighbours decide
            return Arithmetic(True, None)
        adds = adds or inside.adds
        if inside.factors is None or any(node.args[i] not in sources for i in inside.used):
            return Arithmetic(True, None)
        found.extend((sources[node.args[i]], sources[node.args[j]]) for i, j in inside.factors)
        if inside.source is not None and node.args[inside.source] in sources:
            sources[node] = sources[node.args[inside.source]]
    return Arithmetic(adds, tuple(found))


def _loaded(side: sc.Scalar) -> sc.Buffer | None:
    """The buffer a factor is loaded from, or None if it is computed or a constant."""
    match side:
        case sc.Load(buffer):
            return buffer
        case sc.Cast(value):
            return _loaded(value)
        case sc.Select(_, value, sc.Lit(value=0)):  # outside of a padded tensor
            return _loaded(value)
        case _:
            return None
