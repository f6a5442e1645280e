"""Prepare: from an optimised module to one of first-order functions in A-normal form.

Functions become data (`plica.rewrite.graph.defunctionalize`), operators are fused into kernels as
in static programs, and each kernel becomes a definition, called like functions.

>>> print(*FIRST_ORDER.names)
settle defunctionalize settle-again refuse-open inline drop-unused place-known
>>> print(*NAMED_KERNELS.names)
join-lets decompose fuse name-kernels to-anf
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

import attrs

from plica.codegen.dynamic.constant_argument import place_known
from plica.codegen.dynamic.shape_specialisation import specialise_shapes
from plica.codegen.lower.decompose import instance, written_out
from plica.core import fold_into
from plica.ir.graph.expression import Apply, Call, Expr, Function, Project, Tuple, Var
from plica.ir.graph.module import Defined, Definition, Module, module as module_of
from plica.ir.op import find
from plica.ir.passes import Pipeline, exact_pass, renamed
from plica.ir.type import FuncType, TupleType, infer, type_of
from plica.rewrite.fuse import fuse, is_primitive
from plica.rewrite.fuse.decide import inside
from plica.rewrite.fuse.group import PRIMITIVE
from plica.rewrite.fuse.reading import parts
from plica.rewrite.fuse.to_stages import alone
from plica.rewrite.graph import find_pass
from plica.rewrite.graph.anf import to_anf
from plica.rewrite.graph.walk import NameSupply, map_expressions, map_functions, with_operands
from plica.runtime.error import Diagnostic, UnsupportedError

_Named: TypeAlias = Callable[[Function], Var]


def write_out(module: Module) -> Module:
    """The module reduced to operators with tensor definitions."""
    return map_functions(
        module, lambda _, function: attrs.evolve(function, body=_written(function.body))
    )


def _written(body: Expr) -> Expr:
    return map_expressions(_expanded, body)


def _expanded(node: Expr) -> Expr:
    if isinstance(node, Project) and isinstance(node.value, Tuple):
        return node.value.items[node.index]
    if not isinstance(node, Apply):
        return node
    record = find(node.op)
    if record is not None and record.decompose is not None:
        types = tuple([type_of(arg) for arg in node.args])
        function = instance(node.op, node.attrs, types)
        return written_out(function.body, dict(zip(function.params, node.args, strict=True)))
    of = type_of(node)
    if isinstance(of, TupleType):  # each of its results is one kernel's
        return Tuple(tuple([Project(node, index) for index in range(len(of.items))]))
    return node


def name_kernels(module: Module) -> Module:
    """The module with a definition for each kernel, and calls of those for operators."""
    known = infer(module)
    supply = NameSupply(*known.values, *known.names)
    names: dict[Function, Var] = {}

    def named(function: Function) -> Var:
        if function not in names:
            assert function.ret is not None
            types = tuple([type_of(param) for param in function.params])
            names[function] = Var(supply.name("kernel"), FuncType((), (), types, function.ret))
        return names[function]

    made: dict[Defined, Definition] = {}
    for name, value in known.items():
        made[name] = value
        if isinstance(value, Function) and not is_primitive(value):
            made[name] = _calling(value, named)
    for function, var in names.items():  # which of its values are stages is said of a group
        fused = is_primitive(function)
        made[var] = function if fused else attrs.evolve(function, attrs=PRIMITIVE)
    return infer(module_of(made, known.main))


def _calling(function: Function, named: _Named) -> Function:
    memo: dict[Expr, Expr] = {}

    def below(node: Expr) -> tuple[Expr, ...]:
        fused = isinstance(node, Call) and is_primitive(node.callee)
        return node.args if isinstance(node, Call) and fused else inside(node)

    def called(node: Expr) -> Expr:
        if parts(node) is not None:
            kernel, args = alone(node)
            return Call(named(kernel), tuple([memo[arg] for arg in args]))
        new = tuple([memo[part] for part in below(node)])
        if (
            isinstance(node, Call)
            and isinstance(node.callee, Function)
            and is_primitive(node.callee)
        ):
            return Call(named(node.callee), new)
        return with_operands(node, new)

    return attrs.evolve(function, body=fold_into(memo, function.body, below, called))


def anf_around_kernels(module: Module) -> Module:
    """The module in A-normal form, but for its kernels, which stay whole."""
    made: dict[Defined, Definition] = dict(to_anf(module).items())
    made.update(kernels_of(module).items())
    return module_of(made, module.main)


def refuse_open(module: Module) -> Module:
    """Refuse functions that would work for open sizes: no routine is made for these."""
    wrong = []
    for name, function in module.functions():
        if function.dims:
            dims = ", ".join([str(dim.name) for dim in function.dims])
            message = f"{name.name} works for open sizes: {dims}."
            hint = "Give numbers for the dims."
            wrong.append(Diagnostic("unsupported", message, suggestion=hint))
    if wrong:
        raise UnsupportedError(wrong[0], *wrong[1:])
    return module


def kernels_of(module: Module) -> dict[Var, Function]:
    """The definitions of a module that are kernels."""
    return {name: value for name, value in module.functions() if is_primitive(value)}


FIRST_ORDER: Final = Pipeline(
    (
        exact_pass("settle", "Propagate known sizes from main.", specialise_shapes),
        find_pass("defunctionalize"),
        exact_pass(
            "settle-again", "Specialise calls of former closures by size.", specialise_shapes
        ),
        exact_pass("refuse-open", "Refuse functions whose sizes remain open.", refuse_open),
        find_pass("inline"),
        renamed(find_pass("remove-dead"), "drop-unused"),
        exact_pass(
            "place-known",
            "Propagate constants through calls, so that they can be packed.",
            place_known,
        ),
    )
)
"""From the whole language to functions that call each other by name."""

NAMED_KERNELS: Final = Pipeline(
    (
        renamed(find_pass("to-dataflow"), "join-lets"),
        exact_pass("decompose", "Decompose operators without a tensor definition.", write_out),
        exact_pass("fuse", "Fuse operators into kernels.", fuse),
        exact_pass("name-kernels", "Bind kernels to names that functions call.", name_kernels),
        exact_pass(
            "to-anf",
            "Name every value outside of kernels, in the innermost scope that needs it.",
            anf_around_kernels,
        ),
    )
)
"""From those functions to steps that call kernels."""
