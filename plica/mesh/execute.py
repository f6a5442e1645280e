"""Execution of a sharded program: segments of ordinary operators between collectives.

A process runs the segments for the devices that it is responsible for, all of them where they are
simulated, one where it is a rank, and gives what a collective needs to a `Medium`.

    segment 0      h = relu(x @ w1);  p = h @ w2         interpreted or compiled
    collective     y = all_reduce(p, "model")            by the medium
    segment 1      y + b

Law: what `simulate` gives, `interpret` gives for the whole program, within the contract of the
sums that are cut.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Protocol, TypeAlias

import numpy as np
from attrs import frozen

from plica.core import Name, Term, rebuild
from plica.core.collector import paused
from plica.ir.graph.expression import Apply, Const, Expr, Function, Project, Tuple, Var, attr
from plica.ir.graph.module import Module, main_module
from plica.ir.interpret.interpreter import interpret
from plica.ir.interpret.value import Array
from plica.ir.loop.scalar import Combiner
from plica.ir.type import TensorType, dtype, infer, tensor, type_of
from plica.mesh.exchange import OWN, STACK, MeshExchange, exchanges
from plica.mesh.mesh import Layout, Mesh
from plica.mesh.program import leaves, nested
from plica.mesh.sharded import ShardedProgram
from plica.rewrite.graph.walk import expressions, operands
from plica.runtime.error import Diagnostic, InputError, Place

Engine: TypeAlias = Callable[[Module, Sequence[Sequence[Array]]], "list[list[Array]]"]
"""Runs a module on the arrays of each of some devices: the interpreter, or compiled code."""
Values: TypeAlias = "dict[int, Array]"  # an array for each device of this process


class Medium(Protocol):
    """What carries values between devices."""

    @property
    def devices(self) -> Sequence[int]:
        """The devices of this process."""
        ...

    def exchange(self, mesh: Mesh, collective: MeshExchange, values: Values) -> Values:
        """What a collective gives to the devices of this process."""
        ...

    def agree(self, what: str, facts: Mapping[str, str]) -> None:
        """Wait for all processes, and refuse facts that differ between them."""
        ...


@frozen(eq=False)
class LocalSegment:
    """Operators between collectives: a module over values, and the values it makes."""

    module: Module
    inputs: tuple[Expr, ...]
    outputs: tuple[Expr, ...]


@frozen(eq=False)
class CollectiveStep:
    """A collective of a value."""

    collective: MeshExchange
    value: Expr
    result: Expr

    @property
    def inputs(self) -> tuple[Expr, ...]:
        """The values that it reads."""
        return (self.value,)


@lru_cache(maxsize=64)
def steps_of(sharded: ShardedProgram) -> tuple[LocalSegment | CollectiveStep, ...]:
    """The segments and collectives of the program of a device, in an order to run them: a value is
    of the level of its operands, and a collective leads to the next one."""
    body, names = sharded.module.main_function().body, sharded.mesh.names
    level: dict[Expr, int] = {}
    inside: dict[int, list[Expr]] = defaultdict(list)
    exchanged: dict[int, list[CollectiveStep]] = defaultdict(list)
    outside = dict.fromkeys(operands(body))  # results, and what another level reads
    for node in expressions(body):
        parts = operands(node)
        here = max([level[part] for part in parts], default=0)
        if isinstance(node, Apply) and node.op == OWN:
            here += 1
            exchanged[here].append(_collective(node, names))
        elif isinstance(node, Project | Apply) and not any(_is_stack(it) for it in (node, *parts)):
            inside[here].append(node)
        level[node] = here
        outside |= {part: None for part in parts if level[part] != here or _is_stack(node)}
    steps: list[LocalSegment | CollectiveStep] = []
    for at in range(max(level.values(), default=0) + 1):
        steps += exchanged[at]
        if inside[at]:
            steps.append(_segment(inside[at], outside))
    return tuple(steps)


def _is_stack(node: Expr) -> bool:
    return isinstance(node, Apply) and node.op == STACK


def _collective(node: Apply, names: Sequence[str]) -> CollectiveStep:
    """The collective between `stack_devices` and `own_device`."""
    (inner,) = node.args
    assert isinstance(inner, Apply)
    (rows,) = inner.args
    exchange = MeshExchange(inner.op, names.index(attr(node, "axis")), inner.attrs)
    return CollectiveStep(exchange, operands(rows)[0], node)


def _segment(inside: Sequence[Expr], outside: Mapping[Expr, None]) -> LocalSegment:
    """The operators of one level as a module, whose parameters are numbered."""
    inputs: dict[Expr, Var] = {}
    local: dict[Term, Term] = {}

    def given(part: Term) -> Term:
        if part in local or isinstance(part, Const) or not isinstance(part, Expr):
            return local.get(part, part)
        return inputs.setdefault(part, Var(Name("x", len(inputs)), type_of(part)))

    for node in inside:
        local[node] = rebuild(node, tuple(map(given, node._children)))
    outputs = [part for part in outside if part in local]
    items = [made for part in outputs if isinstance(made := local[part], Expr)]
    function = Function((), (), tuple(inputs.values()), None, Tuple(tuple(items)))
    return LocalSegment(infer(main_module(function)), tuple(inputs), tuple(outputs))


def interpreted(module: Module, rows: Sequence[Sequence[Array]]) -> list[list[Array]]:
    """The results of a module by its meaning, for the arrays of each device."""
    return [list(interpret(module, *arrays)) for arrays in rows]


def execute(
    sharded: ShardedProgram, held: Mapping[int, Sequence[Array]], medium: Medium,
    engine: Engine = interpreted,
) -> dict[int, list[Array]]:  # fmt: skip
    """The blocks of the results on the devices of this process, from those of the parameters.

    Devices that are given the same arrays run a segment once.
    """
    main = sharded.module.main_function()
    values: dict[Expr, Values] = {
        param: {device: held[device][at] for device in medium.devices}
        for at, param in enumerate(main.params)
    }
    steps, finals = steps_of(sharded), operands(main.body)
    last = {expr: at for at, step in enumerate(steps) for expr in step.inputs}
    for at, step in enumerate(steps):
        if isinstance(step, CollectiveStep):
            given = values[step.value]
            values[step.result] = medium.exchange(sharded.mesh, step.collective, given)
        else:
            args = {d: [values[expr][d] for expr in step.inputs] for d in medium.devices}
            keys = {device: tuple(map(id, arrays)) for device, arrays in args.items()}
            rows = {key: args[device] for device, key in keys.items()}
            made = dict(zip(rows, engine(step.module, [*rows.values()]), strict=True))
            for device, key in keys.items():
                for out, array in zip(step.outputs, made[key], strict=True):
                    values.setdefault(out, {})[device] = array
        for expr in step.inputs:
            if last[expr] == at and expr not in finals:
                del values[expr]
    return {
        device: [part.numpy() if isinstance(part, Const) else values[part][device]
                 for part in finals]
        for device in medium.devices
    }  # fmt: skip


# --- whole arrays and blocks ----------------------------------------------------------------------


def blocks(mesh: Mesh, array: Array, layout: Layout, devices: Sequence[int]) -> Values:
    """What some devices hold of an array; equal blocks are one array."""
    memo: dict[str, Array] = {}
    values: Values = {}
    for device in devices:
        where = mesh.block(array.shape, layout, device)
        if str(where) not in memo:
            shape = mesh.local_shape(array.shape, layout)
            memo[str(where)] = np.ascontiguousarray(array[where]).reshape(shape)
        values[device] = memo[str(where)]
    return values


def held_arrays(
    sharded: ShardedProgram, args: Sequence[Any], devices: Sequence[int]
) -> dict[int, list[Array]]:
    """The parameters of the devices, from the arguments of the whole program."""
    program = sharded.program
    given = [np.asarray(leaf) for leaf in leaves(tuple(args))]
    check_inputs(sharded, given)
    whole = dict(enumerate(given)) | {v: c.numpy() for v, c in program.constants.items()}
    return in_blocks(sharded, [(whole[held.value], held.layout) for held in sharded.held], devices)


def in_blocks(
    sharded: ShardedProgram, arrays: Iterable[tuple[Array, Layout]], devices: Sequence[int]
) -> dict[int, list[Array]]:
    """What each device holds of some arrays, in their order."""
    rows = [blocks(sharded.mesh, array, layout, devices) for array, layout in arrays]
    return {device: [row[device] for row in rows] for device in devices}


def check_inputs(sharded: ShardedProgram, given: Sequence[Array]) -> None:
    """Refuse arrays that are not those of the parameters."""
    program, types = sharded.program, list(map(_type_of_array, given))
    if len(given) != program.params:
        code = "input-missing" if len(given) < program.params else "input-unknown"
        message, found = f"The program has {program.params} inputs.", str(len(given))
        raise InputError(Diagnostic(code, message, None, str(program.params), found))
    if wrong := [
        Diagnostic("input-type", f"The input {name} has another type.", Place(node=name),
                   str(wanted), str(of))
        for name, wanted, of in zip(program.names, program.types, types, strict=False)
        if wanted is not of
    ]:  # fmt: skip
        raise InputError(*wrong)


def _type_of_array(array: Array) -> TensorType:
    return tensor(array.shape, dtype(array.dtype))


@frozen
class SimulatedDevices:
    """All devices of a mesh in one process: a collective means what its record says."""

    devices: tuple[int, ...]

    def exchange(self, mesh: Mesh, collective: MeshExchange, values: Values) -> Values:
        """The rows of the collective over each group of devices."""
        results: Values = {}
        for group in {mesh.group(device, collective.axis) for device in self.devices}:
            rows = _meaning(collective, np.stack([values[device] for device in group]))
            same = collective.op in {"all_reduce", "all_gather"}
            parts = [rows[0]] * len(group) if same else rows  # equal ones are one object
            results |= dict(zip(group, parts, strict=True))
        return results

    def agree(self, what: str, facts: Mapping[str, str]) -> None:
        """Nothing: there is one process."""


def _meaning(collective: MeshExchange, rows: Array) -> Array:
    """The rows after a collective, by its definition."""
    stacked = Var(Name("rows"), _type_of_array(rows))
    body = Apply(collective.op, (stacked,), collective.attributes)
    array: Array = interpret(_collective_module(stacked, body), rows)
    return array


@lru_cache(maxsize=1 << 10)
def _collective_module(param: Var, body: Expr) -> Module:
    return infer(main_module(Function((), (), (param,), None, body)))


def combined(combiner: Combiner, rows: Sequence[Array]) -> Array:
    """The rows of devices combined, in their order, as `all_reduce` means it."""
    reduce = MeshExchange("all_reduce", 0, (("combiner", combiner),))
    array: Array = _meaning(reduce, np.stack(rows))[0]
    return array


def simulate(sharded: ShardedProgram, *args: Any, engine: Engine = interpreted) -> Any:
    """The result of the program on a mesh of devices that this process simulates."""
    medium = SimulatedDevices(tuple(range(sharded.mesh.devices)))
    return gathered(sharded, run_on(sharded, args, medium, engine), medium)


def run_on(
    sharded: ShardedProgram, args: Sequence[Any], medium: Medium, engine: Engine
) -> dict[int, list[Array]]:
    """The blocks of the results on the devices of this process, from the whole arguments."""
    with paused():
        return execute(sharded, held_arrays(sharded, args, medium.devices), medium, engine)


def gathered(sharded: ShardedProgram, parts: Mapping[int, Sequence[Array]], medium: Medium) -> Any:
    """The whole results, from the blocks of all devices."""
    arrays = [
        gathered_value(sharded.mesh, layout, {d: parts[d][at] for d in medium.devices}, medium)
        for at, layout in enumerate(sharded.results)
    ]
    return nested(sharded.program.returned, arrays)


def gathered_value(mesh: Mesh, layout: Layout, values: Values, medium: Medium) -> Array:
    """A whole array, from its blocks."""
    for collective in exchanges(layout, mesh.replicated()):
        values = medium.exchange(mesh, collective, values)
    return values[medium.devices[0]]
