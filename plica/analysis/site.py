"""Sites: where the loops and blocks of a kernel stand, and surgery there.

In a kernel under scheduling every loop variable, block label, block variable and buffer has a
unique name (`distinct`), so a loop is identified by its variable and a block by its label across
steps.

>>> from plica.ir.loop.statement import NOTHING
>>> from plica.ir.loop.tensor import axis
>>> i, n = axis("i"), axis("n")
>>> loop = st.For(i, n, "serial", NOTHING)
>>> kernel = st.Kernel((n,), (), 0, st.seq(loop, loop))
>>> [str(loop.var.name) for loop in distinct(kernel).body.stmts]
['i', 'i_1']
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from functools import lru_cache, partial
from typing import Any, Final, Generic, TypeAlias, TypeVar

from attrs import evolve, frozen

from plica.analysis.statement import with_substatements
from plica.core import Name, Term, fold_into, fresh, rename, substitute
from plica.ir.loop import statement as st
from plica.ir.loop.scalar import Buffer, ScalarVar

K = TypeVar("K", bound=Hashable)
S = TypeVar("S", st.For, st.Block)

Above: TypeAlias = "tuple[tuple[st.Stmt, int], ...]"


@frozen(eq=False)
class Site(Generic[S]):
    """A loop or a block, and the statements around it: each with the place of the next."""

    node: S
    above: Above

    @property
    def loops(self) -> tuple[st.For, ...]:
        """The loops around, outermost first, up to the nearest block."""
        found: list[st.For] = []
        for stmt, _ in reversed(self.above):
            if isinstance(stmt, st.Block):
                break
            if isinstance(stmt, st.For):
                found.append(stmt)
        return tuple(reversed(found))

    @property
    def scope(self) -> st.Block | None:
        """The nearest block around, None at the root."""
        return next((s for s, _ in reversed(self.above) if isinstance(s, st.Block)), None)


class Sites(Mapping[K, Site[S]]):
    """Where the loops, or the blocks, of a kernel stand, in the order of the text.

    Sites are built on demand: a schedule step needs few.
    """

    def __init__(self, nodes: dict[K, S], around: Mapping[st.Stmt, tuple[st.Stmt, int]]) -> None:
        self.nodes: dict[K, S] = nodes
        self._around = around
        self._sites: dict[K, Site[S]] = {}
        self.keys = nodes.keys  # type: ignore[method-assign]  # sets are compared without a loop

    def __getitem__(self, key: K) -> Site[S]:
        if (site := self._sites.get(key)) is None:
            node: S = self.nodes[key]
            above: list[tuple[st.Stmt, int]] = []
            at = self._around.get(node)
            while at is not None:
                above.append(at)
                at = self._around.get(at[0])
            site = self._sites[key] = Site(node, tuple(above[::-1]))
        return site

    def __contains__(self, key: object) -> bool:
        return key in self.nodes

    def __iter__(self) -> Iterator[K]:
        return iter(self.nodes)

    def __len__(self) -> int:
        return len(self.nodes)


@frozen(eq=False)
class Map:
    """All sites of a kernel, in the order of the text, and every name of a variable in use."""

    loops: Sites[ScalarVar, st.For]
    blocks: Sites[Name, st.Block]
    buffers: tuple[Buffer, ...]
    names: frozenset[Name]


@frozen(eq=False)
class Part:
    """The binders of a statement, and the enclosing statements of each statement inside it."""

    loops: dict[ScalarVar, st.For]
    blocks: dict[Name, st.Block]
    around: dict[st.Stmt, tuple[st.Stmt, int]]
    buffers: list[Buffer]
    names: set[Name]


@lru_cache(maxsize=256)
def map_of(kernel: st.Kernel) -> Map:
    """The sites of a kernel whose names are distinct."""
    parts = _PARTS[0]
    whole = fold_into(parts, kernel.body, _branches, partial(_part, parts))
    if len(parts) > MAX_PARTS:
        _PARTS[0] = {}  # another thread may be in the middle of the old one
    loops, blocks = Sites(whole.loops, whole.around), Sites(whole.blocks, whole.around)
    buffers = (*kernel.params, *whole.buffers)
    return Map(loops, blocks, buffers, frozenset(whole.names | _parameter_names(kernel)))


MAX_PARTS: Final = 1024
_PARTS: Final[list[dict[st.Stmt, Part]]] = [{}]
"""Parts of kernels: a step of a schedule changes few of those that stand side by side."""


def _chain(stmt: st.Stmt) -> Iterator[tuple[st.Stmt, tuple[st.Stmt, ...]]]:
    """Statements one in another, down to where several stand side by side, and those inside."""
    while True:
        inside = st.substatements(stmt)
        yield stmt, inside
        if len(inside) != 1:
            return
        (stmt,) = inside


def _branches(stmt: st.Stmt) -> tuple[st.Stmt, ...]:
    """The siblings innermost in a chain of statements."""
    *_, (_, inside) = _chain(stmt)
    return tuple([statement for statement in inside if statement.__class__ is not st.Store])


def _part(parts: Mapping[st.Stmt, Part], stmt: st.Stmt) -> Part:
    """The parts of a statement, from those of its siblings."""
    found = Part({}, {}, {}, [], set())
    around = found.around
    for each, inside in _chain(stmt):
        found.names.update(_bound_names(each))
        if isinstance(each, st.For):
            found.loops[each.var] = each
        elif isinstance(each, st.Block):
            found.blocks[each.label] = each
        elif isinstance(each, st.Alloc):
            found.buffers.append(each.buffer)
        for position, below in enumerate(inside):
            if below.__class__ is not st.Store:
                around[below] = each, position
    for below in inside if len(inside) > 1 else ():
        if (part := parts.get(below)) is not None:
            found.loops.update(part.loops)
            found.blocks.update(part.blocks)
            around.update(part.around)
            found.buffers.extend(part.buffers)
            found.names.update(part.names)
    return found


def replace(kernel: st.Kernel, site: Site[Any], new: st.Stmt) -> st.Kernel:
    """The kernel with another statement at a site."""
    return with_body(kernel, rebuilt(site.above, new))


def rebuilt(above: Above, new: st.Stmt) -> st.Stmt:
    """Rebuilds the outermost statement around a new innermost one."""
    for stmt, position in reversed(above):
        new = with_inside(stmt, position, new)
    return new


def with_body(kernel: st.Kernel, body: st.Stmt) -> st.Kernel:
    """The kernel with another body."""
    return st.Kernel(kernel.dims, kernel.params, kernel.inputs, body, kernel.annotations)


def with_inside(stmt: st.Stmt, position: int, new: st.Stmt) -> st.Stmt:
    """The statement with another one at a place of `substatements`."""
    parts = st.substatements(stmt)
    parts = (*parts[:position], new, *parts[position + 1 :])
    return st.seq(*parts) if isinstance(stmt, st.Seq) else with_substatements(stmt, parts)


def with_parts(block: st.Block, **parts: Any) -> st.Block:
    """The block with some fields changed."""
    names = st.Block._fields
    return st.Block(*[parts[name] if name in parts else getattr(block, name) for name in names])


def allocate(kernel: st.Kernel, buffers: Iterable[Buffer]) -> st.Kernel:
    """The kernel with more buffers, alive during all of it; lowering narrows that."""
    return with_body(kernel, st.allocated(kernel.body, buffers))


def fresh_names(kernel: st.Kernel, like: Iterable[Name]) -> tuple[Name, ...]:
    """Names unused in the kernel, one per given name, distinct among themselves."""
    used = set(map_of(kernel).names)
    found = []
    for each in like:
        name = fresh(each, used)
        used.add(name)
        found.append(name)
    return tuple(found)


def fresh_label(kernel: st.Kernel, hint: str) -> Name:
    """A label that no block of the kernel has; labels and variables do not meet."""
    return fresh(Name(hint), map_of(kernel).blocks)


def distinct(kernel: st.Kernel) -> st.Kernel:
    """Gives each binder a unique name; the first binder of a name keeps it.

    New names differ from all names of binders in the kernel, so a handle from before a step that
    duplicates statements never refers to another loop or block.
    """
    if _is_distinct(kernel):
        return kernel
    body = _distinct(kernel)
    return kernel if body is kernel.body else with_body(kernel, body)


def _is_distinct(kernel: st.Kernel) -> bool:
    """Whether all binders already have distinct names, the common case."""
    names, labels = _parameter_names(kernel), set[Name]()
    count = len(names)
    for stmt in st.statements(kernel.body):
        if isinstance(stmt, st.Block):
            if stmt.label in labels:
                return False
            labels.add(stmt.label)
        bound = _bound_names(stmt)
        names.update(bound)
        count += len(bound)
        if len(names) < count:
            return False
    return True


def _bound_names(stmt: st.Stmt) -> list[Name]:
    """The names of the variables and the buffer that a statement binds."""
    match stmt:
        case st.For(var) | st.Bind(var) | st.Alloc(var):
            return [var.name]
        case st.Block():
            return [var.name for var in stmt.vars]
        case _:
            return []


def _parameter_names(kernel: st.Kernel) -> set[Name]:
    return {dim.name for dim in kernel.dims} | {param.name for param in kernel.params}


class _Names:
    """The names of one kind of binder: those bound so far, and all reserved ones."""

    def __init__(self, bound: set[Name], taken: Iterable[Name]) -> None:
        self.bound = bound
        self.taken = bound.union(taken)

    def unique(self, name: Name) -> Name:
        """Returns the name if nothing has bound it yet, else a new one like it; binds it."""
        if name in self.bound:
            name = fresh(name, self.taken)
            self.taken.add(name)
        self.bound.add(name)
        return name


def _distinct(kernel: st.Kernel) -> st.Stmt:
    sites = map_of(kernel)
    names = _Names(_parameter_names(kernel), sites.names)
    labels = _Names(set(), sites.blocks)
    # Renames outside in, so that inner binders see the new outer names; then rebuilds.
    done: list[st.Stmt] = []
    stack: list[tuple[st.Stmt, bool]] = [(kernel.body, False)]
    while stack:
        stmt, leaving = stack.pop()
        if leaving:
            inside = st.substatements(stmt)
            count = len(inside)
            new = done[len(done) - count :]
            del done[len(done) - count :]
            changed = [at for at in range(count) if new[at] is not inside[at]]
            if changed and isinstance(stmt, st.Seq):
                stmt = st.seq(*new)  # all at once: places move where a `Seq` inside is taken apart
            else:
                for position in changed:
                    stmt = with_inside(stmt, position, new[position])
            done.append(stmt)
            continue
        stmt = _renamed(stmt, names, labels)
        stack.append((stmt, True))
        stack.extend((substatement, False) for substatement in reversed(st.substatements(stmt)))
    return done[0]


def _renamed(stmt: st.Stmt, names: _Names, labels: _Names) -> st.Stmt:
    """The statement with new names for what it binds itself, where they are used already."""
    match stmt:
        case st.For(var, body=body) | st.Bind(var, body=body):
            (var,), (body,) = _moved((var,), (body,), names)
            return evolve(stmt, var=var, body=body)
        case st.Alloc(buffer, body):
            (buffer,), (body,) = _moved((buffer,), (body,), names)
            return st.Alloc(buffer, body)
        case st.Block():
            label = labels.unique(stmt.label)
            # All at once: a new name may be the old one of the next variable.
            scope = (stmt.init, stmt.body, stmt.reads, stmt.writes)
            variables, (init, body, reads, writes) = _moved(stmt.vars, scope, names)
            return with_parts(
                stmt, label=label, vars=variables, init=init, body=body, reads=reads, writes=writes
            )
        case _:
            return stmt


def _moved(
    variables: tuple[Any, ...], scoped: tuple[Any, ...], names: _Names
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Variables with fresh names, and their binders."""
    moved: dict[Term, Term] = {}
    for var in variables:
        name = names.unique(var.name)
        if name != var.name:
            moved[var] = rename(var, name)
    new = tuple([moved.get(var, var) for var in variables])
    return new, tuple([_substituted(each, moved) for each in scoped]) if moved else scoped


def _substituted(what: Any, moved: dict[Term, Term]) -> Any:
    if isinstance(what, tuple):
        return tuple([_substituted(each, moved) for each in what])
    return None if what is None else substitute(what, moved)
