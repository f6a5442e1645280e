"""Segments: some expressions as the main function of a module of their own.

>>> from plica.core.name import Name
>>> from plica.ir.graph.expression import Apply
>>> from plica.ir.type.dim import dim_var
>>> places = Apply("iota", (), (("axis", 0), ("dtype", i64), ("shape", (dim_var("k"),))))
>>> made = segment([places], {}, ())
>>> made.operands, str(made.module.main_function().params[0].type)
(('k',), 'Tensor[("k", 0), bool]')
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import frozen

from plica.core import Name, free_vars
from plica.ir.graph import (
    Apply,
    Defined,
    Definition,
    Expr,
    Function,
    Module,
    Tuple,
    Var,
    main_module,
)
from plica.ir.loop.scalar import ScalarVar
from plica.ir.type import TensorType, bool_, i64, infer, tensor, type_of

__all__ = ["Segment", "i64", "is_cheap", "segment"]

Ranges = Sequence[tuple[str, int, int | None]]


@frozen(eq=False)
class Segment:
    """A module, and what its parameters are: variables, and the names of dims."""

    module: Module
    operands: tuple[Var | str, ...]


def segment(outputs: Sequence[Expr], rest: Mapping[Defined, Definition], ranges: Ranges) -> Segment:
    """The segment that computes some tensors; `rest` are definitions it may call."""
    body = outputs[0] if len(outputs) == 1 else Tuple(tuple(outputs))
    free = free_vars(body)
    params = sorted(
        [each for each in free if isinstance(each, Var) and each not in rest], key=_order
    )
    dims = {each for each in free if isinstance(each, ScalarVar)}
    shown: set[ScalarVar] = set()
    for param in params:
        assert isinstance(param.type, TensorType)
        shown.update(size for size in param.type.shape if isinstance(size, ScalarVar))
        dims.update(size for size in free_vars(param.type) if isinstance(size, ScalarVar))
    ordered = tuple(sorted(dims, key=lambda each: each.name))
    hidden = [var for var in ordered if var not in shown]
    taken = {str(param.name) for param in params}
    witnesses = [Var(_free_name(str(var.name), taken), tensor((var, 0), bool_)) for var in hidden]
    # Which sizes make sense is for the whole program: none is too small for a segment by itself,
    # and what its operators ask of several sizes is looked at when they come (`needs`).
    said = {each[0]: each for each in ranges}
    names = [str(var.name) for var in ordered]
    kept = tuple([said.get(name, (name, 0, None)) for name in names])
    attrs = (("dim_ranges", kept),) if kept else ()
    function = Function(ordered, (), (*params, *witnesses), None, body, attrs)
    return Segment(
        infer(main_module(function, rest)), (*params, *[str(var.name) for var in hidden])
    )


def is_cheap(node: Expr) -> bool:
    """Whether it is as well to compute something again as to keep it.

    Nothing has to be given for it, so that a segment folds it, and packs it for its own products;
    or it is small numbers as wide ones, less a number: who multiplies them reads the small ones.
    """
    if isinstance(node, Apply) and not node.args:
        return True
    return _is_widened(node) or not any(isinstance(var, Var | ScalarVar) for var in free_vars(node))


def _is_widened(node: Expr) -> bool:
    match node:
        case Apply("cast", (x,), _):
            return _bytes(x) < _bytes(node)
        case Apply("subtract" | "add", (x, y), _):
            of = type_of(y)
            return isinstance(of, TensorType) and not of.shape and _is_widened(x)
        case _:
            return False


def _bytes(node: Expr) -> int:
    of = type_of(node)
    return of.dtype.bytes if isinstance(of, TensorType) else 0


def _order(of: Var) -> Name:
    return of.name


def _free_name(hint: str, taken: set[str]) -> Name:
    name = Name(hint)
    while str(name) in taken:
        name = Name(hint, name.index + 1)
    taken.add(str(name))
    return name
