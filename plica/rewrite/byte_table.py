"""Byte functions: an elementwise function from bytes to bytes becomes a table.

    before:  quantise(gelu(dequantise(x, s, z)), t, u)      with bytes between its steps, or without
    after:   take(table of 256 results, cast(x, i32))

>>> from plica.core.name import Name
>>> from plica.ir.graph.expression import Var
>>> from plica.ir.graph.module import module
>>> from plica.ir.op.elementwise import cast, exp
>>> from plica.ir.type.dtype import f32
>>> from plica.ir.type.term import tensor
>>> x, main = Var(Name("x"), tensor((2, 3), "u8")), Var(Name("main"), None)
>>> body = cast(exp(cast(x, f32) * const(0.01, f32)), u8)
>>> of = module({main: Function((), (), (x,), None, body)}, main)
>>> with_byte_tables(of, frozenset(("exp",))).main_function().body.op
'take'
"""

from __future__ import annotations

import numpy as np

from plica.ir.graph import Apply, Const, Expr, Function, Module, const, find
from plica.ir.loop.fusion_kind import kind
from plica.ir.op.elementwise import add, cast
from plica.ir.op.index import take
from plica.ir.type import TensorType, i8, i32, infer, known, type_of, u8
from plica.rewrite.closed import is_closed, value_of
from plica.rewrite.graph.walk import expressions, map_functions, operands, with_operands


def with_byte_tables(module: Module, slow: frozenset[str]) -> Module:
    """The module with tables for byte functions that contain a slow operator."""
    return map_functions(infer(module), lambda _, function: _tabled(function, slow))


def _tensor(of: Expr) -> TensorType | None:
    found = type_of(of)
    return found if isinstance(found, TensorType) else None


def _is_byte(of: Expr) -> bool:
    tensor_type = _tensor(of)
    return tensor_type is not None and tensor_type.dtype in (i8, u8)


def _is_number(of: Expr) -> bool:
    """Whether a value is one number that depends on nothing."""
    tensor = _tensor(of)
    return tensor is not None and is_closed(of) and all(known(size) == 1 for size in tensor.shape)


def _is_pointwise(of: Expr, named: frozenset[str]) -> bool:
    if not isinstance(of, Apply) or (record := find(of.op)) is None:
        return False
    types = [_tensor(arg) for arg in of.args]
    tensors = [tensor_type for tensor_type in types if tensor_type is not None]
    if len(tensors) != len(types):
        return False
    if record.compute is None:
        return of.op in named
    return kind(record, dict(of.attrs), *tensors) in ("elementwise", "broadcast")


def _sources(order: list[Expr], named: frozenset[str]) -> tuple[dict[Expr, Expr], set[Expr]]:
    """The tensor of bytes that each value is a function of, and the values that take long."""
    sources: dict[Expr, Expr] = {}
    slow: set[Expr] = set()
    for node in order:
        parts = [operand for operand in operands(node) if not _is_number(operand)]
        below = {sources.get(part) for part in parts}
        own = _tensor(node)
        alike = own is not None and all(
            of is not None and of.shape == own.shape for of in map(_tensor, parts)
        )
        if parts and alike and len(below) == 1 and None not in below and _is_pointwise(node, named):
            (source,) = below
            assert source is not None
            sources[node] = source
            assert isinstance(node, Apply)
            if node.op in named or any(part in slow for part in parts):
                slow.add(node)
        elif _is_byte(node) and not is_closed(node):
            sources[node] = node
    return sources, slow


def _tabled(function: Function, named: frozenset[str]) -> Function:
    order = list(expressions(function))
    sources, slow = _sources(order, named)
    roots = {expr for expr in slow if _is_byte(expr)}
    if not roots:
        return function
    wanted = _wanted(order, sources)
    memo: dict[Expr, Expr] = {}
    for node in order:
        new = with_operands(node, tuple([memo[part] for part in operands(node)]))
        if node in roots and node in wanted and (table := _table(node, sources, order)) is not None:
            source = sources[node]
            place = cast(memo[source], i32)
            tensor_type = _tensor(source)
            low = int(tensor_type.dtype.bounds[0]) if tensor_type is not None else 0
            new = take(table, place if not low else add(place, const(-low, i32)), axis=0)
        memo[node] = new
    made = memo[function]
    assert isinstance(made, Function)
    return made


def _wanted(order: list[Expr], sources: dict[Expr, Expr]) -> set[Expr]:
    """What something else needs than bytes that are made of the same source."""
    exprs: set[Expr] = set()
    for node in reversed(order):
        source = sources.get(node)
        is_made = source is not None and source is not node
        for part in operands(node):
            alike = is_made and sources.get(part) is source
            if not alike or (node in exprs and not _is_byte(node)):
                exprs.add(part)
    return exprs


def _table(root: Expr, sources: dict[Expr, Expr], order: list[Expr]) -> Const | None:
    """The value for each byte of its source."""
    source, own = sources[root], _tensor(root)
    of = _tensor(source)
    assert of is not None
    assert own is not None
    low, high = (int(bound) for bound in of.dtype.bounds)
    memo: dict[Expr, Expr] = {source: const(np.arange(low, high + 1), of.dtype)}
    for node in order:
        if sources.get(node) is source and node is not source:
            parts = [memo.get(part, part) for part in operands(node)]
            memo[node] = with_operands(node, tuple(parts))
        if node is root:
            break
    values = value_of(memo[root])
    return None if values is None else const(values.reshape(-1), own.dtype)
