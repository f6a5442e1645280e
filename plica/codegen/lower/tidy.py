"""Tidy: index terms in their simplest form, and nothing left that does nothing.

    for i in range(1):                          if n < m:
        if i < 4 and n < m:           -->           A[j] = 0
            A[(i * 4 + j) % 4 - i] = 0              (with 0 <= j < 4)

Loops without iterations and branches that are never taken go; a loop of one iteration is its body;
conditions that always hold are not asked.  Values are left as they are, but for the places they
load from.

Laws: the kernel means the same; tidying twice changes nothing more.
"""

from __future__ import annotations

from functools import reduce
from typing import Final

from plica.analysis.enclosing import shown, simple, tidy as shorter
from plica.analysis.index import Context
from plica.analysis.index.context import FALSE, TRUE, conjuncts, negated
from plica.analysis.statement import (
    Done,
    contexts,
    outermost,
    reads_memory,
    walked,
    with_body,
    with_substatements,
)
from plica.core import Term, free_vars, post_order, rebuild, substitute
from plica.ir.loop import scalar as sc, statement as st
from plica.ir.loop.vector import has_vectors
from plica.ir.type import i64, known


def tidy(kernel: st.Kernel) -> st.Kernel:
    """The kernel in its simplest form."""
    start = outermost(kernel)
    done = _TIDIED[0]
    body = walked(kernel.body, start, _down, _up, done)
    done[body, start] = body
    if len(done) > MAX_TIDIED:
        _TIDIED[0] = {}  # another thread may be in the middle of the old one
    return with_body(kernel, body)


MAX_TIDIED: Final = 4096
_TIDIED: Final[list[Done[Context]]] = [{}]
"""Statements in contexts, as they are when they are tidy: mostly little changes until a kernel is
tidied again."""


def _down(stmt: st.Stmt, context: Context) -> tuple[st.Stmt, tuple[Context, ...]]:
    stmt = _simpler(stmt, context)
    return stmt, contexts(stmt, context)


def _up(stmt: st.Stmt, parts: tuple[st.Stmt, ...], context: Context) -> st.Stmt:
    match stmt:
        case st.Seq():
            return st.seq(*parts)
        case st.For() | st.Bind() if parts[0] is st.NOTHING:
            return st.NOTHING
        case st.Branch() if parts == (st.NOTHING, st.NOTHING):
            return st.NOTHING
        case _:
            return with_substatements(stmt, parts)


def _simpler(stmt: st.Stmt, context: Context) -> st.Stmt:
    """The statement itself in simplest form; what is inside comes later."""
    while True:
        match stmt:
            case st.For(var, extent, kind, body, notes):
                size = _size(extent, context)
                count = known(size)
                if count is not None and count <= 0:
                    return st.NOTHING
                if kind == "vectorized" and not notes and _is_first_lane(stmt, context):
                    stmt = st.For(var, sc.index(1), kind, body)
                if _runs_once(stmt, context):
                    stmt = _without_loops(stmt, context)
                    continue
                return st.For(var, size, kind, body, notes)
            case st.Branch(condition, then, orelse):
                said = decided(condition, context)
                if said is TRUE or said is FALSE:
                    stmt = then if said is TRUE else orelse
                    continue
                return st.Branch(said, then, orelse)
            case st.Store(buffer, indices, value):
                places = tuple([_index(index, context) for index in indices])
                return st.Store(buffer, places, _value(value, context))
            case st.Bind(var, value, body):
                return st.Bind(var, _value(value, context), body)
            case st.Invoke(name, operands):
                return st.Invoke(name, tuple([_operand(operand, context) for operand in operands]))
            case _:
                return stmt


def _size(extent: sc.Scalar, context: Context) -> sc.Scalar:
    return simple(extent, context) if not reads_memory(extent) else extent


def _is_first_lane(loop: st.For, context: Context) -> bool:
    """Whether all lanes but the first do nothing.

    It is no vector then.  Of one whose elements are made narrower, and of which a constant mask
    lets one lane through, LLVM 20 stores the lane as wide as it was before.
    """
    match loop.body:
        case st.Branch(condition, _, st.NOTHING):
            (inside,) = contexts(loop, context)
            first = sc.Lt(loop.var, sc.index(1))
            return any(conjunct is first for conjunct in conjuncts(decided(condition, inside)))
        case _:
            return False


def _runs_once(loop: st.For, context: Context) -> bool:
    """Whether a loop has one iteration and is for nothing else."""
    plain = loop.kind not in st.THREADS and not loop.annotations
    return plain and known(_size(loop.extent, context)) == 1


def _without_loops(loop: st.For, context: Context) -> st.Stmt:
    """What is inside loops of one iteration, at the first of each."""
    first: dict[sc.ScalarVar, sc.Scalar] = {}
    inside: st.Stmt = loop
    while isinstance(inside, st.For) and _runs_once(inside, context):
        if inside.var in first or not free_vars(inside.extent).isdisjoint(first):
            break
        first[inside.var] = sc.Lit(0, inside.var.dtype)
        inside = inside.body
    return substitute(inside, first)


def decided(condition: sc.Scalar, context: Context) -> sc.Scalar:
    """A condition less what always holds; TRUE or FALSE where that is known."""
    kept: list[sc.Scalar] = []
    for conjunct in conjuncts(condition):
        if reads_memory(conjunct):
            kept.append(conjunct)
            continue
        said = simple(conjunct, context)
        if said is TRUE or shown(conjunct, context, quick=True):
            continue
        if said is FALSE or shown(negated(conjunct), context, quick=True):
            if not any(reads_memory(one) for one in kept):
                return FALSE
            return reduce(sc.And, (*kept, FALSE))
        kept.append(min(said, conjunct, key=_nodes))  # 0 <= p is shorter than 0 < p + 1
    return reduce(sc.And, kept) if kept else TRUE


def _nodes(of: sc.Scalar) -> int:
    return len(post_order(of))


def _index(term: sc.Scalar, context: Context) -> sc.Scalar:
    return _value(term, context) if reads_memory(term) else _plain(term, context)


def _value(root: sc.Scalar, context: Context) -> sc.Scalar:
    """A value with simpler places to load from, and choices that are known made."""
    memo: dict[Term, Term] = {}
    order = post_order(root)
    own = [axis for node in order if isinstance(node, sc.Reduce) for axis in node.axes]
    context = context.without(own) if own else context  # a sum's axis is not the loop's
    for node in order:
        if isinstance(node, sc.Buffer) or not isinstance(node, sc.Scalar) or not node._children:
            memo[node] = node
            continue
        kids = tuple([memo[kid] for kid in node._children])
        new = node if kids == node._children else rebuild(node, kids)
        if isinstance(new, sc.Load):
            new = sc.Load(new.buffer, tuple([_plain(index, context) for index in new.indices]))
        elif isinstance(new, sc.Select) and not reads_memory(new.condition):
            said = decided(new.condition, context)
            if said is TRUE or said is FALSE:
                new = new.then if said is TRUE else new.orelse
            elif said is not new.condition:
                new = sc.Select(said, new.then, new.orelse)
        memo[node] = new
    result = memo[root]
    assert isinstance(result, sc.Scalar)
    return result


def _plain(term: sc.Scalar, context: Context) -> sc.Scalar:
    if sc.dtype_of(term) is not i64 or reads_memory(term) or has_vectors(term):
        return term
    return shorter(term, context)


def _operand(of: st.Region | sc.Scalar, context: Context) -> st.Region | sc.Scalar:
    if not isinstance(of, st.Region):
        return _plain(of, context)
    starts = tuple([_plain(start, context) for start in of.starts])
    extents = tuple([_plain(extent, context) for extent in of.extents])
    return st.Region(of.buffer, starts, extents)
