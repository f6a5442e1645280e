"""docs/operators.md is the registry, written down."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pytest
from hypothesis import settings

from plica import op
from plica.core.name import Name
from plica.ir.graph.expression import Var
from plica.ir.graph.operator import Operator
from plica.ir.op import find, names
from plica.ir.type.dtype import DTYPES, DType
from plica.ir.type.infer import type_of
from plica.ir.type.term import tensor
from tests.ir.reference.case import CASES, Case

PAGE = Path(__file__).parents[1] / "docs" / "operators.md"
EXAMPLES = """
## Examples

One call of each operator on tensors `t(dtype, size, …)`, with the type of its result. The tests
check every line.

```py
"""
HEAD = """# Operators

After this page you know the name, the arguments and the meaning of every operator.

```py
op.sum(x, axis=0, keepdims=True)      # tensors are positional, attributes are keywords
op.concat((x, y), axis=1)             # a variadic operator takes one tuple
```

Tensor operators have numpy's names and are in `plica.op`; those of neural networks are in
`plica.op.nn`. In the table, `*` marks a variadic argument, `[name]` an attribute with a default.
It comes from the registry: `pytest tests/test_operators_page.py --update-golden`.

| operator | takes | aliases | meaning |
| --- | --- | --- | --- |
"""


def row(operator: Operator) -> str:
    attributes = [each.name if each.required else f"[{each.name}]" for each in operator.attributes]
    takes = ", ".join((*operator.inputs, *attributes)).replace("*", "\\*")
    about = operator.doc.strip().split("\n")[0].replace("|", "\\|").replace("*", "\\*")
    return f"| `{operator.name}` | {takes} | {', '.join(operator.aliases)} | {about} |"


def t(dtype: DType, *shape: int) -> Var:
    """A tensor of a type."""
    return Var(Name("x"), tensor(shape, dtype))


WORDS: dict[str, Any] = {"op": op, "t": t, **{each.name: each for each in DTYPES}}


def given(call: str) -> str:
    """The type that a call gives, as the page says it."""
    return str(type_of(eval(call, dict(WORDS))))


def kept() -> dict[str, str]:
    """The calls that the page has already, by operator."""
    found = re.findall(r"^(op\.([\w.]+)\(.*\))  # ", PAGE.read_text(), re.MULTILINE)
    return {name: call for call, name in found}


def made(name: str) -> str:
    """A call of an operator on simple arguments that a test of it takes, matrices where it can."""
    quick = settings(max_examples=80, database=None, derandomize=True)
    for least in (2, 1, 0):

        def good(case: Case, least: int = least) -> bool:
            plain = all(each.size and each.ndim >= min(least, 1) for each in case.args)
            first = case.args[0] if case.args else None
            whole = first is None or (
                first.ndim >= least and (not least or first.dtype == np.float32)
            )
            wide = first is None or least < 2 or min(first.shape, default=0) > 1
            return plain and whole and wide and bool(given(written(name, case)))

        try:
            return written(name, hypothesis.find(CASES[name], good, settings=quick))
        except hypothesis.errors.NoSuchExample:
            continue
    raise AssertionError(f"no example of {name}")


def written(name: str, case: Case) -> str:
    """A call with these arguments."""
    record = find(name)
    assert record is not None
    dtypes = {each.numpy: each.name for each in reversed(DTYPES)}
    args = [f"t({', '.join((dtypes[a.dtype], *map(str, a.shape)))})" for a in case.args]
    if record.inputs[-1:] and record.inputs[-1].startswith("*"):
        first = len(record.inputs) - 1
        args = [*args[:first], f"({', '.join(args[first:])},)"]
    attributes = [f"{key}={shown(value)}" for key, value in case.attrs.items()]
    return f"op.{name}({', '.join(args + attributes)})"


def shown(value: Any) -> str:
    """The value of an attribute, as it is written."""
    return value.name if isinstance(value, DType) else repr(value)


def test_the_page_is_the_registry(request: pytest.FixtureRequest) -> None:
    records = [found for name in names() if (found := find(name)) is not None]
    text = HEAD + "\n".join(row(each) for each in records) + "\n" + EXAMPLES
    known = kept()
    if request.config.getoption("--update-golden"):
        known |= {each.name: made(each.name) for each in records if each.name not in known}
    text += "".join(f"{known[each.name]}  # {given(known[each.name])}\n" for each in records)
    text += "```\n"
    if request.config.getoption("--update-golden"):
        PAGE.write_text(text)
    assert PAGE.read_text() == text
