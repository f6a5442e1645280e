"""Checking an accelerator: integer layers run on it as they do on this processor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from plica.core import Name
from plica.core.extension import FAILURES, said
from plica.extending.verdict import ExtensionVerdict
from plica.ir.graph import Expr, Function, Module, Var, const, main_module
from plica.ir.op import find
from plica.ir.type import f32, infer, tensor
from plica.runtime.error import UnsupportedError

SIZES: Final = ((8, 8, 8), (16, 16, 16), (16, 24, 16))
"""Rows, depth and columns of a layer, the smallest first: the first that differs is smallest."""


def check_accelerator(name: str, of: Any, examples: int, seed: int) -> Iterator[ExtensionVerdict]:
    """A dense layer of bytes, of several sizes, on the machine and on this processor."""
    from plica.pipeline import compile
    from plica.quantising import quantise

    group, target = "plica.accelerators", f"accel:{name}"
    random = np.random.default_rng(seed)
    done, why = 0, ""
    for rows, depth, columns in SIZES:
        shapes = (columns, depth), (8, columns)
        weights = [random.standard_normal(each).astype(np.float32) / 4 for each in shapes]
        x = random.standard_normal((rows, depth)).astype(np.float32)
        small = quantise(_layers(rows, weights), [x], power_of_two=True)
        size = f"a layer of {rows}x{depth} by {columns}"
        try:
            made = compile(small, target=target, cache=False)
            found = np.asarray(made(x))
        except UnsupportedError as refused:  # no layer of this size fits the machine
            why = str(refused.diagnostics[0].found)
            continue
        except FAILURES as error:
            yield ExtensionVerdict(group, name, "refuted", f"{size} fails: {said(error)}")
            return
        done += 1
        wanted = np.asarray(compile(small, cache=False)(x))
        if not np.array_equal(found, wanted):
            at = tuple(int(each) for each in np.argwhere(found != wanted)[0])
            why = f"{size}: element {at} is {found[at]!r}, on this processor {wanted[at]!r}"
            yield ExtensionVerdict(group, name, "refuted", why, str(small))
            return
    if not done:
        yield ExtensionVerdict(group, name, "untested", f"no layer was offloaded: {why}")
    else:
        why = f"{done} of {len(SIZES)} layers ran on it and agree"
        yield ExtensionVerdict(group, name, "tested", why)


def _layers(rows: int, weights: Sequence[np.ndarray[Any, Any]]) -> Module:
    """`relu(x V^T) W^T`: what comes out of the first layer becomes bytes again."""
    first, second = weights
    x = Var(Name("x"), tensor((rows, first.shape[1]), f32))
    dense, relu = find("nn.dense"), find("nn.relu")
    assert dense is not None
    assert relu is not None
    body: Expr = dense(relu(dense(x, const(first))), const(second))
    return infer(main_module(Function((), (), (x,), None, body)))
