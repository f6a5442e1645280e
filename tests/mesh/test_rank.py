"""Ranks as threads, over a transport of queues: collectives are those of simulated devices."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from queue import Empty, Queue
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from plica.ir.interpret.value import Array
from plica.mesh import Mesh, MeshPlan, replay, simulate
from plica.mesh.exchange import MeshExchange, exchanges
from plica.mesh.execute import SimulatedDevices
from plica.mesh.mesh import Layout, partial
from plica.mesh.rank import SMALL, Ranks
from plica.mesh.transport import RankError, Waiting, launched_by, transport
from plica.runtime.error import PlicaError
from tests.mesh.network import inputs, perceptron
from tests.mesh.test_mesh import layouts

Answers = dict[int, Any]


class Queues:
    """The messages of one of several threads."""

    def __init__(self, rank: int, size: int, board: dict[str, str], queues: dict[Any, Any]) -> None:
        self.rank, self.size, self.board, self.queues = rank, size, board, queues
        self.closed: bool | None = None

    def tell(self, key: str, text: str, *, first: bool = False) -> None:
        if first:
            self.board.setdefault(key, text)
        else:
            self.board[key] = text

    def ask(self, key: str) -> str | None:
        return self.board.get(key)

    def open(self) -> None:
        pass

    def post(
        self, tag: int, sends: Mapping[int, Array], receives: Mapping[int, Array]
    ) -> Waiting:  # fmt: skip
        for peer, array in sends.items():
            self.queues[self.rank, peer].put((tag, array.copy()))
        left = dict(receives)

        def waiting(seconds: float) -> int | None:
            for peer in list(left):
                try:
                    sent, array = self.queues[peer, self.rank].get(timeout=seconds)
                except Empty:
                    return peer
                assert sent == tag
                left.pop(peer)[...] = array
            return None

        return waiting

    def close(self, *, failed: bool) -> None:
        self.closed = failed


def on_ranks(size: int, work: Callable[[Ranks], Any], timeout: float = 20) -> Answers:
    """What each rank gives or raises."""
    board: dict[str, str] = {}
    queues = {(a, b): Queue[Any]() for a in range(size) for b in range(size)}
    found: Answers = {}

    def rank(at: int) -> None:
        way = Queues(at, size, board, queues)
        try:
            with Ranks(way, timeout, {}) as ranks:
                found[at] = work(ranks)
        except (PlicaError, ZeroDivisionError) as error:
            found[at] = error
        assert way.closed is isinstance(found[at], Exception)

    threads = [threading.Thread(target=rank, args=(at,)) for at in range(size)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return found


@settings(max_examples=15)
@given(st.data(), st.sampled_from(["a=2", "a=4", "a=2,b=2", "a=8"]), st.booleans())
def test_collectives_give_the_bits_of_simulated_devices(
    data: st.DataObject, text: str, large: bool
) -> None:
    mesh = Mesh.parse(text)
    held: Layout = data.draw(layouts(mesh, partials=True))
    wanted = data.draw(layouts(mesh))
    if data.draw(st.booleans()):
        held = tuple(partial("max") if each.kind == "partial" else each for each in held)
    side = 8 if not large else int((SMALL * mesh.devices) ** 0.5) // 8 * 8 + 72
    shape = mesh.local_shape((side, side), held)
    random = np.random.default_rng(data.draw(st.integers(0, 99)))
    values = {d: random.standard_normal(shape).astype("f4") for d in range(mesh.devices)}
    route = exchanges(held, wanted)

    def work(ranks: Any) -> Any:
        own = {each: values[each] for each in ranks.devices}
        for collective in route:
            own = ranks.exchange(mesh, collective, own)
        return own

    found = on_ranks(mesh.devices, work)
    expected = work_simulated = dict(values)
    medium = SimulatedDevices(tuple(range(mesh.devices)))
    for collective in route:
        expected = work_simulated = medium.exchange(mesh, collective, work_simulated)
    for device in range(mesh.devices):
        np.testing.assert_array_equal(found[device][device], expected[device])


def test_a_number_stays_one() -> None:
    mesh, sum_ = Mesh.parse("a=2"), MeshExchange("all_reduce", 0, (("combiner", "sum"),))
    two = np.array(2, np.float32)
    found = on_ranks(2, lambda ranks: ranks.exchange(mesh, sum_, {ranks.rank: two}))
    assert [found[at][at].shape for at in (0, 1)] == [(), ()]
    assert found[0][0] == 4


def test_ranks_run_programs_as_simulated_devices_do() -> None:
    mesh = Mesh.parse("data=2,model=2")
    plan = MeshPlan.from_text("split x 0 on data; split w1 1 on model; split result.0 1 on model")
    sharded = replay(plan, perceptron(), mesh)
    expected = simulate(sharded, *inputs())
    found = on_ranks(4, lambda ranks: ranks.run(sharded, *inputs()))
    for rank in range(4):
        np.testing.assert_array_equal(found[rank], expected)


def faulty(fault: str, ranks: Ranks) -> Any:
    mesh = Mesh.parse("data=8" if fault == "devices" else "data=2,model=2")
    culprit = ranks.rank == 1
    plan = "split x 0 on data" if fault == "plan" and culprit else ""
    if fault == "raises" and culprit:
        raise ZeroDivisionError("by nothing")
    if fault == "agree":
        ranks.agree("thing", {"answer": "41" if culprit else "42"})
    if fault == "leaves" and culprit:
        return None
    return ranks.run(replay(MeshPlan.from_text(plan), perceptron(), mesh), *inputs())


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("plan", "rank 1 differs from rank 0: the plan"),
        ("devices", "has 8 devices, and there are 4 ranks"),
        ("raises", "rank 1 failed: ZeroDivisionError: by nothing"),
        ("agree", "rank 1 differs from rank 0: answer is 41, not 42"),
        ("leaves", "rank 1 "),
    ],
)
def test_all_ranks_say_why_they_fail(fault: str, said: str) -> None:
    found = on_ranks(4, lambda ranks: faulty(fault, ranks))
    for error in found.values():
        assert said in str(error) or isinstance(error, ZeroDivisionError)
        assert isinstance(error, RankError | ZeroDivisionError)


def test_a_rank_that_sends_nothing_is_named() -> None:
    def work(ranks: Ranks) -> None:
        one = np.zeros(3)
        if ranks.rank == 2:  # all wait for it, directly or not
            threading.Event().wait(3)
        ranks.swap("send step 7", {(ranks.rank - 1) % 3: one}, {(ranks.rank + 1) % 3: one.copy()})

    found = on_ranks(3, work, timeout=2)
    for error in found.values():
        assert re.search(r"rank 2 did not (send step 7|end) within 2 s", str(error))


@pytest.mark.parametrize(
    ("settings_", "said"),
    [
        ({}, "no launcher started it"),
        ({"RANK": "x", "WORLD_SIZE": "2", "MASTER_PORT": "1"}, "RANK of this process"),
        ({"RANK": "2", "WORLD_SIZE": "2", "MASTER_PORT": "1"}, "Rank 2 is not one of 2"),
        ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_PORT": ""}, "MASTER_PORT of this process"),
    ],
)
def test_what_no_launcher_would_set_is_refused(
    settings_: dict[str, str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("RANK", "WORLD_SIZE", "MASTER_PORT", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in settings_.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(RankError, match=said):
        transport(None, 5)


def test_the_launcher_says_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    assert launched_by() == "mpi"
