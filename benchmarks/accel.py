"""Convolutions of ResNet-18 on an accelerator: utilisation without and with virtual threads.

    python benchmarks/accel.py [--trials N] [--layers C2,C9] [--page FOLDER]
    python benchmarks/accel.py --search [--trials 64] [--layers C2,C9]
    python benchmarks/accel.py --model [--image 224]
    python benchmarks/accel.py --mutants 50

Streams are generated from tile sizes and thread counts; the best of the trials on the cycle
simulator counts.  Each is checked (the checker is a proof), run on the functional simulator, and
compared bit by bit with a convolution of whole numbers.  Utilisation is the share of cycles in
which the matrix unit takes a turn.  Times of the simulators are milliseconds of processor time for
the best stream of two threads, the least of three; `exact` and `faults` speak of both streams.
`--page` writes a Chrome trace of each and a page with their roofline.

`--search` lets the search room find the schedules on the cycle simulator, in at most a given number
of trials a layer, and compares them with figures of a prototype for two threads.  `--model`
quantises ResNet-18, compiles it for the accelerator, and compares it with the same model on the
processor.  `--mutants` deletes every token of small programs, one by one.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from time import perf_counter, process_time
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import plica
from plica.codegen.accel.check import check
from plica.codegen.accel.conv import (
    Convolution,
    ConvTiling,
    convolution,
    pack_input,
    pack_weight,
    reference,
    unpack_output,
)
from plica.codegen.accel.cycle import Timed, chrome_trace, roofline, simulate
from plica.codegen.accel.device import run
from plica.codegen.accel.instruction import Stream
from plica.codegen.accel.order import matched
from plica.codegen.accel.stream import build
from plica.codegen.accel.target import parse_accel
from plica.codegen.accel.tiling import ranked
from plica.codegen.accel.vta import osdi
from plica.codegen.accel.witness import without, witness
from plica.frontend.zoo import resnet
from plica.runtime.accel.executable import AccelExecutable, AccelProfile
from plica.runtime.executable import Executable
from plica.search.accel.cycles import searched, simulated
from plica.search.accel.space import LayerTask, tiling_of

MACHINE = osdi()
NAME = "accel:osdi"
"""The configuration of the OSDI'18 paper; the machine itself is called vta in all of them."""

# fmt: off
LAYERS = {
    "C2":  Convolution( 64, 56, 56,  64, 3, 1, 1), "C3":  Convolution( 64, 56, 56,  64, 1, 1, 0),
    "C4":  Convolution( 64, 56, 56, 128, 3, 2, 1), "C5":  Convolution( 64, 56, 56, 128, 1, 2, 0),
    "C6":  Convolution(128, 28, 28, 128, 3, 1, 1), "C7":  Convolution(128, 28, 28, 256, 3, 2, 1),
    "C8":  Convolution(128, 28, 28, 256, 1, 2, 0), "C9":  Convolution(256, 14, 14, 256, 3, 1, 1),
    "C10": Convolution(256, 14, 14, 512, 3, 2, 1), "C11": Convolution(256, 14, 14, 512, 1, 2, 0),
    "C12": Convolution(512,  7,  7, 512, 3, 1, 1),
}
# fmt: on


# Two threads, in percent of the cycles: a prototype with hand-made schedules.
# fmt: off
TWO_THREADS = {
    "C2": 88.1, "C3": 44.9, "C4": 85.1, "C5": 36.2, "C6": 93.4, "C7": 92.0, "C8": 45.8, "C9": 96.1,
    "C10": 89.4, "C11": 53.2, "C12": 96.3,
}
# fmt: on


def best(of: Convolution, threads: int, trials: int) -> tuple[ConvTiling, Stream, Timed]:
    """The fastest of the tilings that are guessed to be fast."""
    found: list[tuple[int, int, ConvTiling, Stream, Timed]] = []
    for at, tiling in enumerate(ranked(MACHINE, of, threads, trials)):
        stream = build(MACHINE, convolution(MACHINE, of, tiling), checked=False)
        timed = simulate(MACHINE, stream)
        found.append((timed.cycles, at, tiling, stream, timed))
    return min(found, key=lambda each: each[:2])[2:]


def least(work: Callable[[], object]) -> float:
    """Milliseconds of processor time, the least of three."""
    spent: list[float] = []
    for _ in range(3):
        start = process_time()
        work()
        spent.append(process_time() - start)
    return min(spent) * 1e3


def mutants(count: int) -> tuple[int, int, int]:
    """Tokens deleted one by one in a given number of small programs: how many, refused, and shown
    wrong.

    The channels come in two parts, so that no tile is loaded with what it holds already: that is a
    race which no result can show.
    """
    random = Random(0)
    deleted = refused = shown = 0
    for at in range(count):
        if at % 10 == 0:
            say(f"program {at + 1} of {count}, {deleted} tokens deleted")
        kernel = random.choice((1, 3))
        of = Convolution(
            32, random.randint(kernel, 4), random.randint(kernel, 4), 32, kernel,
            random.randint(1, 2), random.randint(0, kernel - 1), 6,
        )  # fmt: skip
        tiling = ConvTiling(
            random.randint(1, 4), random.randint(2, 4), 1, 1,
            random.randint(1, 2), random.choice(("height", "outputs")),
        )  # fmt: skip
        stream = build(MACHINE, convolution(MACHINE, of, tiling))
        values = np.random.default_rng(at)
        given = {
            each.name: values.integers(
                -99, 100, (each.elements, *MACHINE.scope(each.scope).shape), np.int8
            )
            for each in stream.tensors
            if each.name in "xw"
        }
        for token in matched(MACHINE, stream.code):
            mutant = without(MACHINE, stream, token)
            deleted += 1
            faults = check(MACHINE, mutant)
            refused += bool(faults)
            shown += witness(MACHINE, mutant, given, faults) is not None
    return deleted, refused, shown


def is_exact(of: Convolution, stream: Stream) -> tuple[bool, float]:
    """Whether the result is right, bit by bit, and the milliseconds of the functional simulator."""
    random = np.random.default_rng(0)
    x = random.integers(-128, 128, (of.channels, of.height, of.width)).astype(np.int8)
    w = random.integers(-128, 128, (of.outputs, of.channels, of.kernel, of.kernel)).astype(np.int8)
    given = {"x": pack_input(MACHINE, x), "w": pack_weight(MACHINE, w)}
    found = run(MACHINE, stream, given)["y"]
    spent = least(partial(run, MACHINE, stream, given))
    return np.array_equal(unpack_output(MACHINE, of, found), reference(of, x, w)), spent


def search(layers: list[str], trials: int) -> None:
    """What the search room finds for each layer, beside the figures of the prototype."""
    table = Table(title=f"{NAME}: search, at most {trials} trials", header_style="bold")
    for word in ("layer", "points", "trials", "guess", "found", "figure", "share", "exact"):
        table.add_column(word, justify="right")
    table.add_column("s", justify="right")
    table.add_column("tiling")
    for at, name in enumerate(layers, 1):
        say(f"{name}, layer {at} of {len(layers)}: at most {trials} trials")
        task = LayerTask(MACHINE, LAYERS[name], name)
        start = process_time()
        course = searched(task, trials)
        spent = process_time() - start
        assert course.best is not None
        tiling = tiling_of(course.subject.space, course.best.point)
        stream, timed = simulated(task, tiling)
        exact = is_exact(task.of, stream)[0] and not check(MACHINE, stream)
        first = course.observations[0].cost or float("inf")
        guess = timed.turns / (first * MACHINE.timing.megahertz * 1e6)
        figure = TWO_THREADS[name] / 100
        table.add_row(
            name, str(course.subject.space.size), str(course.trials), f"{guess:.1%}",
            f"{timed.utilisation:.1%}", f"{figure:.1%}", f"{timed.utilisation / figure:.3f}",
            "yes" if exact else "NO", f"{spent:.1f}",
            f"{tiling.height}x{tiling.width} o{tiling.outputs} i{tiling.inputs}"
            f" {tiling.threads} {tiling.across}{' keep' if tiling.keep else ''}",
        )  # fmt: skip
    Console(width=140).print(table)


def model(image: int, target: str) -> None:
    """ResNet-18 of int8: its layers on the accelerator, the rest on the processor."""
    random = np.random.default_rng(0)
    network = resnet(18, image=image)
    given = [random.standard_normal((1, 3, image, image)).astype(np.float32) for _ in range(3)]
    start = process_time()
    say("quantising ResNet-18")
    small = plica.quantise(network, given[:2], power_of_two=True)
    quantised = process_time()
    say("compiling for the processor")
    alone = plica.compile(small)
    compiled = process_time()
    say(f"compiling for {target}")
    both = plica.compile(small, target=target)
    assembled = process_time()
    print(both.source("placement"))
    print(f"{quantised - start:.1f} s to quantise, {compiled - quantised:.1f} s to compile for the "
          f"processor, {assembled - compiled:.1f} s for {target}")  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "resnet18.plica"
        both.save(path)
        again = plica.load(path)
        print(f"artefact: {path.stat().st_size / 1e6:.1f} MB")
    for number, each in enumerate(given):
        wanted, found, reread = (np.asarray(exe(each)) for exe in (alone, both, again))
        same = np.array_equal(wanted, found) and np.array_equal(found, reread)
        agree = int(np.argmax(wanted)) == int(np.argmax(found))
        print(f"image {number}: bit-exact {'yes' if same else 'NO'}, top-1 agrees {agree}")
    profile = both.profile(given[0], runs=3)
    print(profile)
    assert isinstance(profile, AccelProfile)
    assert isinstance(both, AccelExecutable)
    clock = both.whole.megahertz
    alone_ms = min(_seconds(alone, given[0]) for _ in range(5)) * 1e3
    print(f"accelerator {profile.cycles} cycles = {profile.cycles / clock / 1e3:.1f} ms at {clock} "
          f"MHz; the processor alone takes {alone_ms:.1f} ms for the whole model")  # fmt: skip


def _seconds(exe: Executable, given: np.ndarray[Any, Any]) -> float:
    start = perf_counter()
    exe(given)
    return perf_counter() - start


def say(text: str) -> None:
    """What is done now, beside the results."""
    print(text, file=sys.stderr, flush=True)


def counted(text: str) -> int:
    """A number of at least one."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"a number of at least 1, not {text!r}")
    return int(text)


def layers_of(text: str) -> list[str]:
    """Names of layers with commas between."""
    names = text.split(",")
    for name in names:
        if name not in LAYERS:
            raise argparse.ArgumentTypeError(f"one of {', '.join(LAYERS)}, not {name!r}")
    return names


def folder(text: str) -> Path:
    """A folder that can be written to; it is made now, before the work."""
    path = Path(text)
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{text} cannot be written to: {error.strerror}") from None
    return path


def target_named(text: str) -> str:
    """An accelerator."""
    try:
        found = parse_accel(text)
    except plica.PlicaError as error:
        raise argparse.ArgumentTypeError(str(error.diagnostics[0].message)) from None
    if found is None:
        raise argparse.ArgumentTypeError(f"an accelerator, as in accel:osdi, not {text!r}")
    return text


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=counted)
    parser.add_argument("--layers", type=layers_of, default=list(LAYERS), metavar="C2,C9")
    parser.add_argument("--page", type=folder, metavar="FOLDER")
    parser.add_argument("--search", action="store_true")
    parser.add_argument("--model", action="store_true")
    parser.add_argument("--image", type=counted, default=224)
    parser.add_argument("--target", type=target_named, default=NAME)
    parser.add_argument("--mutants", type=counted, metavar="PROGRAMS")
    options = parser.parse_args()
    if options.mutants:
        deleted, refused, shown = mutants(options.mutants)
        print(f"{deleted} tokens deleted: {refused} refused, {shown} with an order that goes wrong")
        return
    if options.search:
        search(options.layers, options.trials or 64)
        return
    if options.model:
        model(options.image, options.target)
        return
    trials = options.trials or 24
    table = Table(title=f"{NAME}, {MACHINE.timing.megahertz} MHz", header_style="bold")
    for word in ("layer", "1 thread", "2 threads", "saved", "exact", "faults", "code"):
        table.add_column(word, justify="right")
    for word in ("run", "cycle", "check", "tiling"):
        table.add_column(word, justify="right")
    sums = [0, 0, 0]
    points: list[tuple[str, Timed]] = []
    for at, name in enumerate(options.layers, 1):
        say(f"{name}, layer {at} of {len(options.layers)}: {trials} tilings for 1 and 2 threads")
        of = LAYERS[name]
        _, serial, alone = best(of, 1, trials)
        tiling, stream, both = best(of, 2, trials)
        exact, ran = is_exact(of, stream)
        exact &= is_exact(of, serial)[0]
        faults = check(MACHINE, serial) + check(MACHINE, stream)
        cycled = least(partial(simulate, MACHINE, stream))
        checked = least(partial(check, MACHINE, stream))
        points.append((name, both))
        sums = [sums[0] + both.turns, sums[1] + alone.cycles, sums[2] + both.cycles]
        shape = f"{tiling.height}x{tiling.width} o{tiling.outputs} i{tiling.inputs}"
        table.add_row(
            name, f"{alone.utilisation:.1%}", f"{both.utilisation:.1%}",
            f"{1 - both.cycles / alone.cycles:.1%}", "yes" if exact else "NO", str(len(faults)),
            str(len(stream.code)), f"{ran:.0f}", f"{cycled:.0f}", f"{checked:.0f}",
            f"{shape} {tiling.across}{' keep' if tiling.keep else ''}",
        )  # fmt: skip
        if options.page:
            text = chrome_trace(MACHINE, stream, both)
            (options.page / f"{name}.json").write_text(text, encoding="utf-8")
    turns, alone_cycles, both_cycles = sums
    saved = f"{1 - both_cycles / alone_cycles:.1%}"
    table.add_row("all", f"{turns / alone_cycles:.1%}", f"{turns / both_cycles:.1%}", saved)
    if options.page:
        page = roofline(MACHINE, points)
        (options.page / "roofline.html").write_text(page, encoding="utf-8")
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
