"""The batch of a model changed: inputs have another leading size, and shapes follow.

    before:  def f(x: Tensor[(1, 8), f32]): return reshape(x, (1, 2, 4))
    after:   def f(x: Tensor[(5, 8), f32]): return reshape(x, (5, 2, 4))         rebatched(f, 5)

Sizes that are written in attributes and depend on the batch grow with it: the first size of a
reshape or broadcast of what comes from a batched input.  A model that is written for one example
runs many at once so; with an open dim in its type it runs any number (`docs/dynamic.md`).

Law: where examples do not meet, row i of the result is the result of row i.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from attrs import evolve

from plica.ir.graph import Apply, Expr, Function, Module, Var, expression as ex, module as module_of
from plica.ir.type import TensorType, dim, infer, known, static_shape
from plica.rewrite.graph.dataflow import to_dataflow
from plica.rewrite.graph.walk import expressions, operands, with_operands
from plica.runtime.error import Diagnostic, InputError

SHAPED: Final = frozenset({"reshape", "broadcast_to"})
"""Operators whose attribute `shape` may begin with the batch."""

PLAIN: Final = (Apply, ex.Const, ex.Literal, Var, ex.Tuple, ex.Project)
"""What the main function may be made of."""


def rebatched(module: Module, size: int, inputs: Sequence[str] = ()) -> Module:
    """The module for a batch of another size.

    The inputs that are named have the batch in front; where none is, those with the leading size
    of the first one.  Control flow, calls and sizes that are open are refused.
    """
    if type(size) is not int or size < 1:
        raise _refused("A batch is of one example or more.", "a size from 1", size)
    plain = to_dataflow(infer(module))
    main = plain.main_function()
    for node in expressions(main.body):
        if not isinstance(node, PLAIN):
            expected = "operators and tuples alone"
            raise _refused(
                "The batch of control flow is not changed.", expected, type(node).__name__
            )
    batched, old = _batched(main, inputs)
    memo: dict[Expr, Expr] = {}
    for param in main.params:
        memo[param] = _grown(param, size) if param in batched else param
    grown = set[Expr](batched)
    for node in expressions(main.body):
        if node in memo:
            continue
        parts = tuple([memo[operand] for operand in operands(node)])
        memo[node] = with_operands(node, parts)
        if not grown.isdisjoint(operands(node)):
            grown.add(node)
            memo[node] = _reshaped(memo[node], old, size)
    params = []
    for var in main.params:
        made = memo[var]
        assert isinstance(made, Var)
        params.append(made)
    assert plain.main is not None
    name = Var(plain.main.name, None)  # of another type
    new = evolve(main, params=tuple(params), body=memo[main.body], ret=None)
    rest = {each: value for each, value in plain.items() if each is not plain.main}
    return infer(module_of({**rest, name: new}, name))


def _batched(main: Function, inputs: Sequence[str]) -> tuple[tuple[Var, ...], int]:
    """The parameters with a batch, and its size."""
    names = {str(param.name): param for param in main.params}
    if unknown := [each for each in inputs if each not in names]:
        raise _refused("There is no such input.", f"one of {', '.join(names)}", unknown[0])
    wanted = [names[each] for each in inputs] or list(main.params[:1])
    sizes = [_leading(var) for var in wanted]
    if not wanted or None in sizes or len(set(sizes)) != 1:
        expected = "inputs of one known leading size"
        raise _refused("The batch of the model is not known.", expected, sizes)
    (old,) = set(sizes)
    assert old is not None
    if not inputs:
        wanted = [param for param in main.params if _leading(param) == old]
    return tuple(wanted), old


def _leading(of: Var) -> int | None:
    shape = static_shape(of.type) if isinstance(of.type, TensorType) else None
    return shape[0] if shape else None


def _grown(param: Var, size: int) -> Var:
    assert isinstance(param.type, TensorType)
    return Var(param.name, evolve(param.type, shape=(dim(size), *param.type.shape[1:])))


def _reshaped(node: Expr, old: int, size: int) -> Expr:
    """The node with a shape that begins with the new batch, if it begins with the old one."""
    if not isinstance(node, Apply) or node.op not in SHAPED:
        return node
    attrs = dict(node.attrs)
    shape = attrs["shape"]
    assert isinstance(shape, tuple)
    first = known(shape[0]) if shape else None
    if first is None or first <= 0 or first % old:
        return node
    attrs["shape"] = (dim(first // old * size), *shape[1:])
    return Apply(node.op, node.args, tuple(sorted(attrs.items())))


def _refused(message: str, expected: str, found: object) -> InputError:
    return InputError(Diagnostic("input-type", message, None, expected, str(found)))
