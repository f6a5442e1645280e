"""`plica fuzz` in processes, for so long, into a corpus, and `plica fuzz all`: one driver."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from plica.cli import main, parser
from plica.cli.fuzz import campaign, jobs, table
from plica.cli.fuzz.corpus import Corpus
from plica.cli.fuzz.jobs import FuzzTask, whole, work_through
from plica.cli.fuzz.kind import FuzzKind
from plica.rewrite.fuzz.report import Finding, FuzzReport, added


def found(reason: str = "element 3 is 1.5", text: str = "def test_it() -> None: ...") -> Finding:
    return Finding("meaning", "guilty", reason, text, 7)


def test_findings_that_differ_in_numbers_are_one(tmp_path: Path) -> None:
    corpus = Corpus(tmp_path)
    assert corpus.add("graph", found(text="x" * 50), "plica fuzz graph")
    assert not corpus.add("graph", found("element 5 is 2e-9", "x" * 20), "plica fuzz graph")
    assert corpus.add("graph", found("it fails"), "plica fuzz graph")
    corpus.summarise({"seed": 1})
    files = sorted(each.name for each in (tmp_path / "graph").iterdir())
    assert len(files) == 2
    kept = json.loads((tmp_path / "summary.json").read_text())["findings"]
    assert [each["times"] for each in kept] == [2, 1]
    assert "x" * 21 not in (tmp_path / "graph" / files[0]).read_text() + files[1]


def test_counts_are_added_by_group() -> None:
    assert added({"a": {"x": 1}}, {"a": {"x": 2, "y": 1}}) == {"a": {"x": 3, "y": 1}}


def crashing(
    arguments: Any, first: int, examples: int, say: Callable[[str], None]
) -> FuzzReport[Finding]:
    for at in range(first, first + examples):
        say("")
        if at == 3:
            os._exit(9)
        if at == 5:
            time.sleep(60)
    return FuzzReport(examples, counts={"fired": {"thing": examples}})


KIND = FuzzKind(
    "crashing", "cases", "", (), crashing, lambda report, arguments: (), "", goal=10, together=4
)


def serve_crashing(pipe: Any, said: str) -> None:
    """What a process of these tests does: the table has one more kind."""
    table.KINDS = (*table.KINDS, KIND)  # type: ignore[misc]  # in this process alone
    jobs._serve(pipe, said)


def tasks(*ranges: tuple[int, int]) -> Iterator[FuzzTask]:
    arguments = parser().parse_args(["fuzz", "graph"])
    for first, examples in ranges:
        yield FuzzTask("crashing", arguments, (), first, examples)


def test_a_process_that_dies_or_hangs_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "_serve", serve_crashing)
    monkeypatch.setattr(jobs, "HUNG_SECONDS", 1.5)
    heard: list[FuzzReport[Finding]] = []

    def done(task: FuzzTask, share: FuzzReport[Finding]) -> bool:
        heard.append(share)
        return True

    work_through(tasks((2, 2), (5, 1), (10, 2)), 1, None, done)
    assert [each.findings[0].guilty for each in heard[:2]] == [
        "process ends with 9", "process hangs"]  # fmt: skip
    assert [each.findings[0].case for each in heard[:2]] == [3, 5]
    assert heard[2].examples == 2
    assert not heard[2].findings


def serve_torch_like(pipe: Any, said: str) -> None:
    """A process that gives back what it holds when it ends, as torch does its semaphores."""
    with suppress(EOFError):
        pipe.recv()
    Path(said).write_text("given back")


def test_a_worker_ends_by_itself(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(jobs, "_serve", serve_torch_like)
    worker = jobs._Worker(tmp_path / "said")
    worker.end()
    assert (tmp_path / "said").read_text() == "given back"


def test_a_share_goes_on_after_a_finding() -> None:
    task = FuzzTask("graph", parser().parse_args(["fuzz", "graph", "--plant"]), (), 0, 3)
    numbers: list[int] = []
    share = whole(task, numbers.append)
    assert share.examples == 3
    assert numbers[0] == 0
    assert share.findings


@pytest.mark.parametrize("code", [0, 1])
def test_what_was_asked_for_and_never_fired_is_an_error(
    code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fired = {"split": 1} if code == 0 else {}
    kind = replace(table.kind_named("schedule"), every=dict)

    def here(tasks: Iterator[FuzzTask], jobs: int, seconds: float | None, done: Any) -> None:
        for task in tasks:
            done(task, FuzzReport(task.examples, counts={"taken": fired}))

    words = [kind if each.name == "schedule" else each for each in table.KINDS]
    monkeypatch.setattr("plica.cli.fuzz.KINDS", words)
    monkeypatch.setattr(campaign, "work_through", here)
    asked = ["fuzz", "schedule", "--focus", "split", "--jobs", "1", "--examples", "60"]
    assert main(asked) == code
    said = capsys.readouterr().out
    assert ("NOT TESTED: split never fired." in said) == bool(code)
    assert "60 kernels" in said


def test_all_kinds_share_the_time_in_proportion(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def here(tasks: Iterator[FuzzTask], jobs: int, seconds: float | None, done: Any) -> None:
        for _ in range(900):
            task = next(tasks)
            done(task, FuzzReport(task.examples))

    monkeypatch.setattr(campaign, "work_through", here)
    lacking = replace(table.kind_named("torch"), needs=("no_such_package",))
    kinds = [each if each.name != "torch" else lacking for each in table.KINDS]
    monkeypatch.setattr(campaign, "KINDS", tuple(kinds))
    assert main(["fuzz", "all", "--seed", "3", "--corpus", str(tmp_path)]) == 0
    assert "torch     left out: no_such_package is not installed" in capsys.readouterr().out
    data = json.loads((tmp_path / "summary.json").read_text())
    ran = {name: each["ran"] for name, each in data["kinds"].items()}
    assert ran["graph"] == pytest.approx(5 * ran["onnx"], rel=0.1)
    assert ran["kernel"] == pytest.approx(2 * ran["schedule"], rel=0.1)
    assert ran["torch"] == 0


def test_an_unknown_kind_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fuzz", "all", "--only", "grahp"]) == 1
    assert "There is no fuzzer 'grahp'" in capsys.readouterr().err


def test_in_processes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["fuzz", "schedule", "--examples", "4", "--jobs", "1", "--corpus", str(tmp_path)]
    assert main([*asked, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["kinds"]["schedule"]["ran"] == 4
    assert data["findings"] == []
