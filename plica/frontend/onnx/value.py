"""Values of an import: a term, and what is statically known about its elements.

>>> from plica.ir.type.dim import dim_var
>>> half = TensorValue(const([0, 0], "i64"), np.array([dim_var("n"), 4], object))
>>> [str(type(each).__name__) for each in half.dims]
['ScalarVar', 'int']

Inputs of a model: their types, with dims of one name as one dim, and values that fix some.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import attrs
import numpy as np

from plica.core.binding import free_vars
from plica.core.diagnostic import Malformed
from plica.core.fold import post_order
from plica.frontend.onnx.dim import Dims
from plica.frontend.onnx.storage import MOST_AXES, Array, dtype_of
from plica.ir.graph.expression import Apply, Call, Const, Expr, Function, Literal, Tuple, const
from plica.ir.graph.module import main_module
from plica.ir.loop.scalar import Add, FloorDiv, Max, Min, Mul, Scalar, Sub, index
from plica.ir.type.dim import dim_var, known, normal_dim
from plica.ir.type.dtype import DType, f32, i64
from plica.ir.type.infer import type_of
from plica.ir.type.term import TensorType, static_shape
from plica.runtime.error import Diagnostic, InputError, Place, UnsupportedError
from plica.runtime.late import lazy_imports

with lazy_imports(__name__):
    from plica.ir.interpret.graph_machine import computed
    from plica.ir.interpret.interpreter import interpret

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
        if not info.type.HasField("tensor_type"):
            kind = info.type.WhichOneof("value") or "nothing"
            message = f"The input {info.name!r} is no tensor."
            place = Place(node=info.name)
            if kind == "nothing":
                raise Malformed.of("bad-model", message, place, "a tensor", kind)
            raise UnsupportedError.of("unsupported", message, place, "a tensor", kind)
        of = info.type.tensor_type
        dtype = dtype_of(of.elem_type, info.name)
        if not of.HasField("shape"):
            message = f"The number of axes of the input {info.name!r} is not known."
            raise UnsupportedError.of(
                "unsupported", message, Place(node=info.name), "a shape", "none"
            )
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


SMALL: Final = 1 << 12  # constants of at most this many elements are computed at once
LARGE: Final = 1 << 22  # the maximum intermediate elements of a folded value
JOINED: Final = {"add": Add, "subtract": Sub, "multiply": Mul, "maximum": Max, "minimum": Min}
"""Operators on numbers that are those of terms, too."""


@attrs.frozen(eq=False)
class TensorValue:
    """A tensor of the model; `dims` holds its integers if they are known or index terms."""

    expr: Expr
    dims: Array | None = None  # of objects: int or Scalar

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
        if self.dims is not None:
            return self.dims
        if not self.type.dtype.is_integer:
            return None
        numbers = self.numbers()
        return None if numbers is None else as_objects(numbers.tolist(), numbers.shape)


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
        return SequenceValue(Tuple(items), None, of)

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


def as_objects(values: object, shape: tuple[int, ...]) -> Array:
    """An array of objects, whatever numpy would make of them."""
    flat = np.empty(math.prod(shape), object)
    flat[:] = np.asarray(values, object).reshape(-1)
    return flat.reshape(shape)


def of_terms(terms: Array, expr: Expr, dtype: DType) -> TensorValue:
    """A value whose integers are index terms; a constant where all are numbers."""
    flat: list[Any] = []
    for each in terms.reshape(-1):
        term = normal_dim(each) if isinstance(each, Scalar) else int(each)
        number = known(term) if isinstance(term, Scalar) else term
        flat.append(term if number is None else number)
    settled_ = as_objects(flat, terms.shape)
    if all(isinstance(each, int) for each in flat):
        low, high = dtype.bounds
        if all(low <= each <= high for each in flat):
            return TensorValue(const(np.asarray(flat, dtype.numpy).reshape(terms.shape), dtype))
        return TensorValue(expr)
    return TensorValue(expr, settled_)


def size_of(expr: Expr) -> int | None:
    """The number of elements of a tensor, or None if symbolic."""
    of = type_of(expr)
    shape = static_shape(of) if isinstance(of, TensorType) else None
    return None if shape is None else math.prod(shape)


def settled(expr: Expr, most: int = SMALL) -> Expr:
    """The constant an expression without variables is, if it has no more elements than `most`."""
    count = size_of(expr)
    if isinstance(expr, Const) or count is None or count > most or free_vars(expr):
        return expr
    # A small result may be cut from a huge intermediate, or need many steps; a loop may never end.
    whole = list(post_order(expr))
    parts = [size_of(each) for each in whole if isinstance(each, Apply)]
    if sum(size for size in parts if size is not None) > LARGE:
        return expr
    if any(isinstance(term, Call) for term in whole):
        return expr
    of = type_of(expr)
    assert isinstance(of, TensorType)
    if all(isinstance(each, Apply | Const | Literal) for each in whole if isinstance(each, Expr)):
        return const(computed(expr), of.dtype)
    return const(interpret(main_module(Function((), (), (), None, expr))), of.dtype)


def as_term(expr: Expr) -> Scalar | None:
    """The normalised term over dims of a scalar, or None if it depends on elements."""
    made: dict[Expr, Scalar] = {}
    for node in post_order(expr):
        match node:
            case Const() if (number := node.numpy()).ndim == 0 and number.dtype.kind in "iu":
                made[node] = index(int(number))
            case Apply("dim_value", (), attrs):
                made[node] = dict(attrs)["dim"]
            case Apply(name, (left, right)) if name in JOINED and left in made and right in made:
                made[node] = JOINED[name](made[left], made[right])
            case Apply("negative", (inner,)) if inner in made:
                made[node] = index(0) - made[inner]
            case Apply("floor_divide", (left, right)) if (
                left in made and right in made and (known(normal_dim(made[right])) or 0) > 0
            ):
                made[node] = FloorDiv(made[left], made[right])
            case Expr() if isinstance(whole := settled(node), Const) and whole.dtype is i64:
                if whole.numpy().ndim == 0:
                    made[node] = index(int(whole.numpy()))
            case _:
                pass
    return normal_dim(made[expr]) if expr in made else None
