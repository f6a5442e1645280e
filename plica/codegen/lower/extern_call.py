"""Calls of externs: a function of the C ABI as a kernel that does nothing but call it.

    x = plica.extern("scale", Fn[(Tensor[("n",), f32],), Tensor[("n",), f32]])
    void scale(const float *x, float *out, int64_t n);

The function receives the addresses of the inputs, then of the outputs, then the dims of its type in
order. The kernel is never scheduled: its one statement invokes the symbol.

Inside loops, a kernel calls an extern by a tensor intrinsic whose hints name the symbol; arguments
are the address of each region, then each dim of its meaning.

    intrinsic("acme.scale", scale, hints=(("symbol", "scale"),))
    invoke("acme.scale", X[i, 0:4], Y[i, 0:4], 4)

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
from plica.ir.loop.invocation import find_intrinsic
from plica.ir.loop.scalar import Buffer, index
from plica.ir.loop.statement import Invoke, Kernel, Region, statements
from plica.ir.type import FuncType, TensorType, TupleType, Type, known
from plica.runtime.error import Diagnostic, Place, UnsupportedError

PREFIX: Final = "extern."  # the prefix of invocations that call a symbol


@lru_cache(maxsize=512)
def extern_kernel(of: Extern) -> Kernel:
    """The kernel that calls an extern; refuses types other than functions of tensors."""
    if (wrong := _problem(of)) is not None:
        raise UnsupportedError(wrong)
    inputs = [_buffer(f"x{at}", param) for at, param in enumerate(of.type.params)]
    results = of.type.ret.items if isinstance(of.type.ret, TupleType) else (of.type.ret,)
    params = (*inputs, *[_buffer(f"out{at}", result) for at, result in enumerate(results)])
    regions = [Region(param, (index(0),) * len(param.shape), param.shape) for param in params]
    body = Invoke(PREFIX + of.symbol, (*regions, *of.type.dims))
    return Kernel(of.type.dims, params, len(inputs), body)


def called_symbol(kernel: Kernel) -> str | None:
    """The symbol that a kernel calls, None if it is a loop program."""
    body = kernel.body
    if isinstance(body, Invoke) and body.name.startswith(PREFIX):
        return body.name.removeprefix(PREFIX)
    return None


def symbol_of(call: Invoke) -> str | None:
    """The symbol of the C ABI that an invocation calls, None if it is an instruction."""
    if call.name.startswith(PREFIX):
        return call.name.removeprefix(PREFIX)
    known_ = find_intrinsic(call.name)
    symbol = None if known_ is None else dict(known_.hints).get("symbol")
    return None if symbol is None else str(symbol)


@lru_cache(maxsize=512)
def externs_invoked(kernel: Kernel) -> tuple[Extern, ...]:
    """The externs that a kernel calls by tensor intrinsics; refuses operands that C cannot
    receive."""
    externs: dict[str, Extern] = {}
    for call in statements(kernel.body):
        symbol = symbol_of(call) if isinstance(call, Invoke) else None
        if symbol is None or not isinstance(call, Invoke):
            continue
        declared = find_intrinsic(call.name)
        assert declared is not None  # it has the symbol
        if (wrong := _operand_problem(call, declared.meaning)) is not None:
            raise UnsupportedError(wrong)
        meaning = declared.meaning
        types = [TensorType(param.shape, param.dtype) for param in meaning.params]
        inputs, outputs = types[: meaning.inputs], types[meaning.inputs :]
        result = outputs[0] if len(outputs) == 1 else TupleType(tuple(outputs))
        externs[call.name] = Extern(symbol, FuncType(meaning.dims, (), tuple(inputs), result))
    return tuple(externs.values())


def _operand_problem(call: Invoke, meaning: Kernel) -> Diagnostic | None:
    """Why the operands of a call are no addresses and dims."""
    place = Place(node=call.name)
    regions = [operand for operand in call.operands if isinstance(operand, Region)]
    if len(call.operands) - len(regions) != len(meaning.dims):
        message = f"A call of {call.name!r} does not say each dim."
        wanted = f"{len(meaning.dims)} dims after the regions"
        count = str(len(call.operands) - len(regions))
        hint = 'Give the sizes: invoke("acme.scale", X[0:4], Y[0:4], 4).'
        return Diagnostic("unsupported", message, place, wanted, count, hint)
    for region in regions:
        inside = False  # of a longer extent: all further axes must be whole
        buffer = region.buffer
        for extent, size in zip(region.extents, buffer.shape, strict=True):
            if (inside and extent is not size) or buffer.strides:
                message = f"A region of {buffer.name} given to {call.name!r} is not contiguous."
                hint = "Copy it to a buffer of its own first, or give whole rows."
                wanted = "one piece of memory"
                return Diagnostic("unsupported", message, place, wanted, None, hint)
            inside = inside or known(extent) != 1
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
