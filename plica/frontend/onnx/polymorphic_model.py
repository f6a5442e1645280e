"""Shape-polymorphic models: one ONNX model as a module for each choice of sizes, and of values that
decide shapes.

>>> from onnx import TensorProto, helper
>>> x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", 4]) for n in "xy")
>>> s = helper.make_tensor_value_info("s", TensorProto.INT64, [2])
>>> graph = helper.make_graph([helper.make_node("Reshape", ["x", "s"], ["y"])], "g", [x, s], [y])
>>> polymorphic = ShapePolymorphicModel(helper.make_model(graph))
>>> [str(each) for each in polymorphic.inputs]
["x: Tensor[('n', 4), f32]", 's: Tensor[(2,), i64]']
>>> import numpy as np
>>> module, fixed = polymorphic.at({"x": np.ones((3, 4), np.float32), "s": np.array([2, 6])})
>>> str(module.main_function().ret), fixed
('Tensor[("y_0", "y_1"), f32]', ())
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from copy import copy, deepcopy
from os import PathLike
from typing import TYPE_CHECKING, Any

from plica.core.diagnostic import Malformed
from plica.frontend.onnx.attribute import RefusedForGood
from plica.frontend.onnx.dim import Dims
from plica.frontend.onnx.importer import from_opened
from plica.frontend.onnx.model import Opened, is_list, open_model
from plica.frontend.onnx.node import NeedsValue
from plica.frontend.onnx.storage import dtype_of
from plica.frontend.onnx.value import check_input
from plica.ir.graph.module import Module
from plica.runtime.error import Diagnostic, InputError, Place, UnsupportedError
from plica.runtime.late import lazy_imports
from plica.runtime.port import OpenPort

if TYPE_CHECKING:
    from onnx import ModelProto, ValueInfoProto

with lazy_imports(__name__):  # few models have lists
    from plica.frontend.onnx.sequence_port import open_ports, over_arrays, said_ports


class ShapePolymorphicModel:
    """An opened model, and what is known about its inputs."""

    def __init__(self, source: str | PathLike[str] | bytes | ModelProto | Opened) -> None:
        self._opened = source if isinstance(source, Opened) else open_model(source)
        graph = self._opened.model.graph
        stored = {each.name for each in graph.initializer}
        self._declared = [each for each in graph.input if each.name not in stored]
        self._names = dims = Dims(self._declared)
        self.inputs = tuple(port for each in self._declared for port in _ports(each, dims))
        self.outputs = tuple(port for each in graph.output for port in _ports(each, dims, True))
        self._flat, self._open = False, {*dims.names}
        self.needed: tuple[str, ...] = ()
        """The inputs whose values decide shapes, as far as is known."""
        self.reason: str | None = None
        """Why there is no module for all sizes, if `module` found none."""

    @property
    def lists(self) -> tuple[list[list[Any]], ...] | None:
        """The interface of a model with lists, or None."""
        sides = (self._declared, self._opened.model.graph.output)
        if self._flat or not any(is_list(each) for side in sides for each in side):
            return None
        return said_ports(sides)

    def over_arrays(self) -> ShapePolymorphicModel:
        """The same model, whose caller gives the arrays that stand for lists."""
        other = copy(self)
        other._flat = True
        return other

    @property
    def repeats_dims(self) -> bool:
        """Whether several axes of inputs have one open size."""
        names = [size for port in self.inputs for size in port.shape if isinstance(size, str)]
        return len({*names}) < len(names)

    def with_dims_apart(self, names: Collection[str]) -> ShapePolymorphicModel:
        """The same model, in which each input size with one of these names is a separate dim:
        exporters give different axes the same name."""
        model = deepcopy(self._opened.model)
        for info in model.graph.input:
            sizes = info.type.tensor_type.shape.dim
            for dim, name in zip(sizes, self._names.of(info), strict=True):
                if name in names:
                    dim.ClearField("dim_param")
        other = ShapePolymorphicModel(Opened(model, self._opened.folder))
        other._flat = self._flat
        return other

    def _read(self, /, *args: Any, **named: Any) -> Module:  # Any: as `from_opened` takes them
        module = from_opened(self._opened, *args, **named)
        return over_arrays(module) if self._flat else module

    def module(self) -> Module | None:
        """The module for all sizes, or None if the model needs more to be read."""
        try:
            return self._read()
        except NeedsValue as error:
            self._need(error.inputs)
            self.reason = str(error).partition("\n")[0]
            return None
        except RefusedForGood:
            raise
        except UnsupportedError as error:
            self.reason = str(error).partition("\n")[0]
            # A refusal due to an open size may disappear for a number; a final one recurs when
            # sizes are known.
            if any(isinstance(size, str) for port in self.inputs for size in port.shape):
                return None
        # Likewise for a measured size, once values are known.
        try:
            return self._read(measures=False)
        except NeedsValue as error:
            self._need(error.inputs)
            self.reason = str(error).partition("\n")[0]
            return None

    def at(self, given: Mapping[str, Any]) -> tuple[Module, tuple[str, ...]]:
        """The module for the sizes of these arrays, and the inputs that are part of it."""
        dims = self._dims(given)
        while True:
            fixed = {name: given[name] for name in self.needed}
            try:
                return self._read(dims, fixed), self.needed
            except (RefusedForGood, Malformed):
                raise
            except UnsupportedError as error:
                if isinstance(error, NeedsValue) and self._need(error.inputs):
                    continue
            try:
                return self._read(dims, fixed, measures=False), self.needed
            except NeedsValue as error:
                if not self._need(error.inputs):
                    raise

    def _need(self, names: Iterable[str]) -> bool:
        """Whether some of these inputs were not known to be needed."""
        there = [port.name for port in self.inputs]
        wanted = {*self.needed, *names}
        before, self.needed = self.needed, tuple(name for name in there if name in wanted)
        return self.needed != before

    def _dims(self, given: Mapping[str, Any]) -> dict[str, int]:
        """The sizes of symbolic dims; arrays that do not agree are refused."""
        found: dict[str, int] = {}
        wrong: list[Diagnostic] = []
        for port in self.inputs:
            shape = given[port.name].shape
            for dim, size in zip(port.shape, shape, strict=True):
                if isinstance(dim, str) and dim not in self._open:
                    continue  # the size of a list, which nobody can give
                said = found.setdefault(dim, size) if isinstance(dim, str) else dim
                if said != size:
                    message = f"Input {port.name!r} has the wrong shape."
                    expected = f"{dim} = {said}" if isinstance(dim, str) else str(port.shape)
                    place = Place(node=port.name)
                    wrong.append(Diagnostic("input-shape", message, place, expected, str(shape)))
                    break
        if wrong:
            raise InputError(wrong[0], *wrong[1:])
        return found


def _ports(info: ValueInfoProto, dims: Dims, of_output: bool = False) -> list[OpenPort]:
    """The arrays that an input or output is: several for a list."""
    return open_ports(info) if is_list(info) else [_port(info, dims, of_output)]


def _port(info: ValueInfoProto, dims: Dims, of_output: bool = False) -> OpenPort:
    """The declared type of an input or output; an output may be undeclared."""
    of = info.type.tensor_type
    if not of_output:
        check_input(info)
    sizes = ("...",) if of_output and not of.HasField("shape") else dims.of(info)
    if of_output and not of.elem_type:
        return OpenPort.unknown(info.name, sizes)
    dtype = dtype_of(of.elem_type, info.name)
    return OpenPort(info.name, sizes, dtype.name, dtype.numpy)
