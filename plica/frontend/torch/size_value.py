"""Numbers computed from open sizes, as values of rank 0: f64, or i64 if whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Final

from plica.frontend.measured import amount
from plica.frontend.torch.symbol import Symbols, Sympy
from plica.frontend.word import dtype, to
from plica.ir.graph.expression import Expr, const
from plica.ir.loop.scalar import Scalar
from plica.ir.op.namespace import op
from plica.ir.type.dtype import f64, i64

Build = Callable[[Sequence[Expr]], Expr]


def _real(record: Callable[..., Expr]) -> Build:
    """A function of floats."""
    return lambda parts: record(*[to(part, f64) for part in parts])


def _whole(record: Callable[[Expr], Expr]) -> Build:
    """A float made whole."""
    return lambda parts: to(record(to(parts[0], f64)), i64)


def _joined(record: Callable[[Expr, Expr], Expr]) -> Build:
    """Two or more of one type; a float among whole numbers makes all of them floats."""

    def made(parts: Sequence[Expr]) -> Expr:
        of = f64 if any(dtype(part) is f64 for part in parts) else i64
        return reduce(record, [to(part, of) for part in parts])

    return made


# fmt: off
_BUILT: Final[dict[str, Build]] = {
    "Add":          _joined(op.add),
    "Mul":          _joined(op.multiply),
    "Max":          _joined(op.maximum),
    "Min":          _joined(op.minimum),
    "FloorDiv":     _joined(op.floor_divide),
    "CleanDiv":     _joined(op.floor_divide),
    "Mod":          _joined(op.mod),
    "PythonMod":    _joined(op.mod),
    "PowByNatural": _joined(op.power),
    "Pow":          _real(op.power),
    "FloatPow":     _real(op.power),
    "FloatTrueDiv": _real(op.divide),
    "IntTrueDiv":   _real(op.divide),
    "ToFloat":      _real(lambda x: x),
    "TruncToFloat": _real(op.trunc),
    "TruncToInt":   _whole(op.trunc),
    "FloorToInt":   _whole(op.floor),
    "CeilToInt":    _whole(op.ceil),
    "RoundToInt":   _whole(op.round),
    "OpaqueUnaryFn_sqrt":  _real(op.sqrt),
    "OpaqueUnaryFn_exp":   _real(op.exp),
    "OpaqueUnaryFn_log":   _real(op.log),
    "OpaqueUnaryFn_log2":  _real(op.log2),
    "OpaqueUnaryFn_sin":   _real(op.sin),
    "OpaqueUnaryFn_cos":   _real(op.cos),
    "OpaqueUnaryFn_tan":   _real(op.tan),
    "OpaqueUnaryFn_sinh":  _real(op.sinh),
    "OpaqueUnaryFn_cosh":  _real(op.cosh),
    "OpaqueUnaryFn_tanh":  _real(op.tanh),
    "OpaqueUnaryFn_asin":  _real(op.arcsin),
    "OpaqueUnaryFn_acos":  _real(op.arccos),
    "OpaqueUnaryFn_atan":  _real(op.arctan),
    "OpaqueUnaryFn_asinh": _real(op.arcsinh),
}
# fmt: on


def value_of(expression: Sympy, symbols: Symbols) -> Expr | None:
    """The value of an expression over sizes, or None for other forms."""
    done: dict[Sympy, Expr | None] = {}
    stack = [(symbols.settled(expression), False)]
    root = stack[0][0]
    while stack:
        here, ready = stack.pop()
        if here in done:
            continue
        if (leaf := _leaf(here, symbols)) is not None:
            done[here] = leaf
            continue
        if not ready:
            stack.append((here, True))
            stack += [(each, False) for each in here.args]
            continue
        parts = [expr for arg in here.args if (expr := done[arg]) is not None]
        build = _BUILT.get(type(here).__name__)
        done[here] = None if build is None or len(parts) != len(here.args) else build(parts)
    return done[root]


def _leaf(here: Sympy, symbols: Symbols) -> Expr | None:
    """A number, or a term in dims."""
    if here.is_number:
        return const(int(here), i64) if here.is_Integer else const(float(here), f64)
    term = symbols.index_term(here) if here.is_integer else None
    if isinstance(term, Scalar):
        return amount(term)
    return None if term is None else const(term, i64)
