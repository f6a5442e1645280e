"""Module state: compiled modules follow every change of the module, or refuse."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import plica

torch = pytest.importorskip("torch")

from plica.frontend.torch.module_state import state_of  # noqa: E402  # after torch is found
from plica.pipeline.torch_source import CodeForInputs, TorchExecutable  # noqa: E402

nn: Any = torch.nn


class Config:
    """An object that a module reads."""

    def __init__(self) -> None:
        self.gain = 1.5
        self.shifts: list[Any] = [0.25, {"more": 0.5}]  # Any: numbers and dicts of them


class Block(torch.nn.Module):  # type: ignore[misc, name-defined]  # torch may be missing
    """A module with all kinds of state, and with blocks inside."""

    power = 1

    def __init__(self, inner: list[Any], config: Config) -> None:
        super().__init__()
        self.inner, self.norm, self.act = nn.ModuleList(inner), nn.BatchNorm1d(3), nn.ReLU()
        self.scale, self.flags, self.extra = 2.0, {"negate": False}, (torch.ones(3), 1)
        self.config = config

    def forward(self, x: Any) -> Any:
        x = self.act(self.norm(x)) * self.scale + self.extra[0] * self.extra[1]
        for block in self.inner:
            x = block(x)
        x = x * self.config.gain + self.config.shifts[0] + self.config.shifts[1]["more"]
        return (-x if self.flags["negate"] else x) * self.power


def _patch(block: Any, value: float) -> None:
    plain = Block.forward
    block.forward = lambda x: plain(block, x) + value


def _subclass(block: Any, value: float) -> None:
    block.__class__ = type("Powered", (Block,), {"power": value})


def _write(of: Callable[[Any], Any]) -> Callable[[Any, float], None]:
    def change(block: Any, value: float) -> None:
        with torch.no_grad():
            of(block).mul_(value)

    return change


def _twice_data(block: Any, value: float) -> None:
    for _ in range(2):  # the second allocation may have the address of the first
        block.norm.weight.data = block.norm.weight.data * value


CHANGES: dict[str, Callable[[Any, float], Any]] = {
    "attribute": lambda block, value: setattr(block, "scale", value),
    "eps": lambda block, value: setattr(block.norm, "eps", abs(value)),
    "layer": lambda block, value: setattr(block, "act", nn.LeakyReLU(value)),
    "layer attribute": lambda block, value: setattr(block, "act", nn.Softplus(abs(value))),
    "parameter": lambda block, value: setattr(
        block.norm, "bias", nn.Parameter(torch.full((3,), value))),
    "write": _write(lambda block: block.norm.weight),
    "buffer": _write(lambda block: block.norm.running_mean.add_(1)),
    "held tensor": _write(lambda block: block.extra[0]),
    "data": _twice_data,
    "dict": lambda block, value: block.flags.update(negate=not block.flags["negate"]),
    "tuple": lambda block, value: setattr(block, "extra", (block.extra[0], value)),
    "config": lambda block, value: setattr(block.config, "gain", value),
    "config list": lambda block, value: block.config.shifts.__setitem__(0, value),
    "config dict": lambda block, value: block.config.shifts[1].update(more=value),
    "hook": lambda block, value: block.register_forward_hook(lambda m, i, o: o * value),
    "pre-hook": lambda block, value: block.norm.register_forward_pre_hook(
        lambda m, i: (i[0] + value,)),
    "removed hooks": lambda block, value: block._forward_hooks.clear(),
    "forward": _patch,
    "class": _subclass,
    "train": lambda block, value: block.train(),
    "train norm": lambda block, value: block.norm.train(),
    "eval": lambda block, value: block.eval(),
    "append": lambda block, value: block.inner.append(nn.Hardtanh(-abs(value), abs(value))),
    "pop": lambda block, value: block.inner.__delitem__(slice(1, None)),
    "equal value": lambda block, value: setattr(block, "scale", float(str(block.scale))),
}  # fmt: skip


def tree(depth: int, width: int) -> Any:
    config = Config()

    def made(depth: int) -> Any:
        return Block([made(depth - 1) for _ in range(width)] if depth else [], config)

    return made(depth).eval()


def agree(exe: Any, model: Any, x: Any) -> bool:
    """Whether the compiled module gives what the module gives; False where it refuses."""
    try:
        got = np.asarray(exe(x))
    except plica.UnsupportedError:
        assert any(each.training for each in model.modules())
        return False
    want = copy.deepcopy(model)(x).detach().numpy()
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4)
    return True


@pytest.mark.parametrize("name", CHANGES)
def test_every_change_is_seen(name: str) -> None:
    """By the state, of which a compiled module asks nothing else."""
    model = tree(1, 1)
    before = state_of(model)
    assert before.holds()
    CHANGES[name](model.inner[0], 0.625)
    is_same = name in ("eval", "equal value", "removed hooks")
    assert is_same or not before.holds()
    assert state_of(model).equals(before) == is_same


def interpreted(model: Any) -> Any:
    """A compiled module without a code generator: its graphs are interpreted."""

    def code(graph: Any) -> Any:
        return lambda *tensors: plica.interpret(graph, *[each.numpy() for each in tensors])

    return TorchExecutable(CodeForInputs(model, code))


@settings(max_examples=2, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.data())
def test_a_compiled_module_follows_drawn_changes(data: st.DataObject) -> None:
    follow(data, 1)


@pytest.mark.slow
@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.data())
def test_a_compiled_module_follows_many_drawn_changes(data: st.DataObject) -> None:
    follow(data, 2)


def follow(data: st.DataObject, depth: int) -> None:
    """Hold a compiled module to the module after each of some drawn changes."""
    torch.manual_seed(data.draw(st.integers(0, 99)))
    width = data.draw(st.integers(1, 2))
    model, x = tree(data.draw(st.integers(0, depth)), width), torch.randn(4, 3)
    exe = interpreted(model)
    agree(exe, model, x)
    for _ in range(data.draw(st.integers(1, 3))):
        blocks = [each for each in model.modules() if isinstance(each, Block)]
        name = data.draw(st.sampled_from(sorted(CHANGES)))
        CHANGES[name](data.draw(st.sampled_from(blocks)), data.draw(st.sampled_from([0.5, 3.0])))
        agree(exe, model, x)


def test_a_global_hook_is_seen() -> None:
    model, x = tree(0, 1), torch.randn(4, 3)
    state = state_of(model)
    handle = nn.modules.module.register_module_forward_hook(lambda m, i, o: o * 2)
    assert not state.holds()
    handle.remove()
    assert state.holds()
    assert agree(interpreted(model), model, x)


def test_code_is_kept_while_nothing_changes() -> None:
    model, x = tree(1, 2), torch.randn(4, 3)
    exe = plica.compile(model, effort="fast")
    for _ in range(3):
        assert agree(exe, model, x)
        model.eval()
        model.scale = float("2")
    assert exe.stats.compilations == 1


class Counting(torch.nn.Module):  # type: ignore[misc, name-defined]  # as above
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: Any) -> Any:
        self.calls += 1
        return x * self.calls


def test_a_module_that_changes_itself_is_refused() -> None:
    model = Counting().eval()
    with pytest.raises(plica.UnsupportedError, match=r"(?s)changes its own.*found: calls.*Call"):
        plica.compile(model)(torch.ones(3))
    assert model.calls == 0
