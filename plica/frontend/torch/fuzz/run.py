"""Random programs of torch, exported and compiled or by `torch.compile`, beside torch."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from plica.frontend.torch.dtype import tensor_of_array
from plica.frontend.torch.fuzz.case import TorchCase, torch_case
from plica.frontend.torch.fuzz.open_result import difference, eager, is_open
from plica.rewrite.fuzz.driver import ByNumber, Campaign, Say, Tally, least
from plica.rewrite.fuzz.judge import CRASHES, crash
from plica.rewrite.fuzz.report import CASES, Finding, FuzzReport
from plica.runtime.error import UnsupportedError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

Way = Callable[["torch.nn.Module"], Callable[..., Any]]
"""What makes something one can call with tensors of a module."""

COUNTERS: Final = {CASES: ("rounded",), "ways": (), "refused": (), "calls": ()}

CALLS: Final = {
    "torch.compile": 'torch.compile(forward, backend="plica")',
    "plica.compile": "plica.compile(Program().eval(), threads=1)",
}
"""How a test compiles in a way; any other is called by the target that it compiles for."""


def fuzz(
    ways: Mapping[str, Way],
    examples: int = 200,
    seed: int = 0,
    *,
    first: int = 0,
    say: Say | None = None,
) -> FuzzReport[Finding]:
    """A number of programs, cycling through the ways, until the first finding."""
    names = tuple(ways)

    def oracle(case: TorchCase, number: int, tally: Tally) -> Finding | None:
        name = names[number % len(names)]
        tally["ways"][name] += 1
        tally["calls"].update(call.path for call, _ in case.calls)
        if (reason := judged(case, ways[name], tally)) is None:
            return None
        if is_open(case):
            tally[CASES]["rounded"] += 1
            return None
        paths = tuple([call.path for call, _ in case.calls])
        guilty = " ".join([name, *[path.rpartition(".")[2] for path in paths]])
        return Finding("meaning", guilty, reason, as_pytest(case, name, reason), parts=paths)

    def smaller(case: TorchCase, fails: Callable[[TorchCase], bool]) -> TorchCase:
        return least(case, TorchCase.smaller, fails, 60)

    generator = ByNumber(lambda number: torch_case(seed, number), smaller)
    return Campaign(Finding, generator, oracle, counters=COUNTERS).run(
        examples, seed, first=first, say=say
    )


def judged(case: TorchCase, way: Way, tally: Tally | None = None) -> str | None:
    """The error of a case, or None if it passes or is refused."""
    import torch

    if (expected := eager(case)) is None:
        return None
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            run = way(case.module())
            found = run(*[tensor.clone() for tensor in case.inputs])
    except UnsupportedError as error:
        if tally is not None:
            tally["refused"][error.diagnostics[0].message] += 1
        return None
    except CRASHES as error:
        return crash(error)
    several = found if isinstance(found, tuple | list) else (found,)
    for at, (mine, other) in enumerate(zip(several, expected, strict=True)):
        if (wrong := difference(_tensor(mine), other)) is not None:
            return f"result {at}: {wrong}"
    if all(isinstance(each, torch.Tensor) for each in several):
        mine, theirs = _shared(several), _shared(expected)
        if not theirs <= mine:
            return f"results {sorted(theirs - mine)} share memory in torch and here they do not"
    return None


def _tensor(of: Any) -> Tensor:
    """A result as a tensor, whichever of the two it is given as."""
    import torch

    return of if isinstance(of, torch.Tensor) else tensor_of_array(np.asarray(of))


def _shared(of: Sequence[Tensor]) -> set[tuple[int, int]]:
    """Which results share memory."""
    places = [tensor.untyped_storage().data_ptr() for tensor in of]
    return {
        (a, b) for b in range(len(places)) for a in range(b)
        if places[a] == places[b] and of[a].numel()
    }  # fmt: skip


def as_pytest(case: TorchCase, way: str, reason: str) -> str:
    """A test that fails as long as a program gives something else than torch."""
    arrays = "".join(
        f"        torch.tensor({each.tolist()!r}, dtype={each.dtype}),\n" for each in case.inputs
    )
    said = " ".join(reason.split())
    compiled = CALLS.get(way, f"plica.compile(Program().eval(), target={way!r})")
    return f"""import numpy as np
import torch

import plica

# {said}


def weight(*shape):
    count = int(np.prod(shape))
    return ((torch.arange(count) * 37 % 29 - 14).float() / 8).reshape(shape)


def spread(*shape):
    return weight(*shape).abs() + 0.5


def places(*numbers):
    return torch.tensor(numbers)


def numbers(of):
    return of.double().numpy() if isinstance(of, torch.Tensor) else np.asarray(of, np.float64)


{case.text()}


class Program(torch.nn.Module):
    def forward(self, {", ".join(f"v{at}" for at in range(len(case.inputs)))}):
        return forward({", ".join(f"v{at}" for at in range(len(case.inputs)))})


def test_program() -> None:
    inputs = [
{arrays}    ]
    with torch.no_grad():
        expected = forward(*[each.clone() for each in inputs])
        found = {compiled}(*inputs)
    several = found if isinstance(found, tuple) else (found,)
    for one, two in zip(several, expected, strict=True):
        assert str(one.dtype).removeprefix("torch.") == str(two.dtype).removeprefix("torch.")
        np.testing.assert_allclose(numbers(one), numbers(two), rtol=1e-3, atol=1e-4)
"""
