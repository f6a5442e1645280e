"""docs/operators.md is the registry, written down."""

from __future__ import annotations

from pathlib import Path

import pytest

from plica.ir.graph.operator import Operator
from plica.ir.op import find, names

PAGE = Path(__file__).parents[1] / "docs" / "operators.md"
HEAD = """# Operators

Tensor operators have numpy's names and stand in `plica.op`, neural ones in `plica.op.nn`. A `*`
marks any number of tensors, given as one tuple; what follows the tensors are attributes, those with
a default in brackets. The table is made from the registry by
`pytest tests/test_operators_page.py --update-golden`.

| operator | takes | also known as | what it is |
| --- | --- | --- | --- |
"""


def row(operator: Operator) -> str:
    attributes = [each.name if each.required else f"[{each.name}]" for each in operator.attributes]
    takes = ", ".join((*operator.inputs, *attributes)).replace("*", "\\*")
    about = operator.doc.strip().split("\n")[0].replace("|", "\\|").replace("*", "\\*")
    return f"| `{operator.name}` | {takes} | {', '.join(operator.aliases)} | {about} |"


def test_the_page_is_the_registry(request: pytest.FixtureRequest) -> None:
    records = [found for name in names() if (found := find(name)) is not None]
    text = HEAD + "\n".join(row(each) for each in records) + "\n"
    if request.config.getoption("--update-golden"):
        PAGE.write_text(text)
    assert PAGE.read_text() == text
