"""Derivatives of modules: `grad`, `value_and_grad`, `vjp`, `jvp`, `checkpoint`.

    grad            (x, …) -> df/dx, …                      of a main that gives one float
    value_and_grad  (x, …) -> (f(x), df/dx, …)
    vjp             (x, …, cotangents) -> (f(x), cotangents of x, …)
    jvp             (x, …, tangents) -> (f(x), tangents of f(x))

Forward mode is reverse mode twice: a pullback is linear, and the pullback of a linear function is
its transpose. Each takes a module or a function marked with `plica.function`, and returns a module,
which can be interpreted, compiled, and differentiated again.

>>> from plica.core.name import Name
>>> from plica.ir.interpret.interpreter import interpret
>>> from plica.ir.type.term import tensor
>>> x = Var(Name("x"), tensor((), "f64"))
>>> cube = Function((), (), (x,), None, x * x * x)
>>> float(interpret(grad(cube), 2.0)), float(interpret(grad(grad(cube)), 2.0))
(12.0, 12.0)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import attrs

from plica.core import did_you_mean, free_vars
from plica.core.task import run
from plica.ir.graph import Defined, Definition, expression as ex
from plica.ir.graph.expression import Call, Expr, Function, LetDim, Project, Tuple, Var, const
from plica.ir.graph.module import DataDef, Module, constructors, main_module, module as module_of
from plica.ir.op.create import zeros
from plica.ir.text.script import Scripted, as_module
from plica.ir.type import DataType, FuncType, TensorType, TupleType, Type, infer, type_of
from plica.rewrite.gradient.form import prepared, unmarked
from plica.rewrite.gradient.sweep import BlockSweep, branch_sweep
from plica.rewrite.gradient.swept_program import SweptProgram
from plica.rewrite.graph.dataflow import to_dataflow
from plica.rewrite.graph.dead import remove_dead
from plica.rewrite.graph.partial import evaluate_partially
from plica.rewrite.graph.unfold import wrap_in_lets
from plica.rewrite.graph.walk import NameSupply, map_functions
from plica.runtime.error import Diagnostic, InputError, Place, UnsupportedError

Program: TypeAlias = Module | Scripted | Function
Which: TypeAlias = "int | str | Sequence[int | str] | None"

MARK: Final = ("checkpoint", True)


def grad(of: Program, wrt: Which = None) -> Module:
    """The gradient of a main that gives one float, with respect to parameters.

    All parameters of floats, if none are named by number or name; of several a tuple.
    """
    return _scalar(of, wrt, with_value=False)


def value_and_grad(of: Program, wrt: Which = None) -> Module:
    """A main that gives one float, and its gradient: a pair."""
    return _scalar(of, wrt, with_value=True)


def vjp(of: Program, wrt: Which = None) -> Module:
    """The value and the cotangents of parameters, from those of the results as more parameters."""
    known = _module(of)
    chosen, alone = _chosen(known, wrt)
    measures, inside = _measured(known)
    program = Reverse(prepared(inside))
    sweep, result, function = program.main(_params(program.module, chosen))
    ret = type_of(function.body)
    if not free_vars(ret).isdisjoint(measure.dim for measure in measures):
        raise _refused(known, "A result has a size that is measured, so its cotangent has none.")
    items = ret.items if isinstance(ret, TupleType) else (ret,)
    given = [program.fresh("d", program.tangents.of(item)) for item in items]
    whole: Expr = Tuple(tuple(given)) if isinstance(ret, TupleType) else given[0]
    sweep.backward(result, program.tangents.opened(program.tangents.of(ret), whole))
    extra = tuple([var for var in given if var.type != TupleType(())])
    expr = _cotangents(program, sweep.cotangents, chosen, alone)
    params = (*function.params, *extra)
    return _finished(program, params, sweep, Tuple((result, expr)), measures)


def jvp(of: Program, wrt: Which = None) -> Module:
    """The value and its tangent, from tangents of parameters as more parameters."""
    known = _module(of)
    chosen, _ = _chosen(known, wrt)
    count = len(known.main_function().params)
    if _measured(known)[0]:
        raise _refused(known, "Sizes that are measured have no tangents forwards; use plica.vjp.")
    once = vjp(known, chosen)
    if not (pulled := once.main_function().params[count:]):
        raise _refused(known, "The result has no derivative: there are no floats in it.")
    twice = vjp(once, tuple(range(count, count + len(pulled))))
    main, function = twice.main, twice.main_function()
    assert main is not None
    supply = NameSupply(*twice.values, *twice.names)
    values, seeds = function.params[:count], function.params[count + len(pulled) :]
    # The results of the pullback are the value, which has no part in this, and the cotangents.
    tangents = [Var(supply.name("t"), once_type) for once_type in _items(seeds[-1].type)]
    nothing = [_zero(var.type, twice) for var in (*pulled, *seeds[:-1])]
    args = [*values, *nothing, Tuple(tuple(tangents))]
    inner = Var(supply.name(main.name.hint), main.type)  # nothing but this calls it
    call = Call(inner, tuple(args))
    moved = Project(call, 1)
    several = isinstance(known.main_function().ret, TupleType)
    body = Tuple((Project(Project(call, 0), 0), moved if several else Project(moved, 0)))
    outer, whole = (
        Var(main.name, None),
        Function(function.dims, (), (*values, *tangents), None, body),
    )
    made = {inner if name is main else name: value for name, value in twice.items()}
    return evaluate_partially(infer(module_of({**made, outer: whole}, outer)))


def checkpoint(of: Program) -> Module:
    """The module with main marked: where it is differentiated, its inside is computed again.

    A script function is marked at its definition: `@plica.function(attrs={"checkpoint": True})`.
    Its intermediates are then recomputed in the reverse sweep.
    """
    known = _module(of)
    main = known.main
    values = [
        attrs.evolve(value, attrs=tuple(sorted({*value.attrs, MARK})))
        if name is main and isinstance(value, Function)
        else value
        for name, value in known.items()
    ]
    return _called(Module(known.names, tuple(values), main))


# --- parameters ------------------------------------------------------------------------------


def _module(of: Program) -> Module:
    if isinstance(of, Function):
        known = infer(main_module(of))
    else:
        known = infer(as_module(of))
    if any(known.main in free_vars(value) for _, value in known.functions()):
        return _called(known)  # main becomes its derivative, but is called for its value too
    return known


def _called(module: Module) -> Module:
    """The module with a main that calls the one it had."""
    function, main = module.main_function(), module.main
    assert main is not None
    outer = Var(NameSupply(*module.values, *module.names).name(main.name.hint), None)
    whole = attrs.evolve(function, body=Call(main, function.params), attrs=())
    return infer(module_of({**dict(module.items()), outer: whole}, outer))


def _chosen(module: Module, wrt: Which) -> tuple[tuple[int, ...], bool]:
    """The numbers of the parameters to differentiate by, and whether one was asked for alone."""
    params = module.main_function().params
    if wrt is None:
        if not (found := tuple(at for at, param in enumerate(params) if _is_float(param.type))):
            raise _refused(module, "No parameter has floats.")
        return found, len(found) == 1
    alone = isinstance(wrt, int | str)
    # Any: a number or a name.
    given: Sequence[Any] = tuple(wrt) if isinstance(wrt, list | tuple) else (wrt,)
    return tuple([_number(params, each) for each in given]), alone


def _number(params: Sequence[Var], which: int | str) -> int:
    names = [str(param.name) for param in params]
    if isinstance(which, str) and which in names:
        at = names.index(which)
    elif isinstance(which, int) and not isinstance(which, bool) and 0 <= which < len(params):
        at = which
    else:
        hint = did_you_mean(which, names) if isinstance(which, str) else None
        raise InputError(
            Diagnostic(
                "input-unknown",
                f"There is no parameter {which!r} to differentiate by.",
                None,
                ", ".join(names) or "no parameters",
                repr(which),
                hint,
            )
        )
    if not _is_float(params[at].type) and not isinstance(params[at].type, DataType):
        raise InputError(
            Diagnostic(
                "not-differentiable",
                f"The parameter {names[at]} has no derivative.",
                Place(node=names[at]),
                "floats",
                str(params[at].type),
            )
        )
    return at


def _is_float(of: Type | None) -> bool:
    """Whether a type is one of tensors some of which are of floats."""
    if isinstance(of, TupleType):
        return any(map(_is_float, of.items))
    return isinstance(of, TensorType) and of.dtype.is_float


def _params(module: Module, chosen: Sequence[int]) -> list[Var]:
    params = module.main_function().params
    return [params[at] for at in chosen]


# --- results ---------------------------------------------------------------------------------


def _scalar(of: Program, wrt: Which, with_value: bool) -> Module:
    known = _module(of)
    chosen, alone = _chosen(known, wrt)
    ret = known.main_function().ret
    if not isinstance(ret, TensorType) or ret.shape or not ret.dtype.is_float:
        raise InputError(
            Diagnostic(
                "not-scalar",
                "A gradient is that of one number.",
                _place(known),
                "a float of rank 0",
                str(ret),
                "Sum the results up, or use plica.vjp, which takes their cotangents.",
            )
        )
    measures, inside = _measured(known)
    program = Reverse(prepared(inside))
    sweep, result, function = program.main(_params(program.module, chosen))
    sweep.backward(result, const(1, ret.dtype))
    expr = _cotangents(program, sweep.cotangents, chosen, alone)
    body = Tuple((result, expr)) if with_value else expr
    return _finished(program, function.params, sweep, body, measures)


def _cotangents(
    program: Reverse, found: dict[Var, Any], chosen: Sequence[int], alone: bool
) -> Expr:
    """The cotangents of the parameters, zeros where nothing flows to them."""
    tangents = program.tangents
    parts = [
        tangents.whole(tangents.of(type_of(param)), found.get(param), param)
        for param in _params(program.module, chosen)
    ]
    return parts[0] if alone else Tuple(tuple(parts))


def _measured(module: Module) -> tuple[tuple[LetDim, ...], Module]:
    """The sizes that main measures, in order, and the module that uses them.

    A size is an integer, so no cotangent flows through it.
    """
    flat = to_dataflow(module)
    function, measures = flat.main_function(), []
    body = function.body
    while isinstance(body, LetDim):
        measures.append(body)
        body = body.body
    if not measures:
        return (), module
    main = flat.main
    assert main is not None
    return tuple(measures), infer(
        module_of({**dict(flat.items()), main: attrs.evolve(function, body=body)}, main)
    )


def _finished(
    program: Reverse, params: tuple[Var, ...], sweep: Any, body: Expr, measures: Sequence[LetDim]
) -> Module:
    """The module with the swept main function."""
    main = program.module.main
    assert main is not None
    function = program.module.main_function()
    whole = wrap_in_lets([*sweep.lets, *sweep.back], body)
    made = program.definitions()
    name = Var(main.name, None)
    made[name] = Function(function.dims, (), params, None, whole)
    done = to_dataflow(infer(module_of(made, name)))
    if measures:
        done = infer(map_functions(done, lambda at, each: (
            _measuring(each, measures) if at is done.main else each)))  # fmt: skip
    return remove_dead(done)


def _measuring(function: Function, measures: Sequence[LetDim]) -> Function:
    """A function in which sizes are known that another measured from the same parameters."""
    body = function.body
    for measure in reversed(measures):
        if measure.dim in free_vars(body):
            body = LetDim(measure.dim, measure.value, body)
    return attrs.evolve(function, body=body)


def _zero(of: Type | None, module: Module) -> Expr:
    """The zero of a type of tangents."""
    match of:
        case TupleType(items):
            return Tuple(tuple([_zero(item, module) for item in items]))
        case DataType(data, args):
            made = module.definitions()[data]
            assert isinstance(made, DataDef)
            return Call(constructors(data, made)[0], (), args)
    assert isinstance(of, TensorType)
    return zeros(of.shape, of.dtype)


def _items(of: Type | None) -> tuple[Type, ...]:
    assert isinstance(of, TupleType)
    return of.items


def _refused(module: Module, message: str) -> UnsupportedError:
    return UnsupportedError(Diagnostic("not-differentiable", message, _place(module)))


def _place(module: Module) -> Place | None:
    return None if module.main is None else Place(node=str(module.main.name))


class Reverse(SweptProgram):
    """A program, and the definitions of its derivatives."""

    def main(self, varying: Sequence[ex.Var]) -> tuple[BlockSweep, ex.Expr, ex.Function]:
        """The main function swept forwards, its result, and itself."""
        function = self.module.main_function()
        assert self.module.main is not None
        self.place = str(self.module.main.name)
        sweep = BlockSweep(self, set(varying))
        return sweep, run(sweep.forward(function.body)), function

    def definitions(self) -> dict[Defined, Definition]:
        """All other definitions: those there were, and those of derivatives."""
        for callee in self.todo:  # grows while it is gone through
            self.place = str(callee.name)
            value = self.table[callee]
            assert isinstance(value, ex.Function)
            self.made[self.derived[callee]] = self._pulling(value, self.derived[callee])
        if self.missing:
            raise UnsupportedError(*self.missing.values())
        old = {
            name: unmarked(value) if isinstance(value, ex.Function) else value
            for name, value in self.module.items()
            if name is not self.module.main
        }
        return {**old, **self.tangents.definitions, **self.made}

    def _pulling(self, value: ex.Function, name: ex.Var) -> ex.Function:
        active = {param for param in value.params if self.is_active(param)}
        branch = run(branch_sweep(self, value.body, active, ()))
        assert isinstance(name.type, FuncType)
        return ex.Function(
            value.dims, (), value.params, name.type.ret, branch.written(value.params)
        )
