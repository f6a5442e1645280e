"""Common nests: loops that several kernels of a program have, each a function that these call.

Convolutions of one shape with different epilogues begin with the same statements:

    a:  for i: product; epilogue a            n(i, …):  product
    b:  for i: product; epilogue b    -->     a:  for i: n(i, …); epilogue a
                                              b:  for i: n(i, …); epilogue b
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Sequence
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Final, TypeAlias

from attrs import frozen

from plica.analysis.constant_bound import Interval
from plica.codegen.llvm.lane import TRUE
from plica.core import free_vars
from plica.ir.loop import statement as st
from plica.ir.loop.scalar import Buffer, ScalarVar
from plica.ir.type import known

if TYPE_CHECKING:
    from plica.codegen.llvm.value import LlvmValues

HEAVY: Final = 24
"""The minimum number of elements or vectors that a nest's text writes: a function's overhead
exceeds that of one more loop."""

MAX_REGISTER_BYTES: Final = 2048
"""The maximum bytes of a per-thread buffer that can be in registers; larger ones are in memory
anyway."""

UNDERSTOOD: Final = (st.Alloc, st.Bind, st.Branch, st.For, st.Seq, st.Store)


@frozen
class CommonNest:
    """A loop as a kernel: its dims are variables of the loops around it, within some bounds."""

    kernel: st.Kernel
    bounds: tuple[Interval, ...]


@frozen
class NestCall:
    """A nest, and the name of its function."""

    nest: CommonNest
    name: str

    @property
    def declaration(self) -> str:
        """The function, to those who call it."""
        kernel = self.nest.kernel
        params = ", ".join(["i64"] * len(kernel.dims) + ["ptr"] * len(kernel.params))
        return f"declare hidden void @{self.name}({params}) nounwind"


def nest_call(nest: CommonNest, name: str) -> NestCall:
    """A nest by the name of its function."""
    return NestCall(nest, name)


def is_called(of: NestCall, values: LlvmValues) -> bool:
    """Call the function of a nest, if this is a place that it is for."""
    around, kernel = values.around, of.nest.kernel
    if around.lane is not None or around.mask != TRUE:
        return False
    for var, (low, high) in zip(kernel.dims, of.nest.bounds, strict=True):
        least, most = around.interval(var)
        if least < low or most > high:
            return False
    told = [f"i64 {values.lanes.scalar(around.vars[dim])}" for dim in kernel.dims]
    told += [f"ptr {values.access.places[param].pointer}" for param in kernel.params]
    values.w.do(f"call void @{of.name}({', '.join(told)})")
    return True


Around: TypeAlias = tuple[tuple[ScalarVar, int], ...]
"""The enclosing loops of a statement, outermost first, with their extents."""


def common_nests(kernels: Sequence[tuple[st.Kernel, int | None]]) -> list[tuple[CommonNest, ...]]:
    """For each kernel, and the input whose memory it writes its result to, the nests that it has in
    common with others: the outermost of them."""
    every = Counter([each for pair in kernels for each in dict.fromkeys(nests_of(*pair))])
    shared = {nest for nest, count in every.items() if count > 1}
    taken = [tuple(dict.fromkeys(nests_of(*pair, shared))) if shared else () for pair in kernels]
    # A nest inside a larger nest with the same users is not separate.
    users = Counter([common_nest for nests in taken for common_nest in nests])
    return [tuple([each for each in nests if users[each] > 1]) for nests in taken]


def nests_of(
    kernel: st.Kernel, over: int | None, wanted: Container[CommonNest] | None = None
) -> Iterator[CommonNest]:
    """The nests of a kernel, outermost first; only the `wanted` ones, and none inside those."""
    if kernel.dims:
        return
    stack: list[tuple[st.Stmt, Around, tuple[Buffer, ...]]] = [(kernel.body, (), ())]
    while stack:
        stmt, around, allocated = stack.pop()
        match stmt:
            case st.For(var, extent, kind, body) if kind in ("serial", "parallel"):
                if _weight(stmt) < HEAVY:
                    continue
                serial = kind == "serial"
                nest = _nest(stmt, around, kernel, over, allocated) if serial else None
                if nest is not None and (wanted is None or nest in wanted):
                    yield nest
                    if wanted is not None:
                        continue
                if (count := known(extent)) is not None:
                    stack.append((body, (*around, (var, count)), allocated))
            case st.Alloc(buffer, body):
                stack.append((body, around, (*allocated, buffer)))
            case st.Seq(parts):
                stack.extend([(part, around, allocated) for part in reversed(parts)])
            case _:
                pass


def _nest(
    loop: st.For, around: Around, kernel: st.Kernel, over: int | None, allocated: tuple[Buffer, ...]
) -> CommonNest | None:
    """A loop as a nest, or None if it uses something that cannot be a parameter."""
    written = _written(loop)
    free = free_vars(loop)
    if written is None or not written:
        return None
    told = [each for each in around if each[0] in free]
    in_memory = [buffer for buffer in allocated if _is_in_memory(buffer)]
    used = [buffer for buffer in (*kernel.params, *in_memory) if buffer in free]
    if len(told) + len(used) < len(free):
        return None  # registers
    if over is not None and kernel.params[over] in free and kernel.params[-1] in free:
        return None  # one place by two names
    read = [buffer for buffer in used if buffer not in written]
    params = (*read, *[buffer for buffer in used if buffer in written])
    dims = tuple([var for var, _ in told])
    bounds = tuple([(0, count - 1) for _, count in told])
    return CommonNest(st.Kernel(dims, params, len(read), loop), bounds)


def _is_in_memory(buffer: Buffer) -> bool:
    """Whether a buffer that a kernel allocates has an address in any case."""
    size = prod([known(dim) or 0 for dim in buffer.shape]) * buffer.dtype.bytes
    return buffer.scope != "local" or size > MAX_REGISTER_BYTES


@lru_cache(maxsize=1024)
def _written(loop: st.For) -> frozenset[object] | None:
    """The buffers a loop writes, or None if it contains unknown statements."""
    every = list(st.statements(loop))
    if any(not isinstance(each, UNDERSTOOD) for each in every):
        return None
    if any(isinstance(each, st.For) and each.kind == "parallel" for each in every):
        return None
    return frozenset([each.buffer for each in every if isinstance(each, st.Store)])


@lru_cache(maxsize=1024)
def _weight(loop: st.For) -> int:
    """How many elements or vectors a loop writes in its text."""
    found = 0
    stack: list[tuple[st.Stmt, int]] = [(loop, 1)]
    while stack:
        stmt, times = stack.pop()
        if isinstance(stmt, st.Store):
            found += times
        elif isinstance(stmt, st.For) and stmt.kind == "unrolled":
            stack.append((stmt.body, times * (known(stmt.extent) or 1)))
        else:
            stack.extend([(substatement, times) for substatement in st.substatements(stmt)])
    return found
