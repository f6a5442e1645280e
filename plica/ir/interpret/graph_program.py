"""Programs: an inferred module made ready to run, once for all its runs.

The meaning of an operator is defined in one place: the tensor expression of its record is
evaluated, or its decomposition interpreted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import attrs

from plica.core import CompilerBug, EvaluationError, Name, Term, free_vars, substitute
from plica.ir.graph.expression import Apply, Attrs, Const, Expr, Function, Var
from plica.ir.graph.module import Module, module
from plica.ir.graph.operator import Mismatch, Operator
from plica.ir.graph.unique_binder import rename_apart
from plica.ir.interpret.evaluate import at_each_place, prepare, sizes_of
from plica.ir.interpret.value import Array, Value
from plica.ir.loop.scalar import Buffer, Lit, Scalar, ScalarVar
from plica.ir.loop.tensor import Compute
from plica.ir.op import find
from plica.ir.type import DType, TensorType, TupleType, Type, dtype, i64, infer, normal_dim
from plica.runtime.error import Place

Signature: TypeAlias = tuple[Any, ...]  # shape, numpy dtype, shape, numpy dtype, …
Run: TypeAlias = Callable[[list[Array]], Value]


@attrs.frozen(eq=False)
class FunctionCode:
    """A function ready to be entered."""

    params: tuple[Var, ...]
    body: Expr
    captured: tuple[Term, ...]
    measured: tuple[tuple[ScalarVar, int, tuple[int, ...], int], ...]
    """Dims that stand alone: the parameter, the way through its tuple, and the axis."""
    unmeasured: tuple[ScalarVar, ...]
    """Dims that stand in sums, products or data only."""


Executor: TypeAlias = FunctionCode | Run


@attrs.frozen(eq=False)
class OperatorSite:
    """An operator with its attributes: the dims in them, and how it was run on which shapes."""

    dims: tuple[ScalarVar, ...]
    executors: dict[Signature, Executor]


class GraphProgram:
    """What all runs of one module share; it only ever remembers, and never changes its mind."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.table = module.definitions()
        self.codes: dict[Function, FunctionCode] = {}
        self.constants: dict[Const, Array] = {}
        self.sites: dict[Apply, OperatorSite] = {}
        self._heads: dict[Apply, OperatorSite] = {}
        self._globals: dict[Function, Function] = {}

    def apart(self, function: Function) -> Function:
        """A definition of the module with its binders apart."""
        if (known := self._globals.get(function)) is None:
            known = self._globals[function] = rename_apart(function, self.table)
            self.codes[known] = _code(known, ())  # a definition captures nothing
        return known

    def code(self, function: Function) -> FunctionCode:
        """The code of a function whose binders are apart."""
        if (known := self.codes.get(function)) is None:
            free = [
                var
                for var in free_vars(function)
                if isinstance(var, Var | ScalarVar) and var not in self.table
            ]
            known = self.codes[function] = _code(function, tuple(free))
        return known

    def constant(self, node: Const) -> Array:
        """The array of a constant; must not be written."""
        if (known := self.constants.get(node)) is None:
            known = self.constants[node] = node.numpy()
        return known

    def site(self, node: Apply) -> OperatorSite:
        """The cached evaluation state of an operator call."""
        if (known := self.sites.get(node)) is None:
            head = Apply(node.op, (), node.attrs)  # all calls with these attributes are one site
            if (known := self._heads.get(head)) is None:
                known = self._heads[head] = OperatorSite(_dims_in(node), {})
            self.sites[node] = known
        return known


@lru_cache(maxsize=32)
def program_of(given: Module) -> GraphProgram:
    """The program of a module, inferred first; the last few are remembered."""
    inferred = infer(given)
    return GraphProgram(inferred) if inferred is given else program_of(inferred)


def executor_at(
    node: Apply, site: OperatorSite, signature: Signature, env: Mapping[Any, Any]
) -> Executor:
    """What runs an operator call on arrays of these shapes, where dims have the values in `env`.

    The signature ends with those values, so that the site can remember the answer.
    """
    attributes = _at_sizes(node, site.dims, env) if site.dims else node.attrs
    found = executor(Apply(node.op, (), attributes), signature[: 2 * len(node.args)])
    site.executors[signature] = found
    return found


@lru_cache(maxsize=4096)
def executor(head: Apply, signature: Signature) -> Executor:
    """What runs the operator of `head`, with its attributes, on arrays of these shapes."""
    if (record := find(head.op)) is None:
        raise CompilerBug(f"The operator {head.op} of an inferred module does not exist.")
    pairs = zip(signature[::2], signature[1::2], strict=True)
    types = [TensorType(tuple([Lit(n, i64) for n in s]), dtype(d)) for s, d in pairs]
    values = dict(head.attrs)
    if isinstance(result := record.relation(values, *types), Mismatch):
        raise _refusal(head.op, result)
    if (columns := record.columns) is not None:
        return lambda args: columns(None, values, *args).whole()
    if record.compute is None:
        return _decomposed(record, values, types)
    if record.pointwise and (run := _at_each_place(head, tuple([each.dtype for each in types]))):
        assert isinstance(result, TensorType)
        shape = sizes_of(result)
        return lambda args: run(args, shape)
    buffers = [Buffer(Name("x", i), type.shape, type.dtype) for i, type in enumerate(types)]
    if isinstance(computed := record.compute(values, *buffers), Compute):
        return _prepared(computed, buffers)
    parts = [_prepared(each, buffers) for each in computed]
    return lambda args: tuple([part(args) for part in parts])


@lru_cache(maxsize=1024)
def _at_each_place(
    head: Apply, dtypes: tuple[DType, ...]
) -> Callable[[Sequence[Array], tuple[int, ...]], Array] | None:
    """What runs an operator on arrays of these dtypes and of any shapes that broadcast."""
    record = find(head.op)
    assert record is not None
    assert record.compute is not None
    buffers = [Buffer(Name("x", i), (), each) for i, each in enumerate(dtypes)]
    computed = record.compute(dict(head.attrs), *buffers)
    if not isinstance(computed, Compute) or computed.inputs != tuple(buffers):
        return None
    return at_each_place(computed)


def _prepared(compute: Compute, buffers: list[Buffer]) -> Run:
    """The evaluator of a tensor expression on the arrays of all buffers."""
    run = prepare(compute)
    if compute.inputs == tuple(buffers):
        return run
    order = [buffers.index(buffer) for buffer in compute.inputs]
    return lambda args: run([args[i] for i in order])


def _decomposed(
    record: Operator, values: Mapping[str, Any], types: list[TensorType]
) -> FunctionCode:
    """The code of an operator that is defined by others."""
    if record.decompose is None:
        raise CompilerBug(f"The operator {record.name} has neither compute nor decompose.")
    params = tuple([Var(Name("x", i), type) for i, type in enumerate(types)])
    body = record.decompose(values, *params)
    name = Var(Name("decomposition"), None)
    inferred = infer(module({name: Function((), (), params, None, body)}, name))
    return _code(rename_apart(inferred.main_function(), inferred.definitions()), ())


def _code(function: Function, captured: tuple[Term, ...]) -> FunctionCode:
    measured: dict[Term, tuple[ScalarVar, int, tuple[int, ...], int]] = {}
    if function.dims:
        for i, param in enumerate(function.params):
            _measure(param.type, i, (), function.dims, measured)
    rest = tuple([dim for dim in function.dims if dim not in measured])
    return FunctionCode(function.params, function.body, captured, tuple(measured.values()), rest)


def _measure(
    type: Type | None,
    param: int,
    path: tuple[int, ...],
    dims: tuple[ScalarVar, ...],
    found: dict[Term, tuple[ScalarVar, int, tuple[int, ...], int]],
) -> None:
    if isinstance(type, TensorType):
        for axis, dim in enumerate(type.shape):
            if isinstance(dim, ScalarVar) and dim in dims:
                found.setdefault(dim, (dim, param, path, axis))
    elif isinstance(type, TupleType):
        for i, item in enumerate(type.items):
            _measure(item, param, (*path, i), dims, found)


def _dims_in(node: Apply) -> tuple[ScalarVar, ...]:
    """The symbolic dims in the attributes of an operator call, in a fixed order."""
    found: dict[ScalarVar, None] = {}
    for kid in node._children[len(node.args) :]:
        found |= {var: None for var in free_vars(kid) if isinstance(var, ScalarVar)}
    return tuple(sorted(found, key=lambda variable: variable.name))


def _at_sizes(node: Apply, dims: tuple[ScalarVar, ...], env: Mapping[Any, Any]) -> Attrs:
    """The attributes of a node with numbers for the dims in them, in canonical form."""
    if unknown := [str(dim.name) for dim in dims if dim not in env]:
        raise EvaluationError.of(
            "cannot-infer",
            f"An attribute of {node.op} needs a dim that no argument determines.",
            Place(node=node.op),
            expected=f"a tensor with the dim {' and one with the dim '.join(unknown)}",
            suggestion="Pass a tensor that has the dim as a parameter.",
        )
    numbers: dict[Term, Term] = {dim: Lit(env[dim], i64) for dim in dims}
    record = find(node.op)
    readers = {attribute.name: attribute.read for attribute in record.attributes} if record else {}
    found = []
    for name, value in node.attrs:
        if isinstance(value := readers[name](_with_numbers(value, numbers)), Mismatch):
            raise _refusal(node.op, value)
        found.append((name, value))
    return tuple(found)


def _refusal(op: str, why: Mismatch) -> EvaluationError:
    named = why.message.startswith((f"{op}: ", f"{op} "))
    message = why.message if named else f"{op}: {why.message}"
    place = Place(node=op)
    return EvaluationError.of(why.code, message, place, why.expected, why.found, why.suggestion)


def _with_numbers(value: Any, numbers: Mapping[Term, Term]) -> Any:
    if isinstance(value, Scalar):
        return normal_dim(substitute(value, numbers))
    if isinstance(value, tuple):
        return tuple([_with_numbers(item, numbers) for item in value])
    return value
