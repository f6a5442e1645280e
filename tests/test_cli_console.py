"""Tables in a pipe or a log: nothing is cut where no terminal gives a width."""

from __future__ import annotations

import pytest
from rich.table import Table

from plica.cli.bench import show_rows
from plica.cli.progress import stdout_console
from plica.report.study import LaunchRow

LONG = "k10_matmul___add___nn_gelu___layer_norm___and_many_more_words_that_do_not_fit"


def test_long_names_are_not_cut_in_a_pipe(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    row = LaunchRow(0, LONG, "add", (2,), ("a_node_" * 9,), ("add",), (), 2_000, 100, 1e-6, 0.5)
    show_rows(stdout_console(), [row], 3, "The machine is busy.")
    shown = capsys.readouterr().out
    assert LONG in shown
    assert "a_node_" * 9 in shown
    assert "…" not in shown
    assert "spread" in shown
    assert shown.endswith("The machine is busy.\n")


def test_columns_still_says_how_wide(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    table = Table("kernel")
    table.add_row(LONG)
    stdout_console().print(table)
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 40
