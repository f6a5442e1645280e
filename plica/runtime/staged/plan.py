"""Plans: the steps of a staged program as prepared calls of native code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final, TypeAlias, assert_never

import numpy as np

from plica.runtime.error import Diagnostic, EvaluationError, InputError, Place
from plica.runtime.executable import Executable, address_of
from plica.runtime.open_executable import MAX_KNOWN_SIZES, OpenExecutable, Sized
from plica.runtime.port import Array, Port, checked_size, is_inner, spoken_dim
from plica.runtime.staged.native_run import Driver, NativeRun, has_loop, is_by_host, native_runs
from plica.runtime.staged.order import RUN
from plica.runtime.staged.plan_frame import PlanFrame, Sizes
from plica.runtime.staged.program import (
    ChooseBlock,
    HostCall,
    MeasureDim,
    RepeatBlock,
    RunSegment,
    Step,
    StepBlock,
    TakePrefix,
    all_steps,
    step_inputs,
    step_outputs,
)

MAX_SIZE: Final = 1 << 46  # no axis of an array is as long as this
_UNSET: Final = np.empty((0,), np.bool_)
"""The initial content of a register; also the buffer of a dim."""

_NOWHERE: Final = address_of(_UNSET)


Action: TypeAlias = Callable[[PlanFrame], None]
Failure: TypeAlias = InputError | EvaluationError


class Plan:
    """A prepared program; `told` maps a segment's errors to the whole program."""

    def __init__(
        self,
        program: StepBlock,
        inputs: Sequence[Port],
        segments: Sequence[Executable],
        told: Callable[[Failure, Sizes], Failure],
        driver: Driver | None = None,
    ) -> None:
        self._segments, self._told, self._driver = tuple(segments), told, driver
        steps = list(all_steps(program))
        self._shown = {*program.results}.union(*map(_moved, steps))
        written = Counter(
            [*range(len(inputs)), *[at for step in steps for at in step_outputs(step)]]
        )
        self._count = 1 + max(written, default=0)
        runs = [] if driver is None else native_runs(program)
        self._runs = {id(run[0]): run for run in runs}
        """Steps that native code is given together, by the first of them."""
        left = {id(all_step) for run in runs for all_step in all_steps(StepBlock(run, ()))}
        self._rooms = {
            register: port
            for step in steps
            if id(step) not in left
            if isinstance(step, RunSegment) and _is_plain(segments[step.segment])
            for register, port in zip(step.outputs, segments[step.segment].outputs, strict=True)
            if register not in self._shown and written[register] == 1
        }
        # Static properties of registers with one definition: calls need not check them.
        ports = dict(enumerate(inputs)) | {
            register: port
            for step in steps
            if isinstance(step, RunSegment)
            for register, port in zip(step.outputs, segments[step.segment].outputs, strict=True)
        }
        self._ports = {at: port for at, port in ports.items() if written[at] == 1}
        results = program.results
        self.fresh = len({*results}) == len(results) and all(
            at >= len(inputs) and at in self._ports for at in results
        )
        """Whether every result has unshared memory."""
        reads = Counter([*results, *[at for step in steps for at in step_inputs(step)]])
        self._reads = reads
        self._at_hand = {at for step in steps if not is_by_host(step) for at in step_inputs(step)}
        """Registers whose addresses native code receives."""
        self._taken = [at for at in range(len(inputs)) if at in self._at_hand]
        by_host = {at for step in steps if isinstance(step, HostCall) for at in step.outputs}
        self._cut = {
            step.input
            for step in steps
            if isinstance(step, TakePrefix) and step.input in by_host and reads[step.input] == 1
        }
        """Registers produced by the host of which only one prefix is read."""
        self._native: list[NativeRun] = []
        self._free: list[tuple[list[Array], list[int]]] = []
        self._actions = self._prepared(program)

    def run(self, inputs: Sequence[Array], sizes: Sizes) -> PlanFrame:
        """The registers after all steps; frames are acquired and released atomically."""
        try:
            kept = self._free.pop()
        except IndexError:
            kept = self._made()
        frame = PlanFrame(kept[0].copy(), kept[1].copy(), sizes)
        try:
            frame.arrays[: len(inputs)] = inputs
            for at in self._taken:
                frame.addresses[at] = address_of(inputs[at])
            for action in self._actions:
                action(frame)
        finally:
            self._free.append(kept)
        return frame

    @property
    def bytes(self) -> int:
        """The bytes of frames not in use."""
        frames = sum(array.nbytes for arrays, _ in tuple(self._free) for array in arrays)
        return frames + sum(each.bytes for each in self._native)

    def _made(self) -> tuple[list[Array], list[int]]:
        arrays = [_UNSET] * self._count
        for register, port in self._rooms.items():
            arrays[register] = port.empty()
        return arrays, [address_of(array) for array in arrays]

    def _prepared(self, block: StepBlock) -> tuple[Action, ...]:
        actions: list[Action] = []
        at = 0
        while at < len(block.steps):
            steps = self._runs.get(id(block.steps[at]), (block.steps[at],))
            at += len(steps)
            made = [self._action(step) for step in steps]
            actions += [self._native_run(steps, made)] if id(steps[0]) in self._runs else made
        return tuple(actions)

    def _native_run(self, steps: Sequence[Step], actions: Sequence[Action]) -> Action:
        """What runs some steps in native code; or one by one, those with loops in native code if
        that can be, all else by the host."""
        assert self._driver is not None
        if len(steps) > 1:
            actions = [
                self._native_run((step,), (action,)) if has_loop(step) else action
                for step, action in zip(steps, actions, strict=True)
            ]
        inner = [*all_steps(StepBlock(tuple(steps), ()))]
        outside = self._reads - Counter([at for step in inner for at in step_inputs(step)])
        written = dict.fromkeys(at for step in inner for at in step_outputs(step))
        wanted = [at for at in written if at in outside]
        run = NativeRun(steps, self._segments, self._count, self._driver, self._told, wanted)
        self._native.append(run)

        def by_host(frame: PlanFrame) -> None:
            for action in actions:
                action(frame)

        return run.over(by_host)

    def _action(self, step: Step) -> Action:
        match step:
            case RunSegment():
                return self._run_segment(step)
            case MeasureDim():
                return _measure(step)
            case ChooseBlock(condition, then, orelse, outputs):
                sides = (
                    (self._prepared(orelse), orelse.results),
                    (self._prepared(then), then.results),
                )

                def choose(frame: PlanFrame) -> None:
                    actions, results = sides[bool(frame.arrays[condition].item())]
                    for action in actions:
                        action(frame)
                    frame.move(results, outputs)

                return choose
            case RepeatBlock():
                return self._repeat(step)
            case HostCall():
                return self._host_call(step)
            case TakePrefix():
                return self._prefix(step)
            case _:
                assert_never(step)

    def _host_call(self, step: HostCall) -> Action:
        """The host operation; it computes only the part of each result that is read."""
        given, outputs = step.input, step.outputs
        wanted = tuple([at in self._reads for at in outputs])
        whole = tuple([at not in self._cut for at in outputs])
        host, named = RUN[step.name], {**dict(step.options), "wanted": wanted, "whole": whole}
        at_hand = [at in self._at_hand for at in outputs]

        def call(frame: PlanFrame) -> None:
            arrays = host(frame.arrays[given], **named)
            for at, array, told in zip(outputs, arrays, at_hand, strict=True):
                if told and array is not None:
                    frame.put(at, array)
                elif array is not None:
                    frame.arrays[at] = array

        return call

    def _prefix(self, step: TakePrefix) -> Action:
        """A prefix of an array in place; results that leave the program are copied."""
        given, dim, output, told = step.input, step.dim, step.output, self._told
        copies, at_hand = output in self._shown, output in self._at_hand
        alone = given in self._cut

        def prefix(frame: PlanFrame) -> None:
            part, size = frame.arrays[given], frame.sizes[dim]
            if size > len(part):
                raise told(_too_few(step), frame.sizes)
            if size < len(part):
                part = part[:size].copy() if copies else part[:size]
            elif copies and not alone:
                part = part.copy()
            frame.arrays[output] = part
            if at_hand:
                frame.addresses[output] = address_of(part)

        return prefix

    def _run_segment(self, step: RunSegment) -> Action:
        segment, told = self._segments[step.segment], self._told
        if _is_plain(segment):
            action = self._plain(segment, step)
        elif type(segment) is OpenExecutable and not (segment.specialises or segment.donated):
            action = self._open(segment, step)
        else:
            action = _called(segment, step)

        def run(frame: PlanFrame) -> None:
            try:
                action(frame)
            except (InputError, EvaluationError) as error:
                raise told(error, frame.sizes) from error

        return run

    def _plain(self, segment: Executable, step: RunSegment) -> Action:
        """A segment whose sizes are numbers."""
        checked = _called(segment, step)
        registers = [each for each in step.inputs if isinstance(each, int)]
        if len(registers) < len(step.inputs):
            return checked
        taken = [
            (at, port)
            for at, port in zip(registers, segment.inputs, strict=True)
            if not self._is_known(at, port) or self._ports[at].shape != port.shape
        ]
        outputs = [*zip(step.outputs, segment.outputs, strict=True)]
        fresh = [(at, port.placing()) for at, port in outputs if at not in self._rooms]
        picked = _picked((*registers, *step.outputs))

        def run(frame: PlanFrame) -> None:
            arrays, addresses = frame.arrays, frame.addresses
            for at, port in taken:
                if arrays[at].dtype is not port.numpy or arrays[at].shape != port.shape:
                    return checked(frame)
            for at, place in fresh:
                arrays[at], addresses[at] = place()
            segment.run(picked(addresses))

        return run

    def _open(self, segment: OpenExecutable, step: RunSegment) -> Action:
        """A segment for all sizes: input shapes determine output shapes."""
        checked = _called(segment, step)
        registers = [each for each in step.inputs if isinstance(each, int)]
        dims = [each for each in step.inputs if isinstance(each, str)]
        if step.inputs != (*registers, *dims):
            return checked
        ports = zip(registers, segment.inputs, strict=False)
        taken = [(at, port.numpy) for at, port in ports if not self._is_known(at, port)]
        witnesses, outputs, picked = (_NOWHERE,) * len(dims), step.outputs, _picked(registers)
        given = _picked(dims)
        fixed: list[tuple[Any, ...]] = [  # Any: int or str
            self._ports[at].shape if at in self._ports else ("",) for at in registers
        ]
        begin = None if any(isinstance(n, str) for each in fixed for n in each) else tuple(fixed)

        @lru_cache(maxsize=MAX_KNOWN_SIZES)
        def by_dims(*dims: int) -> Sized:
            return segment.sized((*(begin or ()), *[(size, 0) for size in dims]))

        def run(frame: PlanFrame) -> None:
            arrays, addresses, sizes = frame.arrays, frame.addresses, frame.sizes
            for at, dtype in taken:
                if arrays[at].dtype is not dtype:
                    return checked(frame)
            if begin is None:
                shapes = [arrays[at].shape for at in registers]
                sized = segment.sized((*shapes, *[(size, 0) for size in given(sizes)]))
            else:
                sized = by_dims(*given(sizes))
            table = [*picked(addresses), *witnesses]
            for at, place in zip(outputs, sized.placing, strict=True):
                arrays[at], addresses[at] = place()
                table.append(addresses[at])
            segment.run_sized(sized, table)

        return run

    def _is_known(self, register: int, port: Port) -> bool:
        """Whether a register always has the element type and rank of a port."""
        known = self._ports.get(register)
        if known is None or known.numpy is not port.numpy:
            return False
        return len(known.shape) == len(port.shape)

    def _repeat(self, step: RepeatBlock) -> Action:
        test, body, end = step.blocks
        tests, bodies, ends = map(self._prepared, step.blocks)
        (condition,) = test.results
        over = _written_over(step, self._segments)

        def by_host(frame: PlanFrame) -> None:
            frame.move(step.start, step.carried)
            for at in over:
                frame.put(at, frame.arrays[at].copy())
            while True:
                for action in tests:
                    action(frame)
                if not frame.arrays[condition].item():
                    break
                for action in bodies:
                    action(frame)
                frame.move(body.results, step.carried)

        def repeat(frame: PlanFrame) -> None:
            by_host(frame)
            for action in ends:
                action(frame)
            frame.move(end.results, step.outputs)

        return repeat


def _is_plain(segment: Executable) -> bool:
    """Whether a segment is a plain native function with static sizes."""
    return type(segment) is Executable and not segment.donated


def _written_over(step: RepeatBlock, segments: Sequence[Executable]) -> list[int]:
    """The carried values that the loop body overwrites: their memory must not be shared."""
    found: dict[int, None] = {}
    for all_step in all_steps(step.blocks[1]):
        if isinstance(all_step, RunSegment):
            inputs = [all_step.inputs[old] for old, _ in segments[all_step.segment].donated]
            carried = [at for at in inputs if isinstance(at, int) and at in step.carried]
            found |= dict.fromkeys(carried)
    return list(found)


def _called(segment: Executable, step: RunSegment) -> Action:
    """A segment of any kind, with arrays in and arrays out."""

    def run(frame: PlanFrame) -> None:
        given = [
            frame.arrays[of] if isinstance(of, int) else np.empty((frame.sizes[of], 0), np.bool_)
            for of in step.inputs
        ]
        made = segment(*given)
        for at, array in zip(
            step.outputs, made if isinstance(made, tuple) else (made,), strict=True
        ):
            frame.put(at, array)

    return run


def _picked(places: Sequence[Any]) -> Callable[[Any], tuple[Any, ...]]:
    """Selects the given positions or keys; Any: elements of any kind."""
    if len(places) > 1:
        return itemgetter(*places)
    if not places:
        return lambda of: ()
    (only,) = places
    return lambda of: (of[only],)


def _measure(step: MeasureDim) -> Action:
    dim, register, told = step.dim, step.register, step.told

    def measure(frame: PlanFrame) -> None:
        size = int(frame.arrays[register].item())
        if not 0 <= size < MAX_SIZE:
            checked_size(dim, size, told)
            raise _too_long(dim, size, told)
        frame.sizes[dim] = size

    return measure


def _moved(step: Step) -> tuple[int, ...]:
    """Registers whose memory a step hands on to others."""
    match step:
        case ChooseBlock(_, then, orelse, _):
            return (*then.results, *orelse.results)
        case RepeatBlock(start, _, (_, body, end), _):
            return (*start, *body.results, *end.results)
        case RunSegment() | MeasureDim() | HostCall() | TakePrefix():
            return ()
        case _:
            assert_never(step)


def _too_few(step: TakePrefix) -> InputError:
    """The error for fewer elements than a size requires, as for code without a value."""
    message = "Some operator has no value at these sizes."
    expected, hint = f"{step.whole} >= {step.dim}", f"Give other sizes for {step.dim}."
    return InputError(Diagnostic("input-shape", message, None, expected, None, hint))


def _too_long(dim: str, size: int, told: Sequence[str]) -> EvaluationError:
    inputs = ", ".join(map(repr, told)) or "no input"
    said = spoken_dim(dim) if is_inner(dim) else f"the dim {dim!r}"
    message = f"A size, {said}, which depends on {inputs}, is larger than any memory."
    place = None if is_inner(dim) else Place(node=dim)
    return EvaluationError(Diagnostic("no-memory", message, place, "less than 2**46", str(size)))
