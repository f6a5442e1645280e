"""Code: the text of a kernel for threads, and how its functions are launched.

>>> empty = KernelCode("", (), ())
>>> empty.text
''
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from attrs import frozen

from plica.analysis.statement import refused
from plica.codegen.cuda.intrinsic_text import text as intrinsics
from plica.codegen.cuda.prelude import text as prelude
from plica.ir.loop.scalar import Scalar
from plica.runtime.cuda.tile import TileMap

Extents: TypeAlias = tuple[int, int, int]


@frozen
class KernelLaunch:
    """A function of the text, and its number of threads; `shared` is its dynamic shared memory."""

    function: str
    grid: Extents
    block: Extents
    shared: int = 0
    maps: tuple[TileMap, ...] = ()
    """Further arguments: maps of tensors whose tiles the copy engine fetches."""
    blocks: Scalar | None = None
    """The number of blocks along x as a term over dims, if sizes are open."""
    own: int = 0
    """Bytes of memory that each thread has to itself."""


@frozen
class KernelCode:
    """The functions of a kernel, its launches in order, and the bytes of each scratch buffer.

    Every function takes the buffers of the kernel, then the scratch buffers.
    """

    functions: str
    launches: tuple[KernelLaunch, ...]
    scratch: tuple[int, ...]
    helpers: frozenset[str] = frozenset()
    sources: tuple[tuple[str, str], ...] = ()
    """The files that line tables refer to, with their texts: a function's statements, printed."""

    @property
    def text(self) -> str:
        """The functions with their helpers."""
        return joined((self,))


@frozen
class RowSteps:
    """The number of rows a function handles, the bytes per row of each buffer (0 if all rows read
    the same), and the scratch bytes for all rows."""

    size: int
    steps: tuple[int, ...]
    scratch: tuple[int, ...] = ()


@frozen
class WrittenFunction:
    """A function without its name: the text before it, its parameters, the block index expression,
    the rest, and its launch."""

    before: str
    params: tuple[str, ...]
    words: tuple[str, ...]  # the names of the parameters that are buffers
    block: str
    after: str
    launch: KernelLaunch
    source: str = ""  # the printed statements, where the lines of the text say which they are of

    def text(self, name: str, rows: RowSteps | None = None) -> str:
        """The function; with `rows` it takes the number of rows and selects its own."""
        if rows is None:
            first = f"  const int {self.block} = blockIdx.x;\n" if self.block else ""
            return f"{self.before}{name}({', '.join(self.params)}) {{\n{first}{self.after}"
        if self.launch.maps:
            raise refused("Tiles of some of the rows are fetched.", name, "no tiles", "tiles")
        across = self.launch.grid[0]
        lines = [
            f"  const long long row_part = blockIdx.x / {across};",
            f"  const long long row_begin = row_part * {rows.size} < row_count - {rows.size}"
            f" ? row_part * {rows.size} : row_count - {rows.size};",
        ]
        steps = (*rows.steps, *rows.scratch)
        ways = ["row_begin"] * len(rows.steps) + ["row_part"] * len(rows.scratch)
        lines += [
            f"  {word} = (decltype({word}))((const char*){word} + {way} * {step});"
            for word, way, step in zip(self.words, ways, steps, strict=True)
            if step
        ]
        if self.block:
            lines.append(f"  const int {self.block} = blockIdx.x % {across};")
        params = ", ".join([*self.params, "const long long row_count"])
        return f"{self.before}{name}({params}) {{\n" + "\n".join(lines) + f"\n{self.after}"


@frozen
class WrittenKernel:
    """The functions of a kernel, the bytes of each scratch buffer, and what they call."""

    functions: tuple[WrittenFunction, ...]
    scratch: tuple[int, ...]
    helpers: frozenset[str]


def joined(of: Sequence[KernelCode]) -> str:
    """The text of several kernels, with shared helpers."""
    helpers = frozenset[str]().union(*[kernel_code.helpers for kernel_code in of])
    before = filter(None, [prelude(helpers), intrinsics(helpers)])
    return "\n".join([*before, *[kernel_code.functions for kernel_code in of]])
