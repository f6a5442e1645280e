"""How much of a kernel of open sizes plain loops do: what LLVM's passes over loops are worth there.

>>> from plica.ir.loop.scalar import Buffer, ScalarVar, index
>>> from plica.ir.loop.statement import For, Kernel, Seq, Store
>>> from plica.core.name import Name
>>> from plica.ir.type.dtype import f32, i64
>>> n, i, j, k = [ScalarVar(Name(each), i64) for each in "nijk"]
>>> x = Buffer(Name("x"), (n, n), f32)
>>> lanes = st.For(k, index(8), "vectorized", st.Store(x, (i, j * 8 + k), x[i, j]))
>>> rows = st.For(i, n, "serial", st.For(j, n // 8, "serial", lanes))
>>> edge = st.For(i, n, "serial", st.Store(x, (i, index(0)), x[i, i]))
>>> plain_share(st.Kernel((n,), (x,), 0, st.Seq((rows, edge)))) < 0.1
True
"""

from __future__ import annotations

from typing import Final

from plica.core import Term, free_vars, substitute
from plica.ir.loop import scalar as sc, statement as st
from plica.ir.type import i64, known, normal_dim

ASSUMED_SIZE: Final = 67
"""The assumed value of an open size or number; odd, so that remainders of rows are not empty."""

LANES: Final = 4
"""Elements of a vector, at least."""


def plain_share(of: st.Kernel) -> float:
    """The part of a kernel's steps, at a usual size, that loops of single elements do."""
    sizes: dict[Term, int] = dict.fromkeys(of.dims, ASSUMED_SIZE)
    plain = total = 0.0
    stack: list[tuple[st.Stmt, float, bool]] = [(of.body, 1.0, True)]
    while stack:
        stmt, times, single = stack.pop()
        match stmt:
            case st.Seq(stmts):
                stack += [(each, times, single) for each in stmts]
            case st.Alloc(_, body):
                stack.append((body, times, single))
            case st.Bind(var, value, body):
                if (number := _number(value, sizes)) is not None:
                    sizes[var] = number
                stack.append((body, times, single))
            case st.Branch(condition, then, orelse):
                taken = _truth(condition, sizes)
                stack += [(then, times, single)] if taken is not False else []
                stack += [(orelse, times, single)] if taken is not True else []
            case st.For(var, extent, kind, body):
                count = _number(extent, sizes)
                turns = ASSUMED_SIZE if count is None else max(count, 0)
                sizes[var] = turns // 2
                if kind == "vectorized":
                    stack.append((body, times * -(-turns // LANES), False))
                else:
                    alone = kind != "unrolled" and not _holds_loops(body)
                    stack.append((body, times * turns, alone if kind != "unrolled" else single))
            case st.Store():
                total += times
                plain += times if single else 0.0
            case _:
                return 1.0
    return plain / total if total else 0.0


def _holds_loops(of: st.Stmt) -> bool:
    """Whether a statement has loops of more than one turn."""
    return any(isinstance(each, st.For) and known(each.extent) != 1 for each in st.statements(of))


def _number(of: sc.Scalar, sizes: dict[Term, int]) -> int | None:
    """An index where sizes and loops are known."""
    if isinstance(of, sc.Lit):
        return known(of)
    there: dict[Term, Term] = {
        var: sc.Lit(sizes[var], i64) for var in free_vars(of) if var in sizes
    }
    return known(normal_dim(substitute(of, there)))


def _truth(of: sc.Scalar, sizes: dict[Term, int]) -> bool | None:
    """Whether a condition holds at these sizes, or None if unknown."""
    match of:
        case sc.And(left, right):
            both = _truth(left, sizes), _truth(right, sizes)
            return False if False in both else None if None in both else True
        case sc.Lt(left, right) | sc.Le(left, right) if sc.dtype_of(left) is i64:
            low, high = _number(left, sizes), _number(right, sizes)
            if low is None or high is None:
                return None
            return low < high if isinstance(of, sc.Lt) else low <= high
        case _:
            return None
