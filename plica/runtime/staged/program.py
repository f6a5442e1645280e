"""Staged programs: which code segments run in which order, and which sizes are measured between
them.

A size that depends on elements is known when these are.  So a program is cut where a size becomes
known: a segment computes the number, the host reads it, and the next segments, code for every size,
are given arrays of just that size.

    StepBlock   ::= StepBlock(steps, results)
    Step    ::= RunSegment(segment, inputs, outputs) | MeasureDim(dim, register, told)
              | ChooseBlock(condition, then, orelse, outputs)
              | RepeatBlock(start, carried, (test, body, end), outputs)
              | HostCall(name, input, outputs, options) | TakePrefix(input, dim, output, whole)
    Operand ::= a register's number | the name of a dim, which is handed over as an empty array

>>> block = StepBlock((MeasureDim("n", 0, ("x",)), RunSegment(0, (0, "n"), (1,))), (1,))
>>> from plica.runtime.typed_json import plain
>>> plain(block)["steps"]
[['measure', 'n', 0, ['x']], ['run', 0, [0, 'n'], [1]]]
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias, assert_never

from plica.runtime.error import damaged
from plica.runtime.typed_json import Annotated, ClassVar, dataclass

Register: TypeAlias = Annotated[int, range(1 << 24)]
Operand: TypeAlias = Register | str

OPERATIONS: Final = {"argsort": 1, "argwhere": 2, "unique": 5}
"""Host operations and their numbers of results."""

OPTIONS: Final = ("axis", "descending", "sorted")


def is_of_host(name: str) -> bool:
    """Whether an operator's operation runs on the host."""
    return name in OPERATIONS


DAMAGED_STEP: Final = "A step of the program is damaged."


@dataclass(frozen=True, slots=True)
class RunSegment:
    """Run the code of a segment on registers and sizes."""

    WORD: ClassVar = "run"
    DAMAGED: ClassVar = DAMAGED_STEP

    segment: Register
    inputs: tuple[Operand, ...]
    outputs: tuple[Register, ...]


@dataclass(frozen=True, slots=True)
class MeasureDim:
    """Defines a dim as the number in a register from here on; `told` are the inputs that it depends
    on."""

    WORD: ClassVar = "measure"
    DAMAGED: ClassVar = DAMAGED_STEP

    dim: str
    register: Register
    told: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ChooseBlock:
    """Run one of two blocks, as a condition says; its results go to the outputs."""

    WORD: ClassVar = "choose"
    DAMAGED: ClassVar = DAMAGED_STEP

    condition: Register
    then: StepBlock
    orelse: StepBlock
    outputs: tuple[Register, ...]


@dataclass(frozen=True, slots=True)
class RepeatBlock:
    """While the first block returns true, the results of the second become the carried values; then
    the third."""

    WORD: ClassVar = "repeat"
    DAMAGED: ClassVar = DAMAGED_STEP

    start: tuple[Register, ...]
    carried: tuple[Register, ...]
    blocks: tuple[StepBlock, StepBlock, StepBlock]
    outputs: tuple[Register, ...]


@dataclass(frozen=True, slots=True)
class HostCall:
    """Order a register, or find places in it, by the host (`plica.runtime.staged.order`)."""

    WORD: ClassVar = "call"
    DAMAGED: ClassVar = DAMAGED_STEP

    name: Annotated[str, OPERATIONS]
    input: Register
    outputs: tuple[Register, ...]
    options: tuple[tuple[Annotated[str, OPTIONS], Annotated[int, range(-64, 64)]], ...]


@dataclass(frozen=True, slots=True)
class TakePrefix:
    """The first elements along the first axis of a register, as many as a dim is: no code runs.
    In words the axis is `whole` long."""

    WORD: ClassVar = "prefix"
    DAMAGED: ClassVar = DAMAGED_STEP

    input: Register
    dim: str
    output: Register
    whole: str


Step: TypeAlias = RunSegment | MeasureDim | ChooseBlock | RepeatBlock | HostCall | TakePrefix


@dataclass(frozen=True, slots=True)
class StepBlock:
    """Steps one after the other, and the registers in which the results are then."""

    KEYED: ClassVar = True
    DAMAGED: ClassVar = "A block of the program is damaged."

    steps: tuple[Step, ...]
    results: tuple[Register, ...]


def all_steps(of: StepBlock) -> Iterator[Step]:
    """The steps of a block, and those of the blocks within."""
    stack = [of]
    while stack:
        for step in stack.pop().steps:
            yield step
            match step:
                case ChooseBlock(_, then, orelse, _):
                    stack += [then, orelse]
                case RepeatBlock(_, _, blocks, _):
                    stack += blocks
                case RunSegment() | MeasureDim() | HostCall() | TakePrefix():
                    pass
                case _:
                    assert_never(step)


def step_outputs(of: Step) -> tuple[int, ...]:
    """The registers that a step itself writes."""
    match of:
        case RunSegment(_, _, outputs) | ChooseBlock(_, _, _, outputs) | HostCall(_, _, outputs, _):
            return outputs
        case RepeatBlock(_, carried, _, outputs):
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
        case RepeatBlock(start, _, blocks, _):
            return (*start, *[at for block in blocks for at in block.results])
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


def check_program(block: StepBlock, inputs: int, dims: Iterable[str], segments: int) -> None:
    """Refuses a program that runs segments that there are not, or reads a register or a size before
    it is defined."""
    for step in all_steps(block):
        if isinstance(step, RunSegment) and step.segment >= segments:
            raise damaged(DAMAGED_STEP, repr(step)[:80])
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
            case RepeatBlock(start, carried, (test, body, end), outputs):
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
