"""The fold of a lowered kernel into CUDA C++: one `__global__` function a launch.

An outermost loop over threads is a launch; what stands outside of such loops is one of a single
thread.  A loop over threads is no loop in the text: its variable is the number of the thread.
Loops whose variable says which register is meant are unrolled, or there would be no registers.

A vectorized loop reads and writes neighbours in memory with one instruction where their place is
known to be a multiple of their number, and is unrolled elsewhere.

Buffers outside of a launch that are no parameters are scratch memory: further parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias

from plica.codegen.cuda.bulk import ATOM, SWIZZLED, check_swizzled, copied, is_tile
from plica.codegen.cuda.code import Code, Extents, Launch, joined
from plica.codegen.cuda.group import has_products, is_product, sums_of
from plica.codegen.cuda.intrinsic import LANE, come_together, handed, invocation
from plica.codegen.cuda.lent import lent
from plica.codegen.cuda.lines import Lines
from plica.codegen.cuda.neighbour import Neighbours
from plica.codegen.cuda.nest import (
    by_one_thread,
    chooses_registers,
    count_of,
    launches_of,
    under_way,
)
from plica.codegen.cuda.patience import flat, groups, leisure, patience
from plica.codegen.cuda.place import WIDE
from plica.codegen.cuda.value import Values
from plica.codegen.cuda.word import Names, in_memory, in_register, literal
from plica.codegen.lower.statement import refused
from plica.core.diagnostic import CompilerBug
from plica.core.name import Name
from plica.core.term import Term
from plica.ir.dim import known
from plica.ir.dtype import i64
from plica.ir.loop import (
    THREADS,
    Alloc,
    Barrier,
    Bind,
    Block,
    Branch,
    For,
    Invoke,
    Kernel,
    Seq,
    Stmt,
    Store,
    While,
    statements,
)
from plica.ir.memory import scope
from plica.ir.scalar import Buffer, ScalarVar, dtype_of
from plica.runtime.cuda.tile import TileMap

WARPS: Final = "threadIdx.y"
"""The warps of a block, where threads across it are those of one."""

LONGEST_RING: Final = 64
"""Copies of tiles that may be under way, at most."""

FEW: Final = 1024
"""Elements that a thread may have to itself."""

LANES: Final = 64
"""Neighbours that are written out, at most."""

Step: TypeAlias = "Stmt | Callable[[], None]"


def fold(kernel: Kernel, name: str, origin: str = "") -> Code:
    """CUDA C++ for a kernel lowered for threads; `origin` is said in a comment."""
    if kernel.dims:
        raise CompilerBug(f"The kernel {name} has symbolic dims.")
    scratch: list[Buffer] = []
    nests = list(launches_of(kernel.body, scratch))
    params = (*kernel.params, *scratch)
    functions: list[str] = []
    launches: list[Launch] = []
    helpers: set[str] = set()
    for number, nest in enumerate(nests):
        function = name if len(nests) == 1 else f"{name}_{number}"
        made = _Function(function, params, kernel.inputs)
        launches.append(made.write(nest))
        functions.append(made.text())
        helpers |= made.values.helpers
    head = f"// {origin}\n" if origin else ""
    body = "\n".join(functions)
    return Code(
        f"{head}{body}",
        tuple(launches),
        tuple([count_of(each) * each.dtype.bytes for each in scratch]),
        frozenset(helpers),
    )


class _Function:
    """One function: statements on a stack, with what is to be done between them."""

    def __init__(self, name: str, params: tuple[Buffer, ...], inputs: int) -> None:
        self.name = name
        self.lines, self.names = Lines(1), Names()
        self.values = Values(self.lines, self.names)
        self.extents: dict[str, int] = {}
        self.declared: dict[str, str] = {}
        self.inner: set[Term] = set()
        self.lane: ScalarVar | None = None
        self.handed = frozenset[Buffer]()
        self.copies = frozenset[Stmt]()
        self.patient: dict[Stmt, int] = {}
        self.under_way = 0
        self.shared: list[tuple[str, Buffer]] = []
        self.around: dict[Term, int] = {}
        self.warp: tuple[ScalarVar, int] | None = None
        self.params = params
        self.maps: dict[TileMap, str] = {}
        self.ring = 0
        self.counts: tuple[str, str, str] = ("", "", "")
        self.multiplies = self.pending = False
        self.leisure = 0
        self.sums: tuple[Buffer, ...] = ()
        self.stack: list[Step] = []
        self.names.of(Name(name), name)
        self.head = []
        for number, buffer in enumerate(params):
            word = self.names.of(buffer.name, buffer)
            self.values.buffers[buffer] = word
            const = "const " if number < inputs else ""
            self.head.append(f"{const}{in_memory(buffer.dtype)}* __restrict__ {word}")

    def write(self, nest: Stmt) -> Launch:
        """Write a launch; what it needs to run."""
        for stmt in statements(nest):
            if isinstance(stmt, For) and stmt.kind in THREADS:
                size = known(stmt.extent)
                if size is None:
                    raise CompilerBug(f"The number of threads {stmt.var.name} is not known.")
                self.extents[stmt.kind] = max(size, self.extents.get(stmt.kind, 1))
        self.inner = chooses_registers(nest)
        come_together(nest)
        self.handed = handed(nest) | lent(nest)
        self.copies = groups(nest, self.handed)
        self.multiplies, self.sums = has_products(nest), tuple(sums_of(nest))
        check_swizzled(nest, self.copies, is_product)
        self._tiles(nest)
        self.stack.append(nest)
        while self.stack:
            self._step(self.stack.pop())
        size = self._arranged()[1] + 8 * self.ring
        three = self._three("blockIdx"), self._three("threadIdx")
        return Launch(self.name, *three, size, tuple(self.maps))

    def text(self) -> str:
        threads = 1
        for each in self._three("threadIdx"):
            threads *= each
        maps = [f"const __grid_constant__ p_tile {each}" for each in self.maps.values()]
        args = ", ".join([*self.head, *maps])
        lines = [f'extern "C" __global__ void __launch_bounds__({threads}) {self.name}({args}) {{']
        if self.shared:
            align = ATOM if self.ring else WIDE
            lines.append(f"  extern __shared__ __align__({align}) unsigned char shared_memory[];")
        places, end = self._arranged()
        for (word, buffer), at in zip(self.shared, places, strict=True):
            kind = in_memory(buffer.dtype)
            lines.append(f"  {kind}* const {word} = ({kind}*)(shared_memory + {at});")
        if self.ring:
            counted, begun, awaited = self.counts
            kind = "unsigned long long"
            lines.append(f"  {kind}* const {counted} = ({kind}*)(shared_memory + {end});")
            lines.append(f"  {self.values.help('p_tiles_ready')}({counted}, {self.ring});")
            lines.append(f"  unsigned int {begun} = 0, {awaited} = 0;")
        return "\n".join([*lines, self.lines.text(), "}", ""])

    def _arranged(self) -> tuple[list[int], int]:
        """Where the buffers that a block shares lie, and where they end."""
        places, at = list[int](), 0
        for _, buffer in self.shared:
            if buffer.scope == SWIZZLED:
                at = -(-at // ATOM) * ATOM
            places.append(at)
            at += _padded(count_of(buffer) * buffer.dtype.bytes)
        return places, at

    def _tiles(self, nest: Stmt) -> None:
        """Prepare for the tiles that a launch copies, if it does: a ring for those under way."""
        mine = [each for each in self.copies if any(is_tile(one) for one in statements(each))]
        if not mine:
            return
        if len(mine) < len(self.copies):
            message = "A launch copies by threads and by the copy engine."
            raise refused(message, self.name, "one or the other", "both")
        if not all(by_one_thread(each, nest) for each in mine):
            message = "The copy engine is asked for a tile by several threads."
            raise refused(message, self.name, "one thread", "all that come there")
        most = under_way(nest, self.copies)
        if most is None or most > LONGEST_RING:
            message = "Copies begin in a loop in which nobody waits for them."
            raise refused(message, self.name, f"{LONGEST_RING} under way at most", str(most))
        self.ring = 1 << (most - 1).bit_length()
        self.counts = tuple([self.names.fresh(w) for w in ("counted", "begun", "awaited")])  # type: ignore[assignment]  # three
        self.values.help("p_tile")

    def _three(self, tag: str) -> Extents:
        x, y, z = (self.extents.get(f"{tag}.{axis}", 1) for axis in "xyz")
        return x, y, z

    def _step(self, item: Step) -> None:
        lines, values = self.lines, self.values
        if item in self.copies:
            begun = f"++{self.counts[1]};" if self.ring else f"{values.help('p_copies_begun')}();"
            self.stack.append(partial(lines.do, begun))
        elif self.pending and isinstance(item, For | Store | Bind | Branch):
            self._finish()
        match item:
            case For() if self.ring and is_tile(item):
                self._fetch(item)
            case For():
                self.under_way = self.patient.get(item, 0)
                self._loop(item)
            case Store(buffer, indices, value):
                found = values.packed(values.of(value), buffer.dtype)
                lines.do(f"{values.place(buffer, indices)} = {found};")
            case Seq(stmts):
                for at, each in enumerate(stmts if self.copies else ()):
                    if isinstance(each, For):
                        less = patience([*flat(stmts[:at])], each, self.copies)
                        self.patient[each] = min(less, self.patient.get(each, less))
                self.stack.extend(reversed(stmts))
            case Alloc(buffer, inside):
                self._reserve(buffer)
                self.stack.append(inside)
            case Bind(var, value, inside):
                text = values.of(value)
                word = self.names.of(var.name, var)
                lines.do(f"const {_kind(var)} {word} = {text};")
                values.vars[var] = word
                if values._is_natural(value):
                    values.natural.add(var)
                self.stack.append(inside)
            case Branch(condition, then, orelse):
                lines.open(f"if ({values.of(condition)})")
                self.stack.append(lines.close)
                if orelse != Seq(()):
                    self.stack += [orelse, partial(lines.turn, "else")]
                self.stack.append(then)
            case Barrier():
                self._wait()
                lines.do("__syncthreads();")
            case Invoke():
                lines.do(invocation(item, values, self.lane, self.warp))
                self.pending = self.pending or is_product(item)
            case Block() | While():
                raise CompilerBug(f"Lowering left a {type(item).__name__} in a kernel.")
            case _:
                item()

    def _wait(self) -> None:
        """Wait for copies and products, but for those that may be under way at a barrier."""
        lines, help_ = self.lines, self.values.help
        if self.ring:
            counted, begun, awaited = self.counts
            lines.do(f"for (; {awaited} + {self.under_way} < {begun}; ++{awaited})")
            at, turn = f"{awaited} % {self.ring}", f"{awaited} / {self.ring} % 2"
            lines.do(f"  {help_('p_tile_awaited')}(&{counted}[{at}], {turn});")
        elif self.copies:
            lines.do(f"{help_('p_copies_done')}<{self.under_way}>();")
        if self.multiplies:
            lines.do(f"{help_('p_products_done')}<{self.leisure}>();")
        self.under_way = self.leisure = 0
        self.pending = False

    def _finish(self) -> None:
        """Wait for all products: what they sum is read next."""
        lines, values = self.lines, self.values
        lines.do(f"{values.help('p_products_done')}<0>();")
        for each in self.sums:
            if each in values.buffers:
                kept = f"{values.help('p_products_kept')}<{count_of(each)}>"
                lines.do(f"{kept}({values.buffers[each]});")
        self.pending = False

    def _fetch(self, nest: For) -> None:
        """A tile by the copy engine."""
        lines, values = self.lines, self.values
        tile = copied(nest, self.around)
        if tile.load.buffer not in self.params:
            raise refused("A tile is not of a parameter.", nest.var.name, "one", "another")
        found = tile.map_of(self.params.index(tile.load.buffer))
        if found not in self.maps:
            self.maps[found] = self.names.fresh(f"map_{tile.load.buffer.name}")
        spelled = {ScalarVar(var.name, i64): word for var, word in values.vars.items()}
        begins = []
        for products in tile.begins:
            parts = [
                " * ".join([str(factor), *[spelled[each] for each in atoms]])  # type: ignore[index]  # variables, as was checked
                for atoms, factor in products
            ]
            begins.append(" + ".join(parts) or "0")
        for stmt in statements(nest):
            if isinstance(stmt, For):
                values.vars[stmt.var] = literal(0, dtype_of(stmt.var))
        to = values.place(tile.store.buffer, tile.store.indices)
        counted = f"&{self.counts[0]}[{self.counts[1]} % {self.ring}]"
        lines.do(f"{values.help('p_tile_expected')}({counted}, {found.bytes});")
        copy = values.help(f"p_tile_copy_{len(found.box)}")
        lines.do(f"{copy}(&{to}, &{self.maps[found]}, {counted}, {', '.join(begins)});")

    def _loop(self, loop: For) -> None:
        values, lines = self.values, self.lines
        values.natural.add(loop.var)
        count = known(loop.extent)
        few = count is not None and count <= LANES  # more of them are a loop as any other
        if count is not None:
            self.around[ScalarVar(loop.var.name, i64)] = count
        near = Neighbours(lines, self.names, values, self.handed)
        if loop.kind in THREADS:
            self._threads(loop)
        elif loop.kind == "vectorized" and few and near.write(loop, count or 0):
            return
        else:
            extent = values.of(loop.extent)
            word = self.names.of(loop.var.name, loop.var)
            values.vars[loop.var] = word
            kind = _kind(loop.var)
            if count is not None and (
                loop.kind == "unrolled"
                or (loop.kind == "vectorized" and few)
                or loop.var in self.inner
            ):
                lines.do("#pragma unroll")
            lines.open(f"for ({kind} {word} = 0; {word} < {extent}; ++{word})")
            if self.multiplies and has_products(loop):
                self.leisure = leisure(loop, self.copies, is_product)
                self.stack.append(self._finish)
                waits = isinstance(next(flat((loop.body,)), None), Barrier)
                self.stack += [lines.close, *([] if waits else [self._finish])]
            else:
                self.stack.append(lines.close)
            self.stack.append(loop.body)

    def _threads(self, loop: For) -> None:
        """A loop over threads: its variable is the number of one."""
        values, lines = self.values, self.lines
        tag, size = loop.kind, known(loop.extent)
        assert size is not None
        if tag == LANE and self.lane is None:
            self.lane = loop.var
        if tag == WARPS and self.warp is None:
            self.warp = loop.var, size
        word = self.declared.get(tag)
        if word is None:
            word = self.names.fresh(tag.replace("Idx.", "_"))
            self.declared[tag] = word
            self.head_line(f"const int {word} = {tag};")
        values.vars[loop.var] = word if _kind(loop.var) == "int" else f"({_kind(loop.var)}){word}"
        if size < self.extents[tag]:
            lines.open(f"if ({word} < {size})")
            self.stack.append(lines.close)
        self.stack.append(loop.body)

    def head_line(self, line: str) -> None:
        """A line at the beginning of the function, whatever is open now."""
        self.lines._lines.insert(len(self.declared) - 1, f"  {line}")

    def _reserve(self, buffer: Buffer) -> None:
        reach = scope(buffer.scope).reach
        word = self.names.of(buffer.name, buffer)
        self.values.buffers[buffer] = word
        if reach == "block":
            self.shared.append((word, buffer))
        elif reach == "thread" or (reach == "all" and count_of(buffer) <= FEW):
            size = count_of(buffer)  # what is made anew in each iteration is a thread's own
            self.lines.do(f"alignas({WIDE}) {in_memory(buffer.dtype)} {word}[{size}];")
        else:
            raise refused(
                "This memory is not there for threads.",
                buffer.name,
                "a buffer that is global, shared or local",
                f"the scope {buffer.scope}",
            )


def _kind(var: ScalarVar) -> str:
    return in_register(dtype_of(var))


def _padded(size: int) -> int:
    return -(-size // WIDE) * WIDE


__all__ = ["Code", "Launch", "fold", "joined"]
