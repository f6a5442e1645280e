"""Narrow: index arithmetic in 32 bits, where it is proved that nothing overflows.

    for i in range(64):                         for i in range(i32(64)):
        A[i * 64 + 3] = B[i]          -->           A[i * i32(64) + i32(3)] = B[i]

A loop variable is i32 if its extent fits, and so is a binding whose term does. An index term
becomes i32 if all its parts fit in 32 bits wherever it is evaluated
(`plica.analysis.index.bounds`), together with the other indices of an access if the linear offset
fits; elsewhere the variable is cast back. Values are never narrowed.

Law: the kernel means the same.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from plica.analysis.index import Context, bounds
from plica.analysis.statement import contexts, outermost, walked, with_body, with_substatements
from plica.core import Term, free_vars, post_order, rebuild, substitute
from plica.ir.loop import scalar as sc, statement as st
from plica.ir.type import i32, i64, known

LOW, HIGH = i32.bounds
ARITHMETIC: Final = (sc.Add, sc.Sub, sc.Mul, sc.FloorDiv, sc.FloorMod, sc.Min, sc.Max)

State: TypeAlias = tuple[Context, frozenset[sc.ScalarVar], frozenset[sc.ScalarVar]]
"""The context, 32-bit variables, and dims."""


MAX_OPEN_BLOCKS: Final = 1 << 23
"""The maximum number of blocks of a launch with an open count: larger launches are refused."""


def narrow_indices(kernel: st.Kernel, *, narrow_dims: bool = False) -> st.Kernel:
    """The lowered kernel with index terms of 32 bits.

    With `narrow_dims`, the launcher ensures that dims fit, and that there are at most
    `MAX_OPEN_BLOCKS` blocks.
    """
    if any(isinstance(statement, st.Block) for statement in st.statements(kernel.body)):
        return kernel
    dims = kernel.dims if narrow_dims else ()
    most = [sc.Le(dim, sc.index(HIGH)) for dim in dims]
    start: State = (outermost(kernel).where(*most), frozenset(), frozenset(dims))
    return with_body(kernel, walked(kernel.body, start, _down, _up))


def _fits(term: sc.Scalar, context: Context) -> bool:
    span = bounds(term, context)
    return span.low is not None and span.high is not None and LOW <= span.low <= span.high <= HIGH


def _down(stmt: st.Stmt, state: State) -> tuple[st.Stmt, tuple[State, ...]]:
    context, small, dims = state
    inner = contexts(stmt, context)
    if isinstance(stmt, st.For | st.Bind):
        small = small - {stmt.var}
        if _has_small(stmt, context):
            small |= {stmt.var}
            inner = tuple([_told(stmt, context, each) for each in inner])
    return stmt, tuple([(each, small, dims) for each in inner])


def _has_small(stmt: st.For | st.Bind, context: Context) -> bool:
    """Whether a loop variable, or a binding, has 32 bits."""
    if sc.dtype_of(stmt.var) is not i64:
        return False
    if isinstance(stmt, st.Bind):
        return not any(isinstance(e, sc.Load) for e in post_order(stmt.value)) and _fits(
            stmt.value, context
        )
    return _is_open(stmt) or _fits(stmt.extent, context)


def _told(stmt: st.For | st.Bind, around: Context, inside: Context) -> Context:
    """The context inside a loop over blocks, or of a binding."""
    if isinstance(stmt, st.For):
        return (
            inside.where(sc.Lt(stmt.var, sc.index(MAX_OPEN_BLOCKS))) if _is_open(stmt) else inside
        )
    span = bounds(stmt.value, around)
    assert span.low is not None
    assert span.high is not None
    low, high = sc.index(span.low), sc.index(span.high)
    return inside.where(sc.Le(low, stmt.var), sc.Le(stmt.var, high))


def _is_open(loop: st.For) -> bool:
    """Whether the number of blocks is only known at launch."""
    return loop.kind == BLOCKS and known(loop.extent) is None


BLOCKS: Final = "blockIdx.x"


def _up(stmt: st.Stmt, parts: tuple[st.Stmt, ...], state: State) -> st.Stmt:
    context, small, dims = state
    forms = _Forms(context, small, dims)
    stmt = with_substatements(stmt, parts)
    match stmt:
        case st.For(var, extent, kind, body, notes):
            if _has_small(stmt, context):
                size = extent if _is_open(stmt) else forms.narrow(extent)
                whole = forms.wide(extent) if size is None else size
                return st.For(_small(var), whole, kind, body, notes)
            return st.For(var, forms.wide(extent), kind, body, notes)
        case st.Store(buffer, indices, value):
            return st.Store(buffer, forms.places(buffer, indices), forms.wide(value))
        case st.Branch(condition, then, orelse):
            return st.Branch(forms.wide(condition), then, orelse)
        case st.While(condition, body):
            return st.While(forms.wide(condition), body)
        case st.Bind(var, value, body):
            if _has_small(stmt, context) and (text := forms.narrow(value)) is not None:
                return st.Bind(_small(var), text, body)
            if _has_small(stmt, context):
                return st.Bind(_small(var), sc.Cast(forms.wide(value), i32), body)
            return st.Bind(var, forms.wide(value), body)
        case st.Alloc(buffer, body):
            return _resized(buffer, body, forms)
        case st.Invoke(name, operands):
            return st.Invoke(name, tuple([_operand(operand, forms) for operand in operands]))
        case _:
            return stmt


def _operand(of: st.Region | sc.Scalar, forms: _Forms) -> st.Region | sc.Scalar:
    if not isinstance(of, st.Region):
        return forms.wide(of)
    extents = tuple([forms.wide(extent) for extent in of.extents])
    return st.Region(of.buffer, forms.places(of.buffer, of.starts), extents)


def _resized(buffer: sc.Buffer, body: st.Stmt, forms: _Forms) -> st.Stmt:
    """An allocation whose size depends on loops: their variables are cast back there."""
    new = substitute(buffer, forms.casts)
    if new is buffer:
        return st.Alloc(buffer, body)
    return st.Alloc(new, substitute(body, {buffer: new}))


def _steps(buffer: sc.Buffer) -> tuple[int | None, ...]:
    """The element strides of each axis, None where unknown."""
    if buffer.strides:
        return tuple([known(stride) for stride in buffer.strides])
    found: list[int | None] = []
    step: int | None = 1
    for size in reversed(buffer.shape):
        found.append(step)
        count = known(size)
        step = None if step is None or count is None else step * count
    return tuple(reversed(found))


def _small(var: sc.ScalarVar) -> sc.ScalarVar:
    return sc.ScalarVar(var.name, i32)


class _Forms:
    """The narrow and the wide form of terms at one place."""

    def __init__(
        self,
        context: Context,
        small: frozenset[sc.ScalarVar],
        dims: frozenset[sc.ScalarVar] = frozenset(),
    ) -> None:
        self.context, self.dims = context, dims
        self.small = small
        self.casts: dict[Term, Term] = {var: sc.Cast(_small(var), i64) for var in small}
        self.narrows: dict[Term, sc.Scalar | None] = {}
        self.wides: dict[Term, Term] = {}

    def places(self, buffer: sc.Buffer, indices: tuple[sc.Scalar, ...]) -> tuple[sc.Scalar, ...]:
        """Indices of a place, narrow where they and the place itself can be."""
        scalars = [self.narrow(index) for index in indices]
        if self.reaches(buffer, indices):
            return tuple([term or self.wide(at) for term, at in zip(scalars, indices, strict=True)])
        return tuple([self.wide(index) for index in indices])

    def reaches(self, buffer: sc.Buffer, indices: tuple[sc.Scalar, ...]) -> bool:
        """Whether 32 bits say where an element is, counted from the first, step by step."""
        if len(indices) == 1 and not buffer.strides:
            return True
        low = high = 0
        for at, step in zip(indices, _steps(buffer), strict=True):
            span = bounds(at, self.context)
            if step is None or span.low is None or span.high is None:
                return False
            ends = (span.low * step, span.high * step)
            low, high = low + min(ends), high + max(ends)
            if min(low, *ends) < LOW or max(high, *ends) > HIGH or step > HIGH:
                return False
        return True

    def narrow(self, term: sc.Scalar) -> sc.Scalar | None:
        """The term in 32 bits, or None if that is not proved to be equal."""
        self.visit(term)
        return self.narrows[term]

    def wide(self, term: sc.Scalar) -> sc.Scalar:
        """The term with the dtype it had."""
        if not any(var in self.small for var in free_vars(term)):
            return term
        if any(isinstance(each, sc.Reduce) for each in post_order(term)):
            return substitute(term, self.casts)  # a sum's axes are its own
        self.visit(term)
        new = self.wides[term]
        assert isinstance(new, sc.Scalar)
        return new

    def visit(self, root: sc.Scalar) -> None:
        for node in post_order(root):
            if node in self.wides:
                continue
            self.narrows[node] = self.narrow_node(node)
            self.wides[node] = self.wide_node(node)

    def narrow_node(self, node: Term) -> sc.Scalar | None:
        match node:
            case sc.Lit(value, dtype) if dtype is i64 and LOW <= value <= HIGH:
                return sc.Lit(value, i32)
            case sc.ScalarVar() if node in self.small:
                return _small(node)
            case sc.ScalarVar() if node in self.dims and sc.dtype_of(node) is i64:
                return sc.Cast(node, i32)
            case _ if isinstance(node, ARITHMETIC) and sc.dtype_of(node) is i64:
                kids = [self.narrows[kid] for kid in node._children]
                if None not in kids and _fits(node, self.context):
                    return rebuild(node, tuple(kids))  # type: ignore[arg-type]  # a term keeps its sort
        return None

    def wide_node(self, node: Term) -> Term:
        if isinstance(node, sc.Buffer) or not node._children:
            return self.casts.get(node, node)
        if node in self.casts:
            return self.casts[node]
        if isinstance(node, sc.Load):
            if self.reaches(node.buffer, node.indices):
                return sc.Load(node.buffer, tuple([self.chosen(index) for index in node.indices]))
            far = tuple([self.wides[index] for index in node.indices])
            return sc.Load(node.buffer, far)  # type: ignore[arg-type]  # a term keeps its sort
        if isinstance(node, sc.COMPARISON):
            kids = [self.narrows[kid] for kid in node._children]
            if None not in kids:
                return rebuild(node, tuple(kids))  # type: ignore[arg-type]  # a term keeps its sort
        return rebuild(node, tuple([self.wides[kid] for kid in node._children]))

    def chosen(self, term: sc.Scalar) -> sc.Scalar:
        scalar = self.narrows[term]
        wide = self.wides[term]
        assert isinstance(wide, sc.Scalar)
        return wide if scalar is None else scalar
