"""Values of an import: a term, and what is statically known about its elements.

>>> from plica.ir.op.namespace import op
>>> half = TensorValue(op.stack((op.dim_value(dim_var("n")), const(4, "i64")), axis=0))
>>> [type(term).__name__ for term in half.terms()]
['ScalarVar', 'int']

Inputs of a model: their types, with dims of one name as one dim, and values that fix some.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from plica.core.diagnostic import Malformed
from plica.frontend.onnx.arithmetic import LARGE, as_objects, settled, size_of, terms_of
from plica.frontend.onnx.dim import Dims
from plica.frontend.onnx.storage import MOST_AXES, Array, dtype_of
from plica.ir.graph.expression import Const, Expr, Tuple, const
from plica.ir.loop.scalar import Scalar, index
from plica.ir.type.dim import dim_var
from plica.ir.type.dtype import DType, f32
from plica.ir.type.infer import type_of
from plica.ir.type.term import TensorType, static_shape
from plica.runtime.error import Diagnostic, InputError, Place, UnsupportedError

if TYPE_CHECKING:
    from onnx import ValueInfoProto


def array_given(name: str, given: Any) -> Array:
    """A value that was given, as an array, if it is one."""
    try:
        return np.asarray(given)
    except (TypeError, ValueError) as error:  # rows of different lengths, and what else is none
        message = f"The value for {name!r} is no array."
        found = f"{type(given).__name__}: {error}"
        problem = Diagnostic("input-type", message, Place(node=name), "an array", found)
        raise InputError(problem) from error


def fixed_value(name: str, array: Array, of: TensorType) -> TensorValue:
    """An input with a value."""
    if array.dtype != of.dtype.numpy or array.ndim != len(of.shape):
        message = f"The value for {name!r} does not fit it."
        found = f"{array.dtype} of shape {array.shape}"
        raise InputError.of("input-type", message, Place(node=name), str(of), found)
    return TensorValue(const(array, of.dtype))


def replaced_value(name: str, given: Any, stored: TensorValue) -> TensorValue:
    """A replacement for a stored value, of the same type."""
    array = array_given(name, given)
    if array.dtype != stored.type.dtype.numpy or array.shape != static_shape(stored.type):
        message = f"The value for {name!r} does not fit the one that the file holds."
        found, place = f"{array.dtype} of shape {array.shape}", Place(node=name)
        raise InputError.of("input-type", message, place, str(stored.type), found)
    return TensorValue(const(array, stored.type.dtype))


def check_input(info: ValueInfoProto) -> None:
    """Refuse an input that is no tensor, or whose number of axes is not known."""
    place = Place(node=info.name)
    if not info.type.HasField("tensor_type"):
        kind = info.type.WhichOneof("value") or "nothing"
        message = f"The input {info.name!r} is no tensor."
        if kind == "nothing":
            raise Malformed.of("bad-model", message, place, "a tensor", kind)
        raise UnsupportedError.of("unsupported", message, place, "a tensor", kind)
    if not info.type.tensor_type.HasField("shape"):
        message = f"The number of axes of the input {info.name!r} is not known."
        raise UnsupportedError.of("unsupported", message, place, "a shape", "none")


class InputTypes:
    """The types of inputs; dims with one name are one dim."""

    def __init__(
        self, inputs: list[ValueInfoProto], given: Mapping[str, int], fixed: Mapping[str, Array]
    ) -> None:
        self._dims = Dims(inputs)
        self._sizes = self._dims.sizes(given)
        # A value says the open sizes of its input, and with them those of others.
        for proto in inputs:
            if proto.name in fixed and proto.type.HasField("tensor_type"):
                shape = fixed[proto.name].shape
                if not self._dims.bound(proto, shape, self._sizes):
                    message = f"The value for {proto.name!r} has the wrong shape."
                    said = [self._sizes.get(str(size), size) for size in self._dims.of(proto)]
                    place = Place(node=proto.name)
                    raise InputError.of("input-shape", message, place, str(tuple(said)), str(shape))

    def type(self, info: ValueInfoProto) -> TensorType:
        """The type of an input."""
        check_input(info)
        of = info.type.tensor_type
        dtype = dtype_of(of.elem_type, info.name)
        if len(of.shape.dim) > MOST_AXES:
            message = f"The input {info.name!r} has too many axes."
            found = str(len(of.shape.dim))
            raise UnsupportedError.of(
                "unsupported", message, Place(node=info.name), f"at most {MOST_AXES}", found
            )
        sizes: list[Scalar] = []
        for size in self._dims.of(info):
            if isinstance(size, str):
                number = self._sizes.get(size)
                sizes.append(dim_var(size) if number is None else index(number))
            else:
                sizes.append(index(size))
        return TensorType(tuple(sizes), dtype)


@attrs.frozen(eq=False)
class TensorValue:
    """A tensor of the model."""

    expr: Expr

    @property
    def type(self) -> TensorType:
        found = type_of(self.expr)
        if not isinstance(found, TensorType):
            message = "A sequence stands where a tensor is wanted."
            raise UnsupportedError.of("unsupported", message, None, "a tensor", str(found))
        return found

    @property
    def word(self) -> str:
        """The type as the standard writes it."""
        return f"tensor({self.type.dtype.row.onnx_name})"

    def numbers(self) -> Array | None:
        """The elements, or None if they depend on an input."""
        if isinstance(self.expr, Const):
            return self.expr.numpy()
        if size_of(self.expr) == 0:
            return np.zeros(static_shape(self.type) or 0, self.type.dtype.numpy)
        folded = settled(self.expr, LARGE)
        return folded.numpy() if isinstance(folded, Const) else None

    def terms(self) -> Array | None:
        """Integers as an array of int and Scalar, or None if they depend on inputs' elements."""
        if not self.type.dtype.is_integer:
            return None
        if (numbers := self.numbers()) is None:
            return terms_of(self.expr)
        return as_objects(numbers.tolist(), numbers.shape)


@attrs.frozen(eq=False)
class ListedValue(TensorValue):
    """Tensors of one element type, represented by a tuple."""

    of: DType = f32

    @property
    def parts(self) -> tuple[Expr, ...]:
        """The representations of the tensors."""
        assert isinstance(self.expr, Tuple)
        return self.expr.items

    @property
    def word(self) -> str:
        """The type as the standard writes it."""
        return f"seq(tensor({self.of.row.onnx_name}))"


@attrs.frozen(eq=False)
class SequenceValue(ListedValue):
    """A fixed number of tensors, possibly of different sizes."""

    @staticmethod
    def holding(items: tuple[Expr, ...], of: DType) -> SequenceValue:
        """The sequence of some tensors."""
        return SequenceValue(Tuple(items), of)

    @property
    def items(self) -> tuple[Expr, ...]:
        """The tensors."""
        return self.parts


@attrs.frozen(eq=False)
class RaggedValue(ListedValue):
    """An unknown number of tensors (`plica.runtime.ragged`).

    The parts are the elements and the table of shapes.  How many axes each tensor has is known, or
    they differ in that, too (None).
    """

    rank: int | None = None


@attrs.frozen(eq=False)
class OptionValue(RaggedValue):
    """A tensor or a sequence that may not be there: a bool, then its parts."""

    holds_list: bool = False

    @property
    def word(self) -> str:
        """The type as the standard writes it."""
        tensor = f"tensor({self.of.row.onnx_name})"
        return f"optional(seq({tensor}))" if self.holds_list else f"optional({tensor})"


@attrs.frozen(eq=False)
class AnyRankValue(RaggedValue):
    """One tensor whose number of axes is known when the model runs: an output of the model."""

    @property
    def word(self) -> str:
        """The type as the standard writes it."""
        return f"tensor({self.of.row.onnx_name})"


@attrs.frozen(eq=False)
class GrowingValue(RaggedValue):
    """A loop-carried sequence within an iteration, with the appended tensors."""

    @property
    def slot(self) -> int:
        """Which of the sequences of the loop it is."""
        assert isinstance(self.parts[0], Const)
        return int(self.parts[0].numpy())
