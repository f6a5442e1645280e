"""Ranks: processes that run one device of a mesh each, and fail together.

    with connect() as ranks:                  # started by torchrun or mpirun
        result = ranks.run(sharded, x, w)     # the whole result, on every rank

Collectives are blocks sent from rank to rank, and combined in the order of the ranks by the meaning
of the operator.  Law: `ranks.run` gives what `simulate` gives, bit for bit, and sends each way what
`MeshExchange.bytes` says.

A rank that fails says so on the board, and a thread of every rank reads it: the others raise the
same reason.  A rank that can say nothing is found by its process, its connection, or a timeout.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from platform import python_version
from time import monotonic, sleep
from types import TracebackType
from typing import Any, Final, NoReturn

import numpy as np

from plica import __version__
from plica.ir.interpret.value import Array
from plica.mesh import transport as transports
from plica.mesh.exchange import MeshExchange
from plica.mesh.execute import Engine, Values, combined, gathered, interpreted, run_on
from plica.mesh.mesh import Mesh
from plica.mesh.plan import plan_digest
from plica.mesh.sharded import ShardedProgram

POLL: Final = 0.1  # seconds between two looks at the board
SLOW: Final = 1.0  # seconds after which a rank says for whom it waits
GRACE: Final = 0.5  # seconds that a rank which is told to end waits for the reason
SMALL: Final = 4096
"""Elements up to which all_reduce sends all to all: one message is faster than two."""
LINGER: Final = 3.0  # seconds that a rank which fails waits for the others to know
FAILED: Final = "failed"


def connect(
    engine: transports.EngineName | None = None, timeout: float = 60.0, **facts: str
) -> Ranks:
    """The ranks of the launcher; `facts` must be equal on all of them, as versions must.

    `timeout` bounds how long a rank waits for another.
    """
    return Ranks(transports.transport(engine, timeout), timeout, facts)


class Ranks:
    """This rank and its peers; a context, at whose end all of them have ended or know why not."""

    def __init__(self, way: transports.Transport, timeout: float, facts: Mapping[str, str]) -> None:
        self.way, self.timeout, self.facts = way, timeout, dict(facts)
        self.rank, self.size = way.rank, way.size
        self.devices = (way.rank,)
        self.failure: str | None = None
        self.raised = threading.Event()
        self.ended = threading.Event()
        self.count, self.leaving = 0, False
        self.awaited: int | None = None
        self.agreed: dict[str, int] = {}
        self.pids: dict[int, int] = {}
        """The processes of the ranks on this machine."""
        self.handler: Any = None  # Any: what signal.signal returns

    # --- beginning and end -----------------------------------------------------------------------

    def __enter__(self) -> Ranks:
        if threading.current_thread() is threading.main_thread():
            self.handler = signal.signal(signal.SIGTERM, self._terminated)
        threading.Thread(target=self._watch, name="plica-watch", daemon=True).start()
        try:
            self._meet()
            self.way.open()
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise
        return self

    def _meet(self) -> None:
        """Wait until all ranks have started, and agree on versions and facts."""
        here = {"host": socket.gethostname(), "pid": os.getpid(), "ranks": self.size}
        said = json.dumps(here)
        self._tell(f"start/{self.rank}", said, first=True)
        if self._ask(f"start/{self.rank}") != said:
            self.fail(f"two processes say that they are rank {self.rank}")
        for peer in range(self.size):
            about = json.loads(self._told(f"start/{peer}", peer, "start"))
            if (count := about["ranks"]) != self.size:
                self.fail(f"rank {peer} counts {count} ranks, rank {self.rank} {self.size}")
            if about["host"] == here["host"]:
                self.pids[peer] = about["pid"]
        versions = {"plica": __version__, "python": python_version(), "numpy": np.__version__}
        self.agree("start", {**versions, **self.facts})

    def agree(self, what: str, facts: Mapping[str, str]) -> None:
        """Refuse facts that differ between ranks."""
        number = self.agreed[what] = self.agreed.get(what, -1) + 1
        self._tell(f"{what}/{number}/{self.rank}", json.dumps(dict(facts)))
        every = [json.loads(self._told(f"{what}/{number}/{peer}", peer, f"come to {what!r}"))
                 for peer in range(self.size)]  # fmt: skip
        for peer, theirs in enumerate(every):
            for name in every[0].keys() | theirs.keys():
                first, found = every[0].get(name), theirs.get(name)
                if first != found:
                    self.fail(f"rank {peer} differs from rank 0: {name} is {found}, not {first}")

    def _told(self, key: str, peer: int, what: str) -> str:
        """What a rank writes on the board, once it has done something."""
        start, pause = monotonic(), 1e-4
        while (text := self._ask(key)) is None:
            self._check(peer, what, start)
            sleep(pause)
            pause = min(2 * pause, POLL / 2)
        self._arrived()
        return text

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self.raised.set()
        failed = True
        try:
            if error is None:
                self.leaving = True
                self._tell(f"left/{self.rank}", "")
                self._end()
                failed = False
            elif self.failure is None:
                error.add_note(f"This is rank {self.rank} of {self.size}.")
                self.failure = f"rank {self.rank} failed: {type(error).__name__}: {error}"
                self._tell(FAILED, self.failure, first=True)
        finally:
            self.ended.set()
            if failed:
                self._linger()
            self.way.close(failed=failed)
            if self.handler is not None:
                signal.signal(signal.SIGTERM, self.handler)

    def _linger(self) -> None:
        """Give the other ranks time to read why all end: this one may hold the board."""
        end = monotonic() + LINGER
        with suppress(transports.RankError):
            self._tell(f"left/{self.rank}", "")
            others = [p for p in range(self.size) if self._ask(f"start/{p}") is not None]
            while others and monotonic() < end:
                sleep(POLL / 2)
                dead = self._dead()
                others = [p for p in others if p != dead and self._ask(f"left/{p}") is None]

    def _end(self) -> None:
        """Wait until all ranks have ended, or one has failed."""
        for peer in range(self.size):
            self._told(f"left/{peer}", peer, "end")
        self.failure = self.failure or self._ask(FAILED)
        if self.failure is not None:
            raise self.error()
        empty = {p: np.zeros(1, np.uint8) for p in range(self.size) if p != self.rank}
        if empty:  # the board is not read any more once rank 0, which may hold it, is through
            self.ended.set()
            self._wait("end", 0, empty, {p: a.copy() for p, a in empty.items()})

    # --- failures --------------------------------------------------------------------------------

    @contextmanager
    def _board(self) -> Iterator[None]:
        try:
            yield
        except transports.PeerLostError as lost:
            self.failure = self.failure or f"rank {lost.rank}, which holds the board, is gone"
            raise self.error() from lost

    def _ask(self, key: str) -> str | None:
        with self._board():
            return self.way.ask(key)

    def _tell(self, key: str, text: str, *, first: bool = False) -> None:
        with self._board():
            self.way.tell(key, text, first=first)

    def fail(self, reason: str) -> NoReturn:
        """Tell all ranks why they end, and raise it: what another rank said before counts."""
        if self.failure is None:
            self._tell(FAILED, reason, first=True)
            self.failure = self._ask(FAILED) or reason
        raise self.error()

    def error(self) -> transports.RankError:
        """The error of a failure."""
        return transports.rank_error(
            f"The ranks failed: {self.failure}.", f"{self.size} ranks that work",
            f"seen by rank {self.rank}",
        )  # fmt: skip

    def _check(self, peer: int, what: str, start: float) -> None:
        """Raise what is known of a failure, while a rank is waited for that is to do something."""
        if self.failure is not None:
            raise self.error()
        if not self.leaving and self._ask(f"left/{peer}") is not None:
            sleep(GRACE)  # it may have said why
            self.fail(f"rank {peer} has ended, and rank {self.rank} waits for it to {what}")
        if (lost := self._dead()) is not None:
            sleep(GRACE)  # it may have said why
            self.fail(f"rank {lost} died")
        waited = monotonic() - start
        if waited > SLOW and self.awaited != peer:
            self.awaited = peer
            self._tell(f"waiting/{self.rank}", str(peer))
        if waited > self.timeout:
            culprit = self._culprit(peer)
            self.fail(f"rank {culprit} did not {what} within {self.timeout:g} s")

    def _arrived(self) -> None:
        """Say that no rank is waited for any more."""
        if self.awaited is not None:
            self.awaited = None
            self._tell(f"waiting/{self.rank}", "")

    def _culprit(self, peer: int) -> int:
        """The rank that waits for nobody, at the end of those that wait for one another."""
        seen = {self.rank}
        while peer not in seen and (other := self._ask(f"waiting/{peer}")):
            seen.add(peer)
            peer = int(other)
        return peer

    def _dead(self) -> int | None:
        return next((peer for peer, pid in self.pids.items() if not _is_alive(pid)), None)

    def _watch(self) -> None:
        """Read the board until the end; interrupt the main thread if it does not raise itself."""
        while self.failure is None:
            if self.ended.wait(POLL):
                return
            try:
                self.failure = self._ask(FAILED)
            except transports.RankError:
                break
        main = threading.main_thread().ident
        if not self.raised.wait(2 * GRACE) and self.handler is not None and main is not None:
            signal.pthread_kill(main, signal.SIGTERM)

    def _terminated(self, *_: object) -> None:
        """A launcher, or our own thread, ends this rank."""
        end = monotonic() + GRACE
        while self.failure is None and (lost := self._dead()) is None and monotonic() < end:
            sleep(POLL / 4)
        if self.failure is None:
            self.fail(f"rank {lost} died" if lost is not None else
                      f"the launcher ended rank {self.rank}")  # fmt: skip
        raise self.error()

    # --- messages --------------------------------------------------------------------------------

    def swap(self, what: str, sends: Mapping[int, Array], receives: Mapping[int, Array]) -> None:
        """Send an array to each of some ranks, and fill those that others send."""
        self.count += 1
        sends, receives = ({p: a for p, a in each.items() if a.size} for each in (sends, receives))
        if sends or receives:
            self._wait(what, self.count, sends, receives)

    def _wait(
        self, what: str, tag: int, sends: Mapping[int, Array], receives: Mapping[int, Array]
    ) -> None:
        start = monotonic()
        try:
            waiting = self.way.post(tag, sends, receives)
            while (peer := waiting(POLL)) is not None:
                self._check(peer, what, start)
        except transports.PeerLostError as lost:
            sleep(GRACE)  # it may have said why
            self.fail(f"rank {lost.rank} died, or closed its connection")
        self._arrived()

    # --- collectives -----------------------------------------------------------------------------

    def exchange(self, mesh: Mesh, collective: MeshExchange, values: Values) -> Values:
        """What a collective gives this rank."""
        group = mesh.group(self.rank, collective.axis)
        here, size = group.index(self.rank), len(group)
        given, mine = dict(collective.attributes), np.asarray(values[self.rank], order="C")
        title = f"send for {collective.op} on {mesh.names[collective.axis]!r}"
        others = [at for at in range(size) if at != here]

        def scatter(blocks: Sequence[Array], shapes: Sequence[tuple[int, ...]] = ()) -> list[Array]:
            """Send block i to rank i; what each rank sent to this one, of these shapes."""
            sent = [np.asarray(block, order="C") for block in blocks]  # of rank 0 too
            arrays = [np.empty(shape, mine.dtype) for shape in shapes or [sent[here].shape] * size]
            arrays[here] = sent[here]
            self.swap(title, {group[at]: sent[at] for at in others},
                      {group[at]: arrays[at] for at in others})  # fmt: skip
            return arrays

        match collective.op:
            case "all_gather":
                result = np.concatenate(scatter([mine] * size), given["dim"])
            case "all_reduce" if mine.size <= SMALL:
                result = combined(given["combiner"], scatter([mine] * size))
            case "all_reduce":
                parts = np.array_split(mine.reshape(-1), size)
                own = combined(given["combiner"], scatter(parts))
                rows = scatter([own] * size, [part.shape for part in parts])
                result = np.concatenate(rows).reshape(mine.shape)
            case "reduce_scatter":
                result = combined(given["combiner"], scatter(np.split(mine, size, given["dim"])))
            case "all_to_all":
                blocks = scatter(np.split(mine, size, given["target"]))
                result = np.concatenate(blocks, given["source"])
            case "own_block":
                result = np.split(mine, size, given["dim"])[here]
            case _:
                raise AssertionError(f"{collective.op} is no collective of ranks")
        return {self.rank: result}

    def run(self, sharded: ShardedProgram, *args: Any, engine: Engine = interpreted) -> Any:
        """The whole result of a program, given all of its arguments, on every rank."""
        self.agree("plan", {"the plan": plan_digest(sharded)})
        if sharded.mesh.devices != self.size:
            self.fail(f"the mesh {sharded.mesh} has {sharded.mesh.devices} devices, "
                      f"and there are {self.size} ranks")  # fmt: skip
        parts = run_on(sharded, args, self, engine)
        return gathered(sharded, parts, self)


def _is_alive(pid: int) -> bool:
    """Whether a process of this machine runs: what nobody has waited for yet does not."""
    try:
        os.kill(pid, 0)
        return not Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].startswith(" Z")
    except ProcessLookupError:
        return False
    except OSError:
        return True  # of another user, or a machine without /proc
