"""Sources of externs: what `compile(externs=…)` gives for the symbols that a program calls.

    plica.compile(f, externs={"scale": "libscale.so"})      a library, by its path or name
    plica.compile(f, externs={"scale": lambda x: 2 * x})    a Python function, on the processor

A symbol that is not given may spell its own function (`plica.ir.graph.spelled_extern`); otherwise
it is looked for in this process and in the library of C.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Any, TypeAlias

from plica.core import Term, did_you_mean, post_order
from plica.ir.graph.module import Extern, Module
from plica.ir.graph.spelled_extern import spelled_extern
from plica.ir.loop.scalar import Intrinsic
from plica.ir.loop.scalar_table import DECLARED
from plica.ir.loop.statement import Kernel
from plica.runtime.error import Diagnostic, Place, UnsupportedError
from plica.runtime.extern import NONE, ExternCallback, Externs, ExternSource
from plica.runtime.late import lazy_imports
from plica.runtime.link import library_address

with lazy_imports(__name__):  # few programs call Python
    from plica.codegen.lower.extern_call import extern_kernel, externs_invoked
    from plica.ir.interpret.input import native
    from plica.ir.type.size import shape_of

GivenExtern: TypeAlias = str | PathLike[str] | Callable[..., Any]  # Any: arrays in and out


def externs_called(module: Module) -> dict[str, Extern]:
    """The externs that the main function reaches, by symbol; one that has two types is refused."""
    found: dict[str, Extern] = {}
    table = module.definitions()
    seen: set[Term] = set()
    queue: list[Term] = [] if module.main is None else [module.main]
    for name in queue:
        if name in seen:
            continue
        seen.add(name)
        value = table[name]
        direct = (value,) if isinstance(value, Extern) else ()
        for extern in externs_invoked(value) if isinstance(value, Kernel) else direct:
            if (first := found.setdefault(extern.symbol, extern)) is not extern:
                message = f"The extern {extern.symbol!r} is declared with two types."
                place = Place(node=extern.symbol)
                types = str(first.type), str(extern.type)
                raise UnsupportedError(Diagnostic("unsupported", message, place, *types))
        queue += [node for node in post_order(value) if node in table]
    return found


def calls_declared(module: Module) -> bool:
    """Whether a kernel calls a declared extern, whose name does not determine its code."""
    kernels = [value for value in module.values if isinstance(value, Kernel)]
    if any(externs_invoked(kernel) for kernel in kernels):
        return True
    called = {each.name for each in post_order(*kernels) if isinstance(each, Intrinsic)}
    return not called.isdisjoint(DECLARED)


def checked_externs(given: object) -> tuple[tuple[str, GivenExtern], ...]:
    """The given externs, sorted by symbol; invalid ones are refused."""
    if given is None:
        return ()
    if not isinstance(given, Mapping) or not all(isinstance(each, str) for each in given):
        message = "Externs are given by symbol."
        expected = "{'symbol': a library or a function}"
        raise UnsupportedError(Diagnostic("unsupported", message, None, expected, repr(given)))
    for symbol, source in given.items():
        if not (isinstance(source, str | PathLike) or callable(source)):
            message = f"Nothing that could serve the extern {symbol!r} is given."
            expected = "the path of a library, or a Python function"
            place = Place(node=symbol)
            raise UnsupportedError(
                Diagnostic("unsupported", message, place, expected, repr(source))
            )
    return tuple(sorted(given.items()))


def externs_of(module: Module, given: Sequence[tuple[str, GivenExtern]], here: bool) -> Externs:
    """The implementations of a module's externs; unresolved ones, when linking `here`, are
    refused."""
    called = externs_called(module)
    for extern in called.values():
        extern_kernel(extern)  # which refuses what is no function of C
    wrong = []
    for symbol, _ in given:
        if symbol not in called:
            message = f"The program calls no extern {symbol!r}."
            place, expected = Place(node=symbol), ", ".join(called) or "no externs"
            hint = did_you_mean(symbol, tuple(called))
            wrong.append(Diagnostic("unsupported", message, place, expected, symbol, hint))
    if not called and not wrong:
        return NONE
    sources: dict[str, ExternSource] = {}
    for symbol, source in given:
        if symbol in called:
            if isinstance(source, str | PathLike):
                sources[symbol] = source
            else:
                sources[symbol] = _callback(called[symbol], source, module)
    for symbol in called:
        function = spelled_extern(symbol, True) if here and symbol not in sources else None
        if function is not None:
            sources[symbol] = _callback(called[symbol], function, module)
        if here and symbol not in sources and library_address(symbol) is None:
            message = f"Nothing serves the extern {symbol!r}."
            hint = f"Give a library or a Python function: externs={{{symbol!r}: …}}."
            place = Place(node=symbol)
            wrong.append(Diagnostic("unsupported", message, place, symbol, None, hint))
    if wrong:
        raise UnsupportedError(wrong[0], *wrong[1:])
    return Externs(sources)


def _callback(
    of: Extern,
    function: Callable[..., Any],
    module: Module,  # Any: as above
) -> ExternCallback:
    """A C callback for a Python function, with the argument and result types of its declaration."""
    kernel = extern_kernel(of)
    call = native(of.symbol, function, of.type, {}, module).call

    def shapes(dims: Sequence[int]) -> list[tuple[int, ...]]:
        sizes: dict[Term, int] = dict(zip(kernel.dims, dims, strict=True))
        return [shape_of(param.shape, sizes) or () for param in kernel.params]

    dtypes = [param.dtype.numpy for param in kernel.params]
    return ExternCallback(call, shapes, dtypes, kernel.inputs, len(kernel.dims))
