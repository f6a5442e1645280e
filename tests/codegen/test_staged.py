"""Programs that measure sizes while they run: what they mean, how they are cut and kept."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import plica
from plica.codegen.program_kind import MANY_PLACES
from plica.codegen.staged.cut import cut
from plica.core.diagnostic import IllTyped, ScriptError
from plica.rewrite.graph import find_pass
from plica.runtime import archive
from plica.runtime.error import ArtefactError, EvaluationError, PlicaError, UnsupportedError
from plica.runtime.staged.artefact import NAME
from plica.runtime.staged.executable import StagedExecutable
from plica.runtime.staged.program import HostCall, MeasureDim, RunSegment, check_program

Array = np.ndarray[Any, Any]

CHOSEN = plica.from_text("""
@plica.function(dims="n m k j")
def main(x: Tensor[("n", "m"), f32], least: f32, again: bool) -> tuple[Tensor[("j",), f32], i64]:
    whole = op.ravel(x)
    found = op.argwhere(whole > least)
    measure("k", found[1])
    places = op.match_shape(op.slice(op.ravel(found[0]), (0,), ("k",)), ("k",))
    some = op.take(whole, places)
    measure("j", op.dim_value("2*k") if again else op.dim_value("k"))
    if again:
        y = op.match_shape(op.concat((some, some), axis=0), ("j",))
    else:
        y = op.match_shape(some, ("j",))
    return y, op.dim_value("k")
""")
EXE = plica.compile(CHOSEN, threads=1, effort="fast")


def expected(x: Array, least: float, again: bool) -> tuple[Array, int]:
    some = x[x > np.float32(least)]
    return np.concatenate([some, some]) if again else some, len(some)


@given(st.integers(0, 5), st.integers(0, 6), st.floats(-1, 2, width=32), st.booleans())
@settings(max_examples=min(60, settings().max_examples))
def test_it_is_what_numpy_says(n: int, m: int, least: float, again: bool) -> None:
    x = np.random.default_rng(n + 7 * m).random((n, m)).astype(np.float32)
    args = x, np.float32(least), np.bool_(again)
    values, count = expected(x, least, again)
    for found in (EXE(*args), plica.interpret(CHOSEN, *args)):
        np.testing.assert_array_equal(found[0], values)
        assert found[1] == count
    assert EXE.stats.at_call == 0


@pytest.mark.parametrize("size", [MANY_PLACES - 1, MANY_PLACES])
def test_places_of_many_elements_are_named_by_the_host(size: int) -> None:
    text = f"""
@plica.function(dims="k")
def main(x: Tensor[({size},), f32]) -> Tensor[("k",), i64]:
    found = op.argwhere(x > 0.0)
    measure("k", found[1])
    return op.match_shape(op.slice(op.ravel(found[0]), (0,), ("k",)), ("k",))
"""
    exe = plica.compile(plica.from_text(text), threads=1, effort="fast")
    assert isinstance(exe, StagedExecutable)
    hosts = [each for each in exe._program.steps if isinstance(each, HostCall)]
    assert len(hosts) == (size >= MANY_PLACES)
    for share in (0.0, 0.5, 1.0):
        x = (np.random.default_rng(size).random(size) < share).astype(np.float32)
        np.testing.assert_array_equal(exe(x), np.flatnonzero(x))


ORDERED = plica.from_text("""
@plica.function
def main(x: Tensor[("n", "m"), f32]) -> tuple[Tensor[("n", "m"), i64], Tensor[("n*m", 2), i64]]:
    return op.argsort(x, axis=0, descending=True), op.argwhere(x)[0]
""")
DIFFERENT = plica.from_text("""
@plica.function
def main(x: Tensor[("n",), f32]):
    return op.unique(x, sorted=False)
""")
EXES = {each: plica.compile(each, threads=1, effort="fast") for each in (ORDERED, DIFFERENT)}


@given(st.lists(st.sampled_from([0.0, -0.0, 1.0, 2.5, np.nan, np.inf]), min_size=1, max_size=12))
@settings(max_examples=min(60, settings().max_examples))
def test_the_host_orders_as_the_interpreter_does(values: list[float]) -> None:
    flat = np.asarray(values, np.float32)
    for program, x in ((ORDERED, flat.reshape(-1, 1)), (DIFFERENT, flat)):
        found, wanted = EXES[program](x), plica.interpret(program, x)
        for mine, other in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(mine, other)


HELD = plica.from_text("""
@plica.function(dims="k")
def main(x: Tensor[(3, 4), f32]) -> tuple[Tensor[("k",), f32], Tensor[(12, 1), i64], f32]:
    whole = op.ravel(x) * 2.0
    found = op.argwhere(whole > 1.0)
    measure("k", found[1])
    places = op.match_shape(op.slice(op.ravel(found[0]), (0,), ("k",)), ("k",))
    some = op.take(whole, places)
    return some, found[0], op.sum(some)
""")


def test_what_a_call_gave_stays_when_others_are_made_at_once() -> None:
    exe = plica.compile(HELD, threads=1, effort="fast")
    data = np.random.default_rng(3).random((40, 3, 4)).astype(np.float32)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(exe, data))
    for x, (some, places, total) in zip(data, found, strict=True):
        twice = x.ravel() * 2
        np.testing.assert_array_equal(some, twice[twice > 1])
        np.testing.assert_array_equal(places[: len(some), 0], np.flatnonzero(twice > 1))
        np.testing.assert_allclose(total, some.sum(), rtol=1e-5)
    assert exe.stats.calls == len(data)


def test_it_prints_and_reads_back() -> None:
    text = str(CHOSEN)
    assert 'measure("k", ' in text
    assert plica.digest(plica.from_text(text)) == plica.digest(CHOSEN)
    assert str(plica.from_text(text)) == text


def test_a_program_is_cut_where_a_size_becomes_known() -> None:
    steps = cut(CHOSEN).program.steps
    kinds = [type(each) for each in steps]
    assert kinds.count(MeasureDim) == 2
    assert kinds[:3] == [RunSegment, HostCall, MeasureDim]
    told = [each.told for each in steps if isinstance(each, MeasureDim)]
    assert told[0] == ("x", "least")
    assert isinstance(EXE, StagedExecutable)
    assert (EXE.dims, EXE.measured) == (("n", "m"), ("k", "j"))


def test_a_negative_size_is_refused_by_name() -> None:
    module = plica.from_text("""
@plica.function(dims="k")
def main(count: i64) -> Tensor[("k",), f32]:
    measure("k", count)
    return op.zeros(("k",))
""")
    exe = plica.compile(module, threads=1, effort="fast")
    assert exe(np.int64(3)).shape == (3,)  # type: ignore[union-attr]  # one output
    for run in (exe, lambda count: plica.interpret(module, count)):
        with pytest.raises(EvaluationError, match=r"'k'.* negative"):
            run(np.int64(-1))
    with pytest.raises(EvaluationError, match="'k', which depends on 'count', is larger"):
        exe(np.int64(1 << 50))


@pytest.mark.parametrize(
    ("body", "kind", "word"),
    [
        ('    measure("j", n)\n    return op.zeros(("k",))', ScriptError, "'j'"),
        ('    measure("k", op.cast(n, "f32"))\n    return op.zeros(("k",))', IllTyped, "whole"),
    ],
)
def test_what_cannot_be_measured_is_refused(body: str, kind: type[PlicaError], word: str) -> None:
    head = '@plica.function(dims="k")\ndef main(n: i64) -> Tensor[("k",), f32]:\n'
    with pytest.raises(kind, match=word):
        plica.from_text(head + body)


def test_a_recursion_that_is_no_loop_is_refused() -> None:
    module = plica.from_text("""
@plica.function
def main(x: Tensor[("n",), f32], count: i64) -> Tensor[("n",), f32]:
    def power(y: Tensor[("n",), f32], left: i64) -> Tensor[("n",), f32]:
        return y if left <= 0 else y * power(y, left - 1)
    return power(x, count)
""")
    with pytest.raises(UnsupportedError, match="calls itself in another way"):
        plica.compile(module, threads=1)


LOOP = """
@plica.function
def doubled(x: Tensor[("n",), f32], count: i64) -> Tensor[("n",), f32]:
    def turn(left: i64, y: Tensor[("n",), f32]) -> Tensor[("n",), f32]:
        return turn(left - 1, y + y) if left > 0 else y
    return turn(count, x)

@plica.function
def main(x: Tensor[("n",), f32], count: i64, again: bool):
    z = doubled(x, count)
    return """


@pytest.mark.parametrize("result", ["z * x if again else z - x", "(z * x if again else x), z"])
def test_a_loop_is_for_the_branches_that_use_it(result: str) -> None:
    """Both sides run it, or a branch needs it before all others do."""
    module = find_pass("inline")(plica.from_text(LOOP + result + "\n"))
    parts = cut(module)
    check_program(parts.program, 3, ("n",), len(parts.segments))
    exe = plica.compile(module, threads=1, effort="fast", cache=False)
    assert isinstance(exe, StagedExecutable)
    for again in (False, True):
        args = np.arange(3, dtype=np.float32), np.int64(2), np.bool_(again)
        for mine, other in zip(exe(*args), plica.interpret(module, *args), strict=True):
            np.testing.assert_array_equal(mine, other)


def test_what_no_turn_of_a_loop_changes_is_computed_before_it() -> None:
    """The loop before another, too: else each turn of one would run all turns of the other."""
    module = find_pass("inline")(
        plica.from_text("""
@plica.function
def grown(x: Tensor[("n",), f32], count: i64) -> Tensor[("n",), f32]:
    def turn(left: i64, y: Tensor[("n",), f32]) -> Tensor[("n",), f32]:
        return turn(left - 1, y + op.exp(x * 0.1)) if left > 0 else y
    return turn(count, x)

@plica.function
def larger(x: Tensor[("n",), f32], count: i64) -> Tensor[("n",), f32]:
    def turn(left: i64, y: Tensor[("n",), f32]) -> Tensor[("n",), f32]:
        return turn(left - 1, y + op.exp(x * 0.1)) if left > 0 else y
    return turn(count, x)

@plica.function
def main(x: Tensor[("n",), f32], count: i64):
    return larger(grown(x, count), count)
""")
    )
    exe = plica.compile(module, threads=1, effort="fast", cache=False)
    assert isinstance(exe, StagedExecutable)
    x, count = np.linspace(0, 1, 5, dtype=np.float32), 6
    for _ in range(2):
        x = (wanted := x) + count * np.exp(wanted * np.float32(0.1))
    found = exe(np.linspace(0, 1, 5, dtype=np.float32), np.int64(count))
    np.testing.assert_allclose(found, x, rtol=1e-6)
    turns = [each.stats.calls for each in exe.segments]
    assert sum(turns) <= 4 * (count + 1), turns  # not their square


def test_it_is_saved_and_loaded(tmp_path: Path) -> None:
    path = tmp_path / "m.plica"
    EXE.save(path)
    again: Any = plica.load(path)
    x = np.random.default_rng(0).random((3, 5)).astype(np.float32)
    for flag in (False, True):
        args = x, np.float32(0.5), np.bool_(flag)
        np.testing.assert_array_equal(again(*args)[0], expected(x, 0.5, flag)[0])
    assert again.measured == ("k", "j")


def test_a_damaged_program_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.plica"
    EXE.save(path)
    members = archive.read(path)
    manifest = json.loads(members[NAME])
    first = manifest["program"]["steps"][0]
    for wrong in (["run", 99, [], []], ["measure", "", 0, []], [], ["run", 0, ["x", -1], [1]]):
        manifest["program"]["steps"][0] = wrong
        archive.write(path, archive.pack({**members, NAME: json.dumps(manifest).encode()}))
        with pytest.raises(ArtefactError):
            plica.load(path)
    manifest["program"]["steps"][0] = [*first[:2], [12345], first[3]]
    archive.write(path, archive.pack({**members, NAME: json.dumps(manifest).encode()}))
    with pytest.raises(ArtefactError, match="register"):
        plica.load(path)
