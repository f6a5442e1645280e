"""Gradients of whole networks by all their weights are torch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pytest

pytest.importorskip("torch")

import torch  # it may be missing

import plica
from tests.frontend.torch import network


class Loss(torch.nn.Module):
    """One number of a network, as a function of its weights."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.names = [name for name, _ in inner.named_parameters()]
        self.state = dict(inner.named_buffers())
        self.inner = [inner]  # in a list, so that its weights are not those of this module

    def forward(self, x: Any, *weights: Any) -> Any:
        given = {**self.state, **dict(zip(self.names, weights, strict=True))}
        out = torch.func.functional_call(self.inner[0], given, (x,))
        first = out[0] if isinstance(out, tuple) else out
        return (first * torch.cos(first)).mean()


# fmt: off
NETWORKS: Final[dict[str, tuple[Callable[[], Any], Callable[[], Any]]]] = {
    "resnet18":    (lambda: network.ResNet18(thin=32),  lambda: torch.randn(1, 3, 32, 32)),
    "lstm":        (network.Recurrent,                  lambda: torch.randint(0, 20, (2, 5))),
    "transformer": (network.GPT,                        lambda: torch.randint(0, 20, (2, 7))),
}
# fmt: on


def derivatives(name: str) -> tuple[Any, list[Any], list[Any]]:
    """The gradient as a module, its arguments, and what torch says."""
    torch.manual_seed(3)
    build, data = NETWORKS[name]
    inner, x = build().eval(), data()
    loss = Loss(inner)
    weights = [each.detach().clone().requires_grad_() for each in inner.parameters()]
    value = loss(x, *weights)
    wanted = torch.autograd.grad(value, weights)
    plain = [each.detach() for each in weights]
    module = plica.from_torch(torch.export.export(loss, (x, *plain)))
    found = plica.value_and_grad(module, tuple(range(1, 1 + len(plain))))
    args = [each.numpy() for each in (x, *plain)]
    return found, args, [value.detach().numpy(), *[each.numpy() for each in wanted]]


def flat(value: Any) -> list[Any]:
    return [each for item in value for each in flat(item)] if isinstance(value, tuple) else [value]


def check(found: Any, wanted: list[Any]) -> None:
    parts = flat(found)
    assert len(parts) == len(wanted)
    whole = max(float(np.abs(each).max()) for each in wanted[1:])
    for mine, reference in zip(parts, wanted, strict=True):
        scale = max(float(np.abs(reference).max()), 1e-3 * whole)
        assert mine.shape == reference.shape
        assert np.abs(mine - reference).max() <= 1e-4 * scale


@pytest.mark.parametrize("name", NETWORKS)
def test_gradients_are_those_of_torch(name: str) -> None:
    module, args, wanted = derivatives(name)
    check(plica.interpret(module, *args), wanted)


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_compiled_gradients_are_those_of_torch(name: str) -> None:
    module, args, wanted = derivatives(name)
    check(plica.compile(module)(*args), wanted)
