"""Chunks: a kernel that treats every row alike, run on a number of rows that is known later.

    out[b, s, n] = f(sum over k of x[b, s, k] * w[n, k])     for all rows (b, s), each like another

Rows follow one another in memory, so any run of them is a kernel of its own whose sizes are
numbers, with all that rules of thumb know of such: 32 rows at a time, then 4; what is left goes
with rows that are done already, or is copied to where there is room for 4.

>>> from plica.core.name import Name
>>> from plica.ir.type.dim import dim_var
>>> from plica.ir.graph.expression import Apply, Var
>>> from plica.ir.type.term import tensor
>>> n = dim_var("n")
>>> x, w = Var(Name("x"), tensor((n, 32), "f32")), Var(Name("w"), tensor((8, 32), "f32"))
>>> of = Function((), (), (x, w), tensor((n, 8), "f32"), Apply("nn.dense", (x, w)))
>>> found = rows_of(of)
>>> found.axes, found.rowed
(1, (True, False, True))
>>> str(chunk(found, 16).ret)
'Tensor[(16, 8), f32]'
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Final

from attrs import frozen

from plica.codegen.lower.nest import nest
from plica.codegen.operation_count import operations
from plica.core import IllTyped, Term, free_vars, map_bottom_up, map_top_down, post_order
from plica.ir.graph import Apply, Function, main_module
from plica.ir.graph.shape_specialisation import sized
from plica.ir.loop.scalar import Buffer, Lit, Load, Scalar, ScalarVar
from plica.ir.loop.statement import For, Kernel, Seq, Stmt, Store, statements
from plica.ir.type import dim_var, known, product, type_of
from plica.rewrite.fuse.to_stages import to_stages
from plica.schedule.collapse import collapsed

SIZES: Final = (64, 16, 4)
"""How many rows are done at once, the most that are left, where what they share is far."""

CLOSE: Final = (32, 4)
"""The same where it stays in a cache: four rows take no longer then than their part of more."""

LONG: Final = 256  # operations from which on a row that shares little with others is done alone
VECTOR: Final = 16
"""Elements of the widest vector: a row of no more results has too few sums at once for itself."""

SMALL: Final = 1 << 14
"""Elements that rows share and that the nearest caches hold: four rows gain as much as more do."""

MUCH: Final = 1 << 16
"""A row of this many operations gains nothing by company, unless it shares what it reads."""

NEAR: Final = 1 << 19
"""Elements that rows share and that stay in a cache: yet more rows at once gain nothing."""

ALONE: Final = 1 << 17
"""Elements that rows share from which on one row alone takes much less time than four."""

FAR: Final = 1 << 20
"""Elements that rows share and that no near cache holds: each chunk reads them anew, so that more
sizes pay: `MANY` rows, `FEW`, and one alone, which memory has to be as fast as."""

FEW: Final = 8

MANY: Final = 256
"""Rows for which reading and unpacking what they share takes a small part of the time."""

SHARED: Final = 64
"""Operations on each element that rows share, from which on company gains nothing."""


@frozen(eq=False)
class ChunkRows:
    """The first axes of a kernel's result, their sizes, its buffers, and which of them have rows.

    `of` is the function over sizes that are `dims`, whatever they are made of.
    """

    axes: int
    sizes: tuple[Scalar, ...]
    buffers: tuple[Buffer, ...]
    rowed: tuple[bool, ...]
    dims: tuple[ScalarVar, ...]
    of: Function

    @property
    def count(self) -> Scalar:
        """How many rows there are."""
        return product(self.sizes)


@lru_cache(maxsize=4096)
def rows_of(function: Function) -> ChunkRows | None:
    """The rows of a fused function, None where it has none, or is open in more than their number.

    Sizes of the first axes are open; what they are made of stands nowhere else.  A size that
    is asserted of something cannot be that of a part of it.
    """
    if any(isinstance(each, Apply) and each.op == "match_shape" for each in post_order(function)):
        return None
    sizes = _first_sizes(to_stages(function).stages.result.shape)
    if not sizes:
        return None
    told: dict[Term, ScalarVar] = {
        size: size if isinstance(size, ScalarVar) else dim_var(f"rows_{at}")
        for at, size in enumerate(sizes)
    }
    made = [size for size in sizes if not isinstance(size, ScalarVar)]
    if any(free_vars(size) & {*told.values()} for size in made):
        return None  # a size that is made of another is not one of its own
    over = _with_sizes(function, told)
    if over is None or not {*told.values()}.issuperset(
        var for var in free_vars(over) if _is_dim(var)
    ):
        return None
    kernel = _loops(over)
    dims, count = tuple(told.values()), len(sizes)
    if not dims or {*dims} != {*kernel.dims}:
        return None
    rowed: list[bool] = []
    first = kernel.params[-1].shape[:count]
    for buffer in kernel.params:
        same = buffer.shape[:count] == first
        if any(dim in free_vars(size) for size in buffer.shape[count * same :] for dim in dims):
            return None
        rowed.append(same)
    own = dict(zip(kernel.params, rowed, strict=True))
    nests = kernel.body.stmts if isinstance(kernel.body, Seq) else (kernel.body,)
    for each in nests:  # one for each part of a row that is long
        places = _outermost(each, first)
        if places is None or not _alike(each, kernel.dims, own, places):
            return None
    return ChunkRows(count, tuple(sizes), kernel.params, tuple(rowed), dims, over)


def _with_sizes(of: Function, told: dict[Term, ScalarVar]) -> Function | None:
    """A function over other sizes, None if it does not type with them.

    A dim in place of `min(n, 240)+160` may be 0: what types only because the size never is has no
    rows of its own.
    """
    over = map_top_down(lambda node: told.get(node, node), of)
    assert isinstance(over, Function)
    try:
        type_of(over)
    except IllTyped:
        return None
    return over


def _loops(of: Function) -> Kernel:
    """The plain loops of a function: what it reads and how much it does can be seen in them."""
    return nest(collapsed(to_stages(of).stages))


def _is_dim(of: Term) -> bool:
    return isinstance(of, ScalarVar)


def _first_sizes(shape: Sequence[Scalar]) -> list[Scalar]:
    """The first sizes that are open, each once."""
    scalars: list[Scalar] = []
    for size in shape:
        if known(size) is not None or size in scalars:
            break
        scalars.append(size)
    return scalars


def _outermost(stmt: Stmt, sizes: Sequence[Scalar]) -> tuple[ScalarVar, ...] | None:
    """The variables of the outermost loops, which go over the rows."""
    found: list[ScalarVar] = []
    for size in sizes:
        if not isinstance(stmt, For) or stmt.extent is not size:
            return None
        found.append(stmt.var)
        stmt = stmt.body
    return tuple(found)


def _alike(
    inside: Stmt,
    dims: Sequence[ScalarVar],
    rowed: dict[Buffer, bool],
    places: tuple[ScalarVar, ...],
) -> bool:
    """Whether rows are read and written at their own places, and nothing else asks which it is."""
    for _ in places:
        assert isinstance(inside, For)
        inside = inside.body
    count = len(places)
    outside = Lit(0, places[0].dtype)
    wrong = False

    def own(buffer: Buffer, at: tuple[Scalar, ...]) -> tuple[Scalar, ...]:
        nonlocal wrong
        if not rowed.get(buffer, False):
            return at
        wrong = wrong or at[:count] != places
        return (*[outside] * count, *at[count:])

    def change(node: Term) -> Term:
        if isinstance(node, Load):
            return Load(node.buffer, own(node.buffer, node.indices))
        if isinstance(node, Store):
            return Store(node.buffer, own(node.buffer, node.indices), node.value)
        return node

    rest = map_bottom_up(change, inside)
    if wrong:
        return False
    asked = {*places, *dims}
    # The shapes of buffers hold dims, too: terms are what asks.
    return not any(
        node in asked
        for stmt in statements(rest)
        for term in _terms(stmt)
        for node in post_order(term)
    )


def _terms(stmt: Stmt) -> list[Term]:
    """The terms a statement holds itself, loads as their places."""
    terms: list[Term] = []
    stack = [child for child in stmt._children if not isinstance(child, Stmt | Buffer)]
    seen: set[Term] = set()
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if isinstance(node, Load):
            stack += node.indices
        elif isinstance(node, ScalarVar):
            terms.append(node)
        else:
            stack += [kid for kid in node._children if not isinstance(kid, Buffer)]
    return terms


@lru_cache(maxsize=4096)
def chunk(rows: ChunkRows, size: int = SIZES[0]) -> Function:
    """The function on a given number of rows."""
    of = rows.of
    whole = Function(rows.dims, (), of.params, of.ret, of.body, of.attrs)
    numbers = dict.fromkeys(rows.dims, 1) | {rows.dims[-1]: size}
    return sized(main_module(whole), numbers).main_function()


def elements_of(rows: ChunkRows) -> tuple[int, int, int]:
    """The elements of a row of the result, of a row of everything, and of what rows share."""
    many = [
        prod([known(size) or 0 for size in buffer.shape[rows.axes * rowed :]])
        for buffer, rowed in zip(rows.buffers, rows.rowed, strict=True)
    ]
    own = sum([count for count, rowed in zip(many, rows.rowed, strict=True) if rowed])
    return many[-1], own, sum(many) - own


@lru_cache(maxsize=4096)
def sizes_of(rows: ChunkRows) -> tuple[int, ...]:
    """How many rows are worth being done at once."""
    result, own, shared = elements_of(rows)
    each = operations(_loops(chunk(rows, 1)))
    if each > MUCH and each > SHARED * shared:
        return (1,)
    if shared <= own:  # at most a vector for each: nothing is gained by reading it less often
        return (1,) if each >= LONG else SIZES[-1:]
    if shared <= SMALL and result > VECTOR:
        return SIZES[-1:]
    if shared > FAR:
        return tuple(sorted({MANY, *SIZES, FEW, 1}, reverse=True))
    return (*(CLOSE if shared <= NEAR else SIZES), *[1] * (shared > ALONE))


def row_bytes(of: Buffer, rows: ChunkRows) -> int:
    """The bytes of one row of a buffer."""
    return of.dtype.bytes * prod([known(size) or 0 for size in of.shape[rows.axes :]])
