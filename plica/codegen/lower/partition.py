"""Partition: a loop is cut where a guard inside it begins to hold or ceases to.

    before                                      after
    for i in range((n + 3) // 4):               for i in range(n // 4):
        for j in range(4):                          for j in range(4):
            if i * 4 + j < n: …                         …
                                                for i in range((n + 3) // 4 - n // 4):
                                                    for j in range(4):
                                                        if (i + n // 4) * 4 + j < n: …

The middle part, with most iterations, has no guard of the cut. A guard `i == 0`, such as the init
of a reduction, splits off the first iteration. Outer loops come first, so the inner ones of the
middle part need no further cuts. A loop with the annotation `cut_choices` is also cut at the
conditions of selects, and one over vectors, too, if it only accesses contiguous memory. The form of
the parts is decided in `plica.codegen.lower.loop_part`.

A vector loop whose body is guarded as a whole is shortened to the guarded range, if it only
accesses contiguous memory: a row copied inside its padding is accessed without masks. An enclosing
loop over the remainders of a stride, whose elements are copied separately, is unrolled, so that the
range is known for each.

Law: the meaning is preserved. Thread loops are not cut, because their extents matter, nor are
vectors in registers, nor loops that index a thread's registers, or requested ones: they are
unrolled with their guards, so that their loads overlap. Threads that exchange data in a loop stay
in step: it is not cut at per-thread bounds. A loop with bounds per thread or block is cut where all
agree, or shortened per thread if that takes no copy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Final

from attrs import frozen

from plica.analysis.enclosing import simple
from plica.analysis.index import Context
from plica.analysis.index.context import FALSE, TRUE, conjuncts
from plica.analysis.site import distinct
from plica.analysis.statement import contexts, holding, outermost, reads_memory, walked, with_body
from plica.analysis.symbolic_bound import reach
from plica.codegen.lower.tidy import decided
from plica.core import Term, free_vars, post_order, substitute
from plica.ir.loop import scalar as sc, statement as st
from plica.ir.loop.memory_scope import scope
from plica.ir.type import from_polynomial, i64, known, polynomial
from plica.runtime.late import lazy_imports

with lazy_imports(__name__):  # of many kernels no loop is cut
    from plica.codegen.lower.loop_part import (
        LoopCut,
        LoopPart,
        chosen,
        chosen_within,
        cut_apart,
        parts_of,
    )

MAX_CUT_LOOPS: Final = 16
"""The maximum number of loops cut per kernel: each cut doubles or triples the code inside. The
middle of a loop is processed before its end, so that remaining guards are where few iterations are.
"""

MAX_UNROLLED_TURNS: Final = 16
"""The maximum iterations of a loop that the device compiler unrolls, so that its loads overlap."""

KINDS: Final = ("serial", "unrolled", "parallel")

STRIDE: Final = 4
"""Elements that are copied apart by the remainders of their places have such a stride, at most."""


def partition(kernel: st.Kernel) -> st.Kernel:
    """The kernel with its loops cut at their guards."""
    kernel = distinct(kernel)
    holds = holding(_may_cut)
    if not holds(kernel.body):
        return kernel
    pieces: set[st.Stmt] = set()  # those are not cut again
    registers = _chosen(kernel)
    loops = [statement for statement in st.statements(kernel.body) if isinstance(statement, st.For)]
    lanes = frozenset([loop.var for loop in loops if loop.kind.startswith("threadIdx")])
    launch = frozenset([loop.var for loop in loops if loop.kind in st.THREADS])
    threads = any(loop.kind in st.THREADS for loop in loops)
    kinds = tuple([kind for kind in KINDS if kind != "unrolled"]) if lanes else KINDS

    def down(stmt: st.Stmt, context: Context) -> tuple[st.Stmt, tuple[Context, ...]]:
        if isinstance(stmt, st.For) and stmt.kind == "vectorized":
            stmt = _with_pieces(_trimmed(stmt, context), context)
        elif isinstance(stmt, st.For) and stmt.kind in kinds and _is_of_remainders(stmt):
            stmt = _written_out(stmt)
        elif (
            isinstance(stmt, st.For)
            and stmt.kind in kinds
            and not (stmt in pieces or stmt.var in registers)
        ):
            cut = _cut(stmt, context) if len(pieces) < 3 * MAX_CUT_LOOPS else None
            if cut is not None and launch & (free_vars(cut.start) | free_vars(cut.stop)):
                cut = _cut_alike(stmt, cut, _cut(stmt, context, launch))
            if cut is not None and not _parts_threads(stmt, cut, lanes):
                stmt = _in_parts(stmt, parts_of(stmt, cut), threads)
                pieces.update(stmt.stmts if isinstance(stmt, st.Seq) else (stmt,))
        return stmt, contexts(stmt, context)

    return with_body(kernel, walked(kernel.body, outermost(kernel), down, enters=holds))


def partition_unrolled(kernel: st.Kernel) -> st.Kernel:
    """The kernel with unrolled thread code cut where its guards hold for all."""
    holds = holding(_may_cut)
    if not holds(kernel.body):
        return kernel
    kernel = distinct(kernel)
    loops = [statement for statement in st.statements(kernel.body) if isinstance(statement, st.For)]
    launch = frozenset([loop.var for loop in loops if loop.kind in st.THREADS])

    def down(stmt: st.Stmt, context: Context) -> tuple[st.Stmt, tuple[Context, ...]]:
        cut = None
        if isinstance(stmt, st.For) and stmt.kind == "unrolled" and launch:
            cut = _cut(stmt, context, launch)
            if cut is not None and known(cut.start) is not None and known(cut.stop) is not None:
                stmt = cut_apart(parts_of(stmt, cut))
        return stmt, contexts(stmt, context)

    return with_body(kernel, walked(kernel.body, outermost(kernel), down, enters=holds))


def _in_parts(loop: st.For, parts: Sequence[LoopPart], threads: bool) -> st.Stmt:
    """A loop that is cut, or what asks in it."""
    within = None if threads else chosen_within(loop, parts)
    if within is not None:
        return within
    return chosen(loop, parts) if loop.kind == "parallel" else cut_apart(parts)


def _may_cut(stmt: st.Stmt) -> bool:
    """Whether a loop around a statement, or the loop itself, may have a guard to be cut at."""
    if isinstance(stmt, st.For):
        return "cut_choices" in dict(stmt.annotations)
    return isinstance(stmt, st.Branch)


def _chosen(kernel: st.Kernel) -> frozenset[Term]:
    """The variables that say which register of a thread is meant; on processors nothing does."""
    every = [*st.statements(kernel.body)]
    if not any(isinstance(each, st.For) and each.kind in st.THREADS for each in every):
        return frozenset()
    terms: set[Term] = set()
    for stmt in every:
        own: list[Term] = [part for part in stmt._children if isinstance(part, sc.Scalar)]
        touched = [(node.buffer, node.indices) for node in post_order(*own)
                   if isinstance(node, sc.Load)]  # fmt: skip
        if isinstance(stmt, st.Store):
            touched.append((stmt.buffer, stmt.indices))
        for buffer, indices in touched:
            if scope(buffer.scope).reach == "thread":
                terms |= {var for index in indices for var in free_vars(index)}
    return frozenset(terms)


def _trimmed(loop: st.For, context: Context) -> st.Stmt:
    """A loop over vectors from where its guard begins to hold to where it ceases to."""
    body, extent = loop.body, known(loop.extent)
    if not isinstance(body, st.Branch) or body.orelse is not st.NOTHING or _has_registers(body):
        return loop
    if extent is None:
        return loop
    here = contexts(loop, context)[0]
    start, stop, kept = 0, extent, list[sc.Scalar]()
    for conjunct in conjuncts(body.condition):
        at = None if reads_memory(conjunct) else _bound(conjunct, loop.var, frozenset(), here)
        begins = [] if at is None else [known(simple(end)) for end in at.starts]
        ends = [] if at is None else [known(simple(end)) for end in at.stops]
        if at is None or at.value is not TRUE or None in [*begins, *ends]:
            kept.append(conjunct)
            continue
        start = max([start, *[end for end in begins if end is not None]])
        stop = min([stop, *[end for end in ends if end is not None]])
    if stop <= start:
        return st.NOTHING
    if stop - start == extent:
        return loop
    then = st.Branch(reduce(sc.And, kept), body.then, st.NOTHING) if kept else body.then
    moved = substitute(then, {loop.var: loop.var + start}) if start else then
    return st.For(loop.var, sc.index(stop - start), loop.kind, moved, loop.annotations)


def _with_pieces(loop: st.Stmt, context: Context) -> st.Stmt:
    """A vector loop as one loop per piece of a select, if requested."""
    if not isinstance(loop, st.For) or not _may_cut(loop) or _has_registers(loop.body):
        return loop
    notes = st.annotated(loop.annotations, cut_choices=None)
    whole = st.For(loop.var, loop.extent, loop.kind, loop.body, notes)
    cut = _cut(loop, context)
    if cut is None or known(cut.start) is None or known(cut.stop) is None:
        return whole
    return cut_apart(parts_of(whole, cut))


def _is_of_remainders(loop: st.For) -> bool:
    """Whether a loop runs over the remainders of the stride of its guarded vector loops: their
    range begins and ends at another lane for each."""
    count = known(loop.extent) or 0
    if loop.kind == "parallel" or not 1 < count <= STRIDE:
        return False
    every = loop.body.stmts if isinstance(loop.body, st.Seq) else (loop.body,)
    vectors = [each for each in every if isinstance(each, st.For) and each.kind == "vectorized"]
    return any(_has_stride(vector, loop.var, count) for vector in vectors)


def _has_stride(vectors: st.For, beside: sc.ScalarVar, least: int) -> bool:
    """Whether a guard of vectors, or a choice at which they are cut, is about a place that is so
    far from the next lane's, at least, and depends on another variable."""
    body = vectors.body
    if isinstance(body, st.Branch):
        conditions = [body.condition]
    elif isinstance(body, st.Store) and _may_cut(vectors):
        conditions = _choices(body)
    else:
        return False
    if _has_registers(body):
        return False
    for each in [part for condition in conditions for part in conjuncts(condition)]:
        if isinstance(each, sc.Lt | sc.Le) and {beside, vectors.var} <= free_vars(each):
            _, factor = polynomial(each.right - each.left).get(
                frozenset({(vectors.var, 1)}), ((), 0)
            )
            if abs(factor) >= least:
                return True
    return False


def _written_out(loop: st.For) -> st.Stmt:
    """A copy of its body for each iteration of a loop."""
    count = known(loop.extent) or 0
    return st.Seq(tuple([substitute(loop.body, {loop.var: sc.index(at)}) for at in range(count)]))


def _has_registers(of: st.Stmt) -> bool:
    """Whether a statement touches memory whose lanes are those of registers."""
    every = [*st.statements(of)]
    buffers = {each.buffer for each in every if isinstance(each, st.Store)}
    parts = [part for each in every for part in each._children if isinstance(part, sc.Scalar)]
    buffers |= {node.buffer for node in post_order(*parts) if isinstance(node, sc.Load)}
    return any(buffer.scope != "global" for buffer in buffers)


def _parts_threads(loop: st.For, cut: LoopCut, lanes: frozenset[sc.ScalarVar]) -> bool:
    """Whether threads that write to one another in a loop would leave a part at different times."""
    if lanes.isdisjoint(free_vars(cut.start) | free_vars(cut.stop)):
        return False
    return any(
        isinstance(statement, st.Invoke)
        or (isinstance(statement, st.Store) and scope(statement.buffer.scope).reach == "block")
        for statement in st.statements(loop)
    )


def _cut_alike(loop: st.For, apart: LoopCut, alike: LoopCut | None) -> LoopCut | None:
    """Where to cut a loop that ends elsewhere for each thread or block: where all of them agree, if
    that is most of it; else where each ends, if the loop is long and nothing of it is copied."""
    if (extent := known(loop.extent)) is None:
        return apart
    if alike is not None:
        start, stop = known(alike.start), known(alike.stop)
        if start is not None and stop is not None and 2 * (stop - start) >= extent:
            return alike
    if extent <= MAX_UNROLLED_TURNS:
        return None
    parts = parts_of(loop, apart)
    return apart if sum(part.here(loop.body) is not st.NOTHING for part in parts) == 1 else None


def _cut(
    loop: st.For, context: Context, apart: frozenset[sc.ScalarVar] = frozenset()
) -> LoopCut | None:
    """The cuts of a loop, or None if nothing is gained; uniform in variables that are `apart`."""
    if sc.dtype_of(loop.var) is not i64:
        return None
    bounds: dict[sc.Scalar, list[_Bound]] = {}
    unclear: set[sc.Scalar] = set()
    for condition, here, inner in _guards(loop, context):
        said = decided(condition, here)
        if said is TRUE or said is FALSE:
            continue
        if (bound := _bound(condition, loop.var, inner | apart, here)) is None:
            unclear.add(condition)
            continue
        bounds.setdefault(condition, []).append(bound)
    settled = {scalar: of[0].value for scalar, of in bounds.items() if scalar not in unclear}
    if not settled:
        return None
    starts = [one for scalar in settled for of in bounds[scalar] for one in of.starts]
    stops = [one for scalar in settled for of in bounds[scalar] for one in of.stops]
    start = simple(sc.Min(reduce(sc.Max, starts, sc.index(0)), loop.extent), context)
    stop = simple(sc.Max(reduce(sc.Min, stops, loop.extent), start), context)
    if known(simple(stop - start, context)) == 0:
        return None
    # Where one condition alone makes the cut, and exactly, it has its other value beyond.
    exact = {term: bounds[term][0] for term in settled if all(of.exact for of in bounds[term])}
    other: dict[sc.Scalar, sc.Scalar] = {
        scalar: FALSE if of.value is TRUE else TRUE for scalar, of in exact.items()
    }
    before = {scalar: other[scalar] for scalar, of in exact.items() if _is(of.starts, starts)}
    after = {scalar: other[scalar] for scalar, of in exact.items() if _is(of.stops, stops)}
    return LoopCut(start, stop, before, settled, after)


def _is(mine: Sequence[sc.Scalar], every: Sequence[sc.Scalar]) -> bool:
    """Whether a condition's own cut is the only one."""
    return bool(mine) and list(mine) == list(every)


@frozen(eq=False)
class _Bound:
    """Where a condition has one value, from a start on or before a stop; if exact, only there."""

    starts: tuple[sc.Scalar, ...]
    stops: tuple[sc.Scalar, ...]
    value: sc.Scalar
    exact: bool


def _bound(
    condition: sc.Scalar, var: sc.ScalarVar, inner: frozenset[sc.ScalarVar], context: Context
) -> _Bound | None:
    match condition:
        case sc.Lt(left, right):
            room = right - left - 1
        case sc.Le(left, right):
            room = right - left
        case sc.Eq(left, right):
            away = polynomial(left - right)
            only = [(atoms, factor) for atoms, factor in away.values()]
            if len(only) == 1 and only[0][0] == (var,):  # it is at the first iteration alone
                return _Bound((sc.index(1),), (), FALSE, True)
            return None
        case _:
            return None
    rest = dict(polynomial(room))
    mine = rest.pop(frozenset({(var, 1)}), None)
    tail = from_polynomial(rest)
    if mine is None or var in free_vars(tail):
        return None
    factor = mine[1]
    if (least := reach(tail, inner, context, upper=False)) is None:
        return None
    spare, exact = from_polynomial(least), inner.isdisjoint(free_vars(tail))
    if factor < 0:
        return _Bound((), (simple(spare // -factor) + 1,), TRUE, exact)
    return _Bound((sc.index(0) - simple(spare // factor),), (), TRUE, exact)


def _choices(of: st.Store) -> list[sc.Scalar]:
    """What decides between the values that may be stored."""
    return [node.condition for node in post_order(of.value) if isinstance(node, sc.Select)]


def _guards(
    loop: st.For, context: Context
) -> Iterator[tuple[sc.Scalar, Context, frozenset[sc.ScalarVar]]]:
    """The conditions inside a loop that depend on it, with their context and inner variables."""
    seen: set[tuple[st.Stmt, Context]] = set()
    choices = dict(loop.annotations).get("cut_choices") is True
    if not choices and not any(isinstance(each, st.Branch) for each in st.statements(loop.body)):
        return
    around = contexts(loop, context)[0]
    stack: list[tuple[st.Stmt, Context, frozenset[sc.ScalarVar]]] = [
        (loop.body, around, frozenset())
    ]
    while stack:
        stmt, here, inner = stack.pop()
        if (stmt, here) in seen or loop.var not in free_vars(stmt):
            continue
        seen.add((stmt, here))
        conditions = [stmt.condition] if isinstance(stmt, st.Branch) else []
        if choices and isinstance(stmt, st.Store):
            conditions = _choices(stmt)
        for condition in conditions:
            for conjunct in conjuncts(condition):
                if loop.var in free_vars(conjunct) and not reads_memory(conjunct):
                    yield conjunct, here, inner
        if isinstance(stmt, st.For | st.Bind):
            inner |= {stmt.var}
        inside = zip(st.substatements(stmt), contexts(stmt, here), strict=True)
        stack.extend([(statement, its, inner) for statement, its in inside])
