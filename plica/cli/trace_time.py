"""`plica trace time`: compiles and times a kernel under a trace, alone or against another trace.

plica trace time best.json matmul.py --against old.json --size m=256 --size n=256 --size k=256
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from plica.runtime.error import Diagnostic, InputError, Place

if TYPE_CHECKING:
    from plica.core.term import Term
    from plica.ir.loop.statement import Kernel
    from plica.runtime.executable import Executable
    from plica.schedule.trace import Trace


def configure_time(sub: argparse.ArgumentParser) -> None:
    """The options: what to measure, and how often."""
    sub.add_argument("--against", metavar="TRACE", help="another trace, measured alternately")
    sub.add_argument("--size", action="append", default=[], metavar="DIM=N",
                     help="a symbolic size; repeatable")  # fmt: skip
    sub.add_argument("--threads", type=int, help="how many threads run it (default: every core)")
    sub.add_argument("--rounds", type=int, default=7, help="rounds of measurement")
    sub.add_argument("--json", action="store_true", help="print JSON")


def timed(
    arguments: argparse.Namespace,
    trace: tuple[str, Trace],
    against: tuple[str, Trace] | None,
    kernel: Kernel,
    sizes: Mapping[str, int],
) -> int:
    """Prints the time of the kernel under each trace; returns 0."""
    from plica.bench.sample import sample
    from plica.runtime.timing import time

    first = _Named(trace[0], _compiled(trace[1], kernel, sizes, arguments.threads))
    other = None
    if against is not None:
        other = _Named(against[0], _compiled(against[1], kernel, sizes, arguments.threads))
    arrays = sample(first.exe.inputs)
    call_timing = time(first, *arrays, against=other, rounds=arguments.rounds)
    print(json.dumps(call_timing.to_data(), indent=2) if arguments.json else call_timing)
    return 0


class _Named:
    """An executable under the name of its trace file."""

    def __init__(self, name: str, exe: Executable) -> None:
        self.name, self.exe = name, exe

    def __call__(self, *args: Any) -> Any:  # Any: arrays in and out
        return self.exe(*args)


def _compiled(
    trace: Trace, kernel: Kernel, sizes: Mapping[str, int], threads: int | None
) -> Executable:
    """The kernel, at some sizes, scheduled and compiled."""
    from plica.ir.loop.specialise import specialise
    from plica.pipeline import compile
    from plica.schedule.replay import scheduled

    known: dict[Term, int] = {
        var: sizes[str(var.name)] for var in kernel.dims if str(var.name) in sizes
    }
    lost = [str(var.name) for var in kernel.dims if var not in known]
    unknown = [size for size in sizes if size not in {str(var.name) for var in kernel.dims}]
    if lost or unknown:
        names = ", ".join(str(var.name) for var in kernel.dims) or "no symbolic sizes"
        message = "A kernel with open sizes needs values to be measured."
        words = [f"no {each}" for each in lost] + [f"{each}={sizes[each]}" for each in unknown]
        hint = " ".join(f"--size {each}=N" for each in lost) or None
        raise InputError(
            Diagnostic(
                "input-missing", message, Place(node="--size"), names, ", ".join(words), hint
            )
        )
    return compile(scheduled(trace, specialise(kernel, known)), threads=threads)
