"""annotate: what may be said of loops and blocks."""

from __future__ import annotations

from importlib import import_module

import pytest

from plica.ir.text.show import show_kernel
from plica.schedule import annotate, block, loops
from plica.schedule.do import Body
from plica.schedule.primitive.annotate import KEYS, declare_key
from tests.schedule.hostile import after, refusal
from tests.schedule.kernel import matmul


def test_something_said_of_a_loop_and_of_a_block() -> None:
    def schedule() -> Body:
        c = yield block("C")
        i, _, _ = yield loops(c)
        yield annotate(i, "software_pipeline_stage", (0, 1))
        yield annotate(c, "role", "product")

    text = show_kernel(after(matmul(), schedule))
    assert "software_pipeline_stage=(0, 1)" in text
    assert "product" in text


@pytest.mark.parametrize(
    ("word", "key", "value"),
    [
        ("known-key", "rolle", "x"),
        ("typed-value", "role", 1),
        ("typed-value", "double_buffer", 1),
        ("not-annotated", "pragma", "again"),
    ],
)
def test_refusals(word: str, key: str, value: str | int) -> None:
    def schedule() -> Body:
        c = yield block("C")
        yield annotate(c, "pragma", "once")
        yield annotate(c, key, value)

    assert refusal(matmul(), schedule) == word


def test_a_key_of_another_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_module(declare_key.__module__), "KEYS", dict(KEYS))
    declare_key("theirs", "int")
    declare_key("theirs", "int")
    with pytest.raises(ValueError, match="another type"):
        declare_key("theirs", "str")

    def schedule() -> Body:
        yield annotate((yield block("C")), "theirs", 3)

    assert refusal(matmul(), schedule) == "accepted"
