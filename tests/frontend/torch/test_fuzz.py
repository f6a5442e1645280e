"""Random programs of torch: none differs from torch, and what is planted is found and small."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")

import torch  # it may be missing

from plica.cli import main
from plica.cli.fuzz.peer import exported
from plica.frontend.torch.dtype import array_of
from plica.frontend.torch.fuzz import fuzz
from plica.frontend.torch.fuzz.case import TorchCase, torch_case
from plica.frontend.torch.fuzz.open_result import is_open
from plica.frontend.torch.fuzz.row import KnownValue, TorchCall
from plica.frontend.torch.fuzz.run import as_pytest, judged


def test_random_programs_give_what_torch_gives() -> None:
    report = fuzz({"plica.compile": exported}, 3, seed=4)
    assert report.finding is None, report.finding
    assert report.examples == 3
    assert sum(report["refused"].values()) < 3  # programs are compiled, not all of them refused


def test_a_case_is_the_same_for_the_same_seed() -> None:
    assert torch_case(5, 3).text() == torch_case(5, 3).text()
    assert torch_case(5, 3).text() != torch_case(5, 4).text()


def test_what_is_planted_is_found_and_made_small() -> None:
    """Every second element of the first result is lost."""

    def wrong(module: torch.nn.Module) -> Callable[..., Any]:
        def run(*inputs: torch.Tensor) -> Any:
            first, *rest = module(*inputs)
            changed = first.clone()
            if changed.dtype.is_floating_point:
                changed.flatten()[::2] += 100
            return (changed, *rest)

        return run

    found = fuzz({"plica.compile": wrong}, 20, seed=1).finding
    assert found is not None
    assert len(found.parts) <= 1
    assert "def test_program() -> None:" in found.pytest


@pytest.mark.parametrize(
    ("way", "call"),
    [
        ("plica.compile", "plica.compile(Program().eval(), threads=1)"),
        ("torch.compile", 'torch.compile(forward, backend="plica")'),
        ("cuda", "plica.compile(Program().eval(), target='cuda')"),
    ],
)
def test_a_finding_of_any_target_is_a_test(way: str, call: str) -> None:
    """A way that has no name of its own is called by the target it compiles for."""
    text = as_pytest(torch_case(5, 3), way, "3 of 4 elements\ndiffer")
    compile(text, "test_program.py", "exec")
    assert f"found = {call}(*inputs)" in text


def test_results_that_share_memory_must_share_it() -> None:
    def apart(module: torch.nn.Module) -> Callable[..., Any]:
        return lambda *inputs: tuple([each.clone() for each in module(*inputs)])

    found = fuzz({"torch.compile": apart}, 200, seed=6).finding
    assert found is not None
    assert "share memory" in found.reason


def _case(inputs: list[torch.Tensor], *calls: TorchCall, part: int | None = None) -> TorchCase:
    """Calls one after another, of which the last one's result is given."""
    last = len(calls) - 1
    steps = tuple([(call, part if at == last else None) for at, call in enumerate(calls)])
    return TorchCase(tuple(inputs), steps, (len(inputs) + last,))


V0, V1, V2 = KnownValue(0), KnownValue(1), KnownValue(2)


def test_a_call_that_nothing_needs_does_not_give_the_result() -> None:
    """Dynamo took the one for the other where calls were held by functions within functions."""
    whole = torch.arange(12).reshape(3, 4)
    case = _case([whole], TorchCall("torch.Tensor.int", (V0,)), TorchCall("torch.ones_like", (V0,)))
    torch._dynamo.reset()
    assert judged(case, lambda module: torch.compile(module, backend="eager")) is None


def test_calls_within_calls_are_written_as_python() -> None:
    call = TorchCall("torch.Tensor.add_", (TorchCall("torch.clone", (V0,)), V0))
    assert "v1 = torch.Tensor.add_(torch.clone(v0), v0)" in _case([torch.ones(2)], call).text()


@pytest.mark.parametrize("name", ["torch.sort", "torch.topk"])
def test_the_order_of_equal_elements_is_open(name: str) -> None:
    args = (V0, -1) if name == "torch.sort" else (V0, 1, -1)
    equal, distinct = torch.tensor([2.0, 1.0, 2.0]), torch.tensor([2.0, 1.0, 3.0])
    assert is_open(_case([equal], TorchCall(name, args), part=1))
    assert not is_open(_case([equal], TorchCall(name, args), part=0))
    assert not is_open(_case([distinct], TorchCall(name, args), part=1))


def test_the_sign_of_what_a_sum_rounds_to_is_open_and_that_of_a_zero_is_not() -> None:
    x, left = torch.tensor([[[0.0, 1.0, -1.0, 0.0]]]), torch.full((1, 1, 4), -1.0)
    norm = TorchCall("torch.nn.functional.group_norm", (V0, 1))
    assert is_open(_case([x, left], norm, TorchCall("torch.atan2", (V2, V1))))
    same = TorchCall("torch.relu", (V0,))
    assert not is_open(_case([x, left], same, TorchCall("torch.atan2", (V2, V1))))


def test_the_last_digit_of_a_function_is_open_and_that_of_an_exact_one_is_not() -> None:
    """`celu(-17.2)` is -1 but for half of a last digit, and `log1p` of -1 is no number."""
    log = TorchCall("torch.log1p", (V1,))
    low = torch.tensor([-17.2, -17.0])
    assert is_open(_case([low], TorchCall("torch.nn.functional.celu", (V0,)), log))
    assert not is_open(_case([low / 8], TorchCall("torch.nn.functional.celu", (V0,)), log))
    floor = TorchCall("torch.floor", (V1,))
    assert not is_open(_case([torch.zeros(3)], TorchCall("torch.exp", (V0,)), floor))


def test_arrays_of_types_that_numpy_lacks_are_compared() -> None:
    case = _case([torch.ones(3)], TorchCall("torch.Tensor.bfloat16", (V0,)))
    assert judged(case, lambda module: lambda *x: array_of(module(*x)[0])) is None
    assert judged(case, lambda module: lambda *x: array_of(module(*x)[0] + 1)) is not None


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["fuzz", "torch", "--examples", "2", "--seed", "4", "--way", "plica.compile"]
    assert main(asked) == 0
    assert "All give what torch gives." in capsys.readouterr().out
