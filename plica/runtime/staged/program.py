"""Staged programs: which code segments run in which order, and which sizes are measured between
them.

A size that depends on elements is known when these are.  So a program is cut where a size becomes
known: a segment computes the number, the host reads it, and the next segments, code for every size,
are given arrays of just that size.

    StepBlock   ::= StepBlock(steps, results)
    Step    ::= RunSegment(segment, inputs, outputs) | MeasureDim(dim, register, told)
              | ChooseBlock(condition, then, orelse, outputs)
              | RepeatBlock(start, carried, test, body, end, outputs)
              | HostCall(name, input, outputs, options) | TakePrefix(input, dim, output, whole)
    Operand ::= a register's number | the name of a dim, which is handed over as an empty array

>>> block = StepBlock((MeasureDim("n", 0, ("x",)), RunSegment(0, (0, "n"), (1,))), (1,))
>>> from_data(to_data(block), 1) == block
True
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar, assert_never

from plica.runtime.error import damaged

Operand: TypeAlias = "int | str"
T = TypeVar("T")

OPERATIONS: Final = {"argsort": 1, "argwhere": 2, "unique": 5}
"""Host operations and their numbers of results."""


def is_of_host(name: str) -> bool:
    """Whether an operator's operation runs on the host."""
    return name in OPERATIONS


MAX_DEPTH: Final = 200  # blocks nested deeper are in no file of ours


@dataclass(frozen=True, slots=True)
class RunSegment:
    """Run the code of a segment on registers and sizes."""

    segment: int
    inputs: tuple[Operand, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class MeasureDim:
    """Defines a dim as the number in a register from here on; `told` are the inputs that it depends
    on."""

    dim: str
    register: int
    told: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ChooseBlock:
    """Run one of two blocks, as a condition says; its results go to the outputs."""

    condition: int
    then: StepBlock
    orelse: StepBlock
    outputs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RepeatBlock:
    """While `test` returns true, the results of `body` become the carried values; then `end`."""

    start: tuple[int, ...]
    carried: tuple[int, ...]
    test: StepBlock
    body: StepBlock
    end: StepBlock
    outputs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class HostCall:
    """Order a register, or find places in it, by the host (`plica.runtime.staged.order`)."""

    name: str
    input: int
    outputs: tuple[int, ...]
    options: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class TakePrefix:
    """The first elements along the first axis of a register, as many as a dim is: no code runs.
    In words the axis is `whole` long."""

    input: int
    dim: str
    output: int
    whole: str


Step: TypeAlias = RunSegment | MeasureDim | ChooseBlock | RepeatBlock | HostCall | TakePrefix


@dataclass(frozen=True, slots=True)
class StepBlock:
    """Steps one after the other, and the registers in which the results are then."""

    steps: tuple[Step, ...]
    results: tuple[int, ...]


def all_steps(of: StepBlock) -> Iterator[Step]:
    """The steps of a block, and those of the blocks within."""
    stack = [of]
    while stack:
        for step in stack.pop().steps:
            yield step
            match step:
                case ChooseBlock(_, then, orelse, _):
                    stack += [then, orelse]
                case RepeatBlock(_, _, test, body, end, _):
                    stack += [test, body, end]
                case RunSegment() | MeasureDim() | HostCall() | TakePrefix():
                    pass
                case _:
                    assert_never(step)


def step_outputs(of: Step) -> tuple[int, ...]:
    """The registers that a step itself writes."""
    match of:
        case RunSegment(_, _, outputs) | ChooseBlock(_, _, _, outputs) | HostCall(_, _, outputs, _):
            return outputs
        case RepeatBlock(_, carried, _, _, _, outputs):
            return (*carried, *outputs)
        case TakePrefix(_, _, output, _):
            return (output,)
        case MeasureDim():
            return ()
        case _:
            assert_never(of)


def step_inputs(of: Step) -> tuple[int, ...]:
    """The registers that a step itself reads, and those it finds the results of its blocks in."""
    match of:
        case RunSegment(_, inputs, _):
            return tuple([each for each in inputs if isinstance(each, int)])
        case MeasureDim(_, register, _):
            return (register,)
        case ChooseBlock(condition, then, orelse, _):
            return (condition, *then.results, *orelse.results)
        case RepeatBlock(start, _, test, body, end, _):
            return (*start, *test.results, *body.results, *end.results)
        case HostCall(_, given, _, _) | TakePrefix(given, _, _, _):
            return (given,)
        case _:
            assert_never(of)


def block_reads(of: StepBlock) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """The registers that a block finds when it begins, and the dims that it names."""
    steps = list(all_steps(of))
    written = {at for step in steps for at in step_outputs(step)}
    found = dict.fromkeys(at for step in steps for at in step_inputs(step) if at not in written)
    runs = [step for step in steps if isinstance(step, RunSegment)]
    dims = dict.fromkeys(dim for step in runs for dim in step.inputs if isinstance(dim, str))
    return tuple(found), tuple(dims)


def to_data(of: StepBlock) -> dict[str, Any]:
    """A block as JSON data."""
    return {"steps": [_step_data(step) for step in of.steps], "results": list(of.results)}


def _step_data(of: Step) -> list[Any]:
    match of:
        case RunSegment(segment, inputs, outputs):
            return ["run", segment, list(inputs), list(outputs)]
        case MeasureDim(dim, register, told):
            return ["measure", dim, register, list(told)]
        case ChooseBlock(condition, then, orelse, outputs):
            return ["choose", condition, to_data(then), to_data(orelse), list(outputs)]
        case RepeatBlock(start, carried, test, body, end, outputs):
            blocks = [to_data(step_block) for step_block in (test, body, end)]
            return ["repeat", list(start), list(carried), blocks, list(outputs)]
        case HostCall(name, given, outputs, options):
            return ["call", name, given, list(outputs), [list(option) for option in options]]
        case TakePrefix(given, dim, output, whole):
            return ["prefix", given, dim, output, whole]
        case _:
            assert_never(of)


def from_data(given: object, segments: int, depth: int = 0) -> StepBlock:
    """The block that was written down; nothing in it is believed."""
    match given:
        case {"steps": [*steps], "results": [*results]} if depth < MAX_DEPTH:
            found = [_step(step, segments, depth) for step in steps]
            return StepBlock(tuple(found), _numbers(results))
        case _:
            raise damaged("A block of the program is damaged.")


def _step(given: object, segments: int, depth: int) -> Step:
    match given:
        case ["run", int(segment), [*inputs], [*outputs]] if 0 <= segment < segments:
            return RunSegment(segment, _all(_operand, inputs), _numbers(outputs))
        case ["measure", str(dim), int(register), [*told]]:
            return MeasureDim(dim, _number(register), _all(_word, told))
        case ["choose", int(condition), then, orelse, [*outputs]]:
            yes, no = (from_data(each, segments, depth + 1) for each in (then, orelse))
            return ChooseBlock(_number(condition), yes, no, _numbers(outputs))
        case ["repeat", [*start], [*carried], [test, body, end], [*outputs]]:
            blocks = (test, body, end)
            first, turn, last = (from_data(block, segments, depth + 1) for block in blocks)
            ends = _numbers(outputs)
            return RepeatBlock(_numbers(start), _numbers(carried), first, turn, last, ends)
        case ["call", str(name), int(taken), [*outputs], [*options]] if name in OPERATIONS:
            read = _all(_option, options)
            return HostCall(name, _number(taken), _numbers(outputs), read)
        case ["prefix", int(taken), dim, int(output), whole]:
            return TakePrefix(_number(taken), _word(dim), _number(output), _word(whole))
        case _:
            raise damaged("A step of the program is damaged.", repr(given)[:80])


def check_registers(block: StepBlock, inputs: int, dims: Iterable[str]) -> None:
    """Refuses a program that reads a register or a size before it is defined."""
    _check(block, set(range(inputs)), set(dims))


def _check(block: StepBlock, there: set[int], dims: set[str]) -> None:
    for step in block.steps:
        match step:
            case RunSegment(_, inputs, outputs):
                _need([each for each in inputs if isinstance(each, int)], there)
                if not dims.issuperset(each for each in inputs if isinstance(each, str)):
                    raise damaged("A size of the program is used before it is known.")
                there.update(outputs)
            case MeasureDim(dim, register, _):
                _need([register], there)
                dims.add(dim)
            case ChooseBlock(condition, then, orelse, outputs):
                _need([condition], there)
                for side in (then, orelse):
                    _check(side, set(there), set(dims))
                _same(outputs, then.results, orelse.results)
                there.update(outputs)
            case RepeatBlock(start, carried, test, body, end, outputs):
                _need(start, there)
                there.update(carried)
                for part in (test, body, end):
                    _check(part, set(there), set(dims))
                _same(start, carried, body.results)
                _same(outputs, end.results)
                _same((0,), test.results)
                there.update(outputs)
            case HostCall(name, given, outputs, _):
                _need([given], there)
                if len(outputs) != OPERATIONS[name]:
                    raise damaged("A call of the program has another number of results.")
                there.update(outputs)
            case TakePrefix(given, dim, output, _):
                _need([given], there)
                if dim not in dims:
                    raise damaged("A size of the program is used before it is known.")
                there.add(output)
            case _:
                assert_never(step)
    _need(block.results, there)


def _need(registers: Iterable[int], there: set[int]) -> None:
    if not there.issuperset(registers):
        raise damaged("A register of the program is read before it is written.")


def _same(*some: tuple[int, ...]) -> None:
    if len({len(each) for each in some}) != 1:
        raise damaged("A step of the program has another number of registers than its blocks.")


def _all(read: Callable[[object], T], given: list[object]) -> tuple[T, ...]:
    return tuple([read(each) for each in given])


def _option(given: object) -> tuple[str, int]:
    match given:
        case ["axis" | "descending" | "sorted" as name, int(value)] if -64 <= value < 64:
            return name, value
        case _:
            raise damaged("An option of the program is damaged.", repr(given)[:80])


def _numbers(given: list[object]) -> tuple[int, ...]:
    return _all(_number, given)


def _number(given: object) -> int:
    if type(given) is int and 0 <= given < 1 << 24:
        return given
    raise damaged("The number of a register is damaged.", repr(given)[:80])


def _word(given: object) -> str:
    if isinstance(given, str) and given:
        return given
    raise damaged("A name in the program is damaged.", repr(given)[:80])


def _operand(given: object) -> Operand:
    return _word(given) if isinstance(given, str) else _number(given)
