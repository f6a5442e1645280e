"""Common terms: what several statements compute is computed once, before them.

    A[i // 8, j] = x                            t = i // 8
    for k in range(4):                -->       A[t, j] = x
        B[i // 8 + k] = y                       for k in range(4):
                                                    B[t + k] = y

Only what costs something is shared (quotients, remainders, functions), and only terms that read no
memory: they have one value wherever their variables have.  Nothing is taken out of vectors, whose
lanes differ, and no term over sizes alone: it says how large buffers are, and by that which places
are inside of them.

Laws: the kernel means the same; doing it twice changes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from plica.analysis.statement import reads_memory, walked, with_body, with_substatements
from plica.core import Name, Term, free_vars, fresh, map_bottom_up, post_order
from plica.ir.loop.scalar import FloorDiv, FloorMod, Intrinsic, Scalar, ScalarVar, dtype_of
from plica.ir.loop.statement import Bind, For, Kernel, Seq, Stmt, statements, substatements


def common_terms(kernel: Kernel) -> Kernel:
    """The kernel with what neighbours have in common computed once."""
    nodes = list(post_order(kernel.body))
    if not any(isinstance(node, FloorDiv | FloorMod | Intrinsic) for node in nodes):
        return kernel  # most have none that is left
    used = {node.name for node in nodes if isinstance(node, ScalarVar)}
    used |= {each.name for each in kernel.dims}
    dims = frozenset(kernel.dims)

    def up(stmt: Stmt, parts: tuple[Stmt, ...], inside_lanes: bool) -> Stmt:
        made = with_substatements(stmt, parts)
        return made if inside_lanes or not isinstance(made, Seq) else _shared(made, used, dims)

    return with_body(kernel, walked(kernel.body, False, _in_lanes, up))


def _in_lanes(stmt: Stmt, inside_lanes: bool) -> tuple[Stmt, tuple[bool, ...]]:
    here = inside_lanes or (isinstance(stmt, For) and stmt.kind == "vectorized")
    return stmt, (here,) * len(substatements(stmt))


def _shared(seq: Seq, used: set[Name], dims: frozenset[Term]) -> Stmt:
    """The statements after bindings of what more than one of them computes."""
    found = Counter[Scalar]()
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
    values: dict[Scalar, ScalarVar] = {}
    for term in shared:
        if not _is_part(term, shared):
            name = fresh(Name("t"), used)
            used.add(name)
            values[term] = ScalarVar(name, dtype_of(term))
    if not values:
        return seq
    names: dict[Term, Term] = {term: var for term, var in values.items()}  # noqa: C416  # wider
    made: Stmt = map_bottom_up(lambda node: names.get(node, node), seq)
    for term, var in reversed(values.items()):
        made = Bind(var, term, made)
    return made


def _costly(stmt: Stmt) -> Iterator[Scalar]:
    """Terms of a statement that are worth a name, and mean one thing wherever they stand."""
    for node in post_order(stmt):
        if isinstance(node, FloorDiv | FloorMod | Intrinsic) and _is_plain(node):
            yield node


def _is_plain(term: Scalar) -> bool:
    return bool(free_vars(term)) and not reads_memory(term)


def _bound(stmt: Stmt) -> Iterator[Term]:
    """The variables that a statement binds somewhere inside."""
    for each in statements(stmt):
        for fields, _ in getattr(type(each), "binds", ()):
            value = getattr(each, fields)
            yield from value if isinstance(value, tuple) else (value,)


def _is_part(term: Scalar, others: list[Scalar]) -> bool:
    return any(each is not term and term in set(post_order(each)) for each in others)
