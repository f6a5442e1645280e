"""Trainers: one native call a step, and states that are values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import plica
from plica.core.name import Name
from plica.ir.graph.expression import Function, Var
from plica.ir.op.reduction import mean, sum_
from plica.ir.type.dim import dim_var
from plica.ir.type.term import tensor
from plica.op import nn
from plica.training import Trainer, adam, momentum, sgd, step, trainer

XOR = np.array([[0, 0], [0, 1], [1, 0], [1, 1]], np.float32)
WANTED = np.array([[0], [1], [1], [0]], np.float32)


def var(name: str, *shape: int) -> Var:
    return Var(Name(name), tensor(shape, "f32"))


def xor_loss() -> Function:
    """The mean square of what a net of two layers is off by."""
    x, y = var("x", 4, 2), var("y", 4, 1)
    w, b, v, c = var("w", 8, 2), var("b", 8), var("v", 1, 8), var("c", 1)
    hidden = plica.op.tanh(nn.dense(x, w) + b)
    off = nn.dense(hidden, v) + c - y
    return Function((), (), (x, y, w, b, v, c), None, mean(off * off))


def beginning() -> dict[str, Any]:
    random = np.random.default_rng(0)
    shapes = {"w": (8, 2), "b": (8,), "v": (1, 8), "c": (1,)}
    return {name: random.standard_normal(s).astype(np.float32) for name, s in shapes.items()}


@pytest.mark.parametrize("way", [sgd(0.2), momentum(0.05), adam(0.05)], ids=lambda way: way.name)
def test_two_layers_learn_xor(way: plica.training.Optimiser) -> None:
    train = trainer(xor_loss(), way, wrt=("w", "b", "v", "c"), threads=1)
    state = train.start(**beginning())
    losses = []
    for _ in range(2000):
        loss, state = train(state, XOR, WANTED)
        losses.append(float(loss))
    assert losses[-1] < 1e-3
    hidden = np.tanh(XOR @ state["w"].T + state["b"])
    found = hidden @ state["v"].T + state["c"]
    assert ((found > 0.5) == WANTED).all()


def sloping() -> Trainer:
    w, g = var("w", 3), var("g", 3)
    return trainer(Function((), (), (w, g), None, sum_(w * g)), momentum(0.5), wrt="w")


def test_a_state_that_somebody_holds_never_changes() -> None:
    train = sloping()
    g = np.ones(3, np.float32)
    states = [train.start(w=np.zeros(3, np.float32))]
    for _ in range(8):
        states.append(train(states[-1], g)[1])
    kept = [(each["w"].copy(), each.memory[0][0].copy()) for each in states]
    again = states[2]
    for _ in range(5):
        _, again = train(again, g)
    for state, (w, v) in zip(states, kept, strict=True):
        np.testing.assert_array_equal(state["w"], w)
        np.testing.assert_array_equal(state.memory[0][0], v)
    np.testing.assert_array_equal(again["w"], states[7]["w"])


def test_a_part_that_somebody_holds_never_changes() -> None:
    train = sloping()
    g = np.ones(3, np.float32)
    _, state = train(train.start(w=np.zeros(3, np.float32)), g)
    view, lent, memory = state["w"][1:], state["w"].data, state.memory
    before = [view.copy(), np.array(lent), memory[0][0].copy()]
    for _ in range(6):
        _, state = train(state, g)
    for held, wanted in zip((view, np.asarray(lent), memory[0][0]), before, strict=True):
        np.testing.assert_array_equal(held, wanted)


def test_in_a_loop_two_states_take_turns() -> None:
    train = sloping()
    g = np.ones(3, np.float32)
    state = train.start(w=np.zeros(3, np.float32))
    places = []
    for _ in range(12):
        _, state = train(state, g)
        places.append(state["w"].ctypes.data)
    assert len(set(places)) == 2


def test_the_weights_one_begins_with_are_copied() -> None:
    train = sloping()
    w = np.zeros(3, np.float32)
    state = train.start(w=w)
    for _ in range(4):
        _, state = train(state, np.ones(3, np.float32))
    assert not w.any()


def test_inputs_by_name_and_rates_by_step() -> None:
    w, g = var("w", 2), var("g", 2)
    train = trainer(Function((), (), (w, g), None, sum_(w * g)), sgd(None), wrt="w")
    state = train.start(w=np.zeros(2, np.float32))
    _, state = train(state, rate=0.5, g=np.ones(2, np.float32))
    _, state = train(state, np.ones(2, np.float32), 2.0)
    np.testing.assert_array_equal(state["w"], [-2.5, -2.5])


def test_what_is_wrong_with_weights_is_said() -> None:
    train = sloping()
    with pytest.raises(plica.InputError, match="'w' is not given"):
        train.start()
    with pytest.raises(plica.InputError, match="no weight 'v'"):
        train.start(w=np.zeros(3, np.float32), v=np.zeros(3, np.float32))
    with pytest.raises(plica.InputError, match="wrong shape"):
        train.start(w=np.zeros(2, np.float32))


def test_what_is_wrong_with_inputs_is_said() -> None:
    train = sloping()
    g = np.ones(3, np.float32)
    state = train.start(w=g)
    with pytest.raises(plica.InputError, match="'g' is not given"):
        train(state)
    with pytest.raises(plica.InputError, match="More values"):
        train(state, g, g)
    with pytest.raises(plica.InputError, match="no input 'h'"):
        train(state, g, h=g)
    with pytest.raises(plica.InputError, match="given twice"):
        train(state, g, g=g)
    with pytest.raises(plica.InputError, match="wrong shape"):
        train(state, np.ones(2, np.float32))


def test_open_sizes_are_for_those_who_call_the_step_themselves() -> None:
    n = dim_var("n")
    w = var("w", 2)
    x = Var(Name("x"), tensor((n, 2), "f32"))
    loss = Function((n,), (), (w, x), None, mean(x * w))
    with pytest.raises(plica.UnsupportedError, match="sizes that are known"):
        trainer(loss, sgd(), wrt="w")
    exe = plica.compile(step(loss, sgd(1.0), "w").module)
    for rows in (1, 5):
        given = np.ones((rows, 2), np.float32)
        value, moved = exe((np.ones(2, np.float32),), (), given)
        np.testing.assert_allclose(moved, [0.5, 0.5], rtol=1e-6)
        assert value == 1
