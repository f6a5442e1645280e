"""Common terms: what several statements compute is computed once, before them.

    A[i // 8, j] = x                            t = i // 8
    for k in range(4):                -->       A[t, j] = x
        B[i // 8 + k] = y                       for k in range(4):
                                                    B[t + k] = y

Only costly terms are shared (divisions, remainders, functions), and only those that do not read
memory: they have one value wherever their variables have. Nothing is extracted from vectors, whose
lanes differ, and no term over sizes alone: bounds proofs need it in place.

Stores that follow one another in a vector, such as the rows of a transform, share what they read
and what they compute of it:

    for v in vectorized(16):                        for v in vectorized(16):
        A[0, v] = x[0, v] + x[1, v]         -->         t = x[1, v]
        A[1, v] = x[1, v] - x[2, v]                     A[0, v] = x[0, v] + t
                                                        A[1, v] = t - x[2, v]

Stored values are reloaded, and conditionals are not split: what they skip is not read. A product is
left to the sum that contains it, which rounds once.

Laws: the kernel means the same; doing it twice changes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TypeGuard

from plica.analysis.statement import reads_memory, walked, with_body, with_substatements
from plica.core import Name, Term, free_vars, fresh, map_bottom_up, parts_first, post_order, rebuild
from plica.ir.loop import scalar as sc
from plica.ir.loop.statement import Bind, For, Kernel, Seq, Stmt, Store, statements, substatements


def common_terms(kernel: Kernel) -> Kernel:
    """The kernel with common terms of neighbours computed once."""
    nodes = list(post_order(kernel.body))
    costly = any(isinstance(node, sc.FloorDiv | sc.FloorMod | sc.Intrinsic) for node in nodes)
    if not costly and not any(map(_are_rows, nodes)):
        return kernel  # most have neither
    used = {node.name for node in nodes if isinstance(node, sc.ScalarVar)}
    used |= {dim.name for dim in kernel.dims}
    dims = frozenset(kernel.dims)

    def up(stmt: Stmt, parts: tuple[Stmt, ...], inside_lanes: bool) -> Stmt:
        made = with_substatements(stmt, parts)
        if inside_lanes:
            return _shared_reads(made, used) if _are_rows(made) else made
        return _shared(made, used, dims) if costly and isinstance(made, Seq) else made

    return with_body(kernel, walked(kernel.body, False, _in_lanes, up))


def _in_lanes(stmt: Stmt, inside_lanes: bool) -> tuple[Stmt, tuple[bool, ...]]:
    here = inside_lanes or (isinstance(stmt, For) and stmt.kind == "vectorized")
    return stmt, (here,) * len(substatements(stmt))


def _shared(seq: Seq, used: set[Name], dims: frozenset[Term]) -> Stmt:
    """The statements after bindings of terms that several of them compute."""
    found = Counter[sc.Scalar]()
    for each in seq.stmts:
        if not (costly := [*_costly(each)]):
            continue
        inner = frozenset(_bound(each))
        terms = [
            term
            for term in costly
            if (free := free_vars(term)).isdisjoint(inner) and not free <= dims
        ]
        found.update([*dict.fromkeys(terms)])  # each once, in order: the same text every time
    shared = [term for term, count in found.items() if count > 1]
    values = {term: _variable(term, used) for term in shared if not _is_part(term, shared)}
    if not values:
        return seq
    names: dict[Term, Term] = {term: var for term, var in values.items()}  # noqa: C416  # wider
    statement: Stmt = map_bottom_up(lambda node: names.get(node, node), seq)
    for term, var in reversed(values.items()):
        statement = Bind(var, term, statement)
    return statement


def _variable(term: sc.Scalar, used: set[Name]) -> sc.ScalarVar:
    """A new variable for a term."""
    name = fresh(Name("t"), used)
    used.add(name)
    return sc.ScalarVar(name, sc.dtype_of(term))


def _are_rows(node: Term) -> TypeGuard[Seq]:
    """Whether a term is stores that follow one another."""
    return isinstance(node, Seq) and all(isinstance(statement, Store) for statement in node.stmts)


def _shared_reads(rows: Seq, used: set[Name]) -> Stmt:
    """Stores after bindings of loads and terms that several of them use."""
    stores = [each for each in rows.stmts if isinstance(each, Store)]
    written = {store.buffer for store in stores}
    terms = parts_first(_operands, *[store.value for store in stores])
    uses = Counter([store.value for store in stores])
    for term in terms:
        uses.update(_operands(term))
    known: dict[sc.Scalar, sc.Scalar] = {}
    bound: list[tuple[sc.ScalarVar, sc.Scalar]] = []
    for term in terms:
        parts = _operands(term)
        known[term] = rebuild(term, tuple([known[part] for part in parts])) if parts else term
        is_same = reads_memory(term) and written.isdisjoint(free_vars(term))
        if uses[term] > 1 and is_same and not isinstance(term, sc.Mul):
            bound.append((_variable(term, used), known[term]))
            known[term] = bound[-1][0]
    if not bound:
        return rows
    statement: Stmt = Seq(tuple([Store(e.buffer, e.indices, known[e.value]) for e in stores]))
    for var, value in reversed(bound):
        statement = Bind(var, value, statement)
    return statement


def _operands(term: sc.Scalar) -> tuple[sc.Scalar, ...]:
    """The operands of a term that are always computed and may be shared."""
    if not isinstance(term, sc.Pair) or isinstance(term, sc.And | sc.Or):
        return ()
    return term.left, term.right


def _costly(stmt: Stmt) -> Iterator[sc.Scalar]:
    """The costly terms of a statement that mean the same anywhere."""
    for node in post_order(stmt):
        if isinstance(node, sc.FloorDiv | sc.FloorMod | sc.Intrinsic) and _is_plain(node):
            yield node


def _is_plain(term: sc.Scalar) -> bool:
    return bool(free_vars(term)) and not reads_memory(term)


def _bound(stmt: Stmt) -> Iterator[Term]:
    """The variables that a statement binds somewhere inside."""
    for statement in statements(stmt):
        for fields, _ in getattr(type(statement), "binds", ()):
            value = getattr(statement, fields)
            yield from value if isinstance(value, tuple) else (value,)


def _is_part(term: sc.Scalar, others: list[sc.Scalar]) -> bool:
    return any(scalar is not term and term in set(post_order(scalar)) for scalar in others)
