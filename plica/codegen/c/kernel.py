"""Kernels in C99: one function each, over the addresses of its buffers.

Every loop is a serial one, which means the same.  A kernel gives back whether some index was
outside its buffer.

>>> from plica.ir.type.dtype import f32
>>> from plica.ir.loop.statement import For, Store
>>> from plica.ir.loop.tensor import axis, buffer
>>> x, y, i = buffer("x", (3,), f32), buffer("y", (3,), f32), axis("i")
>>> double = Kernel((), (x, y), 1, For(i, y.shape[0], "serial", Store(y, (i,), x[i] + x[i])))
>>> print(function(double, "double_", True).text)
static bool double_(const float *restrict x, float *restrict y) {
  bool failed = false;
  for (long long i = 0; i < 3LL; ++i) {
    const float t = x[i];
    y[i] = (t + t);
  }
  return failed;
}
<BLANKLINE>
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from attrs import frozen

from plica.codegen.c.byte_dot import invoke
from plica.codegen.c.dialect import C99
from plica.codegen.emit.clike import allocate, count_of, rows
from plica.codegen.emit.expression import Expressions
from plica.codegen.emit.identifier import Identifiers
from plica.codegen.emit.lines import Lines
from plica.codegen.emit.statement import Row, Step, write
from plica.core import Name
from plica.ir.loop.scalar import Buffer
from plica.ir.loop.statement import Alloc, Invoke, Kernel
from plica.ir.type import i8

SCRATCH: Final = "p_scratch"  # static memory that kernels use one after the other
STACK_MOST: Final = 1024  # the maximum bytes of a stack buffer, if there is scratch memory
_ALIGNMENT: Final = 16


@frozen
class FunctionText:
    """The text of a function, the helpers it calls, and the bytes of `SCRATCH` it uses."""

    text: str
    helpers: frozenset[str]
    scratch: int = 0


class StaticScratch:
    """Where large buffers of a kernel lie in memory that all kernels share."""

    def __init__(self) -> None:
        self.places: dict[Buffer, int] = {}
        self.size = 0

    def allocate(self, values: Expressions, of: Alloc) -> Sequence[Step]:
        """Memory of the function itself where it is little, else a part of the static one."""
        buffer, size = of.buffer, count_of(of.buffer) * of.buffer.dtype.bytes
        if size <= STACK_MOST:
            return allocate(values, of)
        if buffer not in self.places:
            self.places[buffer] = self.size
            self.size += -(-size // _ALIGNMENT) * _ALIGNMENT
        name = values.names.of(buffer.name, buffer)
        if buffer in values.buffers:
            name = values.names.fresh(name)
        values.buffers[buffer] = name
        kind = values.dialect.memory(buffer.dtype)
        at = f"({kind} *)(void *)({SCRATCH}.bytes + {self.places[buffer]})"
        values.lines.do(f"{kind} *const {name} = {at};")
        return (of.body,)


def function(
    kernel: Kernel,
    name: str,
    apart: bool,
    static: bool = False,
    narrow: frozenset[int] = frozenset(),
) -> FunctionText:
    """The function of a kernel; `apart` says that no two of its buffers overlap, `static` that one
    call runs at a time, so that large buffers need not lie on the stack.  Parameters whose numbers
    are in `narrow` are tables of bytes, whatever they are of."""
    values = Expressions(C99, Lines(1), Identifiers(C99.reserved))
    values.names.of(Name(name), name)
    params = []
    for number, buffer in enumerate(kernel.params):
        word = values.buffers[buffer] = values.names.of(buffer.name, buffer)
        const = "const " if number < kernel.inputs and apart else ""
        star = "*restrict " if apart else "*"
        kind = C99.memory(i8 if number in narrow else buffer.dtype)
        params.append(f"{const}{kind} {star}{word}")
    scratch = StaticScratch()
    own: dict[type, Row] = {Invoke: partial(invoke, values)}
    if static:
        own[Alloc] = partial(scratch.allocate, values)
    write([kernel.body], {**rows(values), **own})
    head = f"static bool {name}({', '.join(params) or 'void'}) {{"
    lines = [head, "  bool failed = false;", values.lines.text(), "  return failed;", "}", ""]
    return FunctionText("\n".join(lines), frozenset(values.helpers), scratch.size)
