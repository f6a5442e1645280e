# ruff: noqa: E501  # texts in a table
"""Hostile texts: nothing of them is run, and what is no program is refused."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest

import plica
from plica.runtime.error import PlicaError
from tests.attack.judge import outcome, refused

HEAD: Final = "import plica\nfrom plica import op\nfrom plica.op import nn\n\n"


def function(body: str, signature: str = "x: Tensor[(4,), f32]") -> str:
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    return f"{HEAD}@plica.function\ndef main({signature}):\n{lines}"


EXECUTED: Final = {
    "import os": "import os\nos.system('touch {there}')\n",
    "from os": "from os import system\nsystem('touch {there}')\n",
    "a default": HEAD + "@plica.function\ndef main(x=open('{there}', 'w')):\n    return x\n",
    "an annotation": HEAD + "@plica.function\ndef main(x: open('{there}', 'w')):\n    return x\n",
    "a decorator": HEAD + "@open('{there}', 'w')\ndef main(x: f32):\n    return x\n",
    "a class body": HEAD + "class A:\n    open('{there}', 'w')\n",
    "a base": HEAD + "class A(open('{there}', 'w')):\n    pass\n",
    "a statement": "open('{there}', 'w')\n" + function("return x"),
    "eval": function("return eval(\"open('{there}', 'w')\")"),
    "exec": function("exec(\"open('{there}', 'w')\")\nreturn x"),
    "dunder import": function("return __import__('os').system('touch {there}')"),
    "a lambda": function("return (lambda: open('{there}', 'w'))()"),
    "a comprehension": function("return [open('{there}', 'w') for _ in x]"),
    "a walrus": function("return (y := open('{there}', 'w'))"),
    "an f-string": function("return f\"{{open('{there}', 'w')}}\""),
    "an assert": function("assert open('{there}', 'w')\nreturn x"),
    "with": function("with open('{there}', 'w') as f:\n    return x"),
    "try": function("try:\n    return open('{there}', 'w')\nexcept:\n    return x"),
    "subclasses": function("return x.__class__.__mro__[-1].__subclasses__()"),
    "globals": function("return plica.from_text.__globals__"),
    "a dim": function("return x", "x: Tensor[(\"__import__('os')\",), f32]"),
    "a dim that calls": function("return x", "x: Tensor[(open('{there}', 'w'),), f32]"),
    "an attribute": function("return op.reshape(x, open('{there}', 'w'))"),
}


@pytest.mark.parametrize("name", EXECUTED)
def test_nothing_is_run(name: str, tmp_path: Any) -> None:
    there = tmp_path / "there"
    refused(lambda: plica.from_text(EXECUTED[name].format(there=there)))
    assert not there.exists()


REFUSED: Final = {
    "an open bracket": "(",
    "an open text": '"""',
    "a null": "import plica\0\n",
    "only a null": "\0",
    "a lone surrogate": "x = '\ud800'\n",
    "no indent": "def f():\nreturn 1\n",
    "tabs and spaces": "def f():\n\tif x:\n        return 1\n\treturn 2\n",
    "binary": bytes(range(1, 128)).decode("latin1"),
    "an unknown operator": function("return op.nothing(x)"),
    "an unknown module": function("return np.exp(x)"),
    "an unknown name": function("return y"),
    "a name before it is there": function("z = y\ny = x\nreturn z"),
    "no return": function("y = x"),
    "a return in a loop": function("for i in x:\n    return x"),
    "while": function("while True:\n    pass\nreturn x"),
    "delete": function("del x\nreturn x"),
    "global": function("global y\nreturn x"),
    "yield": function("yield x"),
    "await": HEAD + "@plica.function\nasync def main(x: f32):\n    return await x\n",
    "stars": HEAD + "@plica.function\ndef main(*x: f32):\n    return x\n",
    "named stars": HEAD + "@plica.function\ndef main(**x: f32):\n    return x\n",
    "no annotation of much": function("return op.matmul(x, y)", "x, y"),
    "one argument too few": function("return op.add(x)"),
    "one argument too many": function("return op.exp(x, x, x)"),
    "an unknown attribute": function("return op.sum(x, axes=0)"),
    "an axis past the end": function("return op.sum(x, axis=7)"),
    "an axis of a text": function("return op.sum(x, axis='0')"),
    "an axis twice": function("return op.sum(x, axis=(0, 0))"),
    "shapes that do not meet": function("return op.matmul(x, x, x)"),
    "dtypes that differ": function("return x + op.cast(x, i64)"),
    "an unknown dtype": function("return x", "x: Tensor[(4,), f31]"),
    "a dtype of a text": function("return op.cast(x, 'float77')"),
    "a negative size": function("return x", "x: Tensor[(-1,), f32]"),
    "a size of a float": function("return x", "x: Tensor[(1.5,), f32]"),
    "a size of None": function("return x", "x: Tensor[(None,), f32]"),
    "a size divided by zero": function("return x", 'x: Tensor[("n//0",), f32]'),
    "a size to a power": function("return x", 'x: Tensor[("n**n",), f32]'),
    "a size with a call": function("return x", 'x: Tensor[("len(n)",), f32]'),
    "a size with a space": function("return x", 'x: Tensor[("n m",), f32]'),
    "an empty size": function("return x", 'x: Tensor[("",), f32]'),
    "a size of 2**63": function("return x", "x: Tensor[(9223372036854775808,), f32]"),
    "a size of 2**200": function("return x", f"x: Tensor[({2**200},), f32]"),
    "a shape whose product wraps": function(
        "return op.reshape(x, (4294967296, 4294967296))", 'x: Tensor[("n",), f32]'
    ),
    "a reshape to another size": function("return op.reshape(x, (5,))"),
    "two unknown sizes": function("return op.reshape(x, (-1, -1))"),
    "a wrong return type": HEAD
    + "@plica.function\ndef main(x: f32) -> Tensor[(2,), i64]:\n    return x\n",
    "a function twice": function("return x") + "\n" + function("return x"),
    "a parameter twice": HEAD + "@plica.function\ndef main(x: f32, x: f32):\n    return x\n",
    "a call of a tensor": function("return x(x)"),
    "an attribute of a tensor": function("return x.shape"),
    "a subscript": function("return x[0][0][0]"),
    "a comparison chain": function("return 0 < x < 1 < x"),
    "a condition of a vector": function("return x if x else x"),
    "a missing constant": function("return x + const('missing')"),
    "a data type of nothing": HEAD + "@plica.data\nclass A:\n    B: (C,)\n",
    "a constructor twice": HEAD + "@plica.data\nclass A:\n    B: ()\n    B: ()\n",
    "a match that misses": HEAD
    + "@plica.data\nclass A:\n    B: ()\n    C: ()\n\n"
    + "@plica.function\ndef main(a: A) -> f32:\n    match a:\n        case B():\n            return 1.0\n",
    "a clause too much": HEAD
    + "@plica.data\nclass A:\n    B: ()\n\n"
    + "@plica.function\ndef main(a: A) -> f32:\n    match a:\n        case _:\n            return 1.0\n"
    "        case B():\n            return 2.0\n",
    "a kernel that stores outside": HEAD
    + "@plica.kernel\ndef main(A: Buffer[(4,), f32], B: Buffer[(4,), f32]):\n    for i in grid(4):\n        B[i + 4] = A[i] + C[i]\n",
    "parentheses": function("return " + "(" * 300 + "x" + ")" * 300),
    "a dtype as a value": function("return f32"),
    "a power of texts": function("return 'a' ** x"),
    "bytes": function("return b'abc'"),
    "a complex number": function("return x * 1j"),
    "Ellipsis": function("return ..."),
    "None": function("return None"),
    "a matrix product of vectors and a text": function("return x @ 'x'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_program_is_refused(name: str) -> None:
    refused(lambda: plica.from_text(REFUSED[name]))


EITHER: Final = {
    "empty": "",
    "a comment": "# nothing\n",
    "a mark of the byte order": "\ufeff" + function("return x"),
    "a deep sum": function("return " + " + ".join(["x"] * 600)),
    "many negations": function("return " + "-" * 90 + "x"),
    "a long name": function(f"{'y' * 100_000} = x\nreturn {'y' * 100_000}"),
    "names of another script": function("größe = x\nreturn größe"),
    "look-alikes": function("а = x\na = x * 2.0\nreturn а"),  # the first is Cyrillic
    "an infinite literal": function("return x * 1e999"),
    "a huge integer": function(f"return x + {10**400}"),
    "a nested tuple": function("y = (x, (x, (x, (x, ()))))\nreturn y[1][1][1][0]"),
    "2,000 lets": function("\n".join(["y0 = x", *(f"y{n} = y{n - 1} + x" for n in range(1, 2000)),
                                      "return y1999"])),
    "a bomb of tuples": function("\n".join(["y0 = (x, x)", *(f"y{n} = (y{n - 1}, y{n - 1})"
                                            for n in range(1, 40)), "return x"])),
    "carriage returns": function("return x").replace("\n", "\r\n"),
    "no last line end": function("return x").rstrip(),
    "form feeds": function("return x").replace("import plica", "\fimport plica"),
}  # fmt: skip


@pytest.mark.parametrize("name", EITHER)
def test_strange_programs_are_read_or_refused(name: str) -> None:
    found: Any = outcome(lambda: plica.from_text(EITHER[name]))
    if not isinstance(found, PlicaError):
        again = plica.from_text(str(found))
        assert plica.digest(again) == plica.digest(found)


def test_look_alike_names_are_two() -> None:
    module = plica.from_text(EITHER["look-alikes"])
    x = np.ones(4, np.float32)
    assert np.array_equal(plica.interpret(module, x), x)
