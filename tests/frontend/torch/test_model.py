"""Networks of many operators agree with torch, interpreted and compiled, exported and traced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pytest

pytest.importorskip("torch")

import torch  # it may be missing

import plica
from tests.frontend.torch import network


def image(*shape: int) -> Callable[[], Any]:
    return lambda: torch.randn(*shape)


def words(*shape: int) -> Callable[[], Any]:
    return lambda: torch.randint(0, 20, shape)


# fmt: off
MODELS: Final[dict[str, tuple[Callable[[], Any], Callable[[], Any]]]] = {
    "resnet18":     (lambda: network.ResNet18(thin=16),   image(1, 3, 32, 32)),
    "mobilenet_v2": (lambda: network.MobileNetV2(thin=4), image(1, 3, 32, 32)),
    "lstm":         (network.Recurrent,                   words(2, 5)),
    "encoder":      (network.encoder,                     image(2, 6, 16)),
    "gpt":          (network.GPT,                         words(2, 7)),
}
# fmt: on


def made(name: str) -> tuple[Any, Any]:
    torch.manual_seed(3)
    build, data = MODELS[name]
    model = build()
    for each in model.modules():  # statistics as after training, not the plain ones
        if isinstance(each, torch.nn.BatchNorm2d):
            torch.nn.init.normal_(each.get_buffer("running_mean"), 0.0, 0.2)
            torch.nn.init.uniform_(each.get_buffer("running_var"), 0.5, 1.5)
    return model.eval(), data()


def close(found: Any, wanted: Any, tolerance: float) -> None:
    pairs = zip(torch.utils._pytree.tree_leaves(found), torch.utils._pytree.tree_leaves(wanted),
                strict=True)  # fmt: skip
    for mine, reference in pairs:
        a, b = np.asarray(mine), np.asarray(reference)
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        assert np.abs(a - b).max() <= tolerance * np.abs(b).max()


# Compiling takes seconds; these two stand for all in the short profile.
SHORT: Final = ("gpt", "lstm")
ALL: Final = [
    pytest.param(name, marks=() if name in SHORT else pytest.mark.slow) for name in sorted(MODELS)
]


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("name", sorted(MODELS))
def test_an_exported_network_means_the_same(name: str) -> None:
    model, x = made(name)
    module = plica.from_torch(torch.export.export(model, (x,)))
    with torch.no_grad():
        close(plica.interpret(module, x.numpy()), model(x), 1e-5)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("name", sorted(MODELS))
def test_an_exported_network_is_compiled(name: str) -> None:
    model, x = made(name)
    module = plica.from_torch(torch.export.export(model, (x,)))
    with torch.no_grad():
        wanted = model(x)
    close(plica.compile(module)(x.numpy()), wanted, 1e-4)
    close(plica.compile(module, contract="exact")(x.numpy()), wanted, 1e-5)


@pytest.mark.filterwarnings("error::plica.dynamo.TorchFallback")
@pytest.mark.parametrize("name", ALL)
def test_a_traced_network_agrees_and_nothing_is_left_to_torch(name: str) -> None:
    model, x = made(name)
    torch.compiler.reset()
    with torch.no_grad():
        code: Any = torch.compile(model, backend="plica")
        close(code(x), model(x), 1e-4)
