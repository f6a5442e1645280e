"""Nest: a tensor expression becomes a plain loop nest.

One loop per axis, a store inside; a reduction becomes an accumulator, and loops that add to it.
Each element is reduced in the order of the reduction's axes, whatever the order of the loops.

    out[i, j] = sum over k of a[i, k] * b[k, j]
      -->  for i:
               for j: out[i, j] = 0
               for k:
                   for j: out[i, j] = out[i, j] + a[i, k] * b[k, j]

The last axis goes inside the reduction where neighbours along it are neighbours in memory, since
then the innermost loop is one a vector unit can run.  A reduction that is evaluated only under a
guard, or inside another reduction, stays a scalar term.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from attrs import frozen

from plica.core.binding import free_vars
from plica.core.diagnostic import CompilerBug
from plica.core.fold import map_top_down
from plica.core.name import Name, fresh
from plica.core.term import Term
from plica.ir.dim import known, polynomial
from plica.ir.dtype import DType, bool_
from plica.ir.loop import Alloc, For, Kernel, Seq, Stmt, Store
from plica.ir.scalar import (
    Add,
    And,
    Buffer,
    Combiner,
    Lit,
    Load,
    Max,
    Min,
    Mul,
    Or,
    Reduce,
    Scalar,
    ScalarVar,
    Select,
    dtype_of,
)
from plica.ir.tensor import Compute

ROW: Final = 16 * 1024
"""Bytes an accumulator may take for a whole row; a longer row is reduced element by element."""


def nest(of: Compute) -> Kernel:
    """The loop nest of a tensor expression; its last parameter is the result."""
    used = {each.name for each in of.inputs}
    out = Buffer(fresh(Name("out"), used), of.shape, of.dtype)
    body = _elements(of, out)
    return Kernel((), (*of.inputs, out), len(of.inputs), body)


def _elements(of: Compute, out: Buffer) -> Stmt:
    loops = list(zip(of.axes, of.shape, strict=True))
    reductions = exposed(of.body)
    if any(axis in of.axes for each in reductions for axis in each.axes):
        raise CompilerBug("A reduction binds an axis of the tensor it is part of.")
    if not reductions:
        return _loops(loops, Store(out, of.axes, of.body))
    inner: list[tuple[ScalarVar, Scalar]] = []
    if _row_fits(of, out, reductions):
        inner = [loops.pop()]
    used = {out.name, *(each.name for each in of.inputs)}
    steps: list[Stmt] = []
    cells: list[_Cell] = []
    for each in reductions:
        if each is of.body:
            cell = _Cell(out, of.axes)
        else:
            name = fresh(Name("acc"), used)
            used.add(name)
            shape = tuple([extent for _, extent in inner])
            cell = _Cell(Buffer(name, shape, dtype_of(each)), tuple([axis for axis, _ in inner]))
        cells.append(cell)
        start, join = MEANING[each.combiner]
        first = Store(cell.buffer, cell.indices, start(dtype_of(each)))
        again = Store(cell.buffer, cell.indices, join(cell.value, each.body))
        around = list(zip(each.axes, each.extents, strict=True))
        steps += [_loops(inner, first), _loops(around + inner, again)]
    if of.body not in reductions:
        stand_in: dict[Term, Scalar] = {
            each: cell.value for each, cell in zip(reductions, cells, strict=True)
        }
        value = map_top_down(lambda node: stand_in.get(node, node), of.body)
        assert isinstance(value, Scalar)
        steps.append(_loops(inner, Store(out, of.axes, value)))
    stmt: Stmt = Seq(tuple(steps))
    for cell in reversed(cells):
        if cell.buffer is not out:
            stmt = Alloc(cell.buffer, stmt)
    return _loops(loops, stmt)


@frozen
class _Cell:
    """Where a reduction is accumulated."""

    buffer: Buffer
    indices: tuple[Scalar, ...]

    @property
    def value(self) -> Scalar:
        return Load(self.buffer, self.indices)


def exposed(body: Scalar) -> list[Reduce]:
    """The reductions that are evaluated whenever `body` is, and inside no other reduction."""
    found: dict[Reduce, None] = {}
    seen: set[Term] = set()
    stack: list[Term] = [body]
    while stack:
        node = stack.pop()
        if node in seen or not isinstance(node, Scalar):
            continue
        seen.add(node)
        match node:
            case Reduce():
                found[node] = None
            case Select(condition, _, _):
                stack.append(condition)
            case And(left, _) | Or(left, _):
                stack.append(left)
            case _:
                stack.extend(reversed(node._children))
    return list(found)


def _row_fits(of: Compute, out: Buffer, reductions: Sequence[Reduce]) -> bool:
    """Whether the last axis may go innermost: it is contiguous in what is read, and not long."""
    if not of.axes:
        return False
    axis = of.axes[-1]
    extent = known(of.shape[-1])
    if extent is None or extent < 2:
        return False
    row = max(dtype_of(each).bytes for each in reductions) * extent
    if row > ROW and list(reductions) != [of.body]:
        return False
    return all(_contiguous(each, axis) for each in reductions)


def _contiguous(reduction: Reduce, axis: ScalarVar) -> bool:
    reads = False
    seen: set[Term] = set()
    stack: list[Term] = [reduction.body]
    while stack:
        node = stack.pop()
        if node in seen or not isinstance(node, Scalar):
            continue
        seen.add(node)
        if isinstance(node, Reduce):
            return False
        if isinstance(node, Load) and axis in free_vars(node):
            if any(axis in free_vars(each) for each in node.indices[:-1]):
                return False
            step = polynomial(node.indices[-1]).get(frozenset({(axis, 1)}))
            rest = polynomial(node.indices[-1] - axis)
            if (
                step is None
                or step[1] != 1
                or any(axis in free_vars(atom) for atoms, _ in rest.values() for atom in atoms)
            ):
                return False
            reads = True
        stack.extend(node._children)
    return reads


def _loops(around: Sequence[tuple[ScalarVar, Scalar]], inside: Stmt) -> Stmt:
    for var, extent in reversed(around):
        inside = For(var, extent, "serial", inside)
    return inside


def _least(of: DType) -> Scalar:
    return Lit(float("-inf") if of.is_float else of.bounds[0], of)


def _greatest(of: DType) -> Scalar:
    return Lit(float("inf") if of.is_float else of.bounds[1], of)


MEANING: Final[
    dict[Combiner, tuple[Callable[[DType], Scalar], Callable[[Scalar, Scalar], Scalar]]]
] = {
    "sum": (lambda of: Lit(0, of), Add),
    "prod": (lambda of: Lit(1, of), Mul),
    "max": (_least, Max),
    "min": (_greatest, Min),
    "all": (lambda _: Lit(True, bool_), And),
    "any": (lambda _: Lit(False, bool_), Or),
}
"""Each combiner's identity at a dtype, and how it joins two values."""
