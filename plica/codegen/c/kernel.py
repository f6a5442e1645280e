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

from attrs import frozen

from plica.codegen.c.dialect import C99
from plica.codegen.emit.clike import rows
from plica.codegen.emit.expression import Expressions
from plica.codegen.emit.identifier import Identifiers
from plica.codegen.emit.lines import Lines
from plica.codegen.emit.statement import write
from plica.core.name import Name
from plica.ir.loop.statement import Kernel
from plica.runtime.error import Diagnostic, UnsupportedError


@frozen
class FunctionText:
    """The text of a function, and the helpers it calls."""

    text: str
    helpers: frozenset[str]


def function(kernel: Kernel, name: str, apart: bool) -> FunctionText:
    """The function of a kernel; `apart` says that no two of its buffers overlap."""
    if kernel.dims:
        message = "C is made for sizes that are known; those of this model are open."
        hint = "Give the model its sizes, or compile it for 'cpu'."
        named = ", ".join(str(each.name) for each in kernel.dims)
        raise UnsupportedError(Diagnostic("unsupported", message, None, "numbers", named, hint))
    values = Expressions(C99, Lines(1), Identifiers(C99.reserved))
    values.names.of(Name(name), name)
    params = []
    for number, buffer in enumerate(kernel.params):
        word = values.buffers[buffer] = values.names.of(buffer.name, buffer)
        const = "const " if number < kernel.inputs and apart else ""
        star = "*restrict " if apart else "*"
        params.append(f"{const}{C99.memory(buffer.dtype)} {star}{word}")
    write([kernel.body], rows(values))
    head = f"static bool {name}({', '.join(params) or 'void'}) {{"
    lines = [head, "  bool failed = false;", values.lines.text(), "  return failed;", "}", ""]
    return FunctionText("\n".join(lines), frozenset(values.helpers))
