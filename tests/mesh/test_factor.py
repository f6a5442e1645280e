"""Factors: every operator on blocks gives the block of the whole, read off its definition."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

from plica import op
from plica.ir.generate.draw import DrawnCall
from plica.ir.generate.table import ROWS, drawn_call
from plica.ir.graph.expression import Apply, Expr
from plica.ir.interpret.interpreter import interpret
from plica.ir.op import find
from plica.ir.op.record import tensor_of
from plica.ir.type import type_of
from plica.mesh.factor import ShardedForm, forms
from plica.mesh.mesh import Mesh, Placement, split
from tests.mesh.network import module_of, var

DEVICES = 2
NAMES = sorted(
    name for name in ROWS if (record := find(name)) is not None and record.compute is not None
)
INDIVISIBLE = {"scatter_rows"}
"""Rows of one size, which two devices do not divide."""


def shown(of: Expr) -> list[str]:
    assert isinstance(of, Apply)
    types: Any = tuple(map(type_of, of.args))
    return [
        f"{', '.join(map(str, form.arguments))} -> {', '.join(map(str, form.results))}"
        for form in forms(of.op, of.attrs, types, DEVICES)
        if all(p.kind != "partial" for p in form.arguments)
    ]


X, Y = var("x", 8, 6), var("y", 6, 4)


@pytest.mark.parametrize(
    ("term", "expected"),
    [
        (op.matmul(X, Y), ["split 0, replicated -> split 0", "replicated, split 1 -> split 1",
                           "split 1, split 0 -> partial sum"]),
        (op.max(X, axis=1), ["split 0 -> split 0", "split 1 -> partial max"]),
        (op.reshape(X, (8, 2, 3)), ["split 0 -> split 0", "split 1 -> split 1"]),
        (op.reshape(X, (48,)), ["split 0 -> split 0"]),
        (op.transpose(X), ["split 1 -> split 0", "split 0 -> split 1"]),
        (op.cumsum(X, axis=1), ["split 0 -> split 0"]),
        (op.flip(X, axis=(0,)), ["split 1 -> split 1"]),
        (op.slice(X, (0,), (4,), axes=(0,)), ["split 1 -> split 1"]),
        (op.iota((8,)), []),
        (op.tril(X), []),
        (op.take(Y, var("i", 4, dtype="i64"), axis=0),
         ["replicated, split 0 -> split 0", "split 1, replicated -> split 1"]),
    ],
)  # fmt: skip
def test_factors_of(term: Expr, expected: list[str]) -> None:
    assert shown(term) == expected


@pytest.mark.parametrize("name", NAMES)
def test_an_operator_on_blocks_gives_blocks(name: str) -> None:
    seen = 0
    for seed in range(24):
        call = drawn_call(name, Random(f"{name} {seed}"), 4)
        if seen < 4 and call is not None:
            seen += checked(call)
    assert seen or name in INDIVISIBLE


def checked(call: DrawnCall) -> int:
    """How many forms of a call were compared with it."""
    record: Any = find(call.op)
    params = [var(f"x{at}", *arg.shape, dtype=str(arg.dtype.name).replace("float", "f")
                  .replace("int", "i").replace("bool", "bool"))
              for at, arg in enumerate(call.args)]  # fmt: skip
    made = record(params, **call.attrs) if record.variadic else record(*params, **call.attrs)
    types: Any = tuple(map(type_of, params))
    found = forms(call.op, made.attrs, types, DEVICES)
    with np.errstate(all="ignore"):
        for form in found:
            compare(made, form, list(call.args))
    return len(found)


def compare(made: Apply, form: ShardedForm, args: list[Any]) -> None:
    def results(node: Expr, values: list[Any]) -> list[Any]:
        dtypes = [str(tensor_of(each).dtype) for each in made.args]
        params = tuple(
            var(f"x{at}", *value.shape, dtype=dtype)
            for at, (value, dtype) in enumerate(zip(values, dtypes, strict=True))
        )
        term = Apply(made.op, params, node.attrs if isinstance(node, Apply) else ())
        found = interpret(module_of(*params, gives=term), *values)
        return list(found) if isinstance(found, tuple) else [found]

    expected = results(made, args)
    parts: list[list[Any]] = []
    for device in range(DEVICES):
        given = [held(value, p, device) for value, p in zip(args, form.arguments, strict=True)]
        parts.append(results(Apply(made.op, made.args, form.attributes), given))
    for at, placement in enumerate(form.results):
        rows = [part[at] for part in parts]
        if placement.kind == "split":
            found = np.concatenate(rows, placement.dim)
        else:
            combine: Any = {
                "sum": np.add,
                "prod": np.multiply,
                "max": np.maximum,
                "min": np.minimum,
                "all": np.logical_and,
                "any": np.logical_or,
            }
            found = combine[placement.combiner](*rows)
        np.testing.assert_allclose(found, expected[at], rtol=1e-9, atol=1e-9)


def held(value: Any, placement: Placement, device: int) -> Any:
    """What a device holds; of a partial value all, or what changes nothing."""
    if placement.kind == "split":
        block = Mesh.parse(f"a={DEVICES}").block(value.shape, (split(placement.dim),), device)
        return np.ascontiguousarray(value[block])
    if placement.kind != "partial" or device == 0:
        return value
    neutral: Any = {"sum": 0, "prod": 1, "max": -np.inf, "min": np.inf, "all": 1, "any": 0}
    return np.full_like(value, neutral[placement.combiner])
