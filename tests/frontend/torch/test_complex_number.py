"""Complex numbers inside of programs: transforms and what is done with them, held against torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import plica

torch = pytest.importorskip("torch")

WINDOW = torch.hann_window(16)
TURNS = torch.polar(torch.ones(3, 4), torch.arange(12.0).reshape(3, 4))


class Model(torch.nn.Module):  # type: ignore[misc, name-defined]  # torch may be absent
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        self.register_buffer("turns", TURNS)

    def forward(self, x: Any) -> Any:
        return self.function(self, x)


def exported(function: Callable[..., Any], x: Any) -> Any:
    return torch.export.export(Model(function), (x,))


def spectrum(model: Any, x: Any) -> Any:
    return torch.stft(x, 16, hop_length=4, window=WINDOW, return_complex=True)


def back(x: Any) -> Any:
    return torch.istft(x, 16, hop_length=4, window=WINDOW)


def parts(x: Any) -> Any:
    return torch.view_as_real(x)


FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "spectrum": lambda model, x: spectrum(model, x).abs(),
    "there and back": lambda model, x: back(spectrum(model, x) * 2),
    "angles": lambda model, x: torch.angle(torch.fft.rfft(x) + 0.5),
    "rows": lambda model, x: torch.fft.fft2(x).real,
    "half": lambda model, x: torch.fft.irfft(torch.fft.rfft(x, norm="ortho"), n=37, norm="ortho"),
    "many": lambda model, x: torch.fft.irfftn(torch.fft.rfftn(x), s=(2, 40)),
    "backwards": lambda model, x: parts(torch.fft.ifft(torch.fft.fft(x, norm="forward"))),
    "shifted": lambda model, x: torch.fft.fftshift(torch.fft.fft(x)).abs(),
    "powers": lambda model, x: (torch.exp(1j * x) * torch.fft.fft(x).conj()).real.sum(),
    "quotients": lambda model, x: parts(torch.fft.fft(x) / (torch.fft.fft(x + 1) + 2j)),
    "joined": lambda model, x: parts(torch.cat([torch.fft.fft(x), -torch.fft.fft(x)], 1).sum(0)),
    "turned": lambda model, x: torch.view_as_real(
        torch.view_as_complex(x[:, :24].reshape(2, 3, 4, 2)) * model.turns).flatten(2),
    "beside real ones": lambda model, x: parts(torch.cat([torch.fft.fft(x), x])),
    "above real ones": lambda model, x: parts(torch.stack([x, torch.fft.fft(x)])),
    "borders": lambda model, x: parts(
        torch.nn.functional.pad(torch.fft.fft(x), (1, 2), value=3.0)),
    "real ones put in": lambda model, x: parts(
        torch.slice_scatter(torch.fft.fft(x), x[:1], 0, 0, 1)),
    "a diagonal": lambda model, x: parts(
        torch.diagonal_scatter(torch.fft.fft(x), x[0, :2])),
    "real parts kept": lambda model, x: torch.slice_scatter(x, torch.fft.fft(x)[:1], 0, 0, 1),
    "summed as complex": lambda model, x: parts(x.sum(dtype=torch.complex64)),
    "means": lambda model, x: parts(torch.fft.fft(x).mean(1)),
    "chosen": lambda model, x: parts(torch.where(x > 0, torch.fft.fft(x), x)),
    "filled": lambda model, x: parts(torch.fft.fft(x).masked_fill(x > 0, 2j)),
    "gathered": lambda model, x: parts(torch.fft.fft(x)[:, torch.tensor([3, 0, 3])]),
    "by a mask": lambda model, x: parts(torch.fft.fft(x)[x > 0]),
    "by zero": lambda model, x: parts(torch.fft.fft(x) / torch.complex(x * 0, x * 0)),
    "made": lambda model, x: torch.view_as_real(torch.complex(x, x * 2) - torch.polar(x.abs(), x)),
}  # fmt: skip


def largest(x: Any) -> float:
    return float(x.abs().nan_to_num(posinf=0.0).max())


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_program_gives_what_torch_gives(name: str) -> None:
    function = FUNCTIONS[name]
    x = torch.randn(2, 48, generator=torch.Generator().manual_seed(len(name)))
    wanted = Model(function)(x)
    found = np.asarray(plica.compile(exported(function, x))(x))
    np.testing.assert_allclose(found, wanted, rtol=2e-4, atol=2e-5 * largest(wanted))


@given(st.integers(1, 40), st.integers(0, 3), st.booleans())
def test_transforms_of_all_lengths(length: int, seed: int, half: bool) -> None:
    def there(model: Any, x: Any) -> Any:
        return torch.view_as_real((torch.fft.rfft if half else torch.fft.fft)(x))

    x = torch.randn(3, length, generator=torch.Generator().manual_seed(seed))
    found = plica.interpret(plica.from_torch(exported(there, x)), x.numpy())
    np.testing.assert_allclose(found, there(None, x), rtol=1e-4, atol=1e-4)


def test_bins_that_are_real_are_exactly_real() -> None:
    x = torch.randn(4, 24)
    program = exported(lambda model, x: torch.view_as_real(torch.fft.rfft(x)), x)
    found = np.asarray(plica.interpret(plica.from_torch(program), x.numpy()))
    assert not found[:, (0, -1), 1].any()


def refused(function: Callable[..., Any], x: Any) -> str:
    with pytest.raises(plica.PlicaError) as caught:
        plica.from_torch(exported(function, x))
    assert caught.value.code == "unsupported"
    return str(caught.value)


def test_complex_inputs_and_outputs_are_refused() -> None:
    x = torch.ones(4)
    assert "view_as_complex" in refused(lambda model, x: x.abs(), x.to(torch.complex64))
    assert "view_as_real" in refused(lambda model, x: torch.fft.fft(x), x)


def test_an_operator_without_a_complex_meaning_here_is_refused() -> None:
    said = refused(lambda model, x: torch.fft.fft(x).tanh().abs(), torch.ones(4))
    assert "not supported on complex numbers" in said
