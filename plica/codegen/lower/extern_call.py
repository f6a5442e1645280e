"""Calls of externs: a function of the C ABI as a kernel that does nothing but call it.

    x = plica.extern("scale", Fn[(Tensor[("n",), f32],), Tensor[("n",), f32]])
    void scale(const float *x, float *out, int64_t n);

The function is given where each input lies, then where each output goes, then the dims of its type
in order.  The kernel is never scheduled: its one statement invokes the symbol.

>>> from plica.ir.type.dim import dim_var
>>> from plica.ir.type.term import FuncType, tensor
>>> x = tensor(("n",), "f32")
>>> made = extern_kernel(Extern("scale", FuncType((dim_var("n"),), (), (x,), x)))
>>> made.body.name, len(made.body.operands), called_symbol(made)
('extern.scale', 3, 'scale')
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from plica.core import Name
from plica.ir.graph.module import Extern
from plica.ir.loop.scalar import Buffer, index
from plica.ir.loop.statement import Invoke, Kernel, Region
from plica.ir.type import TensorType, TupleType, Type
from plica.runtime.error import Diagnostic, Place, UnsupportedError

PREFIX: Final = "extern."
"""What the name of an invocation begins with that calls a symbol."""


@lru_cache(maxsize=512)
def extern_kernel(of: Extern) -> Kernel:
    """The kernel that calls an extern; what is no function of tensors is refused."""
    if (wrong := _problem(of)) is not None:
        raise UnsupportedError(wrong)
    inputs = [_buffer(f"x{at}", each) for at, each in enumerate(of.type.params)]
    results = of.type.ret.items if isinstance(of.type.ret, TupleType) else (of.type.ret,)
    params = (*inputs, *[_buffer(f"out{at}", each) for at, each in enumerate(results)])
    regions = [Region(each, (index(0),) * len(each.shape), each.shape) for each in params]
    body = Invoke(PREFIX + of.symbol, (*regions, *of.type.dims))
    return Kernel(of.type.dims, params, len(inputs), body)


def called_symbol(kernel: Kernel) -> str | None:
    """The symbol that a kernel calls, None if it is a loop program."""
    body = kernel.body
    if isinstance(body, Invoke) and body.name.startswith(PREFIX):
        return body.name.removeprefix(PREFIX)
    return None


def _problem(of: Extern) -> Diagnostic | None:
    place = Place(node=of.symbol)
    if not (of.symbol.isascii() and of.symbol.isidentifier()):
        message = "The symbol of an extern is no name of a function of C."
        return Diagnostic("unsupported", message, place, "letters, digits and _", repr(of.symbol))
    parts = of.type.ret.items if isinstance(of.type.ret, TupleType) else (of.type.ret,)
    strange = [each for each in (*of.type.params, *parts) if not isinstance(each, TensorType)]
    if strange or of.type.types:
        message = f"The extern {of.symbol!r} takes or gives something else than tensors."
        found = ", ".join(map(str, strange or of.type.types))
        hint = "Take tuples apart before the call, and give one extern for each type."
        return Diagnostic("unsupported", message, place, "tensors", found, hint)
    return None


def _buffer(name: str, of: Type) -> Buffer:
    assert isinstance(of, TensorType)  # all others were refused
    return Buffer(Name(name), of.shape, of.dtype)
