"""Transports: what carries arrays and short texts between ranks, on engines that exist.

    gloo, nccl    torch.distributed; `torchrun` starts the ranks        (plica.mesh.torch_transport)
    mpi           mpi4py; `mpirun` starts the ranks                     (plica.mesh.mpi_transport)

A rank is a process that runs one device of a mesh.  An engine needs arrays from rank to rank
(`post`) and a board of short texts that all ranks read (`tell`, `ask`); collectives, agreement and
faults stand on these two (`plica.mesh.rank`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Final, Literal, Protocol, TypeAlias, get_args

from plica.ir.interpret.value import Array
from plica.runtime.error import Diagnostic, PlicaError
from plica.runtime.late import late

EngineName: TypeAlias = Literal["gloo", "nccl", "mpi"]
ENGINES: Final[tuple[EngineName, ...]] = get_args(EngineName)

Waiting: TypeAlias = Callable[[float], "int | None"]
"""Waits for a number of seconds; returns a rank still waited for, or None once all are done."""


class RankError(PlicaError):
    """A rank failed: itself, or another whose failure it was told."""


class PeerLostError(Exception):
    """The connection to a rank is gone."""

    def __init__(self, rank: int) -> None:
        super().__init__(rank)
        self.rank = rank


class Transport(Protocol):
    """The messages of one rank."""

    rank: int
    size: int

    def tell(self, key: str, text: str, *, first: bool = False) -> None:
        """Write a text on the board; with `first` only if nothing is there."""
        ...

    def ask(self, key: str) -> str | None:
        """What is on the board, None if nothing is; never waits."""
        ...

    def open(self) -> None:
        """Connect to all ranks, all of which have started."""
        ...

    def post(self, tag: int, sends: Mapping[int, Array], receives: Mapping[int, Array]) -> Waiting:
        """Begin to send arrays, and to fill others, by rank; waiting raises `PeerLostError`."""
        ...

    def close(self, *, failed: bool) -> None:
        """End what `open` began."""
        ...


def rank_error(
    message: str, expected: str | None, found: str, hint: str | None = None
) -> RankError:
    """The error of ranks that cannot go on."""
    return RankError(Diagnostic("rank-failed", message, None, expected, found, hint))


def transport(engine: EngineName | None, timeout: float) -> Transport:
    """The transport of an engine, by default of the launcher that started this process."""
    name = engine or launched_by()
    if name == "mpi":
        made: Transport = late("plica.mesh.mpi_transport:mpi_transport")()
    else:
        made = late("plica.mesh.torch_transport:torch_transport")(name, timeout)
    return made


def launched_by() -> EngineName:
    """The engine of the launcher; refused if there is none."""
    if {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"} & set(os.environ):
        return "mpi"
    if "RANK" in os.environ:
        return "gloo"
    raise rank_error(
        "This process is no rank: no launcher started it.", "torchrun or mpirun", "neither",
        "Start it as: torchrun --nproc-per-node 2 SCRIPT, or mpirun -n 2 python SCRIPT.",
    )  # fmt: skip


def missing_package(name: str, engine: str) -> RankError:
    """The error for an engine whose package is not installed."""
    message = f"The engine {engine!r} needs the package {name!r}."
    return rank_error(message, name, "not installed", f"pip install {name}")
