"""Ranks on MPI by mpi4py, started by `mpirun`.

The board of a rank is what it was sent with the tag of the board: MPI has no store.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
from collections.abc import Mapping
from time import monotonic, sleep
from typing import TYPE_CHECKING, Final

from plica.ir.interpret.value import Array
from plica.mesh.transport import Waiting, missing_package, rank_error

if TYPE_CHECKING:
    from mpi4py import MPI

BOARD: Final = 1
FIRST_TAG: Final = 2
TAGS: Final = 30_000  # how many tags are in use in turn; MPI promises 32,767
SPINS: Final = 200
PAUSE: Final = 5e-5
SECONDS_TO_SAY_WHY: Final = 1.0


def mpi_transport() -> MpiTransport:
    """The transport of this process; importing mpi4py starts MPI."""
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise missing_package("mpi4py", "mpi") from error
    if MPI.Query_thread() != MPI.THREAD_MULTIPLE:
        message = "This MPI does not let two threads of a rank send."
        raise rank_error(message, "MPI_THREAD_MULTIPLE", str(MPI.Query_thread()))
    return MpiTransport(MPI.COMM_WORLD)


class MpiTransport:
    """One rank of a communicator."""

    def __init__(self, world: MPI.Comm) -> None:
        self.world, self.rank, self.size = world, world.rank, world.size
        self.board: dict[str, str] = {}
        self.told: list[tuple[MPI.Request, bytearray]] = []

    def tell(self, key: str, text: str, *, first: bool = False) -> None:
        self._write(key, text, first)
        message = bytearray(json.dumps([key, text, first]).encode())
        self.told = [(each, sent) for each, sent in self.told if not each.Test()]
        for peer in range(self.size):
            if peer != self.rank:
                self.told.append((self.world.Isend(message, peer, BOARD), message))

    def _write(self, key: str, text: str, first: bool) -> None:
        if not (first and key in self.board):
            self.board[key] = text

    def ask(self, key: str) -> str | None:
        from mpi4py import MPI

        status = MPI.Status()
        while (message := self.world.Improbe(tag=BOARD, status=status)) is not None:
            text = bytearray(status.Get_count(MPI.BYTE))
            message.Recv(text)
            self._write(*json.loads(text))
        return self.board.get(key)

    def open(self) -> None:
        """Nothing: `mpirun` has connected the ranks."""

    def post(self, tag: int, sends: Mapping[int, Array], receives: Mapping[int, Array]) -> Waiting:
        at = FIRST_TAG + tag % TAGS
        waits = [
            (peer, self.world.Irecv(array.reshape(-1).view("u1"), peer, at))
            for peer, array in receives.items()
        ]
        waits += [
            (peer, self.world.Isend(array.reshape(-1).view("u1"), peer, at))
            for peer, array in sends.items()
        ]

        def waiting(seconds: float) -> int | None:
            end, turn = monotonic() + seconds, 0
            while True:
                while waits and waits[-1][1].Test():
                    waits.pop()
                if not waits:
                    return None
                if monotonic() > end:
                    return waits[-1][0]
                turn += 1
                sleep(0 if turn < SPINS else PAUSE)

        return waiting

    def close(self, *, failed: bool) -> None:
        if failed:
            atexit.register(_end)  # before that of mpi4py, which was registered first
            return
        for each, _ in self.told:
            each.Wait()


def _end() -> None:
    """End a process without MPI_Finalize, which would wait for the rank that is gone; `mpirun` ends
    all ranks then, so that they first have time to say why."""
    sys.stdout.flush()
    sys.stderr.flush()
    sleep(SECONDS_TO_SAY_WHY)
    os._exit(1)
