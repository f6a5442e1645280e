"""Judges of `gpu_fuzz.py`: a random kernel, model or layer on a GPU, and what is wrong with it."""

from __future__ import annotations

import ctypes
import os
import pickle
import time
import traceback
import warnings
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal

import attrs
import numpy as np

import plica
from plica.codegen.cuda.fuzz import BY_STEPS, KINDS, REFUSED, CudaCase, built, case, differs, on_gpu
from plica.frontend.onnx.fuzz.case import ModelCase, random_case
from plica.frontend.onnx.fuzz.peer import by_reference
from plica.frontend.onnx.fuzz.run import interpreted
from plica.ir.interpret.value import Array
from plica.rewrite.fuzz.judge import CRASHES
from plica.runtime.cuda.driver import device
from plica.runtime.emulator.gpu import launch, loaded, tile_words
from plica.runtime.error import PlicaError, UnsupportedError

PARTS: Final = ("kernels", "onnx", "torch", "layers")

TOLERANCE: Final = {"float16": 2e-2, "float32": 1e-3, "float64": 1e-3}
"""Of the largest number of a result, as `plica fuzz onnx` has it."""

FINITE: Final = 0x4B
"""Bytes of a number that no maximum swallows, for what nobody has written yet."""

FAULT: Final = "device-fault"
"""After one of those the GPU does nothing more for a process."""

Say = Callable[[str], None]
Outcome = Literal["right", "rounded", "refused", "skipped", "wrong"]


@attrs.frozen
class Asked:
    """What is tried, and where."""

    seed: int
    target: str
    cases: Path | None = None
    largest: int = 1 << 18
    """Elements of a layer's tensor, at most."""
    watched: bool = False
    """Whether a sanitizer watches this process."""


@attrs.define
class Verdict:
    """What came of a case, and how long its steps took."""

    part: str
    number: int
    kind: str = ""
    outcome: Outcome = "right"
    why: str = ""
    seconds: dict[str, float] = attrs.Factory(dict)

    def is_fault(self) -> bool:
        return self.outcome == "wrong" and FAULT in self.why

    @contextmanager
    def timed(self, word: str) -> Iterator[None]:
        begin = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[word] = self.seconds.get(word, 0.0) + time.perf_counter() - begin


def judged(part: str, number: int, asked: Asked, say: Say) -> Verdict:
    """The verdict on a case; `say` hears of what is wrong before anything is made smaller."""
    os.environ["PLICA_JOBS"] = "1"  # others have the other cores
    verdict = Verdict(part, number)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            JUDGES[part](verdict, asked, say)
        except UnsupportedError as error:
            verdict.outcome, verdict.why = "refused", error.diagnostics[0].message
        except CRASHES as error:
            verdict.outcome, verdict.why = "wrong", told(error)
    return verdict


def told(error: BaseException) -> str:
    """An exception and its place."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    said = " ".join(str(error).split())[:1500]
    return f"{type(error).__name__}: {said} ({Path(last.filename).name}, {last.name})"


def kernel(verdict: Verdict, asked: Asked, say: Say) -> None:
    """A kernel with a random schedule; one that has no case is left out."""
    verdict.kind = KINDS[verdict.number % len(KINDS)]
    with verdict.timed("draw"):
        drawn = case(asked.seed, verdict.number)
    if isinstance(drawn, str):
        # What random steps ask for may be refused; what a default asks for may not.
        is_default = verdict.kind not in BY_STEPS and drawn.startswith(REFUSED)
        verdict.outcome, verdict.why = "wrong" if is_default else "skipped", drawn
        return
    try:
        found = _emulated(drawn) if asked.target != "cuda" else _run(drawn, verdict, asked)
    except PlicaError as error:  # what was drawn must be compiled and launched
        found = told(error)
    if wrong := found if isinstance(found, str) else differs(drawn, found):
        verdict.outcome = "wrong"
        verdict.why = f"{wrong}\n{drawn.kernel}\n{drawn.trace}"


def _run(drawn: CudaCase, verdict: Verdict, asked: Asked) -> Sequence[Array] | str:
    gpu = device()
    with verdict.timed("nvrtc"):
        cubin = built(drawn, gpu.architecture)
    with verdict.timed("run"):
        return on_gpu(gpu, drawn, cubin, watched=asked.watched)


def _emulated(drawn: CudaCase) -> list[Array]:
    code = drawn.code
    functions = loaded(code.text, [each.function for each in code.launches], watched=True)
    given = [np.ascontiguousarray(each) for each in drawn.inputs]
    results = [_poisoned(each) for each in drawn.expected]
    scratch = [np.full(size, FINITE, np.uint8) for size in code.scratch]
    memory = [*given, *results, *scratch]
    addresses = [each.ctypes.data for each in memory]
    for each in code.launches:
        maps = [tile_words(one, addresses[one.argument]) for one in each.maps]
        launch(functions, each, [*addresses, *[ctypes.addressof(one) for one in maps]], memory)
    return results


def _poisoned(like: Array) -> Array:
    room = np.full(like.nbytes, FINITE, np.uint8)
    return room.view(like.dtype).reshape(like.shape)


def _drawn(cases: Path | None, place: int) -> ModelCase | None:
    """A model, or None beyond the last of a file."""
    if cases is None:
        return random_case(place)
    with zipfile.ZipFile(cases) as kept:
        return pickle.loads(kept.read(str(place))) if str(place) in kept.namelist() else None


def place_of(seed: int, number: int) -> int:
    """The number by which `plica fuzz onnx` knows a model."""
    return seed * 1_000_003 + number


def onnx(verdict: Verdict, asked: Asked, say: Say) -> None:
    """An ONNX model: what the interpreter gives, or else what onnx's reference does."""
    with verdict.timed("draw"):
        drawn = _drawn(asked.cases, place_of(asked.seed, verdict.number))
    if drawn is None:
        verdict.outcome, verdict.why = "skipped", "it is not in the file"
        return
    verdict.kind = " ".join(drawn.operators)
    with verdict.timed("interpreter"):
        meant = interpreted(drawn.model)
    with verdict.timed("compile"):
        exe: Any = plica.compile(drawn.model, target=asked.target, cache=False)
    for given in drawn.given:
        with verdict.timed("run"):
            mine = _several(exe(**given))
        with verdict.timed("interpreter"):
            theirs = _several(meant(**given))
        if not (wrong := _apart(mine, theirs)):
            continue
        if not _is_rounding(drawn, given, mine, theirs, meant):
            verdict.outcome, verdict.why = "wrong", wrong
            return
        verdict.outcome = "rounded"


def _is_rounding(
    drawn: ModelCase, given: Any, mine: list[Any], theirs: list[Any], meant: Callable[..., Any]
) -> bool:
    """Whether onnx's own reference says the same, or inputs a bit away change as much."""
    other = by_reference(drawn.model, given)
    random = np.random.default_rng(0)
    moved = {
        name: (each * (1 + 1e-6 * random.normal(size=each.shape))).astype(each.dtype)
        if each.dtype.kind == "f" else each
        for name, each in given.items()
    }  # fmt: skip
    is_reference = other is not None and not _apart(mine, other)
    return is_reference or bool(_apart(_several(meant(**moved)), theirs))


def _several(of: Any) -> list[Any]:
    return [np.asarray(each) for each in (of if isinstance(of, tuple | list) else (of,))]


def _apart(mine: Sequence[Any], others: Sequence[Any]) -> str:
    """Where results differ by more than rounding, or nothing."""
    for at, (one, two) in enumerate(zip(mine, others, strict=True)):
        if (one.dtype, one.shape) != (two.dtype, two.shape):
            return f"result {at}: {one.dtype} {one.shape} for {two.dtype} {two.shape}"
        if one.dtype.kind != "f":
            if (one != two).any():
                return f"result {at}: {int((one != two).sum())} of {one.size} elements differ"
            continue
        a, b = one.astype(np.float64), two.astype(np.float64)
        finite = np.isfinite(b)
        if not np.array_equal(finite, np.isfinite(a)):
            return f"result {at}: not the same elements are finite"
        scale = float(np.abs(b[finite]).max(initial=0.0))
        far = float(np.abs(a[finite] - b[finite]).max(initial=0.0))
        if far > TOLERANCE.get(one.dtype.name, 1e-3) * scale + 1e-5:
            return f"result {at}: {far:.3g} apart where the largest number is {scale:.3g}"
    return ""


def torch(verdict: Verdict, asked: Asked, say: Say) -> None:
    """A program of torch, exported and compiled."""
    from torch import set_num_threads

    from plica.frontend.torch.fuzz.case import TorchCase, torch_case
    from plica.frontend.torch.fuzz.open_result import eager, is_open
    from plica.frontend.torch.fuzz.run import as_pytest, judged as compared
    from plica.rewrite.fuzz.driver import Tally, least

    set_num_threads(1)

    def way(module: Any) -> Callable[..., Any]:
        with verdict.timed("compile"):
            made: Callable[..., Any] = plica.compile(module, target=asked.target, cache=False)
        return made

    def is_wrong(each: TorchCase) -> bool:
        return eager(each) is not None and compared(each, way) is not None and not is_open(each)

    with verdict.timed("draw"):
        drawn = torch_case(asked.seed, verdict.number)
    verdict.kind = " ".join(call.path for call, _ in drawn.calls)
    tally = Tally()
    with verdict.timed("export and run"):
        reason = compared(drawn, way, tally)
    if tally["refused"]:
        verdict.outcome, verdict.why = "refused", min(tally["refused"])
    if reason is None:
        return
    if is_open(drawn):
        verdict.outcome = "rounded"
        return
    say(f"{reason}\n{as_pytest(drawn, asked.target, reason)}")
    small = drawn if FAULT in reason else least(drawn, TorchCase.smaller, is_wrong, 60)
    reason = compared(small, way) or reason
    verdict.outcome, verdict.why = "wrong", f"{reason}\n{as_pytest(small, asked.target, reason)}"


def layers(verdict: Verdict, asked: Asked, say: Say) -> None:
    """A layer or a few of torch, some at several sizes, beside torch in float64."""
    from benchmarks.gpu_layer_check import compared
    from benchmarks.gpu_layers import layer_of

    with verdict.timed("draw"):
        drawn = layer_of(asked.seed, verdict.number, asked.largest)
    verdict.kind = drawn.name
    outcome = compared(drawn, asked.target, verdict.timed)
    if outcome.refused or outcome.wrong:
        verdict.outcome = "refused" if outcome.refused else "wrong"
        verdict.why = outcome.refused or outcome.wrong


JUDGES: Final[dict[str, Callable[[Verdict, Asked, Say], None]]] = {
    "kernels": kernel, "onnx": onnx, "torch": torch, "layers": layers,
}  # fmt: skip
