"""Units: the text of a program in parts, which are compiled at once."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from functools import wraps

import pytest
from hypothesis import given, strategies as st

import plica
from plica.codegen.compilation import emitted, lowered
from plica.codegen.cuda.fold import WRITTEN_KERNELS, KernelCode, written
from plica.codegen.cuda.scheduled import for_threads
from plica.codegen.cuda.target import parse_gpu
from plica.codegen.cuda.toolchain import compiled, compiled_at_once, path_of
from plica.codegen.cuda.unit import (
    CODE_AHEAD,
    MIN_SEPARATE_CHARACTERS,
    PART,
    cubins,
    parts_of,
    sent,
    unit,
)
from plica.codegen.lower.group import made
from plica.codegen.memory_plan import OVERWRITABLE
from plica.codegen.operation_count import OPERATIONS
from plica.codegen.workers import GroupTask
from plica.ir.loop import invocation
from plica.ir.loop.invocation import intrinsics_of
from plica.ir.text.script import from_text
from plica.pipeline import contract_of, job_for, lower, pipeline_of
from plica.runtime.cuda.code import functions

needs_nvrtc = pytest.mark.skipif(path_of() is None, reason="NVRTC is not installed: plica[cuda]")

MODEL = """
from plica.script import Tensor, f32
from plica.op import nn
import plica

@plica.function
def main(x: Tensor[(16, 64), f32], w: Tensor[(64, 64), f32]) -> Tensor[(16, 64), f32]:
    return nn.softmax(nn.dense(nn.softmax(nn.dense(x, w), axis=-1), w), axis=-1)
"""


@needs_nvrtc
def test_parts_hold_every_function_once() -> None:
    program = lower(from_text(MODEL), contract_of(None), (), parse_gpu("cuda:sm_80")).program
    whole = unit(program)
    codes = [functions(each) for each in cubins(whole, "sm_80", fused=True)]
    found = [name for names in codes for name in names]
    assert len(found) == len(set(found))
    assert {each.function for each in whole.steps if hasattr(each, "function")} == set(found)


@given(st.lists(st.integers(1, 2 * PART)))
def test_parts_are_large_kernels_and_small_ones_together(sizes: list[int]) -> None:
    codes = [KernelCode(f"{at} ".ljust(size, "."), (), (), frozenset())
             for at, size in enumerate(sizes)]  # fmt: skip
    held: list[list[KernelCode]] = []

    def whole(some: Sequence[KernelCode]) -> str:
        held.append(list(some))
        return str(len(held))

    assert len(set(parts_of(codes, whole))) == len(held)
    order = {each.functions: at for at, each in enumerate(codes)}
    every = [order[each.functions] for some in held for each in some]
    assert sorted(every) == sorted(order.values())
    small = [some for some in held if len(some[0].functions) < MIN_SEPARATE_CHARACTERS]
    assert all(len(some) == 1 for some in held if some not in small)
    assert all(sum(len(each.functions) for each in some) >= PART for some in small[:-1])
    assert all(len(each.functions) < MIN_SEPARATE_CHARACTERS for some in small for each in some)


@needs_nvrtc
def test_at_once_is_as_one_by_one() -> None:
    texts = [f'extern "C" __global__ void f{n}(float* y) {{ y[{n}] = {n}; }}' for n in range(3)]
    at_once = compiled_at_once(texts, "sm_80")
    assert [functions(each.code) for each in at_once] == [frozenset({f"f{n}"}) for n in range(3)]
    assert [each.code for each in at_once] == [compiled(each, "sm_80").code for each in texts]


class Others:
    """Processes that do all there is to do: here, but what they answer is bytes."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def expect(self, operators: int) -> None:
        """Nothing is to be prepared."""

    def unneeded(self) -> None:
        """Nothing was prepared."""

    def serves(self, count: int) -> bool:
        return count > 0

    def share(
        self,
        tasks: Sequence[GroupTask],
        here: Callable[[int], bytes | None],
        there: Callable[[int, bytes], None],
    ) -> None:
        for number, task in enumerate(tasks):
            there(number, task.work(*task.args))
            self.done.append(task.work.__name__)


def test_kernels_of_other_processes_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = plica.compile(from_text(MODEL), target="cuda-emulator", cache=False)
    others = Others()
    monkeypatch.setattr("plica.pipeline.compiled.workers", lambda: others)
    for_threads.cache_clear()
    shared = plica.compile(from_text(MODEL), target="cuda-emulator", cache=False)
    assert shared.artefact.text == alone.artefact.text
    assert set(others.done) == {"made"}


def test_a_kernel_is_sent_as_it_is_written() -> None:
    program = lower(from_text(MODEL), contract_of(None), (), parse_gpu("cuda:sm_80")).program
    for kernel in program.kernels:
        assert pickle.loads(sent(kernel, intrinsics_of(kernel))) == written(kernel)
    others = Others()
    WRITTEN_KERNELS.clear()
    whole = unit(program, workers=others)
    assert others.done == ["sent"] * len(program.kernels)
    assert whole == unit(program)


def test_who_did_not_make_a_kernel_knows_what_it_invokes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel whose lowering declared intrinsics comes from the store, or goes to a process."""
    alone = plica.compile(from_text(MODEL), target="cuda-emulator", cache=False)
    others, known = Others(), invocation._TABLE
    less = {name: each for name, each in known.items() if not name.startswith("cuda.lanes_")}
    monkeypatch.setattr(invocation, "_TABLE", less)
    monkeypatch.setattr("plica.pipeline.compiled.workers", lambda: others)

    def elsewhere(work: Callable[..., bytes], table: object) -> Callable[..., bytes]:
        def done(*args: object) -> bytes:
            with monkeypatch.context() as there:
                there.setattr(invocation, "_TABLE", table)
                data = work(*args)
            if work is made:
                WRITTEN_KERNELS.clear()  # which a process has for itself, too
            return data

        return wraps(work)(done)

    monkeypatch.setattr("plica.codegen.lower.group.made", elsewhere(made, known))
    monkeypatch.setattr("plica.codegen.cuda.unit.sent", elsewhere(sent, dict(less)))
    for_threads.cache_clear()
    shared = plica.compile(from_text(MODEL), target="cuda-emulator", cache=False)
    assert set(others.done) == {"made", "sent"}
    assert "lanes_" in alone.artefact.text
    assert shared.artefact.text == alone.artefact.text


@needs_nvrtc
def test_code_that_other_processes_make_is_the_same() -> None:
    program = lower(from_text(MODEL), contract_of(None), (), parse_gpu("cuda:sm_80")).program
    whole, others = unit(program), Others()
    codes = cubins(whole, "sm_80", fused=True, workers=others)
    assert codes == cubins(whole, "sm_80", fused=True)
    assert len(others.done) == len(whole.parts)


class Following(Others):
    """Processes that also do what follows."""

    def share(
        self,
        tasks: Sequence[GroupTask],
        here: Callable[[int], bytes | None],
        there: Callable[[int, bytes], None],
    ) -> None:
        for number, task in enumerate(tasks):
            data = here(number) if number % 2 else task.work(*task.args)
            if number % 2 == 0:
                assert data is not None
                there(number, data)
            if task.then is not None and data is not None:
                after = task.then(data)
                after.tell(after.task.work(*after.task.args))
                self.done.append(after.task.work.__name__)


@needs_nvrtc
def test_code_that_is_made_ahead_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plica.codegen.cuda.unit.MIN_SEPARATE_CHARACTERS", 100)
    target, contract = parse_gpu("cuda:sm_80"), contract_of(None)
    pipeline, module = pipeline_of("cuda"), from_text(MODEL)

    def parts(workers: Others | None) -> tuple[object, ...]:
        for_threads.cache_clear()
        WRITTEN_KERNELS.clear()
        OPERATIONS.clear()
        OVERWRITABLE.clear()
        job = job_for(target, contract, workers=workers)
        of = lowered(pipeline, module, job)
        assert (len(CODE_AHEAD) > 0) == (workers is not None)
        found = emitted(pipeline, of, job)
        return found.objects, found.launches, found.plan, found.device, found.text

    others = Following()
    assert parts(others) == parts(None)
    assert others.done[0] == "code_of"
    assert not len(CODE_AHEAD)  # all of it was asked for
