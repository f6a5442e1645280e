"""docs/onnx.md is the table of operators and the figures of conformance, written down."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import onnx
import pytest

from plica.frontend.onnx.expand import has_definition
from plica.frontend.onnx.table import TABLE
from tests.frontend.onnx.conformance import recorded

PAGE = Path(__file__).parents[3] / "docs" / "onnx.md"
HEAD = """# ONNX models

`plica.from_onnx(source, dims=None, fixed=None)` reads a path, the bytes of a file or a `ModelProto`
and gives a module, which `plica.compile` and `plica.interpret` take. Operators of the versions 6 to
{newest} are read, each with the meaning of its version.

- Inputs keep their names; the names of outputs are the attribute `outputs` of the main function.
- A symbolic dim of the file is one of the module; `dims={{"batch": 1}}` gives it a number.
- Shapes that a model computes (`Shape`, `Gather`, `Concat`, `Reshape` …) are followed while it is
  read. A shape, an axis or a count that depends on elements of an input is refused with
  `plica.frontend.onnx.NeedsValue`, whose `inputs` names them; `fixed={{"shape": array}}` gives such
  inputs values, and they are no inputs of the module then.
- A loop of known length and a recurrent network are written out, at most 4096 turns; other loops
  are functions that call themselves, and then give no collected outputs.
- Functions of the model, and operators that the standard defines by others, are read in place.
- Tensors may lie in files in the folder of the model, nowhere else.
- Everything that is not supported is listed at once, with the names of the nodes. Strings,
  sequences, optionals, sparse tensors, random numbers, training, 8-bit floats and integers of less
  than 8 bits are refused.

The standard's own test cases that come with data (onnx {version}): {total} of 2,024 give the right
result through the interpreter, {special} of them with inputs fixed that hold shapes, axes or
counts; all others are refused, and none is wrong. `tests/frontend/onnx/conformance.txt` lists them.

The tables are made by `pytest tests/frontend/onnx/test_page.py --update-golden`.

"""


def text() -> str:
    schemas = [
        each for each in onnx.defs.get_all_schemas() if each.domain == "" and not each.deprecated
    ]
    newest = onnx.defs.onnx_opset_version()
    names = sorted(each.name for each in schemas)
    rows = sorted(TABLE)
    # Their definitions need random numbers and sequences, which are refused.
    hollow = ("Bernoulli", "SequenceMap")
    others = [name for name in names if name not in TABLE and name not in hollow]
    defined = [name for name in others if has_definition(name, newest, "")]
    refused = [name for name in names if name not in TABLE and name not in defined]
    count = Counter(recorded().values())
    head = HEAD.format(
        newest=newest,
        version=onnx.__version__,
        total=f"{sum(count.values()):,}",
        special=count["specialised"],
    )
    parts = {
        f"## Operators with a row of their own ({len(rows)})": rows,
        f"## Operators read by the standard's definition ({len(defined)})": defined,
        f"## Operators of the standard that are refused ({len(refused)})": refused,
    }
    return head + "\n\n".join(f"{title}\n\n{wrapped(each)}" for title, each in parts.items()) + "\n"


def wrapped(names: list[str]) -> str:
    lines, line = [], ""
    for name in names:
        word = f"`{name}`"
        if len(line) + len(word) + 1 > 100:
            lines.append(line)
            line = ""
        line = f"{line} {word}".strip()
    return "\n".join([*lines, line])


def test_the_page_is_the_table(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--update-golden"):
        PAGE.write_text(text())
    page = PAGE.read_text()
    if f"(onnx {onnx.__version__})" not in page:
        pytest.skip("the page was made with another version of onnx")
    assert page == text()


def test_every_row_is_an_operator_of_some_version() -> None:
    known = {each.name for each in onnx.defs.get_all_schemas_with_history() if each.domain == ""}
    assert set(TABLE) <= known
