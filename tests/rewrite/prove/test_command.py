"""`plica prove`: the table of a pack or of all packs, in one process or several."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from plica.cli import main
from plica.rewrite.prove.solver import is_available

pytestmark = pytest.mark.skipif(not is_available("z3"), reason="z3 is not installed")

RULES = """
from plica.rewrite import holes, pack, rule

x, = holes("x")
OWN = pack("own", rule("own-{name}", {sides}), version="1")
"""


def rows(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, dict[str, Any]]:
    main(["prove", *words, "--json", "--examples", "0"])
    found = [{**row, "seconds": 0} for row in json.loads(capsys.readouterr().out)]
    return {row["rule"]: row for row in found}


def test_processes_say_what_one_says(capsys: pytest.CaptureFixture[str]) -> None:
    chosen = ["--rule", "less-same", "--rule", "equal-same"]
    alone = rows(capsys, "logic", *chosen)
    assert len(alone) == 2
    assert rows(capsys, "logic", *chosen, "--jobs", "2") == alone
    assert rows(capsys, *chosen) == alone


def test_a_file_is_read_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "own.py"
    for name, sides, verdict in (("right", "-(-x), x", "proved"), ("wrong", "-x, x", "unproved")):
        file.write_text(RULES.format(name=name, sides=sides), encoding="utf-8")
        assert rows(capsys, str(file))[f"own-{name}"]["verdict"] == verdict
