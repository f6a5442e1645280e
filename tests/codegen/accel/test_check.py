"""The checker and the tokens: right streams are right in every order, and every token is needed."""

from __future__ import annotations

import numpy as np
import pytest
from attrs import evolve
from hypothesis import given, settings, strategies as st

from plica.codegen.accel.check import check, redundant, verify
from plica.codegen.accel.conv import Convolution, ConvTiling, convolution
from plica.codegen.accel.cycle import simulate
from plica.codegen.accel.declaration import Accelerator, Queue
from plica.codegen.accel.device import run
from plica.codegen.accel.encode import read_stream
from plica.codegen.accel.instruction import Stream
from plica.codegen.accel.order import BadStream, Token, legal_order, matched
from plica.codegen.accel.stream import build
from plica.codegen.accel.token import insert
from plica.codegen.accel.vta import osdi, vta
from plica.codegen.accel.witness import without, witness
from tests.codegen.accel.machines import FEW, MACHINES, NAMES, OUTER, TOY, filled, streams


@pytest.mark.parametrize("machine", MACHINES, ids=NAMES)
@settings(max_examples=FEW)
@given(data=st.data())
def test_inserted_tokens_are_right_in_every_order(
    machine: Accelerator, data: st.DataObject
) -> None:
    stream = insert(machine, data.draw(streams(machine)))
    races = [each for each in check(machine, stream) if each.kind != "recurrence"]
    assert races == []
    values = filled(machine, stream)
    expected = run(machine, stream, values)
    for seed in range(3):
        found = run(machine, stream, values, legal_order(machine, stream.code, seed))
        assert all(np.array_equal(found[name], expected[name]) for name in expected)


@pytest.mark.parametrize("machine", MACHINES, ids=NAMES)
@settings(max_examples=FEW)
@given(data=st.data())
def test_every_inserted_token_is_needed(machine: Accelerator, data: st.DataObject) -> None:
    stream = insert(machine, data.draw(streams(machine)))
    assert redundant(machine, stream) == []
    for token in matched(machine, stream.code):
        assert any(each.kind == "race" for each in check(machine, without(machine, stream, token)))
        for half in (evolve(token, push=None), evolve(token, pop=None)):
            assert check(machine, without(machine, stream, half))


@pytest.mark.parametrize("machine", MACHINES, ids=NAMES)
@settings(max_examples=FEW)
@given(data=st.data())
def test_redundant_tokens_are_those_that_may_go(machine: Accelerator, data: st.DataObject) -> None:
    """Each token that is redundant alone may go, and no other."""
    bare = data.draw(streams(machine, 6))
    stream = _chained(machine, bare)
    if check(machine, stream):
        return
    extra = set(redundant(machine, stream))
    for token in matched(machine, stream.code):
        assert (check(machine, without(machine, stream, token)) == []) == (token in extra)


def _chained(machine: Accelerator, bare: Stream) -> Stream:
    """Tokens that are needed, and between neighbours in the code one more where there is room."""
    stream = insert(machine, bare)
    code = list(stream.code)
    place = {each: at for at, each in enumerate(machine.units)}
    for at in range(len(code) - 1):
        ends = [place[machine.operation(each.name).unit] for each in code[at : at + 2]]
        if ends[1] - ends[0] != 1 or not machine.operation(code[at + 1].name).carries:
            continue
        if not code[at].tokens & 8 and not code[at + 1].tokens & 1:
            code[at] = evolve(code[at], tokens=code[at].tokens | 8)
            code[at + 1] = evolve(code[at + 1], tokens=code[at + 1].tokens | 1)
    return evolve(stream, code=tuple(code))


# fmt: off
CONVOLUTIONS = [
    (Convolution(32, 4, 4, 32, 3, 1, 1, 6), ConvTiling(2, 4, 1, 1, 1)),
    (Convolution(32, 4, 4, 32, 3, 1, 1, 6), ConvTiling(2, 4, 1, 1, 2)),
    (Convolution(32, 4, 4, 32, 3, 2, 1, 6), ConvTiling(2, 1, 1, 1, 2, "outputs")),
    (Convolution(16, 2, 3, 48, 1, 1, 0, 6), ConvTiling(1, 3, 1, 1, 2, "outputs")),
    (Convolution(32, 6, 3, 16, 3, 1, 1, 6), ConvTiling(1, 3, 1, 2, 2, "height", keep=True)),
]
# fmt: on


@pytest.mark.parametrize("case", range(len(CONVOLUTIONS)))
def test_a_stream_without_one_token_is_refused_and_goes_wrong(case: int) -> None:
    machine = osdi()
    stream = build(machine, convolution(machine, *CONVOLUTIONS[case]))
    _kill(machine, stream)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_stream_of_the_toy_without_one_token_goes_wrong(threads: int) -> None:
    _kill(OUTER, build(OUTER, TOY.matrix_product(2, 3, 4, threads)))


def _kill(machine: Accelerator, stream: Stream) -> None:
    values = {name: each for name, each in filled(machine, stream).items() if name in "xw"}
    tokens = matched(machine, stream.code)
    assert tokens
    for token in tokens:
        mutant = without(machine, stream, token)
        with pytest.raises(BadStream):
            verify(machine, mutant)
        found = witness(machine, mutant, values)
        assert found is not None, token


def _faults(text: str, machine: Accelerator | None = None) -> list[str]:
    machine = machine or vta()
    return [each.text for each in check(machine, read_stream(machine, text))]


def test_a_race_shows_both_instructions(golden: object) -> None:
    assert callable(golden)
    text = """
        load.inp y_size=1 x_size=4
        gemm uop_end=1 iter_out=1 iter_in=1
        load.inp y_size=1 x_size=4
        finish
    """
    golden("\n".join(_faults(text)))


def test_a_token_without_push_is_refused() -> None:
    assert "No instruction pushes" in _faults("load.uop !pop_prev")[0]


def test_a_token_that_is_left_is_refused() -> None:
    assert "is never popped" in _faults("load.inp !push_next")[0]


def test_a_circle_is_a_deadlock() -> None:
    text = "load.inp !pop_next\nload.inp !push_next\nload.uop !pop_prev\nload.uop !push_prev"
    assert any("wait for each other" in each for each in _faults(text))
    machine = vta()
    with pytest.raises(BadStream, match="No unit can go on"):
        legal_order(machine, read_stream(machine, text).code, seed=0)


def test_a_queue_that_is_too_short_is_a_deadlock() -> None:
    # Compute and store each give two tokens before they take any.
    text = "load.uop !push_next\nload.uop !push_next\nstore.out !push_prev\nstore.out !push_prev\n"
    text += "load.uop !pop_next\nload.uop !pop_next\nstore.out !pop_prev\nstore.out !pop_prev"
    short = evolve(vta(), queues=tuple(Queue(q.source, q.target, 1) for q in vta().queues))
    assert _faults(text) == []
    assert any("wait for each other" in each for each in _faults(text, short))
    with pytest.raises(BadStream, match="for ever"):
        simulate(short, read_stream(short, text))


def test_an_element_that_recurs_at_once_is_refused() -> None:
    text = ".tensor micro uop 0 2\n.micro\n.micro\nload.uop y_size=1 x_size=2\n"
    text += "gemm uop_end=2 iter_out=1 iter_in=1\nfinish"
    assert "recurs within 2" in _faults(text)[0]


def test_a_stream_that_may_end_early_is_refused() -> None:
    assert "may end before" in _faults("store.out y_size=1 x_size=1\nfinish")[0]


def test_nothing_follows_the_end() -> None:
    assert "follow the last" in _faults("finish\nload.uop")[0]


def test_a_store_into_the_micro_operations_is_refused() -> None:
    text = ".tensor micro uop 0 4\n.micro\n.micro\n.micro\n.micro\nstore.out y_size=1 x_size=1"
    assert "may change the micro-operations" in _faults(text)[0]


def test_a_store_orders_the_load_of_what_it_wrote() -> None:
    text = ".tensor x inp 0 4\nstore.out y_size=1 x_size=2\nload.inp y_size=1 x_size=2\nfinish"
    bare = read_stream(vta(), text)
    assert "RAW on memory" in check(vta(), bare)[0].text
    made = insert(vta(), bare)
    assert check(vta(), made) == []
    assert [each.name for each in made.code] == [
        "store.out",
        "load.uop",
        "load.inp",
        "load.uop",
        "finish",
    ]


def test_units_that_no_queue_joins_are_refused() -> None:
    machine = evolve(vta(), queues=vta().queues[:1])
    text = "gemm uop_end=1 iter_out=1 iter_in=1\nload.inp y_size=1 x_size=1"
    with pytest.raises(BadStream, match="no queue joins"):
        insert(machine, read_stream(machine, text))


def test_a_token_knows_its_ends() -> None:
    stream = read_stream(vta(), "load.inp !push_next\nload.uop !pop_prev")
    assert matched(vta(), stream.code) == [Token(0, 0, 1)]


def test_an_access_outside_of_a_scope_is_a_fault() -> None:
    faults = check(vta(), read_stream(vta(), "load.inp sram=2047 y_size=1 x_size=2 !push_next\n"))
    assert [each.kind for each in faults if each.kind == "outside"] == ["outside"]
    assert "outside of inp" in next(each.text for each in faults if each.kind == "outside")


def test_an_access_behind_all_tensors_is_a_fault() -> None:
    text = "load.uop dram=8 y_size=1 x_size=0\nload.inp dram={at} y_size=1 x_size=2\n"
    near, far = (read_stream(vta(), ".tensor x inp 0 4\n" + text.format(at=at)) for at in (2, 3))
    assert not [each for each in check(vta(), near) if each.kind == "outside"]
    (fault,) = [each for each in check(vta(), far) if each.kind == "outside"]
    assert fault.instructions == (1,)
    assert "end at byte 64" in fault.text
    with pytest.raises(BadStream, match="end at byte 64"):
        verify(vta(), far)
