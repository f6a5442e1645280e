"""Models in: from a program that torch has exported to a module of the graph language.

Parameters, buffers and constants become constants of the module; inputs keep their names, and a
size that was exported as a `Dim` is a symbolic dim of that name.  What Plica does not have is
listed all at once, each with its line of Python.  docs/torch.md has examples.

>>> from plica.ir.type.term import tensor
>>> x = Var(Name("x"), tensor((2,), "f32"))
>>> [str(each.name) for each in assembled([x], x, ["y"]).main_function().params]
['x']
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from plica.core.binding import free_vars
from plica.core.collector import paused
from plica.core.name import Name
from plica.frontend.complex_pair import Complex
from plica.frontend.measured import Region, amount, matched, measuring
from plica.frontend.torch.custom_operator import CustomOperators
from plica.frontend.torch.dtype import dtype_of, part_type, stored
from plica.frontend.torch.guard import Guard, equal_sizes, guarded_terms, guards_of
from plica.frontend.torch.node import free_name, shape_of
from plica.frontend.torch.reader import UNKNOWN, Reader, unsupported
from plica.frontend.torch.symbol import Symbols
from plica.frontend.word import shape, size_fault
from plica.ir.graph.expression import Expr, Function, Tuple, Var, const
from plica.ir.graph.module import Defined, Definition, Module, main_module
from plica.ir.loop.scalar import Scalar, ScalarVar
from plica.ir.op.namespace import op
from plica.ir.op.relation import Shape
from plica.ir.type import TensorType, dim, dim_var, i64, infer, polynomial
from plica.runtime.error import Diagnostic, InputError, Place, PlicaError, UnsupportedError

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram

Range: TypeAlias = tuple[str, int, int | None]  # a dim with its minimum and maximum, if any

KEPT: Final = (
    "sinc.default", "xlogy.Tensor", "xlogy.Scalar_Self", "xlogy.Scalar_Other",
    "special_xlog1py.default", "special_xlog1py.self_scalar", "special_xlog1py.other_scalar",
    "linear.default", "matmul.default", "scaled_dot_product_attention.default", "silu.default",
    "hardswish.default", "hardsigmoid.default", "mish.default", "softplus.default", "celu.default",
    "logsumexp.default", "relu6.default", "selu.default", "log_sigmoid.default", "tril.default",
    "triu.default", "stack.default", "unbind.int", "roll.default", "std.correction",
    "std_mean.correction",
    "square.default", "isfinite.default", "all.dim", "addcmul.default", "lerp.Scalar",
    "lstm.input", "gru.input", "rnn_tanh.input", "rnn_relu.input",
)  # fmt: skip
"""Operators that torch would decompose, but Plica supports."""


def from_torch(program: ExportedProgram, *, dims: Mapping[str, int] | None = None) -> Module:
    """The module that an exported program is; `dims` gives numbers for symbolic dims."""
    if not isinstance(given := {} if dims is None else dims, Mapping):
        message, found = "'dims' gives a number for each name.", f"{dims!r:.60}"
        hint = 'Say dims={"n": 8}.'
        raise InputError.of("input-type", message, None, "a mapping of names", found, hint)
    _check_program(program)
    guards = guards_of(program)  # taking it apart adds others
    own = copy(program)
    own._constants = dict(program.constants)
    with _final_states(), _lifted_constants(own):
        taken_apart = own.run_decompositions(decompositions())
    with paused():
        return _imported(taken_apart, dict(given), guards)


def _check_program(program: object) -> None:
    try:
        from torch.export import ExportedProgram
    except ImportError as error:
        message = "Reading a program needs the package torch, which is not installed."
        hint = "Install it with Plica: pip install 'plica[torch]'."
        diagnostic = Diagnostic("missing-tool", message, None, "torch", str(error), hint)
        raise UnsupportedError(diagnostic) from None
    if not isinstance(program, ExportedProgram):
        message = "This is no exported program."
        hint = "Export the model first: torch.export.export(model.eval(), example_inputs)."
        found = type(program).__name__
        raise InputError.of(
            "input-type", message, None, "torch.export.ExportedProgram", found, hint
        )


def decompositions() -> Any:  # Any: torch's own kind of table
    """How torch decomposes operators before their graph is read."""
    import torch

    table: Any = torch.export.default_decompositions()
    for name in KEPT:
        packet, overload = name.split(".")
        table.pop(getattr(getattr(torch.ops.aten, packet), overload), None)
    return table


@contextmanager
def _final_states() -> Iterator[None]:
    """Final states of LSTMs have the rank that they have when they run.

    Where torch works out shapes, versions before 2.13 leave an axis more at them, but for a batch
    of one; all that reads them would be of other shapes than torch says.
    """
    from torch._decomp import decompositions

    def ranked(layer: Callable[..., Any]) -> Callable[..., Any]:  # Any: tensors, as torch has them
        def run(given: Any, hidden: Any, *args: Any, **named: Any) -> Any:
            out, states = layer(given, hidden, *args, **named)
            return out, tuple([
                state.squeeze(0) if state.dim() > first.dim() else state
                for state, first in zip(states, hidden, strict=False)
            ])  # fmt: skip

        return run

    own = {
        name: layer
        for name in ("one_layer_lstm", "mkldnn_one_layer_lstm")
        if (layer := getattr(decompositions, name, None)) is not None
    }
    try:
        for name, layer in own.items():
            setattr(decompositions, name, ranked(layer))
        yield
    finally:
        for name, layer in own.items():
            setattr(decompositions, name, layer)


@contextmanager
def _lifted_constants(program: ExportedProgram) -> Iterator[None]:
    """Adds to a program the constants that torch lifts during decomposition.

    Torch drops them, and then does not find one that a submodule makes (`torch.tensor(…)` there).
    """
    from torch.export import _trace as tracing

    trace = tracing._export_to_aten_ir

    def traced(*args: Any, **named: Any) -> Any:  # Any: torch's own
        artifact = trace(*args, **named)
        program.constants.update(artifact.constants)
        return artifact

    try:
        tracing._export_to_aten_ir = traced
        yield
    finally:
        tracing._export_to_aten_ir = trace


def _imported(program: ExportedProgram, dims: dict[str, int], guards: tuple[Guard, ...]) -> Module:
    """The module of a decomposed program.

    Torch exports `x[-m:]` under the assumption of the traced call that m is at most the size of x.
    Other calls have their own length if the program types with it; otherwise torch's length is
    asserted.
    """
    _check_outputs(program)
    if wrong := unsupported(program.graph_module, program.graph):
        raise UnsupportedError(wrong[0], *wrong[1:])
    symbols = _symbols(program, dims, guards)
    symbols.assumes_lengths = False
    try:
        return _read(program, symbols, guards)
    except PlicaError:
        if not symbols.has_own_lengths:
            raise
    return _read(program, _symbols(program, dims, guards), guards)


def _read(program: ExportedProgram, symbols: Symbols, guards: tuple[Guard, ...]) -> Module:
    signature = program.graph_signature
    root, graph = program.graph_module, program.graph
    region: Region = {}
    given: list[Any] = []
    params: list[Var] = []
    errors: list[PlicaError] = []
    inputs = {spec.arg.name: spec for spec in signature.input_specs}
    for node in graph.nodes:
        if node.op != "placeholder":
            continue
        spec = inputs[node.name]
        try:
            value = _given(program, spec, node, symbols)
        except PlicaError as error:
            errors.append(error)
            value = UNKNOWN
        given.append(value)
        if isinstance(value, Var):
            params.append(value)
    params, given, told = _with_own_dims(params, given, symbols, region)
    reader = Reader(symbols, region, custom := CustomOperators())
    made = reader.graph(root, graph, given)
    errors += reader.errors
    if errors:
        listed = [diagnostic for error in errors for diagnostic in error.diagnostics]
        raise UnsupportedError(listed[0], *listed[1:])
    if least := (*reader.least, *guarded_terms(guards, symbols)):
        made = _held_to(made, least)
    ranges = _ranges(program, symbols, told)
    return _module(program, params, made, ranges, region, custom.definitions)


def _held_to(made: list[Any], least: tuple[Scalar, ...]) -> list[Any]:
    """Outputs that exist only if some terms over sizes are non-negative."""
    at = next((at for at, each in enumerate(made) if isinstance(each, Expr)), None)
    if at is None:
        return made
    return [*made[:at], op.match_shape(made[at], shape(made[at]), least=least), *made[at + 1 :]]


def _with_own_dims(
    params: list[Var], given: list[Any], symbols: Symbols, region: Region
) -> tuple[list[Var], list[Any], dict[str, tuple[str, int, int]]]:
    """Parameters of which each dim is the size of some axis.

    Torch writes `4*n` for a size divisible by four. If n is no size itself, that axis has a
    separate dim, n is measured from it, and the parameter is asserted to have that size. Each
    measured size is recorded: its dim, the factor, and the offset.
    """
    sizes = [size for param in params for size in _sizes(param)]
    alone = {size for size in sizes if isinstance(size, ScalarVar)}
    taken = {*symbols.names.values(), *[str(param.name) for param in params]}
    whole: dict[Scalar, ScalarVar] = {}
    told: dict[str, tuple[str, int, int]] = {}
    for size in sizes:
        parts = {key: (atoms, count) for key, (atoms, count) in polynomial(size).items()}
        _, start = parts.pop(frozenset(), ((), 0))
        if len(parts) != 1 or size in whole:
            continue
        ((atoms, step),) = parts.values()
        if len(atoms) != 1 or not isinstance(inner := atoms[0], ScalarVar) or step < 1:
            continue
        if inner in alone:
            continue
        name = free_name(f"{inner.name}_whole", taken)
        taken.add(name)
        alone.add(inner)
        whole[size] = dim_var(name)
        count = (amount(whole[size]) - const(start, i64)) // const(step, i64)
        region[count] = inner
        told[str(inner.name)] = (name, step, start)
    if not whole:
        return params, given, told
    own: dict[Var, Var] = {}
    for param in params:
        assert isinstance(param.type, TensorType)
        shape_ = tuple(whole.get(size, size) for size in param.type.shape)
        own[param] = Var(param.name, TensorType(shape_, param.type.dtype))
    asserted = [
        matched(own[each], _sizes(each)) if isinstance(each, Var) else each for each in given
    ]
    return [own[param] for param in params], asserted, told


def _sizes(of: Var) -> Shape:
    assert isinstance(of.type, TensorType)
    return of.type.shape


def _given(program: ExportedProgram, spec: Any, node: Any, symbols: Symbols) -> Any:
    """The value of a placeholder: an input, a stored tensor, or a number."""
    place = Place(node=node.name)
    match spec.kind.name:
        case "USER_INPUT":
            said = node.meta["val"]
            if hasattr(said, "dtype"):
                return Var(Name(node.name), _input_type(said, symbols, place))
            if said is None or isinstance(said, bool | int | float | str):
                return said
            return symbols.term(said.node.expr)
        case "PARAMETER":
            return stored(program.state_dict[spec.target], place)
        case "BUFFER":
            held = program.state_dict if spec.persistent else program.constants
            return stored(held[spec.target], place)
        case "CONSTANT_TENSOR":
            return stored(program.constants[spec.target], place)
        case kind:
            message = f"The input {node.name!r} is no tensor."
            raise UnsupportedError.of("unsupported", message, place, "a tensor", kind)


def _input_type(said: torch.Tensor, symbols: Symbols, place: Place) -> TensorType:
    of, sizes = dtype_of(said.dtype), shape_of(said, symbols)
    if of is None or sizes is None:
        message = "An input is of a kind that Plica does not have."
        found = f"{said.dtype} of shape {tuple(said.shape)} on {said.device}"
        pair = part_type(said.dtype) is not None
        hint = "Take both parts, and torch.view_as_complex of them." if pair else None
        raise UnsupportedError.of("unsupported", message, place, "a tensor", found, hint)
    return TensorType(tuple(dim(size) for size in sizes), of)


_EFFECTS: Final = {
    "BUFFER_MUTATION": "changes a buffer",
    "USER_INPUT_MUTATION": "changes an input",
    "PARAMETER_MUTATION": "changes a parameter",
    "GRADIENT_TO_PARAMETER": "gives gradients",
    "GRADIENT_TO_USER_INPUT": "gives gradients",
    "TOKEN": "has effects in an order",
}


def _check_outputs(program: ExportedProgram) -> None:
    """Refuse programs that do more than compute their outputs."""
    wrong = []
    for spec in program.graph_signature.output_specs:
        if (what := _EFFECTS.get(spec.kind.name)) is not None:
            target = str(spec.target or spec.arg.name)
            message = f"The program {what}, and a module only computes its outputs."
            hint = "Export the model in its mode of inference (model.eval()), without state."
            place = Place(node=target)
            wrong.append(Diagnostic("unsupported", message, place, None, spec.kind.name, hint))
    if wrong:
        raise UnsupportedError(wrong[0], *wrong[1:])


def _module(  # noqa: PLR0917  # what a module is made of
    program: ExportedProgram, params: list[Var], made: list[Any], ranges: tuple[Range, ...],
    region: Region, externs: Mapping[Defined, Definition],
) -> Module:  # fmt: skip
    outputs: list[Expr] = []
    names: list[str] = []
    for spec, value in zip(program.graph_signature.output_specs, made, strict=True):
        if value is None:
            continue
        name = spec.arg.name or f"output_{len(names)}"
        if isinstance(value, bool | int | float):
            value = const(np.asarray(value))
        if isinstance(value, Scalar):
            value = amount(value)
        if not isinstance(value, Expr):
            pair = isinstance(value, Complex)
            what = "of complex numbers" if pair else "no tensor"
            message, expected = f"The output {name!r} is {what}.", "a tensor of real numbers"
            hint = "Give both parts: torch.view_as_real." if pair else "Leave it out."
            found = "complex numbers" if pair else type(value).__name__
            raise UnsupportedError.of(
                "unsupported", message, Place(node=name), expected, found, hint
            )
        outputs.append(value)
        names.append(name)
    if not outputs:
        message = "The program has no outputs."
        raise UnsupportedError.of("unsupported", message, None, "a tensor", "nothing")
    body = outputs[0] if len(outputs) == 1 else Tuple(tuple(outputs))
    return assembled(params, measuring(region, body), names, ranges, region.values(), externs)


def assembled(  # noqa: PLR0917  # as above
    params: list[Var], body: Expr, names: list[str], ranges: tuple[Range, ...] = (),
    measured: Iterable[ScalarVar] = (),
    externs: Mapping[Defined, Definition] = MappingProxyType({}),
) -> Module:  # fmt: skip
    """A module of one function, over the dims that its parameters have and those measured."""
    used: dict[ScalarVar, None] = {}
    for param in params:
        assert isinstance(param.type, TensorType)
        for size in param.type.shape:
            found = [var for var in free_vars(size) if isinstance(var, ScalarVar)]
            used |= dict.fromkeys(sorted(found, key=lambda each: each.name))
    free = free_vars(body)
    used |= dict.fromkeys(var for var in measured if var in free)
    attrs: tuple[tuple[str, Any], ...] = (("outputs", tuple(names)),)
    if ranges:
        attrs = (*attrs, ("dim_ranges", ranges))
    function = Function(tuple(used), (), tuple(params), None, body, attrs)
    return infer(main_module(function, externs))


# --- symbolic dims -------------------------------------------------------------------------------


def _symbols(program: ExportedProgram, dims: dict[str, int], guards: tuple[Guard, ...]) -> Symbols:
    """The symbols of the inputs under the names that the exporter was given."""
    names: dict[Any, str] = {}
    taken = {node.name for node in program.graph.nodes if node.op == "placeholder"}
    for node in program.graph.nodes:
        said = node.meta.get("val")
        if node.op != "placeholder" or not hasattr(said, "shape"):
            continue
        for at, size in enumerate(said.shape):
            if isinstance(size, int):
                continue
            for symbol in sorted(size.node.expr.free_symbols, key=str):
                if symbol not in names:
                    plain = size.node.expr == symbol
                    otherwise = f"{node.name}_{at}" if plain else str(symbol)
                    name = _debug_name(said, symbol) or otherwise
                    names[symbol] = free_name(name, {*taken, *names.values()})
    _check_dims(program, names, dims)
    symbols = Symbols(names, dims)
    symbols.equal = equal_sizes(guards, symbols)
    return symbols


def _ranges(
    program: ExportedProgram, symbols: Symbols, told: Mapping[str, tuple[str, int, int]]
) -> tuple[Range, ...]:
    """The ranges of open dims that torch has bounds for; a measured dim is derived from another."""
    found: list[Range] = []
    for symbol, name in symbols.names.items():
        allowed = program.range_constraints.get(symbol)
        if allowed is None or name in symbols.given:
            continue
        most = int(allowed.upper) if allowed.upper.is_Integer else None
        least = int(allowed.lower) if allowed.lower.is_Integer else 0
        whole, step, start = told.get(name, (name, 1, 0))
        if least > 0 or most is not None:
            greatest = None if most is None else most * step + start
            found.append((whole, least * step + start, greatest))
    return tuple(found)


def _debug_name(said: Any, symbol: Any) -> str | None:
    """The name of the `Dim` of a symbol, if torch has kept it."""
    environment = said.fake_mode.shape_env
    known_as = getattr(environment, "source_name_to_debug_name", {})
    for source in getattr(environment, "var_to_sources", {}).get(symbol, ()):
        name = source.name() if callable(source.name) else source.name
        if str(known_as.get(name, "")).isidentifier():
            return str(known_as[name])
    return None


def _check_dims(program: ExportedProgram, names: Mapping[Any, str], dims: dict[str, int]) -> None:
    wrong = []
    for name in sorted(set(dims) - set(names.values())):
        message = "A size is given for a dim that the program does not have."
        there = ", ".join(sorted(names.values())) or "no symbolic dims"
        wrong.append(Diagnostic("input-unknown", message, None, there, name))
    wrong += [fault for name, size in dims.items() if (fault := size_fault(name, size))]
    if wrong:
        raise InputError(wrong[0], *wrong[1:])
    for symbol, name in names.items():
        allowed = program.range_constraints.get(symbol)
        if (
            allowed is not None
            and name in dims
            and not allowed.lower <= dims[name] <= allowed.upper
        ):
            message = f"The program was exported for other sizes of the dim {name!r}."
            upper = f"to {allowed.upper}" if allowed.upper.is_Integer else "upwards"
            expected = f"from {allowed.lower} {upper}"
            wrong.append(
                Diagnostic("input-shape", message, Place(node=name), expected, str(dims[name]))
            )
    if wrong:
        raise InputError(wrong[0], *wrong[1:])
