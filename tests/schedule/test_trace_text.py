"""JSON and Python text: both read back to the same trace, for every kind of instruction."""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

import plica.schedule
from plica.core.diagnostic import Malformed, ScriptError
from plica.core.name import Name
from plica.core.term import Term, field_names
from plica.ir.loop.index_map import IndexMap, index_map
from plica.ir.loop.tensor import axis
from plica.runtime.error import PlicaError
from plica.schedule import (
    Handle,
    Sampling,
    Step,
    Trace,
    instruction,
    kinds,
    replay,
    spell,
    trace_of,
)
from plica.schedule.do import DoBlock
from plica.schedule.handle import Sort
from plica.schedule.replay import kernel_of
from plica.schedule.trace import handles
from tests.conftest import Golden
from tests.library import Library
from tests.schedule.foreign import Keep, Note, Pair, apart, declared
from tests.schedule.kernel import matmul
from tests.schedule.walk import moves, walked
from tests.strategies.text import texts

MAPS = (
    index_map(lambda i, j: (i // 4, (j - 2) * -3, i % 4)),
    index_map(lambda i: (i * i + axis("n"),)),  # of a dim: written as a term
    IndexMap((axis("a"),), (axis("a") + axis("a") * (axis("a") - 1),)),
)
PAIR = Pair(axis("i") * 4, "x")
SAMPLES: dict[type, Any] = {Pair: st.just(PAIR), IndexMap: st.sampled_from(MAPS)}


@pytest.fixture(autouse=True, scope="module")
def _foreign() -> Iterator[None]:
    with declared():
        yield


def handle(step: int, output: int) -> Handle:
    """A handle; what a step gives is of one sort."""
    sorts: tuple[Sort, ...] = ("block", "loop", "number")
    return Handle(step, output, sorts[(step + output) % 3])


def values(hint: Any) -> st.SearchStrategy[Any]:
    """Values of a declared type."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return st.one_of([values(each) for each in inner])
    if origin is typing.Literal:
        return st.sampled_from(inner)
    if origin is tuple:
        if inner[-1:] == (Ellipsis,):
            return st.lists(values(inner[0]), max_size=3).map(tuple)
        return st.tuples(*[values(each) for each in inner])
    if hint is Handle:
        return st.builds(handle, st.integers(0, 3), st.integers(0, 4))
    if hint is Name:
        return st.builds(Name, texts(3), st.integers(0, 3))
    if isinstance(hint, type) and issubclass(hint, Term):
        found: st.SearchStrategy[Any] = SAMPLES[hint]  # a new kind of field needs a sample here
        return found
    table: dict[Any, st.SearchStrategy[Any]] = {
        int: st.integers(-(2**70), 2**70), bool: st.booleans(), float: st.floats(),
        str: texts(5) | st.just("loop 1.0"), bytes: st.binary(max_size=4),
        type(None): st.none(),
    }  # fmt: skip
    return table[hint]


@st.composite
def steps(draw: st.DrawFn) -> Step:
    """A step of any kind, with any fields of the declared types."""
    cls = draw(st.sampled_from(sorted(kinds().values(), key=lambda each: each.kind)))
    hints = typing.get_type_hints(cls)
    fields = [values(hints[name]) for name in field_names(cls)]
    what = cls(*[draw(each) for each in fields])
    decision = (
        draw(st.lists(st.integers(0, 99), max_size=3)) if isinstance(what, Sampling) else None
    )
    return Step(what, None if decision is None else tuple(decision))


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    """Traces that mean nothing, of every kind of step, whose handles point to earlier steps."""
    drawn = [Step(Note(str(n))) for n in range(4)]
    ended = False
    for step in draw(st.lists(steps(), max_size=4)):
        if step.instruction.kind == "enter_postproc" and ended:
            continue
        ended = ended or step.instruction.kind == "enter_postproc"
        drawn.append(step)
    return Trace(tuple(drawn))


def yielded(text: str) -> tuple[Step, ...]:
    """What a printed do-block yields when Python runs it, and steps give whatever they like."""
    names: dict[str, Any] = {}
    exec(text, names)
    body = names["schedule"].start()
    found: list[Step] = []
    answer: Any = None
    for number, line in enumerate(text.partition("def schedule():\n")[2].splitlines()):
        asked = body.send(answer)
        found.append(asked if isinstance(asked, Step) else Step(asked))
        several = tuple(handle(number, output) for output in range(5))
        answer = several if "*_ = yield" in line else several[0]
    return tuple(found)


@given(traces())
def test_json_reads_back(trace: Trace) -> None:
    text = trace.to_json()
    assert Trace.from_json(text) is trace
    assert Trace.from_json(text.encode()).to_json() == text
    json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))


@given(traces())
def test_python_reads_back(trace: Trace) -> None:
    text = trace.to_python()
    assert Trace.from_python(text) is trace
    assert Trace.from_python(text).to_python() == text
    assert yielded(text) == trace.steps


@given(moves)
def test_python_run_by_python_records_the_same_trace(choices: list[tuple[int, int]]) -> None:
    kernel = matmul()
    trace = walked(kernel, choices)
    for text in (trace.to_python(), trace.to_python(kernel)):
        assert Trace.from_python(text) is trace
        names: dict[str, Any] = {}
        exec(text, names)  # what we printed ourselves
        schedule = names["schedule"]
        assert isinstance(schedule, DoBlock)
        assert trace_of(schedule, kernel) is trace


def test_how_they_look(golden: Golden) -> None:
    kernel = matmul()
    trace = walked(kernel, [(2, 0), (0, 2), (4, 3), (6, 1)])
    golden("\n".join((trace.to_json(), "", trace.to_python(), trace.to_python(kernel))))


def test_every_sort_of_field() -> None:
    what = Keep(Handle(0, 0, "block"), (), PAIR, float("-inf"), (Name("a", 2),), b"\0x", "loop 0.0")
    trace = Trace((Step(Note("{}")), Step(what)))
    assert Trace.from_json(trace.to_json()) is trace
    assert Trace.from_python(trace.to_python()) is trace


def test_the_empty_trace() -> None:
    empty = Trace(())
    assert Trace.from_json(empty.to_json()) is empty
    assert Trace.from_python(empty.to_python()) is empty
    names: dict[str, Any] = {}
    exec(empty.to_python(), names)  # what we printed ourselves
    assert trace_of(names["schedule"], matmul()) is empty


def test_fields_with_a_default_may_be_left_out() -> None:
    full = Keep(Handle(0, 0, "block"), (), PAIR, 1.0, ())
    row = json.loads(Trace((Step(Note("a")), Step(full))).to_json())
    del row["steps"][1]["raw"], row["steps"][1]["word"]
    assert Trace.from_json(json.dumps(row)).steps[1].instruction is full


HEAD = '{"format": "plica-trace", "version": 1, "steps": '
BLOCK = '{"kind": "block", "number": 0, "role": "s"}'
LOOPS = '{"kind": "loops", "block": "block 0.0"}'
TILE = '{"kind": "sample_perfect_tile", "loop": "loop 0.0", "parts": 2, "max_inner": 4'


@pytest.mark.parametrize(
    ("text", "code", "place"),
    [
        ("{", "bad-json", None),
        ("[]", "bad-json", None),
        ('{"format": "plica-trace", "format": "x"}', "bad-json", None),
        ('{"format": "plica-trace", "version": "1", "steps": []}', "bad-json", None),
        ('{"format": "plica-trace", "version": 99, "steps": []}', "newer-version", None),
        ('{"format": "plica-trace", "version": 1, "steps": [], "more": 1}', "bad-json", None),
        (HEAD + "[7]}", "bad-json", "step 0"),
        (HEAD + '[{"kind": "splitt"}]}', "unknown-class", "step 0"),
        (HEAD + f'[{BLOCK}, {{"kind": "loops", "blok": "block 0.0"}}]}}', "bad-json", "step 1"),
        (HEAD + f'[{BLOCK}, {{"kind": "loops"}}]}}', "bad-json", "step 1"),
        (HEAD + f'[{BLOCK}, {{"kind": "loops", "block": 3}}]}}', "bad-json", "step 1"),
        (HEAD + '[{"kind": "loops", "block": "block 0.0"}]}', "cyclic-data", "step 0"),
        (HEAD + f'[{BLOCK}, {{"kind": "loops", "block": {{"b": 1}}}}]}}', "bad-json", "step 1"),
        (
            HEAD + f"[{BLOCK}, {LOOPS}, {LOOPS.replace('block 0', 'loop 0')}]}}",
            "bad-json",
            "step 2",
        ),
        (HEAD + f'[{BLOCK}, {{"kind": "loops", "block": {{"map": "x"}}}}]}}', "bad-json", "step 1"),
        (HEAD + f'[{BLOCK}, {TILE}, "decision": [1.5]}}]}}', "bad-json", "step 1"),
        (HEAD + f'[{BLOCK}, {TILE}, "decision": null}}]}}', "bad-json", "step 1"),
        (HEAD + BLOCK[:-1].join(("[", ', "decision": [1]}]}')), "bad-json", "step 0"),
        (HEAD + '[{"kind": "enter_postproc"}, {"kind": "enter_postproc"}]}', "bad-json", "step 1"),
        (HEAD + "[" * 5000, "bad-json", None),
    ],
)
def test_bad_json(text: str, code: str, place: str | None) -> None:
    with pytest.raises(Malformed) as refused:
        Trace.from_json(text)
    assert refused.value.code == code
    where = refused.value.diagnostics[0].place
    assert (None if where is None else where.node) == place


DO = "@do\ndef schedule():\n    block_C = yield block(0, 's')\n    "


@pytest.mark.parametrize(
    ("text", "code", "line"),
    [
        ("def", "syntax", 1),
        ("x = 1\n", "unsupported-syntax", 1),
        ("import os\n", "unsupported-syntax", 1),
        ("def schedule():\n    yield block(0, 's')\n", "unsupported-syntax", 1),
        (DO + "x = 1\n", "unsupported-syntax", 4),
        (DO + "yield\n", "unsupported-syntax", 4),
        (DO + "yield 3\n", "unsupported-syntax", 4),
        (DO + "yield blok(0, 's')\n", "unknown-class", 4),
        (DO + "yield loops(c)\n", "unbound-name", 4),
        (DO + "x = yield loops(block_C)\n", "unsupported-syntax", 4),
        (DO + "loop_i[0] = yield loops(block_C)\n", "unsupported-syntax", 4),
        (DO + "yield loops(block_C, 2)\n", "unsupported-syntax", 4),
        (DO + "yield loops(block_C, block=block_C)\n", "unsupported-syntax", 4),
        (DO + "yield loops(**{})\n", "unsupported-syntax", 4),
        (DO + "yield loops(open('x'))\n", "unsupported-syntax", 4),
        (DO + "yield loops(7)\n", "bad-json", 4),
        (DO + "yield loops(index_map(lambda i: i))\n", "unsupported-syntax", 4),
        (DO + "yield decided()\n", "unsupported-syntax", 4),
        (DO + "yield decided(sample_categorical((1,), (1.0,)), 'x')\n", "unsupported-syntax", 4),
        (DO + "yield spell()\n", "unsupported-syntax", 4),
        (DO + "yield annotate(block_C, 'pragma', -True)\n", "unsupported-syntax", 4),
    ],
)
def test_bad_python(text: str, code: str, line: int) -> None:
    with pytest.raises((Malformed, ScriptError)) as refused:
        Trace.from_python(text)
    assert refused.value.code == code
    where = refused.value.diagnostics[0].place
    assert where is not None
    assert where.line == line


@given(texts(30))
def test_no_text_is_a_crash(text: str) -> None:
    for read in (Trace.from_json, Trace.from_python):
        try:
            read(text)
        except PlicaError:
            continue


def test_a_kind_of_another_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = Library(tmp_path, monkeypatch)
    declared = (
        "from plica.schedule.instruction import primitive\n"
        "from tests.schedule.foreign import Note\nnote = primitive('foreign.note')(Note)\n"
    )
    text = HEAD + '[{"kind": "foreign.note", "word": "fast"}]}'
    with apart():
        instruction._kinds.pop("foreign.note")
        with pytest.raises(Malformed, match="unknown-class"):
            Trace.from_json(text)
        points = "[plica.instructions]\nforeign = foreign_note:note\n"
        library.install("foreign", points, foreign_note=declared)
        trace = Trace.from_json(text)
    assert trace.to_json().splitlines()[1].strip() == '{"kind": "foreign.note", "word": "fast"}'
    assert Trace.from_python(trace.to_python()) is trace
    _, _, kernel = kernel_of(replay(trace, matmul()))
    assert dict(kernel.annotations) == {"fast": True}
    library.remove()


def test_spelling_by_hand() -> None:
    assert handles(spell("loops", block=Handle(0, 0, "block"))) == (Handle(0, 0, "block"),)
    with pytest.raises(Malformed, match=r"Did you mean 'split'\?"):
        spell("splt")


def test_everything_the_texts_name_is_public() -> None:
    for word in ("do", "decided", "spell", "term"):
        assert callable(getattr(plica.schedule, word))
