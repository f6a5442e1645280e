"""Objects are compiled once in a process, and are the same where they are compiled again."""

from __future__ import annotations

import pytest

import plica
from plica.codegen.llvm import toolchain, unit
from plica.codegen.target import Target
from plica.runtime.executable import Executable

SOURCE = """
import plica
from plica import op

@plica.function
def main(x: Tensor[(5, 3), f32]):
    return op.tanh(x) * 2.0
"""


def compiled() -> Executable:
    return plica.compile(plica.from_text(SOURCE), threads=1, cache=False)


def forget() -> None:
    unit.TEXTS.clear()
    unit.EMITTED.clear()


def test_objects_are_compiled_once_while_they_are_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    emit, texts = toolchain.emit, list[str]()

    def counted(text: str, target: Target, level: int = 2) -> bytes:
        texts.append(text)
        return emit(text, target, level)

    monkeypatch.setattr(toolchain, "emit", counted)
    forget()
    first = compiled()
    number = len(texts)
    assert number == len(set(texts)) > 0
    assert compiled().artefact.objects == first.artefact.objects
    assert len(texts) == number
    forget()
    assert compiled().artefact.objects == first.artefact.objects
    assert texts[number:] == texts[:number]


def test_the_machine_and_the_level_tell_objects_apart() -> None:
    here = toolchain.host()
    text = (
        f'target triple = "{here.triple}"\n'
        "define void @f(ptr %x) {\n  %y = alloca i64\n  store i64 1, ptr %y\n"
        "  %z = load i64, ptr %y\n  store i64 %z, ptr %x\n  ret void\n}\n"
    )
    assert unit.emitted(text, here, 2) != unit.emitted(text, here, 0)
