"""Sites: where the loops and blocks of a kernel stand, and surgery there.

In a kernel under scheduling every loop variable, block label, block variable and buffer has a name
of its own (`distinct`), so a loop is known by its variable and a block by its label, whatever
is done to the rest.

>>> from plica.ir.loop.statement import NOTHING
>>> from plica.ir.loop.tensor import axis
>>> i, n = axis("i"), axis("n")
>>> kernel = Kernel((n,), (), 0, seq(For(i, n, "serial", NOTHING), For(i, n, "serial", NOTHING)))
>>> [str(loop.var.name) for loop in distinct(kernel).body.stmts]
['i', 'i_1']
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Generic, TypeAlias, TypeVar, cast

from attrs import frozen

from plica.core.binding import rename, substitute
from plica.core.name import Name, fresh
from plica.core.term import Term
from plica.ir.loop.scalar import Buffer, ScalarVar
from plica.ir.loop.statement import (
    Alloc,
    Bind,
    Block,
    Branch,
    For,
    Kernel,
    Seq,
    Stmt,
    While,
    seq,
    substatements,
)

S = TypeVar("S", For, Block)

Above: TypeAlias = "tuple[tuple[Stmt, int], ...]"


@frozen(eq=False)
class Site(Generic[S]):
    """A loop or a block, and the statements around it: each with the place of the next."""

    node: S
    above: Above

    @property
    def loops(self) -> tuple[For, ...]:
        """The loops around, outermost first, up to the nearest block."""
        found: list[For] = []
        for stmt, _ in reversed(self.above):
            if isinstance(stmt, Block):
                break
            if isinstance(stmt, For):
                found.append(stmt)
        return tuple(reversed(found))

    @property
    def scope(self) -> Block | None:
        """The nearest block around, None at the root."""
        return next((s for s, _ in reversed(self.above) if isinstance(s, Block)), None)


@frozen(eq=False)
class Map:
    """All sites of a kernel, in the order of the text, and every name of a variable in use."""

    loops: Mapping[ScalarVar, Site[For]]
    blocks: Mapping[Name, Site[Block]]
    buffers: tuple[Buffer, ...]
    names: frozenset[Name]


@lru_cache(maxsize=256)
def map_of(kernel: Kernel) -> Map:
    """The sites of a kernel whose names are distinct."""
    loops: dict[ScalarVar, Site[For]] = {}
    blocks: dict[Name, Site[Block]] = {}
    buffers = list(kernel.params)
    names = _parameter_names(kernel)
    stack: list[tuple[Stmt, Above]] = [(kernel.body, ())]
    while stack:
        stmt, above = stack.pop()
        if isinstance(stmt, For):
            loops[stmt.var] = Site(stmt, above)
            names.add(stmt.var.name)
        elif isinstance(stmt, Block):
            blocks[stmt.label] = Site(stmt, above)
            names.update(each.name for each in stmt.vars)
        elif isinstance(stmt, Alloc):
            buffers.append(stmt.buffer)
            names.add(stmt.buffer.name)
        elif isinstance(stmt, Bind):
            names.add(stmt.var.name)
        inside = substatements(stmt)
        for position in range(len(inside) - 1, -1, -1):
            stack.append((inside[position], (*above, (stmt, position))))
    return Map(loops, blocks, tuple(buffers), frozenset(names))


def replace(kernel: Kernel, site: Site[Any], new: Stmt) -> Kernel:
    """The kernel with another statement at a site."""
    return with_body(kernel, rebuilt(site.above, new))


def rebuilt(above: Above, new: Stmt) -> Stmt:
    """The outermost statement when another one stands innermost."""
    for stmt, position in reversed(above):
        new = with_inside(stmt, position, new)
    return new


def with_body(kernel: Kernel, body: Stmt) -> Kernel:
    """The kernel with another body."""
    return Kernel(kernel.dims, kernel.params, kernel.inputs, body, kernel.annotations)


def with_inside(stmt: Stmt, position: int, new: Stmt) -> Stmt:
    """The statement with another one at a place of `substatements`."""
    match stmt:
        case Seq(stmts):
            return seq(*stmts[:position], new, *stmts[position + 1 :])
        case For(var, extent, kind, _, annotations):
            return For(var, extent, kind, new, annotations)
        case Block():
            init, body = stmt.init, stmt.body
            if init is not None and position == 0:
                init = cast(Any, new)
            else:
                body = new
            return with_parts(stmt, init=init, body=body)
        case Branch(condition, then, orelse):
            return Branch(condition, *((new, orelse) if position == 0 else (then, new)))
        case Alloc(buffer, _):
            return Alloc(buffer, new)
        case Bind(var, value, _):
            return Bind(var, value, new)
        case While(condition, _):
            return While(condition, new)
        case _:
            raise AssertionError(f"{type(stmt).__name__} has nothing inside.")


def with_parts(block: Block, **parts: Any) -> Block:
    """The block with some fields changed."""
    names = Block._fields
    return Block(*[parts[name] if name in parts else getattr(block, name) for name in names])


def allocate(kernel: Kernel, buffers: Iterable[Buffer]) -> Kernel:
    """The kernel with more buffers, alive during all of it; lowering narrows that."""
    body = kernel.body
    for each in buffers:
        body = Alloc(each, body)
    return with_body(kernel, body)


def fresh_names(kernel: Kernel, like: Iterable[Name]) -> tuple[Name, ...]:
    """Names nobody in the kernel has, one like each, distinct among themselves."""
    used = set(map_of(kernel).names)
    found = []
    for each in like:
        name = fresh(each, used)
        used.add(name)
        found.append(name)
    return tuple(found)


def fresh_label(kernel: Kernel, hint: str) -> Name:
    """A label that no block of the kernel has; labels and variables do not meet."""
    return fresh(Name(hint), map_of(kernel).blocks)


def distinct(kernel: Kernel, kept: Iterable[Name] = ()) -> Kernel:
    """The kernel with a name of its own for each binder; the first of namesakes keeps it.

    No other is given a name that is to be `kept` for those that have it.
    """
    body = _distinct(kernel.body, _parameter_names(kernel), set(), frozenset(kept))
    return kernel if body is kernel.body else with_body(kernel, body)


def _parameter_names(kernel: Kernel) -> set[Name]:
    return {each.name for each in kernel.dims} | {each.name for each in kernel.params}


def _distinct(
    root: Stmt, used: set[Name], labels: set[Name], kept: frozenset[Name] = frozenset()
) -> Stmt:
    # Outside in, so that what is renamed inside has its outer names already; then rebuilt.
    done: list[Stmt] = []
    stack: list[tuple[Stmt, bool]] = [(root, False)]
    while stack:
        stmt, leaving = stack.pop()
        if leaving:
            inside = substatements(stmt)
            count = len(inside)
            new = done[len(done) - count :]
            del done[len(done) - count :]
            for position in range(count - 1, -1, -1):  # from the end: a `Seq` may grow
                if new[position] is not inside[position]:
                    stmt = with_inside(stmt, position, new[position])
            done.append(stmt)
            continue
        stmt = _renamed(stmt, used, labels, kept)
        stack.append((stmt, True))
        stack.extend((each, False) for each in reversed(substatements(stmt)))
    return done[0]


def _renamed(
    stmt: Stmt, used: set[Name], labels: set[Name], kept: frozenset[Name] = frozenset()
) -> Stmt:
    """The statement with new names for what it binds itself, where they are used already."""
    match stmt:
        case For(var, extent, kind, body, annotations):
            (var,), (body,) = _moved((var,), (body,), used, kept)
            return For(var, extent, kind, body, annotations)
        case Bind(var, value, body):
            (var,), (body,) = _moved((var,), (body,), used, kept)
            return Bind(var, value, body)
        case Alloc(buffer, body):
            (buffer,), (body,) = _moved((buffer,), (body,), used, kept)
            return Alloc(buffer, body)
        case Block():
            label = fresh(stmt.label, labels)
            labels.add(label)
            # All at once: a new name may be the old one of the next variable.
            variables, scoped = _moved(
                stmt.vars, (stmt.init, stmt.body, stmt.reads, stmt.writes), used, kept
            )
            init, body, reads, writes = scoped
            return with_parts(
                stmt, label=label, vars=variables, init=init, body=body,
                reads=reads, writes=writes,
            )  # fmt: skip
        case _:
            return stmt


def _moved(
    variables: tuple[Any, ...],
    scoped: tuple[Any, ...],
    used: set[Name],
    kept: frozenset[Name],
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Variables under names of their own, and what they are bound in."""
    moved: dict[Term, Term] = {}
    for var in variables:
        name = var.name if var.name not in used else fresh(var.name, used | kept)
        used.add(name)
        if name != var.name:
            moved[var] = rename(var, name)
    new = tuple([moved.get(var, var) for var in variables])
    return new, tuple([_substituted(each, moved) for each in scoped]) if moved else scoped


def _substituted(what: Any, moved: dict[Term, Term]) -> Any:
    if isinstance(what, tuple):
        return tuple([_substituted(each, moved) for each in what])
    return None if what is None else substitute(what, moved)
