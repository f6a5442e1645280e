"""`plica tune MODEL --trials N --db tune.db`: search for fast schedules of a model's kernels."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any, Final

from plica.cli.command import Command, json_text
from plica.cli.model import add_contract, packs_of, read_model
from plica.cli.option import add_dims, add_inputs, ending, positive, seconds


def run(arguments: argparse.Namespace) -> int:
    """Search, and say for every kernel how fast it was and is."""
    start = time.monotonic()
    from plica.runtime import archive
    from plica.tuning import tune

    if arguments.report is not None:
        archive.destination(arguments.report)
    module = read_model(arguments.model, arguments.dim, arguments.input)
    if arguments.spaces is not None:
        return print_spaces(arguments, module)
    limit = arguments.seconds if arguments.minutes is None else 60.0 * arguments.minutes
    if limit is not None:  # loading the compiler and reading the model are part of it
        limit = max(LEAST_SECONDS, limit - (time.monotonic() - start))
    tuned = tune(
        module,
        arguments.target,
        trials_of(arguments),
        arguments.db,
        arguments.seed,
        not arguments.quiet,
        threads=arguments.threads,
        contract=arguments.contract,
        packs=packs_of(arguments),
        policy=arguments.policy,
        seconds=limit,
        pool=arguments.pool,
        graph=arguments.graph,
    )
    print(json_text(tuned.to_data()) if arguments.json else tuned)
    if arguments.report is not None:
        title = f"Tuning of {arguments.model.name}"
        archive.write(arguments.report, tuned.page(title).encode())
        if not arguments.json:
            print(f"{arguments.report}: the curves")
    return 0


def print_spaces(arguments: argparse.Namespace, module: Any) -> int:  # Any: as a model is read
    """Prints the number of distinct candidates of each kernel, without searching."""
    from attrs import asdict  # `plica run` needs no compiler

    from plica.search.distinct import HEAD
    from plica.tuning import spaces

    found = spaces(
        module, arguments.target, arguments.spaces, threads=arguments.threads,
        packs=packs_of(arguments), contract=arguments.contract,
    )  # fmt: skip
    if arguments.json:
        print(json_text([asdict(space_size) for space_size in found]))
        return 0
    print(HEAD)
    for space_size in found:
        print(space_size, flush=True)
    return 0


def trials_of(arguments: argparse.Namespace) -> int:
    """The trials asked for; no limit where only a time was given."""
    timed = arguments.seconds is not None or arguments.minutes is not None
    return arguments.trials or (UNTIL_TIME if timed else DEFAULT_TRIALS)


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("model", type=Path, metavar="MODEL", help="an ONNX file, or a script")
    add_dims(parser)
    add_inputs(parser, "fix an input that decides shapes to a value; repeatable")
    parser.add_argument(
        "--trials",
        type=positive,
        help="trials for all kernels (256, or as many as fit a time limit)",
    )
    until = parser.add_mutually_exclusive_group()
    until.add_argument("--seconds", type=seconds, help="time limit in seconds")
    until.add_argument("--minutes", type=seconds, help="time limit in minutes")
    parser.add_argument("--db", type=Path, default=Path("tune.db"), help="the database (tune.db)")
    parser.add_argument("--target", default="cpu", help="this machine, or fewer of its features")
    parser.add_argument("--threads", type=positive, help="number of threads of a kernel")
    add_contract(parser)
    parser.add_argument(
        "--policy",
        default="guided",
        help="guided, transfer, random, genetic …; guided:MODEL for a library's model (guided)",
    )
    parser.add_argument("--pool", metavar="ADDRESS", help="measure on devices of a pool")
    parser.add_argument("--graph", action="store_true", help="choose the graph passes first")
    parser.add_argument("--spaces", type=positive, nargs="?", const=64, metavar="N",
                        help="only count distinct candidates per kernel, up to N (64)")  # fmt: skip
    parser.add_argument("--seed", type=int, default=0, help="random seed (0)")
    parser.add_argument("--report", type=ending(".html"), metavar="FILE.html",
                        help="write a page with tuning curves")  # fmt: skip
    parser.add_argument("--quiet", action="store_true", help="show no progress")
    parser.add_argument("--json", action="store_true", help="print JSON")


DEFAULT_TRIALS: Final = 256  # trials, where neither they nor a time are given
UNTIL_TIME: Final = 1 << 20

LEAST_SECONDS: Final = 0.001  # for a search whose time was over when its model was read


COMMAND: Final = Command(
    "tune",
    "Search for faster schedules of a model's kernels",
    run,
    configure,
    (
        "plica tune M.onnx --trials 256 --db tune.db",
        "plica tune M.onnx --trials 64 --threads 1 --report curves.html",
        "plica tune M.onnx --minutes 10 --graph --report curves.html",
        "plica tune M.onnx --spaces 32",
        "plica tune M.onnx --dim batch=1 --seconds 60 --quiet",
    ),
)
