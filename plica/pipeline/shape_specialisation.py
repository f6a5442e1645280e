"""Specialised executables: a model with open sizes, compiled for those of each call.

Some models leave sizes open, and some take shapes, axes or counts from their inputs.  Such a model
is compiled when it is called: once for each choice of sizes, and of values that decide shapes.
What was compiled is kept, so a call with sizes seen before costs a look into a table.

>>> import numpy as np
>>> import plica
>>> from plica.script import Tensor, f32
>>> @plica.function
... def doubled(x: Tensor[("n", 2), f32]) -> Tensor[("n", 2), f32]:
...     return x + x
>>> exe = at_call(doubled, plica.compile)
>>> exe(np.ones((1, 2), np.float32)), exe(np.ones((3, 2), np.float32)).shape
(array([[2., 2.]], dtype=float32), (3, 2))
>>> exe
<Specialised (x: Tensor[('n', 2), f32]) -> Tensor[('n', 2), f32], 2 compiled>

Not here: code that serves every size at once (`plica.runtime.open_executable`), which is made where
it can be.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from plica.codegen.program_kind import ProgramKind, kind_of
from plica.frontend.offered import front_end_of
from plica.ir.graph import Module, attr
from plica.ir.loop.statement import Kernel
from plica.runtime.executable import Executable
from plica.runtime.late import lazy_imports

if TYPE_CHECKING:
    from onnx import ModelProto

with lazy_imports(__name__):
    from plica.ir.text.script import Scripted, as_module
    from plica.pipeline.code_for_sizes import Specialised, specialised, specialised_model
    from plica.pipeline.kernel_main import lone_kernel, with_main

Compile = Callable[[Module], Executable]


def at_call(
    of: Module | Scripted | Kernel | str | PathLike[str] | bytes | ModelProto | ReadModel,
    compiled: Compile,
) -> Module | Specialised:
    """The module meant, or, where something is open, what compiles it when it is called."""
    return program_at_call(of, compiled)[0]


def program_at_call(
    of: Module | Scripted | Kernel | str | PathLike[str] | bytes | ModelProto | ReadModel,
    compiled: Compile,
) -> tuple[Module | Specialised, ProgramKind]:
    """The same, and how it is compiled."""
    if isinstance(of, Kernel):
        of = lone_kernel(of)
    if not (isinstance(of, str | bytes | PathLike | ReadModel) or hasattr(of, "opset_import")):
        found = with_main(as_module(of))  # which says what it wants where this is something else
    elif (reader := front_end_of(of)) is not None:
        found = reader.read(Path(of))  # type: ignore[arg-type]  # a front end reads paths
    else:
        model = read_once(of)
        if (read := model.module()) is None:
            return specialised_model(model, compiled), "open"
        found = read
    if (kind := kind_of(found)) == "open":
        return specialised(found, compiled), kind
    return found, kind


def lists_of(of: Module | Specialised) -> tuple[Any, Any] | None:  # Any: what is compiled again
    """A program some of whose inputs or outputs are lists, and what these are; None for others."""
    if not isinstance(of, Module):
        return of.selector.lists
    lists = None if of.main is None else attr(of.main_function(), "lists")
    return None if lists is None else (of, lists)


def read_once(of: Any) -> Any:  # Any: what `at_call` takes
    """What is to be compiled, read from its file now, so that it can be compiled several times."""
    if isinstance(of, str | bytes | PathLike) or hasattr(of, "opset_import"):
        if front_end_of(of) is not None:
            return of
        from plica.frontend.onnx.polymorphic_model import (
            ShapePolymorphicModel,  # not every program is such a model
        )

        return ShapePolymorphicModel(of)
    return of


@runtime_checkable
class ReadModel(Protocol):
    """An ONNX model that was read from its file (`plica.frontend.onnx.polymorphic_model`)."""

    @property
    def needed(self) -> Any:  # Any: the model's own
        """The inputs whose values decide shapes."""

    def module(self) -> Any:  # as above
        """The module, where nothing is open."""

    def at(self, given: Any) -> Any:  # as above
        """The module for some inputs."""

    @property
    def repeats_dims(self) -> bool:
        """Whether several axes of inputs have one open size."""

    def with_dims_apart(self, names: Collection[str]) -> Any:  # as above
        """The same model, in which each axis with one of these names is a dim of its own."""
