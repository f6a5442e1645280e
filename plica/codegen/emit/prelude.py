"""Helpers of C-like targets: functions that give operators the meaning `plica.ir.loop.scalar`
states.

Each is a function of some types, `T` the first of them, in which `T(x)` is a cast: a target that
has templates writes it as one, another puts each type in its place.

>>> print(instance("p_abs", "p_abs_i32", {"T": "int"}))
int p_abs_i32(int a) { return a < 0 ? (int)(0ULL - (unsigned long long)a) : a; }
<BLANKLINE>
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

_FILE: Final = Path(__file__).with_name("helper.h")


def _helpers() -> dict[str, tuple[tuple[str, ...], str]]:
    """Each function of the file by its name, with the types that it is a function of."""
    texts = _FILE.read_text(encoding="utf-8").split("\n\n")[1:]
    types = [tuple(each for each in "TF" if re.search(rf"\b{each}\b", text)) for text in texts]
    names = [text.removeprefix("T ").partition("(")[0] for text in texts]
    return {
        name: (of, f"{text.rstrip()}\n") for name, of, text in zip(names, types, texts, strict=True)
    }


HELPERS: Final = _helpers()  # the types of a helper, and its text: it has the name it is found by


def with_called(texts: Mapping[str, str], used: Iterable[str]) -> str:
    """The helpers of these names, and what they call of a table, in its order.

    >>> with_called({"p_a": "a", "p_b": "p_a() b ", "p_c": "p_b() c "}, ["p_b"])
    'ap_a() b '
    """
    wanted = set[str]()
    stack = [name for name in used if name in texts]
    while stack:
        if (name := stack.pop()) not in wanted:
            wanted.add(name)
            stack += [called for called in _HELPER.findall(texts[name]) if called in texts]
    return "".join([text for name, text in texts.items() if name in wanted])


_HELPER: Final = re.compile(r"\bp_\w+")


def extreme(word: str, of: str) -> str:
    """IEEE 754's minimum or maximum of two floats of a type, by comparisons."""
    better = "<" if word == "min" else ">"
    keeps = "signbit(a)" if word == "min" else "!signbit(a)"
    name = f"p_{word}_{'f64' if of == 'double' else 'f32'}"
    return f"""\
{of} {name}({of} a, {of} b) {{
  if (a != a || b != b) return a + b;
  if (a == b) return {keeps} ? a : b;
  return a {better} b ? a : b;
}}
"""


def template(name: str, head: str) -> str:
    """A helper as a template of its types."""
    types, text = HELPERS[name]
    return f"template <{', '.join(f'typename {each}' for each in types)}>\n{head} {text}"


def instance(name: str, called: str, types: Mapping[str, str]) -> str:
    """A helper for some types, under another name."""
    _, text = HELPERS[name]
    text = re.sub(rf"\b{name}\b", called, text)
    for variable, kind in types.items():
        text = re.sub(rf"\b{variable}\(", f"({kind})(", text)
        text = re.sub(rf"\b{variable}\b", kind, text)
    return text
