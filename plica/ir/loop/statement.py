"""The tensor language: loops and blocks over buffers.

    Stmt   ::= For(var, extent, kind, body, annotations)
             | Block(label, vars, extents, kinds, bindings, predicate, init, body, reads, writes, …)
             | Store(buffer, indices, value) | Seq(stmts) | Branch(condition, then, orelse)
             | Alloc(buffer, body) | Bind(var, value, body) | While(condition, body)
             | Invoke(name, operands) | Barrier(scope)
    Region ::= Region(buffer, starts, extents)
    Kernel ::= Kernel(dims, params, inputs, body)

A kernel's parameters are buffers; the last are those it writes.  Loops run from 0 to `extent`.

A block is a movable unit of computation: its body uses only its own iteration variables, and
`bindings` define these in terms of enclosing loops. It runs where `predicate` holds; `init` runs
before the body where all reduce and scan variables are 0. The values of a `reduce` variable may
come in any order, those of a `scan` variable in ascending order: each store holds the result so
far.

>>> from plica.core.name import Name
>>> from plica.ir.type.dtype import f32
>>> from plica.ir.loop.tensor import axis, buffer
>>> x, y, i, v = buffer("x", (3,), f32), buffer("y", (3,), f32), axis("i"), axis("v")
>>> double = Store(y, (v,), x[v] * 2)
>>> inside = block("y", (v,), (3,), "s", (i,), double)
>>> kernel = Kernel((), (x, y), 1, For(i, x.shape[0], "serial", inside))
>>> [type(each).__name__ for each in statements(kernel.body)]
['For', 'Block', 'Store']
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Literal, TypeAlias, TypeVar, get_args

from attrs import frozen

from plica.core import Name, Term, ill_formed
from plica.ir.loop.scalar import Buffer, Lit, Scalar, ScalarVar
from plica.ir.type.dim import DimLike, dim
from plica.ir.type.dtype import DType, bool_, i32, i64

WRITTEN = "ir.loop"  # the path that its terms are written down under

Thread: TypeAlias = Literal[
    "blockIdx.x", "blockIdx.y", "blockIdx.z", "threadIdx.x", "threadIdx.y", "threadIdx.z"
]
LoopKind: TypeAlias = Literal["serial", "parallel", "vectorized", "unrolled", "virtual"] | Thread
IterKind: TypeAlias = Literal["spatial", "reduce", "scan", "ordered", "opaque"]

THREADS: Final[tuple[str, ...]] = get_args(Thread)
ITER_KINDS: Final[dict[str, IterKind]] = {
    "s": "spatial",
    "r": "reduce",
    "c": "scan",
    "o": "ordered",
    "q": "opaque",
}
ACCUMULATING: Final[frozenset[IterKind]] = frozenset(("reduce", "scan"))
"""The kinds of variables along which a block accumulates: its init runs where all of them are 0."""

TRUE: Final = Lit(True, bool_)

Plain: TypeAlias = bool | int | float | str | tuple[int, ...]
Annotations: TypeAlias = tuple[tuple[str, Plain], ...]
S = TypeVar("S", bound=Term)


@frozen(eq=False)
class For(Term):
    """`for var in range(extent): body`; the kind says who runs the iterations."""

    binds = (("var", ("body",)),)
    var: ScalarVar
    extent: Scalar
    kind: LoopKind
    body: Stmt
    annotations: Annotations = ()


def counted_in(extent: Scalar) -> DType:
    """The dtype that the variable of a loop has where nothing else is said: i64, and i32 where the
    extent is a number of i32."""
    return i32 if isinstance(extent, Lit) and extent.dtype is i32 else i64


@frozen(eq=False)
class Region(Term):
    """The box of `buffer` from `starts`, `extents` wide."""

    buffer: Buffer
    starts: tuple[Scalar, ...]
    extents: tuple[Scalar, ...]

    @staticmethod
    def normal(
        buffer: Buffer, starts: tuple[Scalar, ...], extents: tuple[Scalar, ...]
    ) -> tuple[Any, ...]:
        if not len(starts) == len(extents) == len(buffer.shape):
            raise ill_formed(f"A region of {buffer.name} has rank {len(buffer.shape)}.")
        return buffer, starts, extents


@frozen(eq=False)
class Block(Term):
    """A computation over its own iteration variables, bound to the loops around it.

    `reads` and `writes` are declared regions; where none is declared they follow from the body.
    """

    binds = (("vars", ("init", "body", "reads", "writes")),)
    label: Name
    vars: tuple[ScalarVar, ...]
    extents: tuple[Scalar, ...]
    kinds: tuple[IterKind, ...]
    bindings: tuple[Scalar, ...]
    predicate: Scalar
    init: Seq | Store | For | Branch | Block | Bind | Alloc | None
    body: Stmt
    reads: tuple[Region, ...] = ()
    writes: tuple[Region, ...] = ()
    annotations: Annotations = ()

    @staticmethod
    def normal(*fields: Any) -> tuple[Any, ...]:
        label, variables, extents, kinds, bindings = fields[:5]
        if not len(variables) == len(extents) == len(kinds) == len(bindings):
            raise ill_formed(f"The block {label} has as many extents, kinds and bindings as vars.")
        if len(set(variables)) != len(variables):
            raise ill_formed(f"The block {label} binds a variable twice.")
        return fields


@frozen(eq=False)
class Store(Term):
    """`buffer[indices] = value`."""

    buffer: Buffer
    indices: tuple[Scalar, ...]
    value: Scalar

    @staticmethod
    def normal(buffer: Buffer, indices: tuple[Scalar, ...], value: Scalar) -> tuple[Any, ...]:
        if len(indices) != len(buffer.shape):
            raise ill_formed(f"{buffer.name} has rank {len(buffer.shape)}, not {len(indices)}.")
        return buffer, indices, value


@frozen(eq=False)
class Seq(Term):
    """One statement after another; none is a statement that does nothing."""

    stmts: tuple[Stmt, ...]


@frozen(eq=False)
class Branch(Term):
    """`if condition: then else: orelse`."""

    condition: Scalar
    then: Stmt
    orelse: Stmt


@frozen(eq=False)
class Alloc(Term):
    """A buffer that lives during `body`; its contents begin undefined."""

    binds = (("buffer", ("body",)),)
    buffer: Buffer
    body: Stmt


@frozen(eq=False)
class Bind(Term):
    """`var = value`, evaluated once, then `body`."""

    binds = (("var", ("body",)),)
    var: ScalarVar
    value: Scalar
    body: Stmt


@frozen(eq=False)
class While(Term):
    """`while condition: body`."""

    condition: Scalar
    body: Stmt


@frozen(eq=False)
class Invoke(Term):
    """An intrinsic of many elements, by name; its meaning is a kernel over the operands."""

    name: str
    operands: tuple[Region | Scalar, ...]


@frozen(eq=False)
class Barrier(Term):
    """All threads that share the memory scope reach it before any thread continues."""

    scope: str


Stmt: TypeAlias = For | Block | Store | Seq | Branch | Alloc | Bind | While | Invoke | Barrier


@frozen(eq=False)
class Kernel(Term):
    """A loop program over buffers: `inputs` of them are read, the rest are written."""

    binds = (("dims", ("params", "body")), ("params", ("body",)))
    dims: tuple[ScalarVar, ...]
    params: tuple[Buffer, ...]
    inputs: int
    body: Stmt
    annotations: Annotations = ()


NOTHING: Final = Seq(())
STATEMENTS: Final = (For, Block, Store, Seq, Branch, Alloc, Bind, While, Invoke, Barrier)


def seq(*stmts: Stmt) -> Stmt:
    """One statement after another, without a `Seq` inside a `Seq` or around one statement."""
    flat: list[Stmt] = []
    for statement in stmts:
        flat.extend(statement.stmts if isinstance(statement, Seq) else (statement,))
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))


def allocated(body: Stmt, buffers: Iterable[Buffer]) -> Stmt:
    """A statement with buffers that live as long as it does, the last of them outermost."""
    for buffer in buffers:
        body = Alloc(buffer, body)
    return body


def block(  # noqa: PLR0917  # a block is these things
    label: str | Name,
    variables: Iterable[ScalarVar],
    extents: Iterable[DimLike],
    kinds: str,
    bindings: Iterable[Scalar],
    body: Stmt,
    init: Any = None,  # a statement, as in Block
    predicate: Scalar = TRUE,
    annotations: Annotations = (),
) -> Block:
    """A block whose kinds are letters: s(patial), r(educe), c (scan), o(rdered), q (opaque)."""
    return Block(
        Name(label) if isinstance(label, str) else label,
        tuple(variables),
        tuple(dim(extent) for extent in extents),
        tuple(ITER_KINDS[kind] for kind in kinds),
        tuple(bindings),
        predicate,
        init,
        body,
        annotations=annotations,
    )


def substatements(stmt: Stmt) -> tuple[Stmt, ...]:
    """The direct substatements in execution order; a block's init comes first."""
    cls = stmt.__class__
    if cls is Seq:
        return stmt.stmts  # type: ignore[union-attr]  # as just seen
    if cls is Store or cls is Invoke or cls is Barrier:
        return ()
    if cls is Branch:
        return (stmt.then, stmt.orelse)  # type: ignore[union-attr]  # the class was just seen
    if cls is Block and stmt.init is not None:  # type: ignore[union-attr]  # the class was just seen
        return (stmt.init, stmt.body)  # type: ignore[union-attr]  # the class was just seen
    return (stmt.body,)  # type: ignore[union-attr]  # the class was just seen


def statements(root: Stmt, enters: Callable[[Stmt], bool] | None = None) -> Iterator[Stmt]:
    """Every statement inside one, itself first, in the order of the text; nothing inside those of
    which `enters` is false."""
    stack = [root]
    while stack:
        stmt = stack.pop()
        yield stmt
        if enters is None or enters(stmt):
            stack.extend(substatements(stmt)[::-1])


def statements_of(kind: type[S], root: Stmt) -> Iterator[S]:
    """Every statement of a class inside one, in the order of the text."""
    return (stmt for stmt in statements(root) if isinstance(stmt, kind))


def outermost(root: Stmt, wanted: Callable[[Stmt], bool]) -> Iterator[Stmt]:
    """The wanted statements inside one that are in no other wanted one, in the order of the
    text."""
    return filter(wanted, statements(root, lambda stmt: not wanted(stmt)))


def is_over_threads(stmt: Stmt) -> bool:
    """Whether a statement is a loop over threads."""
    return isinstance(stmt, For) and stmt.kind in THREADS


def written(root: Stmt, buffers: Iterable[Buffer]) -> list[Buffer]:
    """Those of the buffers that a statement stores to, or declares to write."""
    asked = dict.fromkeys(buffers)
    found: set[Buffer] = set()
    stack: list[tuple[Stmt, frozenset[Buffer]]] = [(root, frozenset())]
    while stack:
        stmt, hidden = stack.pop()
        if isinstance(stmt, Store):
            if stmt.buffer not in hidden:
                found.add(stmt.buffer)
            continue
        if isinstance(stmt, Block):
            found.update([write.buffer for write in stmt.writes if write.buffer not in hidden])
        elif isinstance(stmt, Alloc) and stmt.buffer in asked:
            hidden |= {stmt.buffer}
        stack.extend([(substatement, hidden) for substatement in substatements(stmt)])
    return [buffer for buffer in asked if buffer in found]


def annotated(annotations: Annotations, **more: Plain | None) -> Annotations:
    """The annotations with some set, or removed by None; sorted by key."""
    table = dict(annotations) | more
    return tuple(sorted((key, value) for key, value in table.items() if value is not None))
