"""Tiles by the copy engine: a nest of loops that copies a tile is one instruction of one thread.

    for r in range(128):                                    tile_copy(&T[0], &map_x,
        for k in range(64):                      -->                  64 * q, 128 * b)
            T[r, k] = x[128 * b + r, 64 * q + k]

The engine writes rows of 128 bytes into shared memory whose 16-byte parts are swizzled: part n of
row r is where part n ^ (r % 8) would be.  Memory of the scope `shared.swizzled` is such; nothing
but these copies writes it, and only tensor cores, who know, read it.

Beyond the ends of a tensor the engine writes zeros.  So a copy behind guards is one of it where
each guard says that the place along an axis is inside of that.

>>> from plica.analysis.index.context import EMPTY
>>> from plica.ir.type.dtype import f16
>>> from plica.ir.loop.statement import For, Store
>>> from plica.ir.loop.scalar import Buffer, index
>>> from plica.ir.loop.tensor import axis, buffer
>>> x, r, k, b = buffer("x", (256, 512), f16), axis("r"), axis("k"), axis("b")
>>> tile = Buffer(x.name, (index(128), index(64)), f16, SWIZZLED)
>>> store = Store(tile, (r, k), x[128 * b + r, k + 64])
>>> copy = For(r, index(128), "serial", For(k, index(64), "serial", store))
>>> found = copied(copy_nest(copy), EMPTY.loop(b, 2))
>>> found.extents, found.strides, found.sizes
((64, 128), (1, 512), (512, 256))
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from typing import Final, TypeAlias

from attrs import frozen

from plica.analysis.enclosing import simple
from plica.analysis.index.bounds import bounds
from plica.analysis.index.context import Context, conjuncts
from plica.analysis.statement import refused
from plica.codegen.cuda.address import wide
from plica.codegen.emit.expression import linear
from plica.core import Term, free_vars, post_order
from plica.ir.loop.memory_scope import scope
from plica.ir.loop.scalar import Buffer, Lit, Load, Lt, Scalar, ScalarVar, Select
from plica.ir.loop.statement import For, Region, Stmt, Store, statements
from plica.ir.type import i64, known, polynomial
from plica.runtime.cuda.tile import TileMap

SWIZZLED: Final = "shared.swizzled"

ROW: Final = 128  # bytes of a row that is swizzled
ATOM: Final = 1024  # where swizzled memory begins: multiples of eight rows

LONGEST, DEEPEST = 256, 5  # elements of a tile along an axis, and axes, at most

Product: TypeAlias = tuple[tuple[Scalar, ...], int]  # some variables times a number

_HEAD: Final = "__device__ __forceinline__"


def _copy(rank: int) -> str:
    axes = "abcde"[:rank]
    given = ", ".join([f"int {axis}" for axis in axes])
    places = ", ".join([f"%{number + 3}" for number in range(rank)])
    values = ", ".join([f'"r"({axis})' for axis in axes])
    return f"""\
{_HEAD} void p_tile_copy_{rank}(void* to, const p_tile* map, unsigned long long* counted,
                                   {given}) {{
  unsigned int at = (unsigned int)__cvta_generic_to_shared(to);
  unsigned int count = (unsigned int)__cvta_generic_to_shared(counted);
  asm volatile("cp.async.bulk.tensor.{rank}d.shared::cluster.global.mbarrier::complete_tx::bytes "
               "[%0], [%1, {{{places}}}], [%2];"
               :: "r"(at), "l"(map), "r"(count), {values} : "memory");
}}
"""


TEXTS: Final[dict[str, str]] = {
    "p_tile": "struct __align__(64) p_tile { unsigned long long words[16]; };\n",
    "p_tiles_ready": f"""\
{_HEAD} void p_tiles_ready(unsigned long long* counted, int many) {{
  if (threadIdx.x == 0 && threadIdx.y == 0 && threadIdx.z == 0) {{
    for (int n = 0; n < many; ++n) {{
      unsigned int at = (unsigned int)__cvta_generic_to_shared(counted + n);
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(at) : "memory");
    }}
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }}
  __syncthreads();
}}
""",
    "p_tile_expected": f"""\
{_HEAD} void p_tile_expected(unsigned long long* counted, int bytes) {{
  unsigned int at = (unsigned int)__cvta_generic_to_shared(counted);
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
               :: "r"(at), "r"(bytes) : "memory");
}}
""",
    "p_tile_awaited": f"""\
{_HEAD} void p_tile_awaited(unsigned long long* counted, unsigned int turn) {{
  unsigned int at = (unsigned int)__cvta_generic_to_shared(counted), done = 0;
  while (!done)
    asm volatile("{{\\n.reg .pred p;\\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\\n"
                 "selp.u32 %0, 1, 0, p;\\n}}"
                 : "=r"(done) : "r"(at), "r"(turn) : "memory");
}}
""",
    **{f"p_tile_copy_{rank}": _copy(rank) for rank in range(2, DEEPEST + 1)},
}


@frozen(eq=False)
class TmaTile:
    """The copy of a nest: extents from the innermost, strides in the tensor, its sizes, and the
    origin of the tile."""

    store: Store
    load: Load
    variables: tuple[ScalarVar, ...]
    extents: tuple[int, ...]
    strides: tuple[int, ...]
    sizes: tuple[int, ...]
    begins: tuple[tuple[Product, ...], ...]
    """For each axis products whose sum is where the tile begins."""
    panels: int = 1
    """How many tiles lie one behind another, each along the innermost axis after the last."""

    def map_of(self, argument: int) -> TileMap:
        """The map by which the engine finds it in an argument of the kernel."""
        size = self.load.buffer.dtype.bytes
        return TileMap(
            argument, size, self.sizes, tuple([step * size for step in self.strides[1:]]),
            self.extents,
        )  # fmt: skip


def is_tile(stmt: Stmt) -> bool:
    """Whether a statement writes swizzled memory, so that it must be a copy of a tile."""
    while isinstance(stmt, For):
        stmt = stmt.body
    return isinstance(stmt, Store) and stmt.buffer.scope == SWIZZLED


def check_swizzled(nest: Stmt, copies: Iterable[Stmt], others: Callable[[Stmt], bool]) -> None:
    """Refuses users of swizzled memory that are unaware of it: all but tile copies and `others`."""
    known_ = {
        stmt
        for copy in copies
        for loop in statements(copy)
        if isinstance(loop, For) and is_tile(loop)
        for stmt in statements(loop)
    }
    for stmt in statements(nest):
        if stmt in known_ or others(stmt):
            continue
        if isinstance(stmt, Store) and stmt.buffer.scope == SWIZZLED:
            raise _touched(stmt.buffer)
        own = [part for part in stmt._children if not isinstance(part, Stmt)]
        for node in post_order(*own):
            if isinstance(node, Load | Region) and node.buffer.scope == SWIZZLED:
                raise _touched(node.buffer)


def _touched(buffer: Buffer) -> Exception:
    message = f"The memory of {buffer.name} is swizzled, and something touches it that cannot tell."
    return refused(message, buffer.name, "copies of tiles, and products of four warps", "another")


@frozen(eq=False)
class CopyNest:
    """Loops around one store, what it reads, and the guards outside of which that is 0."""

    loops: Mapping[ScalarVar, int]
    store: Store
    load: Load
    guards: Sequence[Scalar]


def copy_nest(nest: Stmt) -> CopyNest:
    """A nest that does nothing but copy."""
    loops: dict[ScalarVar, int] = {}
    stmt = nest
    while isinstance(stmt, For):
        loops[ScalarVar(stmt.var.name, i64)] = known(stmt.extent) or 0
        stmt = stmt.body
    assert isinstance(stmt, Store)
    load, guards = _guarded(stmt.value)
    if not isinstance(load, Load) or load.buffer.dtype is not stmt.buffer.dtype:
        raise no_tile(stmt, "a value that is not just read")
    if scope(load.buffer.scope).reach != "all":
        raise no_tile(stmt, f"{load.buffer.name}, which is in no global memory")
    return CopyNest(loops, stmt, load, guards)


def copied(of: CopyNest, around: Context) -> TmaTile:
    """The tile of some panels; `around` says of the variables around it what they may be."""
    loops, stmt, load, guards = of.loops, of.store, of.load, of.guards
    to, _ = _steps(stmt, linear(stmt.buffer, stmt.indices), loops)
    source, rest = _steps(stmt, linear(load.buffer, load.indices), loops)
    order = sorted([var for var, count in loops.items() if count > 1], key=lambda var: to[var])
    extents, strides, dense, size = list[int](), list[int](), 1, load.buffer.dtype.bytes
    apart = _panels(order, loops, source, ROW // size)
    for var in order:
        if to[var] != dense:
            raise no_tile(stmt, "elements that do not lie together")
        dense *= loops[var]
        if var in apart:
            continue
        most = ROW // size if len(extents) == 1 else LONGEST
        follows = bool(extents) and source[var] == strides[-1] * extents[-1]
        if follows and extents[-1] * loops[var] <= most:
            extents[-1] *= loops[var]
        else:
            extents.append(loops[var])
            strides.append(source[var])
    plain = strides[:1] == [1] and extents[0] * size == ROW and 1 < len(extents) <= DEEPEST
    if not plain or max(extents) > LONGEST or any(step * size % 16 for step in strides[1:]):
        raise no_tile(stmt, f"a tile of {tuple(extents)} with steps of {tuple(strides)}")
    own = dict[Term, int](source.items()), dict[Term, int](loops.items())
    where: list[Factors] = [own, *_places(rest, around)]
    begin = sum(n for atoms, n in rest if not atoms)
    bounds = _bounds(stmt, guards, where, strides, begin)
    for stride in [step * count for step, count in bounds.items()]:
        if stride not in strides and any(factor % stride == 0 for _, factor in rest):
            strides.append(stride)  # what lies beyond the bound is along an axis of its own
            extents.append(1)
    if len(extents) > DEEPEST or any(step * size % 16 for step in strides[1:]):
        raise no_tile(stmt, f"a tile of {tuple(extents)} with steps of {tuple(strides)}")
    rest = [each for each in rest if each[0]]
    rest += [((), step * count) for step, count in _digits(begin, strides).items() if count]
    panels = prod(loops[var] for var in apart)
    reach = [extents[0] * panels, *extents[1:]]
    axes = [(step, count, bounds.get(step)) for step, count in zip(strides, reach, strict=True)]
    sizes, begins = _found(stmt, load, rest, axes, around)
    return TmaTile(stmt, load, tuple(loops), tuple(extents), tuple(strides), sizes, begins, panels)


def _panels(
    order: Sequence[ScalarVar],
    loops: Mapping[ScalarVar, int],
    source: Mapping[ScalarVar, int],
    row: int,
) -> Sequence[ScalarVar]:
    """The outermost loops of a tile, if they continue at the end of its rows of a given length and
    these are not the tensor's rows."""
    long = [source[var] for var in order if source[var] > row]
    first = next((at for at, var in enumerate(order) if source[var] == row), len(order))
    step = row
    for var in order[first:]:
        if source[var] != step:
            return ()
        step *= loops[var]
    return order[first:] if any(each % row for each in long) else ()


def _guarded(of: Scalar) -> tuple[Scalar, Sequence[Scalar]]:
    """The load, and the guards outside of which it is 0."""
    if isinstance(of, Select) and isinstance(of.orelse, Lit) and of.orelse.value == 0:
        return of.then, conjuncts(of.condition)
    return of, ()


Factors: TypeAlias = tuple[Mapping[Term, int], Mapping[Term, int]]
"""The strides of some loops in elements, and their extents."""


def _places(rest: list[Product], around: Context) -> list[Factors]:
    """The terms of a tile's origin, with the number of values of each."""
    return [
        ({atoms[0]: factor}, {atoms[0]: _most(atoms[0], around) + 1})
        for atoms, factor in rest
        if len(atoms) == 1 and _most(atoms[0], around) >= 0
    ]


def _most(of: Scalar, around: Context) -> int:
    """The greatest value of a term that is never negative; -1 where that is not known."""
    low, high = bounds(of, around)
    return -1 if low is None or low < 0 or high is None else high


def _bounds(
    store: Store,
    guards: Sequence[Scalar],
    where: Sequence[Factors],
    strides: Sequence[int],
    begin: int,
) -> dict[int, int]:
    """How long the axes of some strides are, as guards say; another guard is no bound of an axis.

    `begin` is where the tile begins, as far as that is a number.
    """
    steps = {var: step for factors, _ in where for var, step in factors.items()}
    turns = {var: count for _, counts in where for var, count in counts.items()}
    found: dict[int, int] = {}
    for guard in guards:
        if not isinstance(guard, Lt):
            raise no_tile(store, "a guard that is no bound")
        terms = polynomial(simple(wide(guard.left) - wide(guard.right)))
        limit = -sum(factor for atoms, factor in terms.values() if not atoms)
        said = {atoms[0]: factor for atoms, factor in terms.values() if len(atoms) == 1}
        if len(said) + bool(limit) != len(terms) or not all(var in steps for var in said):
            raise no_tile(store, "a guard that is no bound")
        ratios = {steps[var] / factor for var, factor in said.items()}
        step = int(ratios.pop()) if len(ratios) == 1 else 0
        stride = max([s for s in strides if step and step % s == 0], default=0)
        # Digits below those of the guard must not carry into the next one.
        low = [var for var, by in steps.items() if var not in said and stride <= by < step]
        reach = sum(steps[var] * (turns[var] - 1) for var in low)
        if not stride or reach > step - stride or limit < 1:
            raise no_tile(store, "a guard that is no bound of an axis")
        found[stride] = limit * (step // stride)
    for stride, count in _digits(begin, strides).items():  # where the first tile begins
        if stride in found:
            found[stride] += count
    return found


def _digits(of: int, strides: Sequence[int]) -> dict[int, int]:
    """How far a place is along each axis, those of the greatest strides first."""
    found: dict[int, int] = {}
    for stride in sorted(strides, reverse=True):
        found[stride], of = divmod(of, stride)
    return found


def _steps(
    store: Store, where: Scalar, loops: Mapping[ScalarVar, int]
) -> tuple[dict[ScalarVar, int], list[Product]]:
    """The strides in elements, and the other terms of the index."""
    steps, rest = dict.fromkeys(loops, 0), list[Product]()
    for atoms, factor in polynomial(simple(wide(where))).values():
        if len(atoms) == 1 and atoms[0] in steps:
            steps[atoms[0]] = factor
        elif any(not free_vars(atom).isdisjoint(loops) for atom in atoms):
            raise no_tile(store, "places that are no multiples of loops")
        else:
            rest.append((atoms, factor))
    return steps, rest


def _found(
    store: Store,
    load: Load,
    rest: list[Product],
    axes: list[tuple[int, int, int | None]],
    around: Context,
) -> tuple[tuple[int, ...], tuple[tuple[Product, ...], ...]]:
    """How long the axes of a tensor are, and where in it a tile begins, which is inside but along
    axes that have a bound."""
    strides, extents, bounds = ([each[n] or 0 for each in axes] for n in (0, 1, 2))
    falling = sorted(range(len(strides)), key=lambda each: -strides[each])
    whole, sizes = 1, [0] * len(strides)
    for dim in load.buffer.shape:
        whole *= known(dim) or 0
    for axis in falling:
        sizes[axis], left = divmod(whole, strides[axis])
        whole = strides[axis]
        if left:
            raise no_tile(store, f"steps of {tuple(strides)}, which do not divide one another")
    parts: list[list[Product]] = [[] for _ in strides]
    first, last = [0] * len(strides), [extent - 1 for extent in extents]
    for atoms, factor in rest:
        axis = next(each for each in falling if factor % strides[each] == 0)
        parts[axis].append((atoms, factor // strides[axis]))
        most = factor // strides[axis]
        for atom in atoms:
            if _most(atom, around) < 0:
                raise no_tile(store, "a place that depends on more than loops")
            most *= _most(atom, around)
        ends = last if most > 0 or not atoms else first
        ends[axis] += most
        if not atoms:
            first[axis] += most
    for bound, size in zip(bounds, sizes, strict=True):
        if bound and size != bound:
            raise no_tile(store, f"a guard at {bound} along an axis of {size}")
    if any(each < 0 for each in first) or any(
        most >= size and not bound for most, size, bound in zip(last, sizes, bounds, strict=True)
    ):
        raise no_tile(store, f"a tile that may reach outside of {load.buffer.name}")
    return tuple(sizes), tuple([tuple(part) for part in parts])


def no_tile(store: Store, found: str) -> Exception:
    message = f"What is copied to {store.buffer.name} is no tile that the copy engine can fetch."
    expected = "rows of 128 bytes, one behind another, of a tensor in global memory"
    return refused(message, store.buffer.name, expected, found)
