"""Layers of `gpu_layers.py` by Plica, beside torch in float64 and in their own dtype."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

import attrs
import numpy as np
import torch

import plica
from benchmarks.gpu_layer_draw import Given
from benchmarks.gpu_layers import Layer
from plica.frontend.torch.dtype import tensor_of_array

LEAST: Final = {torch.float32: 2e-4, torch.float16: 4e-3, torch.bfloat16: 3e-2}
"""What may be off of the largest number, whatever torch's own error is."""

TIMES: Final = 8.0
"""How many times torch's own error is as good."""


def numbers(of: Layer, rows: int | None = None) -> list[torch.Tensor]:
    """Inputs of a layer, or those with another size of the first axis."""
    random = np.random.default_rng(of.seed)
    return [_numbers(each, of.dtype, random, rows) for each in of.given]


def _numbers(
    of: Given, dtype: torch.dtype, random: np.random.Generator, rows: int | None
) -> torch.Tensor:
    shape = of.shape if rows is None else (rows, *of.shape[1:])
    count = math.prod(shape)
    match of.kind:
        case "whole":
            return torch.tensor(random.integers(-3, 4, shape)).to(dtype)
        case "near":
            return torch.tensor(random.integers(-2, 3, shape)).to(dtype)
        case "distinct":
            line = random.permutation(count).reshape(shape) - count // 2
            return torch.tensor(line / 8 if dtype == torch.float32 else line).to(
                _exact(dtype, count)
            )
        case "index":
            return torch.tensor(random.integers(0, of.below, shape))
        case "length":
            return torch.tensor(random.integers(1, of.below + 1, shape))
        case "places":
            return torch.tensor(random.permutation(of.below)[:count].reshape(shape))
        case "i8" | "i32" | "i64":
            kinds = {"i8": torch.int8, "i32": torch.int32, "i64": torch.int64}
            return torch.tensor(random.integers(-100, 100, shape)).to(kinds[of.kind])
        case _:
            return (torch.tensor(random.standard_normal(shape)) * 0.7).to(dtype)


def _exact(dtype: torch.dtype, count: int) -> torch.dtype:
    """A dtype that tells a given number of numbers apart."""
    most = {torch.float16: 4096, torch.bfloat16: 512}.get(dtype, 1 << 24)
    return dtype if count < most else torch.float32


@attrs.frozen
class LayerOutcome:
    """Why a layer was refused, or what is wrong with it."""

    refused: str = ""
    wrong: str = ""


def compared(
    of: Layer, target: str, timed: Callable[[str], AbstractContextManager[None]]
) -> LayerOutcome:
    """What a layer gives by Plica, beside torch in float64 and in its own dtype."""
    torch.set_num_threads(1)
    given = numbers(of)
    with torch.no_grad():
        try:
            of.network(*given)
        except RuntimeError as error:  # it has no such code for a processor
            return LayerOutcome(refused=f"torch: {type(error).__name__}")
        with timed("export"):
            sizes = None
            if of.again is not None:
                sizes = {"given": tuple([{0: torch.export.Dim("rows", min=1)} for _ in given])}
            try:
                program = torch.export.export(of.network, tuple(given), dynamic_shapes=sizes)
            except (RuntimeError, ValueError, AssertionError) as error:  # torch's own
                return LayerOutcome(refused=f"torch: {type(error).__name__}")
        with timed("compile"):
            exe: Any = plica.compile(plica.from_torch(program), target=target, cache=False)
        for rows in (None, of.again) if of.again is not None else (None,):
            given = numbers(of, rows)
            with timed("run"):
                found = list(_several(exe(*[each.clone() for each in given])))
            with timed("torch"):
                exact, plain = _by_torch(of, given)
            if wrong := _apart(found, exact, plain):
                return LayerOutcome(wrong=wrong)
    return LayerOutcome()


def _by_torch(of: Layer, given: Sequence[torch.Tensor]) -> tuple[list[Any], list[Any]]:
    plain = list(_several(of.network(*given)))
    of.network.double()
    exact = list(_several(of.network(*[_double(each) for each in given])))
    of.network.to(of.dtype)
    return exact, plain


def _double(of: torch.Tensor) -> torch.Tensor:
    return of.double() if of.is_floating_point() else of


def _several(of: Any) -> Iterator[torch.Tensor]:
    for each in of if isinstance(of, tuple | list) else (of,):
        yield each if isinstance(each, torch.Tensor) else tensor_of_array(np.asarray(each))


def _apart(found: Sequence[Any], exact: Sequence[Any], plain: Sequence[Any]) -> str:
    for at, (mine, meant, other) in enumerate(zip(found, exact, plain, strict=True)):
        if (mine.dtype, mine.shape) != (other.dtype, other.shape):
            return f"result {at}: {mine.dtype} {[*mine.shape]} for {other.dtype} {[*other.shape]}"
        if not mine.is_floating_point():
            differ = mine != other
            if bool(differ.any()):
                first = differ.nonzero()[0].tolist()
                return f"result {at}: {int(differ.sum())} of {mine.numel()} differ, first {first}"
            continue
        one, two, three = (each.double() for each in (mine, meant, other))
        finite = torch.isfinite(two) & torch.isfinite(three)
        if not torch.equal(torch.isfinite(one)[finite], finite[finite]):
            first = (~torch.isfinite(one) & finite).nonzero()[0].tolist()
            return f"result {at}: not finite at {first}"
        far = (one - two).abs()[finite]
        if not far.numel():
            continue
        scale = float(two.abs()[finite].max())
        theirs = float((three - two).abs()[finite].max())
        most = max(LEAST[mine.dtype] * scale, TIMES * theirs) + 1e-6
        if float(far.max()) > most:
            where = ((one - two).abs() * finite).nan_to_num(0).argmax().item()
            return (
                f"result {at}: {float(far.max()):.3g} apart where the largest number is "
                f"{scale:.3g} and torch is {theirs:.3g} off, at {where} of {mine.numel()}, "
                f"{int((far > most).sum())} such"
            )
    return ""
