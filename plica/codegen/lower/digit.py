"""Digits: guards ask about the high digits of a place where the low ones cannot matter.

    for i: for v in vectorized(2):                  for i:
        if 2 * i + v < 90: y[2 * i + v] = …   -->       if i < 45:
                                                            for v in vectorized(2): y[…] = …

A bound that is a multiple of a step is not crossed within the step.  So guards leave loops over
neighbours, which then are moved at once.  And a register of a thread is said by the loops it came
from, whatever guards say about those: all places of a buffer then are alike.

>>> from plica.ir.loop.tensor import axis
>>> from plica.analysis.index import EMPTY
>>> i, v = axis("i"), axis("v")
>>> known_ = EMPTY.loop(i, 50).loop(v, 2)
>>> coarser(sc.Lt(i * 2 + v, sc.index(90)), known_) is sc.Lt(i, sc.index(45))
True
>>> coarser(sc.Lt(i * 2 + v, sc.index(91)), known_) is sc.Lt(i * 2 + v, sc.index(91))
True
"""

from __future__ import annotations

from functools import reduce

from plica.analysis.enclosing import simple
from plica.analysis.index import Context, bounds
from plica.analysis.index.context import conjuncts
from plica.analysis.statement import contexts, outermost, reads_memory, walked, with_body
from plica.core import Term, map_bottom_up, post_order, substitute
from plica.ir.loop import scalar as sc
from plica.ir.loop.memory_scope import scope
from plica.ir.loop.statement import THREADS, Branch, For, Kernel, Stmt, Store
from plica.ir.type import i64, known, polynomial
from plica.schedule.precondition import all_of


def digits(kernel: Kernel) -> Kernel:
    """The kernel with its registers in simplest form, and its guards about high digits."""
    return with_body(kernel, walked(kernel.body, outermost(kernel), _down))


def _down(stmt: Stmt, context: Context) -> tuple[Stmt, tuple[Context, ...]]:
    match stmt:
        case Branch(condition, then, orelse):
            stmt = Branch(_all(condition, context), then, orelse)
        case Store(buffer, indices, value):
            stmt = Store(buffer, _places(buffer, indices, context), _value(value, context))
        case For(var, extent, kind, body, notes) if kind in THREADS and known(extent) == 1:
            inside = substitute(body, {var: sc.index(0)})  # the only one there is
            stmt = For(var, extent, kind, inside, notes)
        case _:
            pass
    if isinstance(stmt, Branch):  # what it says is no reason to name a register otherwise
        return stmt, (context, context)
    return stmt, contexts(stmt, context)


def _places(
    buffer: sc.Buffer, indices: tuple[sc.Scalar, ...], context: Context
) -> tuple[sc.Scalar, ...]:
    """The place of an element in a thread's registers; other places are unchanged."""
    if scope(buffer.scope).reach != "thread" or any(reads_memory(index) for index in indices):
        return indices
    return tuple([simple(index, context) for index in indices])


def _value(of: sc.Scalar, context: Context) -> sc.Scalar:
    if any(isinstance(node, sc.Reduce) for node in post_order(of)):
        return of  # its axes are no loops

    def change(node: Term) -> Term:
        match node:
            case sc.Select(condition, then, orelse):
                return sc.Select(_apart(condition, context), then, orelse)
            case sc.Load(buffer, indices):
                return sc.Load(buffer, _places(buffer, indices, context))
            case _:
                return node

    return map_bottom_up(change, of)


def _all(condition: sc.Scalar, context: Context) -> sc.Scalar:
    return all_of(coarser(conjunct, context) for conjunct in conjuncts(condition))


def coarser(of: sc.Scalar, context: Context) -> sc.Scalar:
    """A bound on the high digits of a place that says the same, or the bound itself."""
    match of:
        case sc.Lt(left, right):
            less: sc.Scalar = left - right
        case sc.Le(left, right):
            less = left - right - 1
        case _:
            return of
    if sc.dtype_of(left) is not i64 or reads_memory(of):
        return of
    terms = [(atoms, factor) for atoms, factor in polynomial(less).values()]  # all of it below 0
    whole = sum(factor for atoms, factor in terms if not atoms)
    moving = [(atoms, factor) for atoms, factor in terms if atoms]
    for step in sorted({abs(factor) for _, factor in moving}, reverse=True):
        low = [each for each in moving if each[1] % step]
        high = [each for each in moving if each[1] % step == 0]
        if step == 1 or not low or not high:
            continue
        ends = [bounds(_product(atoms, factor), context) for atoms, factor in low]
        least, most = [end.low for end in ends], [end.high for end in ends]
        if None in least or None in most:
            continue
        rest = whole % step
        if rest + sum(n or 0 for n in least) < 0 or rest + sum(n or 0 for n in most) >= step:
            continue
        above = reduce(sc.Add, [_product(atoms, factor // step) for atoms, factor in high])
        return sc.Lt(above, sc.index(-(whole // step)))
    return of


def _apart(condition: sc.Scalar, context: Context) -> sc.Scalar:
    """A condition of a conditional, split by digits if it depends on the lowest digits only."""
    return all_of(in_lowest(coarser(scalar, context), context) for scalar in conjuncts(condition))


def in_lowest(of: sc.Scalar, context: Context) -> sc.Scalar:
    """A bound that no high digit but 0 satisfies, as one on the high digits and one on the low.

    >>> from plica.ir.loop.tensor import axis
    >>> from plica.analysis.index import EMPTY
    >>> i, v = axis("i"), axis("v")
    >>> known_ = EMPTY.loop(i, 8).loop(v, 32)
    >>> expected = sc.And(sc.Lt(i, sc.index(1)), sc.Lt(v, sc.index(3)))
    >>> in_lowest(sc.Lt(i * 32 + v, sc.index(3)), known_) is expected
    True
    """
    if not isinstance(of, sc.Lt) or sc.dtype_of(of.left) is not i64 or reads_memory(of):
        return of
    bound = known(of.right)
    terms = [(atoms, factor) for atoms, factor in polynomial(of.left).values()]
    if bound is None or bound < 1 or any(not atoms or factor < 1 for atoms, factor in terms):
        return of
    high = [term for term in terms if term[1] >= bound]
    low = [term for term in terms if term[1] < bound]
    step = min([factor for _, factor in high], default=0)
    ends = [bounds(_product(atoms, factor), context) for atoms, factor in low]
    least = [bounds(_product(atoms, 1), context).low for atoms, _ in high]
    if not high or not low or any(each is None or each < 0 for each in least):
        return of
    if any(end.low is None or end.low < 0 or end.high is None for end in ends):
        return of
    assert step >= bound  # one more of any high digit is beyond it
    zero = reduce(sc.Add, [_product(atoms, 1) for atoms, _ in high])
    rest = reduce(sc.Add, [_product(atoms, factor) for atoms, factor in low])
    return sc.And(sc.Lt(zero, sc.index(1)), sc.Lt(rest, of.right))


def _product(atoms: tuple[Term, ...], factor: int) -> sc.Scalar:
    scalar: sc.Scalar | None = None if factor == 1 else sc.index(factor)
    for atom in atoms:
        assert isinstance(atom, sc.Scalar)
        scalar = atom if scalar is None else sc.Mul(atom, scalar)
    return sc.index(factor) if scalar is None else scalar
