"""Compares a compiled model with the interpreter, operator by operator.

>>> difference([np.array([1.0, 4.0])], [np.array([2.0, 4.0])])
0.25

Tensors of nodes: what every node of a model computes, by the interpreter and by its kernel.

    node_tensors(model, inputs)      {node: tensor}, as the model means it
    kernel_tensors(comparison)       {"kernel 3: add + relu": tensor}, as the code computes it
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from typing import Any

import numpy as np
from attrs import evolve, frozen

from plica.bench.peer import difference
from plica.codegen.backend import AnyTarget
from plica.codegen.program import Launch, launches
from plica.core import Name, Term, free_vars
from plica.ir.graph.expression import Apply, Call, Const, Expr, Function, Literal, Tuple, Var
from plica.ir.graph.module import Module, module
from plica.ir.interpret.interpreter import interpret
from plica.ir.type import infer, type_of
from plica.pipeline import Lowered, arranged, build
from plica.report.origin import LaunchOrigin, nodes_of, origins
from plica.report.study import StudiedModel
from plica.rewrite.derivation import Derivation, first_bad, provenance
from plica.rewrite.fuse.reading import parts, with_parts
from plica.rewrite.graph.walk import expressions
from plica.rewrite.history import History
from plica.runtime.port import Array

Run = Callable[..., Any]
Build = Callable[[Lowered, AnyTarget], Run]


@frozen(eq=False)
class Compared:
    """One kernel compared with the interpreter: the difference relative to the largest number."""

    number: int
    source: str
    nodes: tuple[str, ...]
    operators: tuple[str, ...]
    difference: float
    found: Array  # what it computes


@frozen(eq=False)
class WrongStep:
    """The rule or pass after which the module means something else."""

    rule: str
    is_pass: bool
    number: int
    steps: int
    nodes: tuple[str, ...]
    operators: tuple[str, ...]
    difference: float


@frozen(eq=False)
class Comparison:
    """The comparison of every kernel, the first wrong one, and the wrong step."""

    tolerance: float
    output: float
    kernels: tuple[Compared, ...]
    step: WrongStep | None

    @property
    def kernel(self) -> Compared | None:
        """The first kernel that differs."""
        return next((each for each in self.kernels if not each.difference <= self.tolerance), None)

    @property
    def agrees(self) -> bool:
        """Whether nothing differs."""
        return self.step is None and self.kernel is None and self.output <= self.tolerance


def built(lowered: Lowered, target: AnyTarget) -> Run:
    """Compiles lowered code natively, single-threaded."""
    return build(lowered, target)


def compare(
    of: StudiedModel,
    inputs: Sequence[Array],
    tolerance: float,
    *,
    make: Build = built,
    progress: Callable[[str], None] = lambda word: None,
) -> Comparison:
    """Compares a compiled model with the interpreter; `make` compiles a program."""
    lowered = of.lowered
    progress("interpreting the model")
    expected = values_of(interpret(lowered.module, *inputs))
    progress("running the compiled model")
    output = difference(values_of(of.executable(*inputs)), expected)
    progress("interpreting what the rules made of it")
    step = _wrong_step(of, inputs, expected, tolerance)
    progress("running every kernel")
    if not (launched := _outside(lowered)):
        return Comparison(tolerance, output, (), step)
    every = origins(lowered, of.nodes)
    terms = [_term(launch) for _, launch in launched]
    read = tuple(dict.fromkeys(expr for term in terms for expr in _read(term)))
    values = values_of(interpret(giving(lowered.final, (*terms, *read)), *inputs))
    meant, given = values[: len(terms)], values[len(terms) :]
    cut = alone(lowered.final, terms, read)
    program = arranged(History(cut, Derivation(cut, ())), of.target, of.contract)
    arrays = values_of(make(evolve(program, fused=lowered.fused), of.target)(*given))
    kernels = [
        Compared(
            number,
            launch.source,
            every[number].nodes,
            _operators(every[number]),
            difference([mine], [theirs]),
            mine,
        )
        for (number, launch), mine, theirs in zip(launched, arrays, meant, strict=True)
    ]
    return Comparison(tolerance, output, tuple(kernels), step)


def giving(of: Module, terms: Sequence[Expr]) -> Module:
    """A module whose result is the values of some terms of another."""
    function = evolve(of.main_function(), body=Tuple(tuple(terms)), ret=None, attrs=())
    return _with_main(of, function)


def _with_main(of: Module, function: Function) -> Module:
    """A module with another main function; the kernels and functions it calls stay."""
    assert of.main is not None
    main = Var(of.main.name, None)  # of another type
    called = {name: value for name, value in of.items() if name is not of.main}
    return infer(module({**called, main: function}, main))


def alone(of: Module, terms: Sequence[Expr], read: Sequence[Expr]) -> Module:
    """A module that computes each term from its own arguments, all of which are inputs.

    No error of one term reaches another, and each is the kernel that it is in the whole model.
    """
    inputs = {expr: Var(Name(f"v{at}"), type_of(expr)) for at, expr in enumerate(read)}
    cut: list[Expr] = []
    for term in terms:
        args = [inputs.get(argument, argument) for argument in _arguments(term)]
        if isinstance(term, Call):
            cut.append(evolve(term, args=tuple(args)))
        else:
            cut.append(with_parts(term, tuple(args)))
    return _with_main(of, Function((), (), tuple(inputs.values()), None, Tuple(tuple(cut))))


def _arguments(term: Expr) -> tuple[Expr, ...]:
    """The arguments of a kernel."""
    if isinstance(term, Call):
        return term.args
    exprs = parts(term)
    assert exprs is not None
    return tuple(exprs)


def _read(term: Expr) -> list[Expr]:
    """The arguments of a kernel that are not constant."""
    return [argument for argument in _arguments(term) if not isinstance(argument, Const | Literal)]


def _outside(lowered: Lowered) -> list[tuple[int, Launch]]:
    """The launches that every call runs, with their numbers."""
    entry = {id(step) for step in lowered.program.regions[lowered.program.entry]}
    return [
        (number, launch)
        for number, launch in enumerate(launches(lowered.program))
        if id(launch) in entry and launch.term is not None
    ]


def _term(launch: Launch) -> Expr:
    assert launch.term is not None
    return launch.term


def _wrong_step(
    of: StudiedModel, inputs: Sequence[Array], expected: Sequence[Array], tolerance: float
) -> WrongStep | None:
    """The first step after which the interpreter gives other numbers."""
    derivation = of.lowered.derivation
    distance: dict[Term, float] = {}

    def good(state: Term) -> bool:
        assert isinstance(state, Module)
        if state not in distance:
            distance[state] = difference(values_of(interpret(state, *inputs)), expected)
        return distance[state] <= tolerance

    if good(of.lowered.final):
        return None
    if (bad := first_bad(derivation, good)) is None:
        return None
    sources, _ = provenance(derivation).get(bad.step.before, ({}, {}))
    operators = [source for source in sources if isinstance(source, Apply)]
    origin = LaunchOrigin(tuple(operators), nodes_of(operators, of.nodes), ())
    return WrongStep(
        bad.step.rule.name,
        bad.step.rule.is_pass,
        bad.number,
        len(derivation.steps),
        origin.nodes,
        _operators(origin),
        distance[bad.after],
    )


def _operators(of: LaunchOrigin) -> tuple[str, ...]:
    return tuple(dict.fromkeys(each.op for each in of.operators if isinstance(each, Apply)))


def values_of(result: Any) -> list[Array]:  # Any: what a program gives
    """The tensors of a result, tuples within tuples from left to right."""
    arrays: list[Array] = []
    stack = [result]
    while stack:
        if isinstance(value := stack.pop(), tuple):
            stack += reversed(value)
        else:
            arrays.append(np.asarray(value))
    return arrays


# --- tensors of nodes --------------------------------------------------------------------------


def node_tensors(of: StudiedModel, inputs: Sequence[Array]) -> dict[str, Array]:
    """What each node of a model computes from inputs, by its name; the last of several operators
    that a node became.  What is inside of functions and branches has no one tensor."""
    module = of.lowered.module
    main = module.main_function()
    bound = {*main.params, *module.names}
    terms = [
        expression for expression in expressions(main.body)
        if isinstance(expression, Apply) and expression in of.nodes
        and all(var in bound for var in free_vars(expression) if isinstance(var, Var))
    ]  # fmt: skip
    found: dict[str, Array] = {}
    for term, value in zip(terms, interpret(giving(module, terms), *inputs), strict=True):
        parts = values_of(value)
        for name in of.nodes[term]:
            for at, part in enumerate(parts):
                found[name if len(parts) == 1 else f"{name}.{at}"] = part
    return found


def kernel_tensors(of: Comparison) -> dict[str, Array]:
    """What each kernel computes from the operands that the interpreter gives it."""
    return {f"kernel {kernel.number}: {kernel.source}": kernel.found for kernel in of.kernels}


def archive_of(tensors: Mapping[str, Array]) -> bytes:
    """Tensors as an `.npz` archive, by name; a `/` in a name stays."""
    file = BytesIO()
    np.savez(file, allow_pickle=False, **dict(tensors))
    return file.getvalue()
