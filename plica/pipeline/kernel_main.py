"""Kernels as programs: a module whose main is a kernel gets a graph function that calls it.

The buffers a kernel reads are the inputs of the function, and those it writes are its outputs, in
parameter order and by name; its dims are those of the function.

>>> from plica.core.name import Name
>>> from plica.ir.type.dtype import f32
>>> from plica.ir.loop.statement import For, Store
>>> from plica.ir.loop.tensor import axis, buffer
>>> x, y, i = buffer("x", (3,), f32), buffer("y", (3,), f32), axis("i")
>>> double = Kernel((), (x, y), 1, For(i, x.shape[0], "serial", Store(y, (i,), x[i] * 2)))
>>> whole = with_main(module({Var(Name("double"), None): double}))
>>> [str(each.name) for each in whole.main_function().params], str(whole.main_function().ret)
(['x'], 'Tensor[(3,), f32]')
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

from attrs import evolve

from plica.codegen.backend import Backend
from plica.codegen.lower.supported import unsupported
from plica.codegen.program_kind import kind_of
from plica.core import Name, fresh
from plica.ir.graph import Call, Function, Module, Var, module
from plica.ir.loop.statement import Kernel
from plica.ir.text.script import Scripted
from plica.ir.type import TensorType, infer
from plica.runtime.error import Diagnostic, Place, UnsupportedError


def with_main(of: Module) -> Module:
    """The module, with a function that calls its kernel where it has no main function."""
    table = of.definitions()
    if of.main is not None and not isinstance(table.get(of.main), Kernel):
        return of
    kernels = {
        name: value
        for name, value in of.items()
        if isinstance(name, Var) and isinstance(value, Kernel) and of.main in (None, name)
    }
    if not kernels:
        return of  # it is said elsewhere that there is nothing to compile
    if len(kernels) > 1:
        message = "The module has several kernels and no main function: which one is meant?"
        names = ", ".join(str(var.name) for var in kernels)
        hint = "Write a function that calls them, or say which one is the main: main = NAME."
        raise UnsupportedError(Diagnostic("no-main", message, None, "one kernel", names, hint))
    ((name, kernel),) = kernels.items()
    params = [Var(param.name, TensorType(param.shape, param.dtype)) for param in kernel.params]
    given = tuple(params[: kernel.inputs])
    outputs = tuple([str(param.name) for param in kernel.params[kernel.inputs :]])
    body = Call(name, given)
    function = Function(kernel.dims, (), given, None, body, (("outputs", outputs),))
    main = Var(fresh(Name("main"), {each.name for each in of.names}), None)
    return infer(module({**dict(of.items()), main: function}, main))


def check_main(of: Module) -> None:
    """Refuse a module with nothing to run: neither a main function nor a kernel."""
    if with_main(of).main is None:
        raise UnsupportedError(*unsupported(of))


def lone_kernel(of: Kernel) -> Module:
    """A kernel alone in a module."""
    return module({Var(Name("kernel"), None): of})


# --- donated inputs of a program ---------------------------------------------------------------


DONATED = "donated"
"""The attribute of a main function that names the inputs that may be written over."""


def with_donated(
    of: Any,  # Any: what `plica.compile` takes
    names: str | Sequence[str],
    backend: Backend,
) -> Module:
    """The module whose inputs of these names are updated in place."""
    wanted = (names,) if isinstance(names, str) else tuple(names)
    whole = _read(of)
    main = whole.main_function()
    known = [str(param.name) for param in main.params]
    for name in wanted:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"Did you mean '{near[0]}'?" if near else None
            message, expected = f"There is no input {name!r} to donate.", ", ".join(known)
            wrong = Diagnostic("input-unknown", message, None, expected, name, hint)
            raise UnsupportedError(wrong)
    staged = kind_of(whole) == "staged"
    if not backend.updates or staged:
        why = "whose sizes become known while it runs" if staged else "of this target"
        message = f"Inputs of a program {why} are not donated."
        place = Place(node=wanted[0])
        raise UnsupportedError(Diagnostic("unsupported", message, place, "cpu", backend.name))
    attrs = {**dict(main.attrs), DONATED: tuple(dict.fromkeys(wanted))}
    changed = evolve(main, attrs=tuple(sorted(attrs.items())))
    table = {name: changed if name is whole.main else value for name, value in whole.items()}
    return module(table, whole.main)


def _read(of: Any) -> Module:  # as above
    if isinstance(of, Module):
        return with_main(of)
    if isinstance(of, Scripted):
        return with_main(of.module)
    from plica.frontend.onnx import from_onnx  # the reader of models is not always needed

    return from_onnx(of)
