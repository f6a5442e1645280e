"""Random kernels and whole models on a GPU, held to the interpreter, onnx's reference and torch.

    python benchmarks/gpu_fuzz.py [kernels] [onnx] [torch] [--kernels 300] [--models 100] [--seed 0]
        [--jobs N] [--seconds 480] [--json FILE] [--target cuda] [--cases FILE]
    python benchmarks/gpu_fuzz.py --draw FILE [--models 500] [--seed 0]
    python benchmarks/gpu_fuzz.py --merge FILE …       one report of several parts

Cases are shared out among as many processes as there are cores; each draws, compiles and runs its
own on the one GPU, kernels into poisoned memory.  Kernels have random schedules (`plica.codegen.
cuda.fuzz`); models are those of `plica fuzz onnx` and `plica fuzz torch`, half of each.  Models of
ONNX are drawn with onnxruntime: where that is not, they come from a file of another machine
(`--draw` there, `--cases` here).  What has not begun after so many seconds is left out and counted.
The exit code is 1 where one is wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import sys
import time
import traceback
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

import attrs
import numpy as np

import plica
from plica.codegen.cuda.fuzz import TRIES, built, on_gpu, report, safely
from plica.frontend.onnx.fuzz.case import ModelCase, random_case
from plica.frontend.onnx.fuzz.peer import by_reference
from plica.runtime.cuda.driver import device
from plica.runtime.error import UnsupportedError
from plica.runtime.host import cores
from plica.schedule.fuzz import CRASHES

PARTS: Final = ("kernels", "onnx", "torch")
CHUNK: Final = {"kernels": 25, "onnx": 5, "torch": 5}
"""Cases that a process takes at a time."""

TOLERANCE: Final = {"float16": 2e-2, "float32": 1e-3, "float64": 1e-3}
"""Of the largest number of a result, as `plica fuzz onnx` has it."""

FAULT: Final = "device-fault"
"""After one of those the GPU does nothing more for a process."""

Judge = Callable[[int, int, str, "Path | None"], "FuzzCount"]


@attrs.define
class FuzzCount:
    """What was tried, what was not run and why, what differs by rounding alone, what is wrong."""

    ran: int = 0
    rounded: int = 0
    kinds: Counter[str] = attrs.Factory(Counter)
    skipped: Counter[str] = attrs.Factory(Counter)
    findings: list[str] = attrs.Factory(list)

    def add(self, other: FuzzCount) -> None:
        self.ran += other.ran
        self.rounded += other.rounded
        self.kinds.update(other.kinds)
        self.skipped.update(other.skipped)
        self.findings += other.findings


def kernels(seed: int, chunk: int, target: str, cases: Path | None) -> FuzzCount:
    """Kernels with random schedules; numbers of chunks do not meet."""
    many, gpu = CHUNK["kernels"], device()
    first = chunk * TRIES * (many + 1)
    done = report(
        lambda number: safely(seed, first + number),
        many,
        seed,
        lambda of: on_gpu(gpu, of, built(of, gpu.architecture)),
    )
    failed = [each for each in done.skipped if each.startswith("making it fails")]
    wrong = [*done.findings, *failed]
    return FuzzCount(done.examples, 0, Counter(done.kinds), Counter(done.skipped), wrong)


def _drawn(cases: Path | None, place: int) -> ModelCase | None:
    """A model, or None beyond the last of a file."""
    if cases is None:
        return random_case(place)
    with zipfile.ZipFile(cases) as kept:
        return pickle.loads(kept.read(str(place))) if str(place) in kept.namelist() else None


def drawn(place: int) -> bytes:
    """A model as a file keeps it."""
    return pickle.dumps(random_case(place))


def onnx(seed: int, chunk: int, target: str, cases: Path | None) -> FuzzCount:
    """ONNX models: what the interpreter gives, or else what onnx's reference does."""
    from plica.frontend.onnx.fuzz.run import interpreted

    found = FuzzCount()
    for number in range(chunk * CHUNK["onnx"], (chunk + 1) * CHUNK["onnx"]):
        place = seed * 1_000_003 + number
        case = _drawn(cases, place)
        if case is None:
            continue
        try:
            meant = interpreted(case.model)
            exe: Any = plica.compile(case.model, target=target, cache=False)
            wrong = _model_differs(case, exe, meant, found)
        except UnsupportedError as error:
            found.skipped[f"refused: {error.diagnostics[0].message}"] += 1
            continue
        except CRASHES as error:
            wrong = _told(error)
        found.ran += 1
        found.kinds["models of ONNX"] += 1
        if wrong:
            found.findings.append(f"onnx {place} ({' '.join(case.operators)}): {wrong}")
            if FAULT in wrong:
                break
    return found


def _model_differs(
    case: ModelCase, exe: Callable[..., Any], meant: Callable[..., Any], found: FuzzCount
) -> str:
    """What is wrong with a model, or nothing; where its own rounding may grow, nothing is."""
    for given in case.given:
        mine, theirs = _several(exe(**given)), _several(meant(**given))
        if not (wrong := _apart(mine, theirs)):
            continue
        other = by_reference(case.model, given)
        random = np.random.default_rng(0)
        moved = {
            name: (each * (1 + 1e-6 * random.normal(size=each.shape))).astype(each.dtype)
            if each.dtype.kind == "f" else each
            for name, each in given.items()
        }  # fmt: skip
        if (other is not None and not _apart(mine, other)) or _apart(
            _several(meant(**moved)), theirs
        ):
            found.rounded += 1
            continue
        return wrong
    return ""


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


def torch(seed: int, chunk: int, target: str, cases: Path | None) -> FuzzCount:
    """Programs of torch, exported and compiled."""
    from plica.frontend.torch.fuzz.run import fuzz

    def way(module: Any) -> Callable[..., Any]:
        made: Callable[..., Any] = plica.compile(module, target=target, cache=False)
        return made

    found, many = FuzzCount(), CHUNK["torch"]
    number, end = chunk * many, (chunk + 1) * many
    while number < end:
        done = fuzz({target: way}, end - number, seed, first=number)
        number += done.examples
        found.ran += done.examples
        found.rounded += done.rounded
        found.kinds["programs of torch"] += done.examples
        found.skipped.update({f"refused: {why}": n for why, n in done.refused.items()})
        if done.finding is not None:
            each = done.finding
            found.findings.append(f"torch {each.case} ({' '.join(each.calls)}): {each.reason}")
            if FAULT in each.reason:
                break
    return found


JUDGES: Final[dict[str, Judge]] = {"kernels": kernels, "onnx": onnx, "torch": torch}


def judged(part: str, seed: int, chunk: int, target: str, cases: Path | None) -> FuzzCount:
    """A chunk of cases in a process of its own."""
    os.environ["PLICA_JOBS"] = "1"  # others have the other cores
    if part == "torch":
        from torch import set_num_threads

        set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return JUDGES[part](seed, chunk, target, cases)
        except CRASHES as error:
            return FuzzCount(findings=[f"{part} chunk {chunk}: {_told(error)}"])


def _told(error: BaseException) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1]
    said = " ".join(str(error).split())[:400]
    return f"{type(error).__name__}: {said} ({Path(last.filename).name}, {last.name})"


def told(of: FuzzCount, left_out: int) -> int:
    """Print a report; 1 where something is wrong."""
    print(
        f"{of.ran} cases: {dict(sorted(of.kinds.items()))}; {of.rounded} differ by rounding alone"
    )
    for reason, times in of.skipped.most_common():
        print(f"not run: {reason} ({times})")
    if left_out:
        print(f"no time for {left_out} cases")
    for each in of.findings:
        print(f"WRONG: {each}")
    print(f"{len(of.findings)} are wrong" if of.findings else "none is wrong")
    return 1 if of.findings else 0


def merged(paths: Sequence[Path]) -> int:
    """One report of several parts."""
    whole, left_out = FuzzCount(), 0
    for path in paths:
        data = json.loads(path.read_text())
        left_out += data.pop("left out")
        data |= {word: Counter(data[word]) for word in ("kinds", "skipped")}
        whole.add(FuzzCount(**data))
    return told(whole, left_out)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)} (all)")
    parser.add_argument("--kernels", type=int, default=300)
    parser.add_argument("--models", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=cores())
    parser.add_argument("--seconds", type=float, default=480.0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--target", default="cuda")
    parser.add_argument("--cases", type=Path)
    parser.add_argument("--draw", type=Path)
    parser.add_argument("--merge", type=Path, nargs="+")
    asked = parser.parse_args()
    if unknown := {*asked.parts} - {*PARTS}:
        parser.error(f"There is no part {min(unknown)!r}: {', '.join(PARTS)}.")
    if asked.merge:
        return merged(asked.merge)
    begin = time.perf_counter()
    if asked.draw:
        places = range(asked.seed * 1_000_003, asked.seed * 1_000_003 + asked.models // 2)
        with (
            zipfile.ZipFile(asked.draw, "w", zipfile.ZIP_DEFLATED) as kept,
            ProcessPoolExecutor(asked.jobs, get_context("spawn")) as pool,
        ):
            for place, data in zip(places, pool.map(drawn, places, chunksize=5), strict=True):
                kept.writestr(str(place), data)
        print(f"{len(places)} models, {time.perf_counter() - begin:.0f} s")
        return 0
    wanted = {"kernels": asked.kernels, "onnx": asked.models // 2, "torch": -(-asked.models // 2)}
    chunks = [
        (part, chunk)
        for part in PARTS
        if part in (asked.parts or PARTS)
        for chunk in range(-(-wanted[part] // CHUNK[part]))
    ]
    whole, missing = FuzzCount(), dict.fromkeys(chunks)
    pool = ProcessPoolExecutor(asked.jobs, get_context("spawn"))
    pending: dict[Future[FuzzCount], tuple[str, int]] = {
        pool.submit(judged, part, asked.seed, chunk, asked.target, asked.cases): (part, chunk)
        for part, chunk in chunks
    }
    try:
        for each in as_completed(pending, asked.seconds - (time.perf_counter() - begin)):
            whole.add(each.result())
            missing.pop(pending[each])
    except TimeoutError:
        pass
    left_out = sum(CHUNK[part] for part, _ in missing)
    own = list((pool._processes or {}).values())
    pool.shutdown(wait=False, cancel_futures=True)
    print(f"seed {asked.seed}, {asked.jobs} processes, {time.perf_counter() - begin:.0f} s")
    if asked.json:
        data = attrs.asdict(whole) | {"left out": left_out}
        asked.json.write_text(json.dumps(data, indent=1))
    code = told(whole, left_out)
    sys.stdout.flush()
    for process in own if missing else ():
        process.terminate()  # what is being tried counts no more
    return code


if __name__ == "__main__":
    sys.exit(main())
