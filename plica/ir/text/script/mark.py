"""Live scripts: functions and data types written in a running Python program.

@plica.function
def twice(x: Tensor[("n",), f32]) -> Tensor[("n",), f32]:
    return x + x

twice.module        # all it needs, with types
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from types import FunctionType, ModuleType
from typing import Any, overload

from plica.core import Term
from plica.ir.graph.module import Module
from plica.ir.graph.operator import Operator
from plica.ir.loop.statement import Kernel
from plica.runtime.error import wrong_argument
from plica.runtime.late import late
from plica.runtime.notebook import ShownAsText


class Scripted(ShownAsText):
    """A function of the graph language, written in Python."""

    def __init__(self, source: FunctionType, local: Mapping[str, object]) -> None:
        self.source = source
        self.local = local
        self.name = source.__name__
        self.__doc__ = source.__doc__
        self.__name__ = source.__name__
        self.__qualname__ = source.__qualname__
        self.__module__ = source.__module__
        self.__wrapped__ = source
        self._module: Module | None = None

    @property
    def module(self) -> Module:
        """This function and all it needs, inferred; found once, when first asked for."""
        if self._module is None:
            found = late("plica.ir.text.script.live:program_of")(self)  # the reader stands on these
            assert isinstance(found, Module)
            self._module = found
        return self._module

    def canonical(self) -> Term:
        """The term that the script means, for `digest`."""
        return self.module.canonical()

    def __call__(self, /, *args: object, **named: object) -> Any:  # Any: arrays, tuples, data
        """Interprets the script on these values, which is slow.

        Law: `f(x)` is `plica.interpret(f, x)`, and `plica.compile(f)(x)` agrees with it.
        """
        return late("plica.ir.interpret.interpreter:interpret")(self, *args, **named)

    def __repr__(self) -> str:
        return f"<plica function {self.name}>"

    def __str__(self) -> str:
        return str(self.module)


class ScriptedKernel(Scripted):
    """A kernel, written in Python."""

    @property
    def kernel(self) -> Kernel:
        """The loop program itself."""
        main = self.module.main
        found = next(value for name, value in self.module.items() if name is main)
        assert isinstance(found, Kernel)  # its main, as it was read
        return found

    def __repr__(self) -> str:
        return f"<plica kernel {self.name}>"


class ScriptedData:
    """A data type, written as a Python class."""

    def __init__(self, source: type, local: Mapping[str, object]) -> None:
        self.source = source
        self.local = local
        self.name = source.__name__
        self.constructors = tuple(inspect.get_annotations(source))

    def __repr__(self) -> str:
        return f"<plica data {self.name}>"


@overload
def function(source: Callable[..., Any], /) -> Scripted: ...
@overload
def function(
    *, forall: str = "", dims: str | None = None, attrs: Mapping[str, object] | None = None
) -> Callable[[Callable[..., Any]], Scripted]: ...
def function(
    source: Callable[..., Any] | None = None,
    /,
    *,
    forall: str = "",
    dims: str | None = None,
    attrs: Mapping[str, object] | None = None,
) -> Scripted | Callable[[Callable[..., Any]], Scripted]:
    """Mark a Python function as one of the graph language.

    `forall` names the types it is polymorphic in, `dims` the symbolic dims where they are not
    just those its parameters mention, `attrs` what passes should know about it.
    """
    local = _local_names(sys._getframe(1))

    def mark(each: Callable[..., Any]) -> Scripted:
        if not isinstance(each, FunctionType):
            message = "plica.function marks functions that are written with def."
            raise wrong_argument(message, "a Python function", each)
        return Scripted(each, local)

    # The options are read from the source, with the rest of the function.
    return mark if source is None else mark(source)


@overload
def kernel(source: Callable[..., Any], /) -> ScriptedKernel: ...
@overload
def kernel(
    *,
    dims: str | None = None,
    inputs: int | None = None,
    annotations: Mapping[str, object] | None = None,
) -> Callable[[Callable[..., Any]], ScriptedKernel]: ...
def kernel(
    source: Callable[..., Any] | None = None,
    /,
    *,
    dims: str | None = None,
    inputs: int | None = None,
    annotations: Mapping[str, object] | None = None,
) -> ScriptedKernel | Callable[[Callable[..., Any]], ScriptedKernel]:
    """Mark a Python function as a kernel: loops and blocks over buffers.

    `dims` names its symbolic dims where their order is not that of the shapes, `inputs` says how
    many buffers are only read where that does not follow from the stores.
    """
    local = _local_names(sys._getframe(1))

    def mark(each: Callable[..., Any]) -> ScriptedKernel:
        if not isinstance(each, FunctionType):
            message = "plica.kernel marks functions that are written with def."
            raise wrong_argument(message, "a Python function", each)
        return ScriptedKernel(each, local)

    # The options are read from the source, with the rest of the kernel.
    return mark if source is None else mark(source)


@overload
def data(source: type, /) -> ScriptedData: ...
@overload
def data(*, forall: str = "") -> Callable[[type], ScriptedData]: ...
def data(
    source: type | None = None, /, *, forall: str = ""
) -> ScriptedData | Callable[[type], ScriptedData]:
    """Mark a Python class as a data type: its annotations are its constructors."""
    local = _local_names(sys._getframe(1))

    def mark(each: type) -> ScriptedData:
        if not isinstance(each, type):
            message = "plica.data marks classes, whose annotations are constructors."
            raise wrong_argument(message, "a Python class", each)
        return ScriptedData(each, local)

    return mark if source is None else mark(source)


def as_module(of: Module | Scripted) -> Module:
    """A module, or that of a decorated function."""
    if isinstance(of, Scripted):
        return of.module
    if isinstance(of, Module):
        return of
    expected = "a module, or a function marked with plica.function or plica.kernel"
    hint = None
    if isinstance(of, FunctionType):
        hint = "Mark it: @plica.function above its def."
    elif isinstance(of, list | tuple):
        hint = "One program at a time."
    raise wrong_argument("This is no program of Plica.", expected, of, hint)


def _local_names(frame: Any) -> Mapping[str, object]:
    """The names of ours around a decorator, which Python does not keep where it is no module."""
    if frame.f_locals is frame.f_globals:
        return {}
    ours = (Scripted, ScriptedData, Term, Operator, ModuleType)
    return {name: value for name, value in frame.f_locals.items() if isinstance(value, ours)}
