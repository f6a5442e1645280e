"""Damaged traces: refused, or read as what they say; no code in them is run."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import settings

import plica
from plica.core.diagnostic import CompilerBug
from plica.runtime.error import PlicaError
from plica.schedule import Trace, block, do, loops, reorder, replay, split, trace_of, vectorize

CHANGED: Final = min(2_000, 3 * settings().max_examples)
KERNEL: Final = """
import plica
from plica.script import Buffer, block, f32, grid, init
@plica.kernel
def product(A: Buffer[(4, 4), f32], B: Buffer[(4, 4), f32], C: Buffer[(4, 4), f32]):
    for i, j, k in grid(4, 4, 4):
        with block("C", spatial=(i, j), reduce=(k,)):
            with init():
                C[i, j] = 0.0
            C[i, j] += A[i, k] * B[k, j]
"""
VALUES: Final[tuple[Any, ...]] = (
    None, True, 0, -1, 3, 2**31, 2**63, 10**400, 1e308, float("nan"), float("inf"), "", "\0", "x",
    "../../etc/passwd", [], {}, [1, 2], {"a": 1}, "9" * 5000,
)  # fmt: skip


@do
def tiled() -> Any:
    of = yield block("C")
    i, j, k = yield loops(of)
    i0, i1 = yield split(i, (None, 2))
    j0, j1 = yield split(j, (None, 2))
    yield reorder(i0, j0, k, i1, j1)
    yield vectorize(j1)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where the values inside of a JSON value are."""
    if not isinstance(value, dict | list):
        return [path]
    inside = value.items() if isinstance(value, dict) else enumerate(value)
    return [path, *(each for key, of in inside for each in places(of, (*path, key)))]


def changed(text: str, draw: random.Random) -> str:
    """JSON with one value changed, taken away or doubled."""
    value = json.loads(text)
    *above, last = draw.choice(places(value)[1:])
    parent = value
    for key in above:
        parent = parent[key]
    match draw.randrange(4):
        case 0:
            del parent[last]
        case 1 if isinstance(parent, list):
            parent.insert(last, draw.choice(parent))
        case _:
            parent[last] = draw.choice(VALUES)
    return json.dumps(value)


def cut(text: str, draw: random.Random) -> str:
    """A text with some characters changed or taken away."""
    for _ in range(draw.choice((1, 1, 4))):
        at = draw.randrange(len(text))
        more = draw.choice(("", "0", "(", "\n", "'", "__import__('os').mkdir('ran')", "é"))
        text = text[:at] + more + text[at + draw.choice((0, 1, 20)) :]
    return text


@pytest.mark.parametrize("kind", ["json", "python"])
def test_a_damaged_trace_is_refused_or_means_the_same(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    draw = random.Random(7)
    module = plica.from_text(KERNEL)
    trace = trace_of(tiled, module)
    a = np.arange(16, dtype=np.float32).reshape(4, 4)
    refused = 0
    for turn in range(CHANGED):
        text = trace.to_json() if kind == "json" else trace.to_python()
        text = cut(text, draw) if kind == "python" or turn % 4 == 0 else changed(text, draw)
        try:
            read = Trace.from_json(text) if kind == "json" else Trace.from_python(text)
            found = replay(read, module)
        except PlicaError as error:
            if isinstance(error, CompilerBug):
                raise
            refused += 1
            continue
        if len(str(found)) < 4000 and turn % 8 == 0:  # a split may make loops longer
            np.testing.assert_allclose(np.asarray(plica.interpret(found, a, a)), a @ a)
    assert refused > CHANGED // 4
    assert list(tmp_path.iterdir()) == []
