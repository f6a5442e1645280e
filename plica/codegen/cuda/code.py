"""Code: the text of a kernel for threads, and how its functions are launched.

>>> empty = KernelCode("", (), ())
>>> empty.text
''
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from attrs import frozen

from plica.codegen.cuda.intrinsic_text import text as intrinsics
from plica.codegen.cuda.prelude import text as prelude
from plica.ir.loop.scalar import Scalar
from plica.runtime.cuda.tile import TileMap

Extents: TypeAlias = tuple[int, int, int]


@frozen
class KernelLaunch:
    """A function of the text, and how many threads run it; `shared` is what it asks for."""

    function: str
    grid: Extents
    block: Extents
    shared: int = 0
    maps: tuple[TileMap, ...] = ()
    """Further arguments: maps of tensors whose tiles the copy engine fetches."""
    blocks: Scalar | None = None
    """How many blocks there are along x, where that comes with a call: over dims of the kernel."""
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

    @property
    def text(self) -> str:
        """The functions with what they call."""
        return joined((self,))


def joined(of: Sequence[KernelCode]) -> str:
    """The text of several kernels, with what they call once."""
    helpers = frozenset[str]().union(*[each.helpers for each in of])
    before = filter(None, [prelude(helpers), intrinsics(helpers)])
    return "\n".join([*before, *[each.functions for each in of]])
