"""Known arguments: what is the same constant in every call is no argument."""

from __future__ import annotations

import numpy as np

from plica.codegen.dynamic.constant_argument import place_known
from tests.codegen.dynamic.agree import agree, compiled, text

HANDED_ON = """
@plica.function
def even(n: i64, x: f32, w: tuple[f32, f32], c: f32) -> f32:
    return x if n <= 0 else odd(n - 1, x * w[0], w, c)

@plica.function
def odd(n: i64, x: f32, w: tuple[f32, f32], c: f32) -> f32:
    return x if n <= 0 else even(n - 1, x + w[1], w, c * 2.0)

@plica.function
def main(n: i64, x: f32) -> f32:
    return even(n, x, (f32(2.0), f32(0.5)), f32(1.0))
"""


def params(source: str) -> dict[str, list[str]]:
    made = place_known(text(source))
    return {str(n.name): [str(p.name) for p in f.params] for n, f in made.functions()}


def test_what_functions_hand_on_is_placed() -> None:
    found = params(HANDED_ON)
    assert "w" not in found["even"]
    assert "w" not in found["odd"]
    assert found["main"] == ["n", "x"]


def test_what_differs_stays() -> None:
    other = HANDED_ON.replace("even(n - 1, x + w[1], w,", "even(n - 1, x + w[1], (x, x),")
    assert "w" in params(other)["even"]
    assert "w" in params(other)["odd"]


def test_the_meaning_is_kept() -> None:
    module = text(HANDED_ON)
    exe = compiled(module)
    for n in range(5):
        agree(exe, module, np.int64(n), np.float32(0.3))


def test_main_keeps_its_parameters() -> None:
    source = """
@plica.function
def main(n: i64, x: f32) -> f32:
    return x if n <= 0 else main(n - 1, f32(2.0))
"""
    assert params(source)["main"] == ["n", "x"]
