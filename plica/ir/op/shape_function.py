"""Shape functions: from the shapes of arguments at run time to the shapes of results.

They are derived: the relation of an operator at symbolic types gives result dims as index terms,
and at run time the arguments determine the symbols.

>>> from plica.ir.op import find
>>> from plica.ir.type.term import tensor
>>> concat = find("concat")
>>> shapes = shape_function(concat, {"axis": 0}, tensor(("n", 4), "f32"), tensor(("m", 4), "f32"))
>>> shapes((2, 4), (5, 4))
((7, 4),)
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from plica.core import CompilerBug, EvaluationError, IllTyped
from plica.ir.graph.operator import Mismatch, Operator, Values
from plica.ir.type import DType, Sizes, TensorType, TupleType, Type, shape_of, solve, tensor
from plica.ir.type.size import Equation

Shape = tuple[int, ...]


@attrs.frozen
class ShapeFunction:
    """The shapes of the results of one operator, as a function of those of its arguments."""

    name: str
    arguments: tuple[TensorType, ...]
    results: tuple[TensorType, ...]

    def __call__(self, *shapes: Shape, sizes: Sizes | None = None) -> tuple[Shape, ...]:
        """The shapes of the results; `sizes` are those of dims that no argument shows."""
        found = solve(_equations(self, shapes), sizes)
        for position, (type_, shape) in enumerate(zip(self.arguments, shapes, strict=True)):
            if shape_of(type_.shape, found) != shape:
                raise _wrong(self, position, shape)
        return tuple(_known(self, result, found) for result in self.results)


def shape_function(record: Operator, attributes: Values, *types: TensorType) -> ShapeFunction:
    """The shape function of an operator with these attributes at these types."""
    if isinstance(found := record.relation(attributes, *types), Mismatch):
        raise IllTyped.of(
            found.code, found.message, None, found.expected, found.found, found.suggestion
        )
    return ShapeFunction(record.name, types, _tensors(found))


def shapes_of(
    record: Operator, attributes: Values, shapes: Sequence[Shape], dtypes: Sequence[DType]
) -> tuple[Shape, ...]:
    """The shapes of the results when the shapes of the arguments are numbers from the start."""
    types = [tensor(shape, dtype) for shape, dtype in zip(shapes, dtypes, strict=True)]
    return shape_function(record, attributes, *types)(*shapes)


def _tensors(of: Type) -> tuple[TensorType, ...]:
    items = of.items if isinstance(of, TupleType) else (of,)
    tensor_types = tuple(item for item in items if isinstance(item, TensorType))
    if len(tensor_types) != len(items):
        raise CompilerBug("An operator gives something other than tensors.")
    return tensor_types


def _equations(of: ShapeFunction, shapes: Sequence[Shape]) -> list[Equation]:
    equations: list[Equation] = []
    for position, (type_, shape) in enumerate(zip(of.arguments, shapes, strict=True)):
        if len(type_.shape) != len(shape):
            raise _wrong(of, position, shape)
        equations += zip(type_.shape, shape, strict=True)
    return equations


def _known(of: ShapeFunction, result: TensorType, sizes: Sizes) -> Shape:
    if (shape := shape_of(result.shape, sizes)) is None:
        message = f"A dim of the result of {of.name} depends on a size that was not given."
        raise EvaluationError.of("input-missing", message, None, str(result))
    if min(shape, default=0) < 0:
        message = f"{of.name} has no result: it would have a negative size."
        raise EvaluationError.of("input-shape", message, None, str(result), str(shape))
    return shape


def _wrong(of: ShapeFunction, position: int, shape: Shape) -> EvaluationError:
    message = f"Argument {position} of {of.name} has the wrong shape."
    return EvaluationError.of("input-shape", message, None, str(of.arguments[position]), str(shape))
