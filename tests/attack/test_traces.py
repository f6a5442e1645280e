"""Hostile schedules: traces in JSON and Python, and steps with hostile arguments."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pytest

import plica
from plica.runtime.error import PlicaError
from plica.schedule import (
    Trace,
    block,
    do,
    fuse,
    loops,
    parallel,
    reorder,
    replay,
    split,
    trace_of,
    unroll,
    vectorize,
)
from tests.attack.judge import outcome, refused

KERNEL: Final = plica.from_text("""
import plica

@plica.kernel
def matmul(A: Buffer[(6, 4), f32], B: Buffer[(4, 8), f32], C: Buffer[(6, 8), f32]):
    for i, j, k in grid(6, 8, 4):
        with block("C", spatial=(i, j), reduce=(k,)):
            with init():
                C[i, j] = 0.0
            C[i, j] += A[i, k] * B[k, j]
""")


@do
def plain() -> Any:
    c = yield block("C")
    i, j, k = yield loops(c)
    i0, i1 = yield split(i, (None, 2))
    yield reorder(i0, j, k, i1)
    yield unroll(i1)


GOOD: Final = trace_of(plain, KERNEL)
TEXT: Final = GOOD.to_json()
DATA: Final = json.loads(TEXT)

BAD_JSON: Final = {
    "nothing": "",
    "a null": "\0",
    "no JSON": "{",
    "a number": "7",
    "a text": '"trace"',
    "an empty list": "[]",
    "an empty map": "{}",
    "null": "null",
    "nan": "NaN",
    "deep lists": "[" * 100_000 + "]" * 100_000,
    "deep maps": '{"a":' * 50_000 + "1" + "}" * 50_000,
    "a huge number": TEXT.replace("2", "9" * 5000, 1),
    "an exponent": TEXT.replace("2", "1e999", 1),
    "a lone surrogate": TEXT.replace("split", "\\ud800", 1),
    "half of it": TEXT[: len(TEXT) // 2],
    "all but the last": TEXT[:-1],
    "two of it": TEXT + TEXT,
    "an unknown step": TEXT.replace('"split"', '"splat"'),
    "the steps as a map": json.dumps({**DATA, "steps": {}}) if isinstance(DATA, dict) else "{}",
    "the steps as a text": json.dumps({**DATA, "steps": "x"}) if isinstance(DATA, dict) else "1",
    "steps of numbers": json.dumps({**DATA, "steps": [1, 2]}) if isinstance(DATA, dict) else "[1]",
    "a version from the future": json.dumps({**DATA, "version": 10**9}),
    "a version of a text": json.dumps({**DATA, "version": "x"}),
    "a version below zero": json.dumps({**DATA, "version": -1}),
    "a format of another": json.dumps({**DATA, "format": "pickle"}),
}


@pytest.mark.parametrize("name", BAD_JSON)
def test_what_is_no_trace_is_refused(name: str) -> None:
    def attack() -> object:
        made = Trace.from_json(BAD_JSON[name])
        return replay(made, KERNEL)

    if name == "a format of another":
        outcome(attack)
        return
    refused(attack)


def places(of: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in JSON data."""
    found = [path] if path else []
    if isinstance(of, dict):
        for key, value in of.items():
            found += places(value, (*path, key))
    elif isinstance(of, list):
        for at, value in enumerate(of):
            found += places(value, (*path, at))
    return found


def changed(path: tuple[Any, ...], value: Any) -> str:
    data = json.loads(TEXT)
    inner = data
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return json.dumps(data)


PLACES: Final = places(DATA)
VALUES: Final[tuple[Any, ...]] = (None, -1, 0, 2**70, 1.5, "", "x", [], {}, True, [None], {"a": 1})


@pytest.mark.parametrize("at", range(0, len(PLACES), max(1, len(PLACES) // 24)))
def test_every_place_of_a_trace_may_hold_anything(at: int) -> None:
    """A changed trace is refused, or keeps the meaning: no step is trusted."""
    a, b = np.ones((6, 4), np.float32), np.ones((4, 8), np.float32)
    for value in VALUES:
        made: Any = outcome(lambda: replay(Trace.from_json(changed(PLACES[at], value)), KERNEL))  # noqa: B023  # it is called at once
        if not isinstance(made, PlicaError):
            assert np.array_equal(plica.interpret(made, a, b), a @ b)


BAD_PYTHON: Final = {
    "nothing": "",
    "an import": "import os\nos.system('true')\n",
    "a call": "open('x', 'w')\n",
    "a class": "class A: pass\n",
    "a loop": "for i in range(3): pass\n",
    "no generator": "from plica.schedule import do\n\n@do\ndef t():\n    return 1\n",
    "a lambda": "(lambda: 0)()\n",
    "dunder": "__import__('os')\n",
    "an unknown step": GOOD.to_python().replace("split", "splat"),
    "half of it": GOOD.to_python()[: len(GOOD.to_python()) // 2],
    "a null": GOOD.to_python() + "\0",
    "an f-string": 'f"{open}"\n',
    "deep": "(" * 500 + ")" * 500,
}


@pytest.mark.parametrize("name", BAD_PYTHON)
def test_python_that_is_no_trace_is_refused(name: str) -> None:
    def attack() -> object:
        return replay(Trace.from_python(BAD_PYTHON[name]), KERNEL)

    if name == "nothing":
        outcome(attack)
        return
    refused(attack)


hostile_split: Any = split  # Any: attacks give what types forbid
hostile_block: Any = block


def step(make: Callable[..., Any]) -> Callable[[], Any]:
    """A do-block with one hostile step."""

    @do
    def hostile() -> Any:
        c = yield block("C")
        i, j, k = yield loops(c)
        yield make(c, i, j, k)

    return lambda: trace_of(hostile, KERNEL)


@do
def _other_block() -> Any:
    yield block("D")


@do
def _number_block() -> Any:
    yield hostile_block(7)


STEPS: Final[dict[str, Callable[[], Any]]] = {
    "a factor of zero": step(lambda c, i, j, k: split(i, (None, 0))),
    "a factor below zero": step(lambda c, i, j, k: split(i, (None, -2))),
    "a huge factor": step(lambda c, i, j, k: split(i, (None, 2**70))),
    "a factor of a text": step(lambda c, i, j, k: hostile_split(i, (None, "2"))),
    "a factor of a float": step(lambda c, i, j, k: hostile_split(i, (None, 2.0))),
    "two unknown factors": step(lambda c, i, j, k: split(i, (None, None))),
    "no factors": step(lambda c, i, j, k: split(i, ())),
    "too many factors": step(lambda c, i, j, k: split(i, (2,) * 50)),
    "a product too small": step(lambda c, i, j, k: split(i, (1, 2))),
    "a split of a block": step(lambda c, i, j, k: split(c, (None, 2))),
    "a split of a name": step(lambda c, i, j, k: hostile_split("i", (None, 2))),
    "a split of None": step(lambda c, i, j, k: hostile_split(None, (None, 2))),
    "a loop twice": step(lambda c, i, j, k: reorder(i, i)),
    "an order of blocks": step(lambda c, i, j, k: reorder(c, c)),
    "an order of nothing": step(lambda c, i, j, k: reorder()),
    "a fusion of strangers": step(lambda c, i, j, k: fuse(i, k)),
    "a fusion of itself": step(lambda c, i, j, k: fuse(i, i)),
    "a fusion of one": step(lambda c, i, j, k: fuse(i)),
    "a parallel sum": step(lambda c, i, j, k: parallel(k)),
    "a vector of a sum": step(lambda c, i, j, k: vectorize(k)),
    "an unrolled block": step(lambda c, i, j, k: unroll(c)),
    "a block that is not there": lambda: trace_of(_other_block, KERNEL),
    "a block of a number": lambda: trace_of(_number_block, KERNEL),
    "no instruction": step(lambda c, i, j, k: 7),
    "nothing": step(lambda c, i, j, k: None),
}


TAKEN: Final = ("a fusion of one", "an order of nothing", "too many factors")
"""Steps that change nothing, or cut a loop more finely than it is long, which may be taken."""


@pytest.mark.parametrize("name", STEPS)
def test_a_hostile_step_is_refused(name: str) -> None:
    if name in TAKEN:
        outcome(STEPS[name])
    else:
        refused(STEPS[name])


def test_a_trace_of_another_kernel_is_refused_or_right() -> None:
    other = plica.from_text("""
import plica

@plica.kernel
def scale(A: Buffer[(6,), f32], B: Buffer[(6,), f32]):
    for i in grid(6):
        with block("C", spatial=(i,)):
            B[i] = A[i] * 2.0
""")
    refused(lambda: replay(GOOD, other), "illegal-step")
