"""Operators of C-like targets: one term over the texts of its operands.

What such languages do otherwise than `plica.ir.loop.scalar` says is a helper of the target's
prelude.
Integers that come from memory wrap around; index terms never do, so they are plain.
"""

from __future__ import annotations

from collections.abc import Sequence

from plica.codegen.emit.dialect import OperatorPlace
from plica.core.diagnostic import CompilerBug
from plica.ir.loop.scalar import (
    Add,
    Cast,
    Eq,
    FloorDiv,
    FloorMod,
    Intrinsic,
    Le,
    Lit,
    Lt,
    Max,
    Min,
    Mul,
    Ne,
    Scalar,
    Sub,
    dtype_of,
    row_of,
)
from plica.ir.loop.scalar_row import ScalarRow
from plica.ir.type.dtype import DType, bool_, f64


def operation(node: Scalar, kids: Sequence[str], site: OperatorPlace) -> str:
    """The text of a term over the texts of its operands."""
    match node:
        case Add() | Sub() | Mul():
            return _arithmetic(node, dtype_of(node), kids, site)
        case FloorDiv(left, right) | FloorMod(left, right) if dtype_of(node).is_integer:
            positive = isinstance(right, Lit) and right.value > 0 and not site.is_read(node)
            if positive and site.is_natural(left):
                return f"({kids[0]} {'/' if isinstance(node, FloorDiv) else '%'} {kids[1]})"
        case Min() | Max():
            word = "min" if isinstance(node, Min) else "max"
            return _extreme(word, dtype_of(node), kids, site)
        case Eq(left, _) | Ne(left, _) | Lt(left, _) | Le(left, _):
            if kids[0] == kids[1] and not dtype_of(left).is_float:
                return site.dialect.literal(isinstance(node, Eq | Le), bool_)
        case Cast(value, to):
            return _cast(kids[0], dtype_of(value), to, site)
        case Intrinsic("rsqrt", (value,)) if (of := dtype_of(value)).is_float:
            root = _rounded(f"sqrt{_end(of)}({kids[0]})", of, site)
            return _rounded(f"({site.dialect.literal(1.0, of)} / {root})", of, site)
    row = row_of(node)
    if row is None:
        raise CompilerBug(f"{node!r} is no operation on scalars.")
    return _by_template(row, dtype_of(_first(node, row)), kids, site)


def _first(node: Scalar, row: ScalarRow) -> Scalar:
    """The operand whose dtype says which text an operator has."""
    if isinstance(node, Intrinsic):
        return node.args[0]
    return node if not row.is_bool else node._children[0]  # type: ignore[return-value]  # a scalar


def _by_template(row: ScalarRow, of: DType, kids: Sequence[str], site: OperatorPlace) -> str:
    """What the template of a row says (`plica.ir.loop.scalar_row`)."""
    dialect = site.dialect
    text = dialect.templates.get(row.name, row.dialects.get(dialect.name, row.c)).get(of.kind)
    if not text:
        raise CompilerBug(f"{row.name} of {of} has no text in the dialect {dialect.name}.")
    args = kids[: row.arity]
    if text.startswith("@"):
        found = site.call(text[1:], (of,), args)
    else:
        inf = dialect.literal(float("inf"), of) if "{inf}" in text else ""
        mask = hex((1 << of.bits) - 1)
        found = text.format(*args, e=_end(of), b=of.bits, m=mask, inf=inf)
    if row.name.startswith("Bit"):
        found = dialect.cast(of, found)
    return _rounded(found, of, site) if row.rounds and of.is_float and not row.is_bool else found


def _end(of: DType) -> str:
    return "" if of is f64 else "f"


def _rounded(text: str, of: DType, site: OperatorPlace) -> str:
    """The value as its dtype holds it, after an operation in the dtype of registers."""
    return site.call(f"p_round_{of.name}", (), (text,)) if of.is_coded else text


def _arithmetic(node: Scalar, of: DType, kids: Sequence[str], site: OperatorPlace) -> str:
    row = row_of(node)
    assert row is not None
    if of is bool_:  # numpy's: or, and; a difference of bools is where they differ
        return site.dialect.cast(of, f"{kids[0]} {row.c['bool']} {kids[1]}")
    alone = site.dialect.products.get(of.name) if isinstance(node, Mul) else None
    if alone is not None and not site.is_contracted(node):
        return alone.format(*kids)
    if of.is_float or site.is_read(node):
        return _by_template(row, of, kids, site)
    return f"({kids[0]} {row.sign} {kids[1]})"


def _extreme(word: str, of: DType, kids: Sequence[str], site: OperatorPlace) -> str:
    if of.is_float:
        return site.call(f"p_{word}_{'f64' if of is f64 else 'f32'}", (), kids)
    if of is bool_:
        return f"({kids[0]} {'&&' if word == 'min' else '||'} {kids[1]})"
    return site.dialect.extreme(word, of, kids)


def _cast(value: str, source: DType, to: DType, site: OperatorPlace) -> str:
    if source is to:
        return value
    if to is bool_:
        return f"({value} != 0)"
    if source.is_float and to.is_integer:
        low, high = to.bounds
        literal = site.dialect.literal
        limits = literal(float(low), source), literal(float(high), source)
        ends = literal(low, to), literal(high, to)
        return site.call("p_cast", (to, source), (value, *limits, *ends))
    return _rounded(site.dialect.cast(to, value), to, site)
