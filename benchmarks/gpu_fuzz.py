"""Random kernels and whole models on a GPU, held to the interpreter, onnx's reference and torch.

    python benchmarks/gpu_fuzz.py [kernels] [onnx] [torch] [layers] [--kernels 300] [--models 100]
        [--layers 100] [--seed 0] [--part K/N] [--jobs N] [--seconds 480] [--json FILE]
        [--target cuda] [--cases FILE]
    python benchmarks/gpu_fuzz.py --only kernels/17 --seed 0         one case again
    python benchmarks/gpu_fuzz.py --draw FILE [--models 500] [--seed 0]
    python benchmarks/gpu_fuzz.py --merge FILE …       one report of several parts
    python benchmarks/gpu_fuzz.py --sanitizer memcheck racecheck initcheck [--kernels 200]
        [--seed 0] [--part K/N] [--seconds 480]        kernels under compute-sanitizer

Cases are handed out one by one to as many processes as there are cores, all parts at the same pace;
each draws, compiles and runs its own on the one GPU, kernels into poisoned memory.  Kernels have
random schedules (`plica.codegen.cuda.fuzz`); models are those of `plica fuzz onnx` and `plica fuzz
torch`, half of each; layers are those of `gpu_layers.py`.  Where a process dies, faults or takes
too long, that is a finding, and another takes its place.

Every verdict is a line of the JSON file as soon as it is known, and what is wrong is printed at
once with all it takes to see it again: whatever ends a run, nothing is lost.  A part `K/N` has
cases of its own.  Models of ONNX are drawn with onnxruntime: where that is not, they come from a
file of another machine (`--draw` there, `--cases` here).  With `--target cuda-emulator` all but
the GPU's own compiler and arithmetic is tried on any machine.  The exit code is 1 where one is
wrong.

With `--sanitizer` each tool watches one process that runs the kernels of a part one after another,
into memory of just their sizes that nobody has written; what it reports is counted, and laid to the
kernel that ran.  Where there is no compute-sanitizer this says so, and the exit code is 2.  A part
has the same kernels for each tool: give parts of some 25 kernels, and each again where it is late.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
import time
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Final

import attrs

from benchmarks.gpu_fuzz_judge import PARTS, Asked, Verdict, judged, place_of
from plica.frontend.onnx.fuzz.case import random_case
from plica.runtime.host import cores

CASE_SECONDS: Final = 150.0
"""So long a case may take by the clock before its process is ended."""

BLOCK: Final = 30
"""Numbers of kernels that go to one part: of every kind as many."""

MADE: Final = 3
"""Kernels that are drawn for each that can run, at most."""


@attrs.define(eq=False)
class Worker:
    """A process, what it does, and since when."""

    process: BaseProcess
    channel: Connection
    case: tuple[str, int] | None = None
    since: float = 0.0

    def give(self, case: tuple[str, int] | None) -> None:
        self.case, self.since = case, time.monotonic()
        self.channel.send(case)


def work(channel: Connection, asked: Asked) -> None:
    """Judge cases until there are no more, or until the GPU has failed."""
    while (case := channel.recv()) is not None:
        part, number = case
        verdict = judged(part, number, asked, lambda why: channel.send(("early", why)))
        channel.send(("verdict", verdict))
        if verdict.is_fault():
            return


def worker(context: Any, asked: Asked) -> Worker:  # Any: the stubs have no word for contexts
    ours, theirs = context.Pipe()
    process = context.Process(target=work, args=(theirs, asked), daemon=True)
    process.start()
    theirs.close()
    return Worker(process, ours)


@attrs.define
class Plan:
    """Which cases come next: all parts at the same pace; kernels until enough of them ran."""

    wanted: dict[str, int]
    part: int = 0
    parts: int = 1
    done: Counter[str] = attrs.Factory(Counter)
    under_way: Counter[str] = attrs.Factory(Counter)
    given: Counter[str] = attrs.Factory(Counter)

    def next(self) -> tuple[str, int] | None:
        open_ = [each for each, many in self.wanted.items() if self._left(each, many) > 0]
        if not open_:
            return None
        name = min(open_, key=lambda each: self.given[each] / self.wanted[each])
        at = self.given[name]
        self.given[name] += 1
        self.under_way[name] += 1
        block, place = divmod(at, BLOCK)
        return name, (block * self.parts + self.part) * BLOCK + place

    def _left(self, name: str, many: int) -> int:
        if self.given[name] >= MADE * many:
            return 0
        return many - self.done[name] - self.under_way[name]

    def over(self, verdict: Verdict) -> None:
        self.under_way[verdict.part] -= 1
        self.done[verdict.part] += verdict.outcome != "skipped"

    def missing(self) -> int:
        return sum(max(0, many - self.done[name]) for name, many in self.wanted.items())


def verdicts(plan: Plan, asked: Asked, jobs: int, end: float) -> Iterator[Verdict]:
    """Verdicts as they come, until the end of a plan or of the time."""
    context = get_context("forkserver")
    context.set_forkserver_preload(_preloaded(plan))
    working = [worker(context, asked) for _ in range(jobs)]
    for each in working:
        _next(plan, each)
    try:
        while any(each.case for each in working) and time.monotonic() < end:
            ready = wait([each.channel for each in working if each.case], timeout=1.0)
            for place, each in enumerate(working):
                if each.case is None:
                    continue
                verdict = _heard(each) if each.channel in ready else _late(each)
                if verdict is None:
                    continue
                plan.over(verdict)
                yield verdict
                if not each.process.is_alive() or verdict.is_fault():
                    working[place] = each = worker(context, asked)
                _next(plan, each)
    finally:
        for each in working:
            each.process.kill()  # what is being tried counts no more


def _preloaded(plan: Plan) -> list[str]:
    heavy = ["torch.export", "torch._dynamo", "plica.frontend.torch.fuzz.run"]
    is_torch = {*plan.wanted} & {"torch", "layers"}
    return ["benchmarks.gpu_fuzz_judge", *(heavy if is_torch else ())]


def _next(plan: Plan, of: Worker) -> None:
    of.give(plan.next())


def _heard(of: Worker) -> Verdict | None:
    assert of.case is not None
    try:
        word, what = of.channel.recv()
    except (EOFError, ConnectionResetError):
        of.process.join()
        return Verdict(*of.case, "", "wrong", f"the process died ({of.process.exitcode})")
    if word == "early":
        print(f"WRONG, and being made smaller: {of.case}: {what}", flush=True)
        return None
    assert isinstance(what, Verdict)
    return what


def _late(of: Worker) -> Verdict | None:
    assert of.case is not None
    if time.monotonic() - of.since < CASE_SECONDS:
        return None
    of.process.kill()
    of.process.join()
    return Verdict(*of.case, "", "wrong", f"it takes more than {CASE_SECONDS:.0f} seconds")


def again(of: Verdict, asked: Asked) -> str:
    """The command that tries a case again."""
    more = f" --largest {asked.largest}" if of.part == "layers" else ""
    return (
        f"python benchmarks/gpu_fuzz.py --only {of.part}/{of.number} --seed {asked.seed} "
        f"--target {asked.target}{more}"
    )


def shown(of: Verdict, asked: Asked) -> None:
    print(f"WRONG: {of.part} {of.number} ({of.kind}): {of.why}\n  {again(of, asked)}", flush=True)


def summed(of: Sequence[Verdict], missing: int) -> int:
    """Print a report; 1 where something is wrong."""
    by = Counter((each.part, each.outcome) for each in of)
    seconds: Counter[str] = Counter()
    for each in of:
        seconds.update({f"{each.part} {word}": spent for word, spent in each.seconds.items()})
    for part in PARTS:
        count = {outcome: many for (name, outcome), many in sorted(by.items()) if name == part}
        if count:
            ran = sum(many for outcome, many in count.items() if outcome != "skipped")
            print(f"{ran} {part}: {', '.join(f'{many} {word}' for word, many in count.items())}")
    kinds = Counter(each.kind for each in of if each.part == "kernels" and each.kind)
    if kinds:
        print(f"kinds of kernels: {dict(sorted(kinds.items()))}")
    reasons = Counter(
        (each.part, each.why) for each in of if each.outcome in ("refused", "skipped")
    )
    for (part, why), many in reasons.most_common():
        print(f"not run, {part}: {why} ({many})")
    print("seconds:", ", ".join(f"{word} {spent:.0f}" for word, spent in seconds.most_common()))
    if missing:
        print(f"no time for {missing} cases")
    wrong = sum(each.outcome == "wrong" for each in of)
    print(f"{wrong} are wrong" if wrong else "none is wrong")
    return 1 if wrong else 0


def merged(paths: Sequence[Path]) -> int:
    """One report of several parts, whether or not they came to their end."""
    found: list[Verdict] = []
    wanted = 0
    for path in paths:
        for line in path.read_text().splitlines():
            data = json.loads(line)
            if "wanted" in data:
                wanted += sum(data["wanted"].values())
                asked = Asked(data["seed"], data["target"], None, data["largest"])
                continue
            found.append(Verdict(**data))
            if found[-1].outcome == "wrong":
                shown(found[-1], asked)
    return summed(found, max(0, wanted - sum(each.outcome != "skipped" for each in found)))


SANITIZERS: Final = ("memcheck", "racecheck", "initcheck", "synccheck")

BEGINS: Final = "CASE "
"""How the line begins that names a case before it runs."""

SAYS: Final = "========= "
"""How the lines of compute-sanitizer begin."""

QUIETLY: Final = ("--report-api-errors", "no")
"""Calls of the driver that ask whether it can do something may be refused."""

FAULTS: Final = re.compile(
    "========= (?:Error|Warning|Invalid|Uninitialized|Race|Barrier|Program hit|Hazard|Misaligned)"
)
"""How a report begins; lines that belong to it are further in."""


def sanitizer_path() -> str | None:
    """Where compute-sanitizer is, None where it is not installed."""
    home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    places = [os.environ.get("PATH", ""), f"{home}/bin", f"{home}/compute-sanitizer"]
    return shutil.which("compute-sanitizer", path=os.pathsep.join(places))


def watched(given: argparse.Namespace) -> int:
    """Run kernels under each of some tools; 1 where one reports something, 2 where none can."""
    if (path := sanitizer_path()) is None:
        print("There is no compute-sanitizer here, neither on PATH nor under CUDA_HOME: install it "
              "with the CUDA toolkit.")  # fmt: skip
        return 2
    worst = 0
    for tool in given.sanitizer:
        inner = [sys.executable, __file__, "kernels", "--watched", "--kernels", str(given.kernels)]
        inner += ["--seed", str(given.seed), "--part", given.part, "--target", given.target]
        inner += ["--seconds", str(given.seconds / len(given.sanitizer))]
        inner += ["--only", given.only] if given.only else []
        with subprocess.Popen(
            [path, "--tool", tool, "--error-exitcode", "9", *QUIETLY, *inner], text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        ) as process:  # fmt: skip
            assert process.stdout is not None
            reports, ran, rest = reported(process.stdout)
        print(f"{tool}: {ran} kernels, {len(reports)} reports, exit code {process.returncode}")
        print("".join(f"  {line}\n" for line in rest), end="")
        for case, lines in reports:
            print(f"WRONG: {tool} on {case}: --only {case} --seed {given.seed}")
            print("\n".join(lines), flush=True)
        worst = max(worst, 1 if reports or process.returncode else 0)
    return worst


def reported(lines: Iterable[str]) -> tuple[list[tuple[str, list[str]]], int, list[str]]:
    """What a tool says: reports with the case that ran, how many cases ran, and all other lines.

    >>> said = ["CASE kernels/3", "========= Invalid __global__ read of size 4 bytes",
    ...         "=========     at k+0x10", "none is wrong", "========= ERROR SUMMARY: 1 error"]
    >>> found, ran, rest = reported(said)
    >>> found[0][0], len(found[0][1]), ran, rest
    ('kernels/3', 2, 1, ['none is wrong', '========= ERROR SUMMARY: 1 error'])
    """
    found: list[tuple[str, list[str]]] = []
    case, ran = "no case", 0
    rest: list[str] = []
    inside = False
    for each in lines:
        line = each.rstrip()
        if line.startswith(BEGINS):
            case, ran, inside = line.removeprefix(BEGINS), ran + 1, False
        elif FAULTS.match(line):
            found.append((case, [line]))
            inside = True
        elif inside and line.startswith(f"{SAYS}    "):
            found[-1][1].append(line)
        else:
            inside = False
            if line.strip("= "):
                rest.append(line)
    return found, ran, rest


def in_turn(plan: Plan, asked: Asked, end: float) -> Iterator[Verdict]:
    """Verdicts on the cases of a plan, one after another in this process."""
    while time.monotonic() < end and (case := plan.next()) is not None:
        print(f"{BEGINS}{case[0]}/{case[1]}", flush=True)
        verdict = judged(*case, asked, print)
        plan.over(verdict)
        yield verdict
        if verdict.is_fault():
            return


def drawn(place: int) -> bytes:
    """A model of ONNX as a file keeps it."""
    return pickle.dumps(random_case(place))


def kept(asked: Asked, many: int, path: Path, jobs: int) -> int:
    """Draw models into a file."""
    places = [place_of(asked.seed, number) for number in range(many)]
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file,
        ProcessPoolExecutor(jobs, get_context("spawn")) as pool,
    ):
        for place, data in zip(places, pool.map(drawn, places, chunksize=5), strict=True):
            file.writestr(str(place), data)
    print(f"{many} models")
    return 0


def alone(which: str, asked: Asked) -> int:
    """One case again, in this process."""
    part, number = which.split("/")
    print(f"{BEGINS}{which}", flush=True)
    verdict = judged(part, int(number), asked, print)
    if verdict.outcome == "wrong":
        shown(verdict, asked)
    return summed([verdict], 0)


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)} (all)")
    parser.add_argument("--kernels", type=int, default=300)
    parser.add_argument("--models", type=int, default=100)
    parser.add_argument("--layers", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--part", default="1/1", metavar="K/N")
    parser.add_argument("--jobs", type=int, default=cores())
    parser.add_argument("--seconds", type=float, default=480.0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--target", default="cuda")
    parser.add_argument("--largest", type=int, default=1 << 18)
    parser.add_argument("--cases", type=Path)
    parser.add_argument("--only", metavar="PART/NUMBER")
    parser.add_argument("--draw", type=Path)
    parser.add_argument("--merge", type=Path, nargs="+")
    parser.add_argument("--sanitizer", nargs="+", choices=SANITIZERS)
    parser.add_argument("--watched", action="store_true", help="run in turn, under a sanitizer")
    return parser


def main() -> int:
    begin = time.monotonic()
    parser = options()
    given = parser.parse_args()
    if unknown := {*given.parts} - {*PARTS}:
        parser.error(f"There is no part {min(unknown)!r}: {', '.join(PARTS)}.")
    asked = Asked(given.seed, given.target, given.cases, given.largest, given.watched)
    if given.sanitizer:
        return watched(given)
    if given.merge:
        return merged(given.merge)
    if given.only:
        return alone(given.only, asked)
    if given.draw:
        return kept(asked, given.models // 2, given.draw, given.jobs)
    part, parts = (int(each) for each in given.part.split("/"))
    every = {
        "kernels": given.kernels, "onnx": given.models // 2, "torch": -(-given.models // 2),
        "layers": given.layers,
    }  # fmt: skip
    wanted = {
        name: many * part // parts - many * (part - 1) // parts
        for name, many in every.items()
        if name in (given.parts or PARTS)
    }
    plan = Plan({name: many for name, many in wanted.items() if many}, part - 1, parts)
    lines = given.json.open("w") if given.json else None
    if lines:
        head = {"wanted": wanted, "seed": asked.seed, "target": asked.target}
        print(json.dumps({**head, "largest": asked.largest}), file=lines, flush=True)
    found: list[Verdict] = []
    end = begin + given.seconds
    for each in (
        in_turn(plan, asked, end) if given.watched else verdicts(plan, asked, given.jobs, end)
    ):
        found.append(each)
        if each.outcome == "wrong":
            shown(each, asked)
        if lines:
            print(json.dumps(attrs.asdict(each)), file=lines, flush=True)
    print(f"seed {given.seed}, {given.jobs} processes, {time.monotonic() - begin:.0f} s")
    return summed(found, plan.missing())


if __name__ == "__main__":
    sys.exit(main())
