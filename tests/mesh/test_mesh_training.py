"""Training on meshes: the numbers of one device, memory in blocks, checkpoints for any mesh."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from plica import op
from plica.core import Malformed
from plica.ir.graph.module import Module
from plica.ir.interpret.value import Array
from plica.mesh import Mesh, MeshPlan, MeshTrainer, latest, zero_plan
from plica.mesh.execute import SimulatedDevices, interpreted
from plica.op import nn
from plica.runtime.error import InputError
from plica.training import Optimiser, adafactor, adam, adamw, momentum, muon, sgd, step
from plica.training.step import TrainingStep
from tests.mesh.network import module_of, var

OPTIMISERS = {"sgd": sgd(0.1), "momentum": momentum(0.1), "adam": adam(0.1), "adamw": adamw(0.1),
              "muon": muon(0.1), "adafactor": adafactor(0.1)}  # fmt: skip
MESHES = ["data=1", "data=2", "data=4", "data=2,model=2"]


def loss() -> Module:
    x, y, w, b, v = (var(*each) for each in (
        ("x", 8, 4), ("y", 8, 2), ("w", 4, 8), ("b", 8), ("v", 8, 2)))  # fmt: skip
    off = op.matmul(op.tanh(op.matmul(x, w) + b), v) - y
    return module_of(x, y, w, b, v, gives=op.mean(off * off) + 0.0 * op.sum(nn.relu(b)))


def made(way: Optimiser) -> TrainingStep:
    return step(loss(), way, ("w", "b", "v"))


def weights() -> dict[str, Array]:
    random = np.random.default_rng(0)
    shapes = {"w": (4, 8), "b": (8,), "v": (8, 2)}
    return {name: random.standard_normal(shape).astype("f4") for name, shape in shapes.items()}


def batch(at: int) -> tuple[Array, Array]:
    random = np.random.default_rng(100 + at)
    return random.standard_normal((8, 4)).astype("f4"), random.standard_normal((8, 2)).astype("f4")


def trainer(way: Optimiser, text: str, plan: str = "", *, in_blocks: bool = False) -> MeshTrainer:
    mesh, of = Mesh.parse(text), made(way)
    steps = zero_plan(of, mesh, "data", weights=in_blocks)
    whole = MeshPlan((*MeshPlan.from_text(plan).steps, *steps.steps))
    return MeshTrainer(of, whole, mesh, SimulatedDevices(tuple(range(mesh.devices))), interpreted)


def trained(train: MeshTrainer, steps: range, state: Any = None) -> tuple[list[float], Any]:
    state = state or train.start(**weights())
    losses = []
    for at in steps:
        value, state = train(state, *batch(at))
        losses.append(float(value))
    return losses, state


@pytest.mark.parametrize("name", OPTIMISERS)
@pytest.mark.parametrize("mesh", ["data=2", "data=2,model=2"])
def test_a_mesh_trains_as_one_device_does(name: str, mesh: str) -> None:
    alone = trainer(OPTIMISERS[name], "data=1")
    expected, state = trained(alone, range(4))
    train = trainer(OPTIMISERS[name], mesh, "split weights.0 1 on model; split result.1 1 on model"
                    if "model" in mesh and name in {"sgd", "momentum"} else "")  # fmt: skip
    found, other = trained(train, range(4))
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    for key, value in alone.whole(state).items():
        np.testing.assert_allclose(train.whole(other)[key], value, rtol=1e-3, atol=1e-4)


def test_memory_is_held_in_blocks() -> None:
    train = trainer(adamw(), "data=4")
    held = train.start(**weights()).parts[0]
    names = train.program.names
    shapes = {name: each.shape for name, each in zip(names, held, strict=False)}
    assert shapes["weights.0"] == (4, 8)
    assert shapes["memory.1.0"] == shapes["memory.1.1"] == (1, 8)
    in_blocks = trainer(adamw(), "data=4", in_blocks=True)
    assert in_blocks.start(**weights()).parts[0][0].shape == (1, 8)
    assert trained(in_blocks, range(2))[0] == pytest.approx(trained(train, range(2))[0], rel=1e-5)


@pytest.mark.parametrize("first", MESHES)
@pytest.mark.parametrize("second", MESHES)
def test_a_checkpoint_has_the_bits_of_the_state_on_any_mesh(
    first: str, second: str, tmp_path: Path
) -> None:
    one, two = trainer(adamw(), first), trainer(adamw(), second)
    _, state = trained(one, range(2))
    one.save(tmp_path / "000002", state, step=2)
    loaded, facts = two.load(tmp_path / "000002")
    assert facts == {"step": 2}
    for name, array in one.whole(state).items():
        np.testing.assert_array_equal(two.whole(loaded)[name], array)
    again = tmp_path / "000003"
    two.save(again, loaded, step=2)
    back, _ = one.load(again)
    for device, parts in state.parts.items():
        for mine, other in zip(parts, back.parts[device], strict=True):
            np.testing.assert_array_equal(mine, other)


@pytest.mark.parametrize("name", OPTIMISERS)
def test_resuming_gives_the_same_bits(name: str, tmp_path: Path) -> None:
    train = trainer(OPTIMISERS[name], "data=2")
    expected, state = trained(train, range(5))
    _, half = trained(train, range(3))
    train.save(tmp_path / "3", half)
    losses, resumed = trained(train, range(3, 5), trainer(OPTIMISERS[name], "data=2").load(
        tmp_path / "3")[0])  # fmt: skip
    assert losses == expected[3:]
    for key, value in train.whole(state).items():
        np.testing.assert_array_equal(train.whole(resumed)[key], value)


def test_the_latest_complete_checkpoint_counts(tmp_path: Path) -> None:
    assert latest(tmp_path) is None
    train = trainer(sgd(), "data=2")
    for at in (10, 20, 30):
        train.save(tmp_path / f"{at:06}", train.start(**weights()))
    (tmp_path / "000030" / "manifest.json").unlink()  # its ranks were killed before
    assert latest(tmp_path) == tmp_path / "000020"


def test_damaged_checkpoints_are_refused(tmp_path: Path) -> None:
    train = trainer(adam(), "data=2")
    train.save(tmp_path, train.start(**weights()))
    with pytest.raises(Malformed, match="of another step"):
        trainer(sgd(), "data=2").load(tmp_path)
    path = tmp_path / "1.npz"
    content = path.read_bytes()
    for bad in (content[:99], content[:200] + b"\0" * 300 + content[500:], b""):
        path.write_bytes(bad)
        with pytest.raises(Malformed, match="damaged"):
            train.load(tmp_path)
    manifest = tmp_path / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "plica-checkpoint": 2}))
    with pytest.raises(Malformed, match="another version"):
        train.load(tmp_path)
    manifest.write_text("{")
    with pytest.raises(Malformed, match="no complete checkpoint"):
        train.load(tmp_path)


def test_a_plan_that_moves_the_state_is_refused() -> None:
    mesh = Mesh.parse("data=2")
    plan = MeshPlan.from_text(
        "split x 0 on data; replicate result.1 on data; split weights.0 0 on data"
    )
    with pytest.raises(InputError, match=r"weights\.0 is held otherwise than before"):
        MeshTrainer(made(sgd()), plan, mesh, SimulatedDevices((0, 1)), interpreted)


def test_other_weights_are_refused() -> None:
    with pytest.raises(InputError, match="The weights are others"):
        trainer(sgd(), "data=2").start(w=weights()["w"])
