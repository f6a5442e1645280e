"""Same code: what is written alike is alike, wherever it stands."""

from __future__ import annotations

from functools import partial
from typing import Any

from plica.core.same_code import same_code


def made(text: str, **names: Any) -> Any:
    space: dict[str, Any] = {"__name__": "somewhere", **names}
    exec(compile(text, "<a cell>", "exec"), space)
    return space["f"]


def test_a_cell_run_again_is_alike_wherever_it_stands() -> None:
    text = "def g(x): return x + 1\ndef f(x, k=2): return [g(y) * k for y in x]\n"
    assert same_code(made(text), made("\n\n\n" + text))


def test_what_differs_is_seen() -> None:
    f = made("def f(x): return x * 2")
    assert not same_code(f, made("def f(x): return x * 3"))
    assert not same_code(f, made("def f(x): return x + 2"))
    assert not same_code(made("def f(x, k=1): return k"), made("def f(x, k=2): return k"))
    helped = "def g(x): return x {}\ndef f(x): return g(x)\n"
    assert not same_code(made(helped.format("+ 1")), made(helped.format("- 1")))
    assert not same_code(partial(f, 1), partial(f, 2))
    assert same_code(partial(f, 1), partial(f, 1))
    assert not same_code(f, partial(f))
    assert not same_code({"a": f}, {"b": f})


def test_what_calls_itself_ends() -> None:
    text = "def f(n): return n and f(n - 1)"
    assert same_code(made(text), made(text))
