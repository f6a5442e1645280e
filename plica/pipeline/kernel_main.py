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

from plica.codegen.lower.supported import unsupported
from plica.core import Name, fresh
from plica.ir.graph import Call, Function, Module, Var, module
from plica.ir.loop.statement import Kernel
from plica.ir.type import TensorType, infer
from plica.runtime.error import Diagnostic, UnsupportedError


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
        names = ", ".join(str(each.name) for each in kernels)
        hint = "Write a function that calls them, or say which one is the main: main = NAME."
        raise UnsupportedError(Diagnostic("no-main", message, None, "one kernel", names, hint))
    ((name, kernel),) = kernels.items()
    params = [Var(each.name, TensorType(each.shape, each.dtype)) for each in kernel.params]
    given = tuple(params[: kernel.inputs])
    outputs = tuple([str(each.name) for each in kernel.params[kernel.inputs :]])
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
