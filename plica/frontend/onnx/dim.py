"""Dims: names for the sizes that a model leaves open.

>>> from onnx import TensorProto, helper
>>> x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [-1, "batch size"])
>>> y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["x_0", 4])
>>> dims = Dims([x, y])
>>> dims.of(x), dims.of(y)
(('x_0_2', 'batch_size'), ('x_0', 4))
>>> dims.sizes({"batch size": 2, "x_0": 3})
{'batch_size': 2, 'x_0': 3}
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from plica.core.diagnostic import did_you_mean
from plica.runtime.error import Diagnostic, InputError, Place
from plica.runtime.late import lazy_imports

with lazy_imports(__name__):  # few sizes are wrong
    from plica.frontend.word import size_fault

if TYPE_CHECKING:
    from onnx import TensorShapeProto, ValueInfoProto


class Dims:
    """The names of the open sizes of a model's inputs."""

    def __init__(self, inputs: Sequence[ValueInfoProto]) -> None:
        self._inputs = {str(proto.name) for proto in inputs}
        self._taken = set(self._inputs)
        self._named: dict[str, str] = {}
        self._placed: dict[tuple[str, int], str] = {}
        every = [(proto.name, at, dim) for proto in inputs
                 for at, dim in enumerate(proto.type.tensor_type.shape.dim)]  # fmt: skip
        said = dict.fromkeys(name for _, _, dim in every if (name := name_of(dim)))
        # Who can keep his name does, so that no name of the file means two dims.
        plain = {each: None for each in said if identifier(each, self._taken) == each}
        for each in plain | said:
            self._named[each] = self._take(each)
        for name, at, dim in every:
            if not name_of(dim) and not is_known(dim):
                self._placed[name, at] = self._take(f"{name}_{at}")

    def _take(self, text: str) -> str:
        found = identifier(text, self._taken)
        self._taken.add(found)
        return found

    def of(self, info: ValueInfoProto) -> tuple[int | str, ...]:
        """The sizes of an input or output: numbers, and names of those that are open."""
        found: list[int | str] = []
        for at, dim in enumerate(info.type.tensor_type.shape.dim):
            if is_known(dim):
                found.append(int(dim.dim_value))
            elif name := name_of(dim):
                found.append(self._named.get(name, name))
            else:
                found.append(self._placed.get((info.name, at), f"{info.name}_{at}"))
        return tuple(found)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all open sizes."""
        return (*self._named.values(), *self._placed.values())

    def sizes(self, given: Mapping[str, int]) -> dict[str, int]:
        """Numbers by our names; they may be given by the names of the file as well."""
        found: dict[str, int] = {}
        wrong: list[Diagnostic] = []
        for name, size in given.items():
            ours = self._named.get(name, name)
            place = Place(node=str(name))
            if ours not in self.names:
                message = f"A size is given for the dim {name!r}, which the model does not have."
                there = ", ".join(sorted(self.names)) or "no symbolic dims"
                near = did_you_mean(str(name), self.names)
                wrong.append(Diagnostic("input-unknown", message, place, there, str(name), near))
            elif (fault := size_fault(name, size)) is not None:
                wrong.append(fault)
            elif found.setdefault(ours, int(size)) != int(size):
                message = f"Two sizes are given for the dim {name!r}."
                wrong.append(Diagnostic("input-shape", message, place, str(found[ours]), str(size)))
        if wrong:
            raise InputError(wrong[0], *wrong[1:])
        return found

    def bound(self, info: ValueInfoProto, shape: tuple[int, ...], sizes: dict[str, int]) -> bool:
        """Whether a shape fits an input; the open sizes it says are added to the others."""
        said = self.of(info)
        if len(said) != len(shape):
            return False
        for dim, size in zip(said, shape, strict=True):
            wanted = sizes.setdefault(dim, size) if isinstance(dim, str) else dim
            if wanted != size:
                return False
        return True


def is_known(dim: TensorShapeProto.Dimension) -> bool:
    """Whether a dim is a number."""
    return dim.HasField("dim_value") and dim.dim_value >= 0


def name_of(dim: TensorShapeProto.Dimension) -> str:
    """The name of a dim; `?` is none, for two of them are not one size."""
    return dim.dim_param if re.search(r"\w", dim.dim_param) else ""


def identifier(text: str, taken: set[str], inner: bool = False) -> str:
    """A valid, unused identifier similar to the text; a model's own names never look like `inner`
    ones."""
    inside = re.sub(r"^[\W_]+|\W+$", "", text, flags=re.ASCII)
    bare = re.sub(r"\W", "_", inside, flags=re.ASCII) or "d"
    base = bare if not bare[0].isdigit() else f"d{bare}"
    base = f"_{base}" if inner else base
    name, count = base, 1
    while name in taken:
        count += 1
        name = f"{base}_{count}"
    return name
