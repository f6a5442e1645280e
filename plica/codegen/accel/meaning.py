"""Meanings as formulas: a tensor expression over one element, in steps that the runtime can take.

>>> from plica.codegen.accel.vta import vta
>>> gemm = vta().operation("gemm").does
>>> product = contraction(gemm.meaning)
>>> product.subscripts, product.operands
(('ac', 'bc', 'ab'), (1, 2))
>>> to_formula(vta().operation("alu.add").does.meaning).steps
(('axis', 0), ('axis', 1), ('load', 0, (0, 1)), ('load', 1, (0, 1)), ('add', 2, 3))
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np
from attrs import frozen

from plica.core import Term, post_order
from plica.ir.loop import Buffer, Compute, Lit, Load, Reduce, Scalar, ScalarVar, Select, scalar as s
from plica.ir.loop.scalar import Cast, Mul
from plica.ir.type import DType, shape_of
from plica.runtime.accel.formula import ContractionStep, Formula, Step, evaluate
from plica.runtime.error import Diagnostic, UnsupportedError

Array = np.ndarray[Any, Any]

# fmt: off
_BINARY: Final[dict[type[Scalar], str]] = {
    s.Add: "add",       s.Sub: "sub",     s.Mul: "mul",     s.Min: "min",       s.Max: "max",
    s.BitAnd: "and",    s.BitOr: "or",    s.BitXor: "xor",  s.ShiftLeft: "left",
    s.Eq: "eq",         s.Ne: "ne",       s.Lt: "lt",       s.Le: "le",
    s.ShiftRight: "right",
}
# fmt: on

_REDUCE: Final = {"sum": "sum", "prod": "prod", "max": "most", "min": "least"}


@frozen
class FormulaContraction:
    """`old + sum of left * right`: letters of the left, of the right, of the result."""

    subscripts: tuple[str, str, str]
    operands: tuple[int, int]
    inner: int

    def exact(self, dtypes: tuple[DType, DType]) -> str:
        """The type in which the sums are exact: the narrowest float that BLAS has, or i64."""
        if not all(dtype.kind in ("int", "uint") for dtype in dtypes):
            return str(np.result_type(*(dtype.numpy for dtype in dtypes)))
        most = self.inner
        for dtype in dtypes:
            most *= max(abs(bound) for bound in dtype.bounds)
        if most <= 1 << 24:
            return "float32"
        return "float64" if most <= 1 << 53 else "int64"


@lru_cache(maxsize=256)
def contraction(meaning: Compute) -> FormulaContraction | None:
    """The meaning as a contraction added to the first element, if it is one."""
    body = meaning.body
    if not isinstance(body, s.Add) or not meaning.inputs:
        return None
    if body.left is not Load(meaning.inputs[0], meaning.axes):
        return None
    product: Scalar = body.right
    bound: tuple[ScalarVar, ...] = ()
    if isinstance(product, Reduce):
        if product.combiner != "sum":
            return None
        bound, product = product.axes, product.body
    if not isinstance(product, Mul):
        return None
    axes = (*meaning.axes, *bound)
    letters = {axis: chr(ord("a") + at) for at, axis in enumerate(axes)}
    words: list[str] = []
    which: list[int] = []
    sizes: dict[str, int] = {}
    for side in (product.left, product.right):
        load = side.value if isinstance(side, Cast) else side
        if not isinstance(load, Load) or any(index not in letters for index in load.indices):
            return None
        if load.buffer is meaning.inputs[0] or len(set(load.indices)) < len(load.indices):
            return None
        words.append("".join(letters[each] for each in load.indices))  # type: ignore[index]  # they are axes
        which.append(meaning.inputs.index(load.buffer))
        sizes.update(zip(words[-1], _sizes(load.buffer.shape), strict=True))
    inner = 1
    for axis in bound:
        if letters[axis] not in words[0] or letters[axis] not in words[1]:
            return None
        inner *= sizes[letters[axis]]
    result = "".join(letters[axis] for axis in meaning.axes)
    if set(result) != set(words[0]) ^ set(words[1]):
        return None  # an axis of the result on both sides, or on none, is no product of matrices
    return FormulaContraction((words[0], words[1], result), (which[0], which[1]), inner)


@lru_cache(maxsize=256)
def to_formula(meaning: Compute) -> Formula:
    """The meaning as steps; refused if there are none."""
    reduces = [each for each in post_order(meaning.body) if isinstance(each, Reduce)]
    axes = (*meaning.axes, *(axis for reduce in reduces for axis in reduce.axes))
    inner = tuple([size for reduce in reduces for size in _sizes(reduce.extents)])
    number = {axis: at for at, axis in enumerate(axes)}
    inputs = {each: at for at, each in enumerate(meaning.inputs)}
    at: dict[Term, int] = {}
    steps: list[Step] = []
    nodes = [each for each in post_order(meaning.body) if isinstance(each, Scalar)]
    needed: set[Term] = {meaning.body}
    for node in reversed(nodes):  # the sizes of buffers are terms too, which nothing computes with
        if node in needed:
            needed.update(_parts(node))
    for node in nodes:
        if node in needed:
            steps.append(_step(node, at, number, inputs))
            at[node] = len(steps) - 1
    found = contraction(meaning)
    product: ContractionStep | None = None
    if found is not None:
        a, b = found.operands
        dtype = found.exact((meaning.inputs[a].dtype, meaning.inputs[b].dtype))
        product = ContractionStep(found.subscripts, found.operands, dtype)
    return Formula(_sizes(meaning.shape), inner, tuple(steps), product)


def apply(meaning: Compute, inputs: Sequence[Array], given: Mapping[str, int]) -> Array:
    """The result for many elements: all arrays have a leading axis for them.

    `given` are the values of the free variables, by name.
    """
    return evaluate(to_formula(meaning), inputs, given)


def _parts(node: Scalar) -> tuple[Term, ...]:
    """The operands of a node."""
    if isinstance(node, Load):
        return node.indices
    return (node.body,) if isinstance(node, Reduce) else node._children


def _step(
    node: Scalar,
    at: Mapping[Term, int],
    number: Mapping[ScalarVar, int],
    inputs: Mapping[Buffer, int],
) -> Step:
    if (word := _BINARY.get(type(node))) is not None:
        left, right = node._children
        return word, at[left], at[right]
    match node:
        case Lit(value, dtype):
            return "number", value, dtype.numpy.name
        case ScalarVar(name, dtype):
            if node in number:
                return "axis", number[node]
            return "operand", str(name), dtype.numpy.name
        case Load(buffer, indices):
            return "load", inputs[buffer], tuple([at[index] for index in indices])
        case Cast(value, dtype):
            return "cast", at[value], dtype.numpy.name
        case Select(condition, then, orelse):
            return "select", at[condition], at[then], at[orelse]
        case Reduce(combiner, axes, _, body) if combiner in _REDUCE:
            return _REDUCE[combiner], at[body], tuple([number[axis] for axis in axes])
        case _:
            raise UnsupportedError(
                Diagnostic(
                    "unsupported",
                    f"The meaning of an instruction uses {type(node).__name__}.",
                    suggestion="Write it with sums, products, minima, maxima, shifts and choices.",
                )
            )


def _sizes(shape: Sequence[Scalar]) -> tuple[int, ...]:
    known = shape_of(tuple(shape), {})
    assert known is not None  # the shapes of elements are numbers
    return known
