"""The fold of a lowered kernel into CUDA C++: one `__global__` function a launch."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from functools import partial
from math import prod
from typing import Final

from attrs import evolve

from plica.analysis.index.bounds import bounds
from plica.analysis.index.context import EMPTY
from plica.analysis.statement import refused
from plica.codegen.cuda.address import wide
from plica.codegen.cuda.code import (
    Extents,
    KernelCode,
    KernelLaunch,
    RowSteps,
    WrittenFunction,
    WrittenKernel,
    joined,
)
from plica.codegen.cuda.dialect import CUDA, MAX_VECTOR_BYTES
from plica.codegen.cuda.intrinsic import LANE, come_together, invocation
from plica.codegen.cuda.nest import (
    chooses_registers,
    counts_of_clamped_differences,
    large_of_one_thread,
    launches_of,
    shared_before,
    thread_bytes,
)
from plica.codegen.cuda.quad_store import QuadStore
from plica.codegen.cuda.tma import ATOM, SWIZZLED, is_tile
from plica.codegen.cuda.tma_box import fetched
from plica.codegen.cuda.vector_access import VectorAccess
from plica.codegen.cuda.wait import Waits, asynchronous
from plica.codegen.cuda.warp_register import in_registers
from plica.codegen.cuda.wgmma import is_product
from plica.codegen.emit import clike
from plica.codegen.emit.clike import count_of
from plica.codegen.emit.expression import Expressions
from plica.codegen.emit.identifier import Identifiers
from plica.codegen.emit.lines import Lines
from plica.codegen.emit.statement import Row, Step, write
from plica.codegen.lower.index_narrowing import MAX_OPEN_BLOCKS
from plica.core import CompilerBug, Memo, free_vars
from plica.ir.loop import Buffer, Scalar, ScalarVar, dtype_of, statement as st
from plica.ir.loop.memory_scope import WARP, scope
from plica.ir.text.show.kernel import located_kernel
from plica.ir.type import i32, i64, known
from plica.runtime.cuda.tile import TileMap

WARPS: Final = "threadIdx.y"  # the warps of a block, where threads across it are those of one
MANY: Final = 96
"""Numbers that a thread has in registers, of which as many threads as that leaves wait together."""

FEW: Final = 1024  # elements that a thread may have to itself
BLOCKS: Final = "blockIdx.x"  # the blocks of a launch, along the axis with the highest limit
LANES: Final = 64  # neighbours that are written out, at most
SOURCE: Final = '"p_source"'  # the file of a line, before its function has a name
PARTIAL_UNROLL: Final = 4  # the unroll factor of loops that must not be unrolled completely


def fold(
    kernel: st.Kernel, name: str, origin: str = "", rows: RowSteps | None = None, folder: str = ""
) -> KernelCode:
    """CUDA C++ for a kernel lowered for threads; `origin` is said in a comment.

    With `rows` it is executed for as many row chunks as there are blocks; with a `folder` its lines
    are those of printed statements in files there.
    """
    of = _written(kernel, located=True) if folder else written(kernel)
    functions = of.functions
    names = [name] if len(functions) == 1 else [f"{name}_{at}" for at in range(len(functions))]
    head = f"// {origin}\n" if origin else ""
    files = [os.path.abspath(f"{folder}/{each}.py") for each in names]
    body = "\n".join([
        function.text(word, rows).replace(SOURCE, json.dumps(file, ensure_ascii=False))
        for function, word, file in zip(functions, names, files, strict=True)
    ])  # fmt: skip
    launches = [evolve(function.launch, function=word)
                for function, word in zip(functions, names, strict=True)]  # fmt: skip
    sources = [(file, each.source) for file, each in zip(files, functions, strict=True) if folder]
    return KernelCode(f"{head}{body}", tuple(launches), of.scratch, of.helpers, tuple(sources))


WRITTEN_KERNELS: Final[Memo[st.Kernel, WrittenKernel]] = Memo(256)
"""Emitted kernels: checking whether a kernel can be emitted has emitted it."""


def written(kernel: st.Kernel) -> WrittenKernel:
    """The functions of a lowered kernel, under any name."""
    return WRITTEN_KERNELS.found(kernel, partial(_written, kernel))


def _written(kernel: st.Kernel, located: bool = False) -> WrittenKernel:
    scratch: list[Buffer] = []
    nests = list(launches_of(kernel.body, scratch))
    inside = [buffer for nest in nests for buffer in large_of_one_thread(nest)]
    scratch += [each for each in dict.fromkeys(inside) if each not in scratch]
    params = (*kernel.params, *scratch)
    functions: list[WrittenFunction] = []
    helpers: set[str] = set()
    for nest in nests:
        function = _Function(in_registers(nest), params, kernel.inputs, kernel.dims, located)
        functions.append(function.written())
        helpers |= function.values.helpers
    sizes = tuple([count_of(each) * each.dtype.bytes for each in scratch])
    return WrittenKernel(tuple(functions), sizes, frozenset(helpers))


class _Function:
    """One function: a launch, written when it is made."""

    def __init__(
        self,
        nest: st.Stmt,
        params: tuple[Buffer, ...],
        inputs: int,
        dims: tuple[ScalarVar, ...] = (),
        located: bool = False,
    ) -> None:
        self.params = params
        printed = st.Kernel(dims, params, inputs, nest)
        self.source, self.places = located_kernel(printed, "launch") if located else ("", {})
        self.values = Expressions(CUDA, Lines(1), Identifiers(CUDA.reserved))
        names = self.values.names
        self.head: list[str] = []
        for number, buffer in enumerate(params):
            word = names.of(buffer.name, buffer)
            self.values.buffers[buffer] = word
            const = "const " if number < inputs else ""
            self.head.append(f"{const}{CUDA.memory(buffer.dtype)}* __restrict__ {word}")
        for dim in dims:
            word = self.values.vars[dim] = names.of(dim.name, dim)
            self.values.known.bound(dim, (0, i32.bounds[1]))
            self.head.append(f"const {CUDA.register(dtype_of(dim))} {word}")
        self.extents, self.blocks = _extents(nest)
        self.own = thread_bytes(nest, params)
        self.inner = chooses_registers(nest)
        self.clamped = counts_of_clamped_differences(nest)
        self.numbers: dict[str, str] = {}  # the variable of a tag, and where it is declared
        self.lane: ScalarVar | None = None
        self.warp: tuple[ScalarVar, int] | None = None
        self.context = EMPTY
        self.apart = 0  # choices in which the threads of a warp may not be together
        self.shared: list[tuple[str, Buffer]] = []
        self.before = shared_before(nest)  # what lies where other memory will
        self.passing = 0  # of such, that is there at the moment
        self.maps: dict[TileMap, str] = {}
        come_together(nest)
        self.waits = Waits(asynchronous(nest, "a launch"), self.values)
        self.near = VectorAccess(self.values, self.waits.of.handed)
        self.quads = QuadStore(self.near)
        write([nest], self._rows())

    def written(self) -> WrittenFunction:
        """The text around the function's name, and its resources."""
        threads = prod(self._three("threadIdx"))
        maps = [f"const __grid_constant__ p_tile {each}" for each in self.maps.values()]
        lines: list[str] = []
        ring = self.waits.of.ring
        if self.shared:
            align = ATOM if ring else MAX_VECTOR_BYTES
            lines.append(f"  extern __shared__ __align__({align}) unsigned char shared_memory[];")
        places, end = self._arranged()
        for (word, buffer), at in zip(self.shared, places, strict=True):
            kind = CUDA.memory(buffer.dtype)
            lines.append(f"  {kind}* const {word} = ({kind}*)(shared_memory + {at});")
        lines += self.waits.ring(end) if ring else []
        rest = [(tag, word) for tag, word in self.numbers.items() if tag != BLOCKS]
        lines += [f"  const int {word} = {tag};" for tag, word in rest]
        first = f"#line 1 {SOURCE}\n" if self.source else ""
        return WrittenFunction(
            f'{first}extern "C" __global__ void __launch_bounds__({threads}) ',
            (*self.head, *maps),
            tuple([self.values.buffers[param] for param in self.params]),
            self.numbers.get(BLOCKS, ""),
            "\n".join([*lines, self.values.lines.text(), "}", ""]),
            KernelLaunch(
                "",
                self._three("blockIdx"),
                self._three("threadIdx"),
                end + 8 * ring,
                tuple(self.maps),
                self.blocks,
                self.own,
            ),
            self.source,
        )

    def _arranged(self) -> tuple[list[int], int]:
        """Where the buffers that a block shares lie, and where they end."""
        places, ends = list[int](), dict[Buffer, int]()
        for _, buffer in self.shared:
            apart = self.before.get(buffer, frozenset())
            at = max([end for each, end in ends.items() if each not in apart], default=0)
            if buffer.scope == SWIZZLED:
                at = -(-at // ATOM) * ATOM
            places.append(at)
            ends[buffer] = at + _padded(count_of(buffer) * buffer.dtype.bytes)
        return places, max(ends.values(), default=0)

    def _three(self, tag: str) -> Extents:
        x, y, z = (self.extents.get(f"{tag}.{axis}", 1) for axis in "xyz")
        return x, y, z

    # --- statements ----------------------------------------------------------------------------

    def _rows(self) -> dict[type, Row]:
        """The rows of C-like targets, with those of threads in their place."""
        plain = clike.rows(self.values)
        self._choices = plain[st.Branch]
        own: dict[type, Row] = {
            **plain,
            st.For: self._loop,
            st.Seq: self._sequence,
            st.Alloc: self._reserve,
            st.Barrier: self._barrier,
            st.Branch: self._branch,
            st.Invoke: self._invoke,
        }
        return {kind: partial(self._asynchronous, row) for kind, row in own.items()}

    def _sequence(self, of: st.Seq) -> Sequence[Step]:
        """Statements in sequence; copies held in registers are stored before the next barrier, so
        that threads work while memory responds: for kernels with many registers, whose occupancy is
        too low to hide latency."""
        steps: list[Step] = []
        later: list[Step] = []
        holds = sum(count_of(buffer) for buffer in self.waits.held) >= MANY
        near = self.near
        for step in self.waits.sequence(of):
            if not isinstance(step, st.Stmt):
                steps.append(step)
                continue
            if any(isinstance(statement, st.Barrier) for statement in st.statements(step)):
                steps += later
                later = []
            held = near.held(step) if holds and step in self.waits.of.copies else None
            if held is None:
                steps.append(step)
                continue
            steps += [partial(near.hold, held), step, near.passed]
            later += [partial(near.give, held), step, near.passed]
        return [*steps, *later]

    def _asynchronous(self, row: Row, item: st.Stmt) -> Sequence[Step]:
        """A statement, after products it may read; copies are under way after it."""
        waits = self.waits
        if (line := self.places.get(item)) is not None:
            self.values.lines.do(f"#line {line} {SOURCE}")
        if item in waits.of.copies and self.near.giving is None:
            return (*(row(item) or ()), waits.copied)
        if waits.pending and isinstance(item, st.For | st.Store | st.Bind | st.Branch):
            waits.finish()
        return row(item) or ()

    def _branch(self, of: st.Branch) -> Sequence[Step]:
        """A conditional: threads of a warp may diverge, unless it only guards cooperative stores,
        each of which checks the guard itself."""
        if (
            self._all_together
            and self.lane is not None
            and of.orelse is st.NOTHING
            and self.quads.guards(of, self.lane)
        ):
            return of.then, self.quads.unguarded
        apart = self.lane is None or self.lane in free_vars(of.condition)
        self.apart += apart
        return *(self._choices(of) or ()), partial(self._joined, apart)

    def _joined(self, apart: int) -> None:
        self.apart -= apart

    def _barrier(self, of: st.Barrier) -> None:
        self.waits.wait()
        self.values.lines.do(CUDA.barrier)

    def _invoke(self, of: st.Invoke) -> None:
        self.values.lines.do(invocation(of, self.values, self.lane, self.warp))
        self.waits.pending = self.waits.pending or is_product(of)

    def _loop(self, loop: st.For) -> Sequence[Step]:
        if self.waits.of.ring and is_tile(loop):
            self._fetch(loop)
            return ()
        self.waits.enter(loop)
        values, count = self.values, known(loop.extent)
        few = count is not None and count <= LANES  # more of them are a loop as any other
        most = bounds(wide(loop.extent), self.context).high if count is None else count
        if most is None and loop.kind == BLOCKS:
            most = MAX_OPEN_BLOCKS
        if most is not None:
            values.known.bound(loop.var, (0, max(0, most - 1)))
            self.context = self.context.loop(ScalarVar(loop.var.name, i64), most)
        if loop.kind in st.THREADS:
            return self._threads(loop)
        if loop.kind == "vectorized" and few:
            if self.near.write(loop, count or 0):
                return ()
            if (guarded := self.near.guarded(loop, count or 0)) is not None:
                return (guarded,)
        lane = self.lane if self._all_together else None
        if lane is not None and self.quads.write(loop, lane):
            return ()
        asked = lane is not None and self.quads.ask(loop, lane)
        unrolled = loop.kind == "unrolled" or (loop.kind == "vectorized" and few)
        unrolled = unrolled or self.near.whole
        unroll = count is not None and (unrolled or loop.var in self.inner)
        if count is not None and not unroll and loop.var in self.clamped:
            values.lines.do(f"{CUDA.unroll} {PARTIAL_UNROLL}")  # see Note [Clamped differences]
        apart = count is None and (self.lane is None or self.lane in free_vars(loop.extent))
        self.apart += apart
        steps = self.waits.around(loop, tuple(clike.loop(values, loop, unroll)))
        return *steps, partial(self._joined, apart), *([self.quads.answered] if asked else [])

    @property
    def _all_together(self) -> bool:
        """Whether all threads of a warp are here."""
        return self.lane is not None and not self.apart and self.extents.get(LANE) == WARP

    def _threads(self, loop: st.For) -> Sequence[Step]:
        """A loop over threads: its variable is the number of one."""
        values, lines = self.values, self.values.lines
        tag, size = loop.kind, known(loop.extent)
        if tag == LANE and self.lane is None:
            self.lane = loop.var
        if tag == WARPS and self.warp is None and size is not None:
            self.warp = loop.var, size
        if tag not in self.numbers:
            self.numbers[tag] = values.names.fresh(tag.replace("Idx.", "_"))
        word, kind = self.numbers[tag], CUDA.register(dtype_of(loop.var))
        values.vars[loop.var] = word if kind == "int" else f"({kind}){word}"
        if size is None or size == self.extents[tag]:
            return (loop.body,)
        lines.open(f"if ({word} < {size})")
        return loop.body, lines.close

    def _fetch(self, nest: st.For) -> None:
        """A tile by the copy engine."""
        values = self.values
        tile = fetched(nest, self.context)
        if tile.load.buffer not in self.params:
            raise refused("A tile is not of a parameter.", nest.var.name, "one", "another")
        tile_map = tile.map_of(self.params.index(tile.load.buffer))
        if tile_map not in self.maps:
            self.maps[tile_map] = values.names.fresh(f"map_{tile.load.buffer.name}")
        for var in [*values.vars]:
            whole = ScalarVar(var.name, i64)
            values.vars.setdefault(whole, values.vars[var])
            if var in values.known.ranges:
                values.known.bound(whole, values.known.ranges[var])
        begins = []
        for products in tile.begins:
            parts = [
                " * ".join([str(factor), *[f"(int)({values.of(atom)})" for atom in atoms]])
                for atoms, factor in products
            ]
            begins.append(" + ".join(parts) or "0")
        for stmt in st.statements(nest):
            if isinstance(stmt, st.For):
                values.vars[stmt.var] = CUDA.literal(0, dtype_of(stmt.var))
        to = values.place(tile.store.buffer, tile.store.indices)
        waits = self.waits
        counted = f"&{waits.counted}[{waits.begun} % {waits.of.ring}]"
        size = tile_map.bytes * tile.panels
        values.lines.do(f"{values.help('p_tile_expected')}({counted}, {size});")
        copy = values.help(f"p_tile_copy_{len(tile_map.box)}")
        for panel in range(tile.panels):
            far = f" + {panel * prod(tile_map.box)}" if panel else ""
            first = f"{begins[0]} + {panel * tile_map.box[0]}" if panel else begins[0]
            at = ", ".join([first, *begins[1:]])
            values.lines.do(f"{copy}(&{to}{far}, &{self.maps[tile_map]}, {counted}, {at});")

    def _reserve(self, of: st.Alloc) -> Sequence[Step]:
        """Memory of a block or a thread; memory allocated in each iteration is private."""
        buffer, values = of.buffer, self.values
        reach = scope(buffer.scope).reach
        if buffer in self.params:
            return (of.body,)
        if reach == "block":
            word = values.buffers[buffer] = values.names.of(buffer.name, buffer)
            self.shared.append((word, buffer))
            if buffer not in self.before:
                return (of.body,)
            self.passing += 1
            return of.body, self._passed
        if reach == "thread" or (reach == "all" and count_of(buffer) <= FEW):
            self.waits.held.add(buffer)
            return (*clike.allocate(values, of), partial(self.waits.held.discard, buffer))
        raise refused(
            "This memory is not there for threads.",
            buffer.name,
            "a buffer that is global, shared or local",
            f"the scope {buffer.scope}",
        )

    def _passed(self) -> None:
        """A barrier after memory that is reused: its readers must have finished."""
        self.passing -= 1
        if not self.passing:
            self.waits.wait()
            self.values.lines.do(CUDA.barrier)


def _extents(nest: st.Stmt) -> tuple[dict[str, int], Scalar | None]:
    """How many threads of each kind a launch has, and how many blocks where that is open."""
    found: dict[str, int] = {}
    blocks: Scalar | None = None
    for stmt in st.statements(nest):
        if not isinstance(stmt, st.For) or stmt.kind not in st.THREADS:
            continue
        size = known(stmt.extent)
        if size is not None:
            found[stmt.kind] = max(size, found.get(stmt.kind, 1))
        elif stmt.kind != BLOCKS or blocks not in (None, stmt.extent):
            raise CompilerBug(f"The number of threads {stmt.var.name} is not known.")
        else:
            blocks = stmt.extent
    if blocks is not None and BLOCKS in found:
        raise CompilerBug("Blocks of a launch are told, and known before.")
    return found, blocks


def _padded(size: int) -> int:
    return -(-size // MAX_VECTOR_BYTES) * MAX_VECTOR_BYTES


__all__ = ["KernelCode", "KernelLaunch", "RowSteps", "fold", "joined"]
