"""Checked numbers: terms over dims whose sums, differences and products must fit in 64 bits.

An open size comes from a caller, and any is legal; terms of it may exceed the machine's integers,
but must never wrap around to a small number.

>>> from plica.ir.type.dim import dim_var
>>> w = LlvmWriter()
>>> n = dim_var("n")
>>> checked = Checked(w, {n: "%n"})
>>> checked.text(n * n), checked.failed
('%2', '%3')
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from plica.codegen.emit.scalar import operands, operation
from plica.codegen.llvm.dialect import LLVM
from plica.codegen.llvm.writer import LlvmPlace, LlvmWriter
from plica.core import CompilerBug, post_order
from plica.ir.loop.scalar import Add, Lit, Mul, Scalar, ScalarVar, Sub

WORDS: Final[Mapping[type[Scalar], str]] = {Add: "sadd", Sub: "ssub", Mul: "smul"}


class Checked:
    """Writes the values of index terms, and whether any did not fit."""

    def __init__(self, w: LlvmWriter, dims: Mapping[ScalarVar, str]) -> None:
        self.w = w
        self.place = LlvmPlace(LLVM, w)
        self.failed = "false"
        self.negative = "false"
        self._known: dict[Scalar, str] = {}
        self._known.update(dims.items())

    def text(self, of: Scalar) -> str:
        """The value of a term over the dims."""
        for node in post_order(of):
            if not isinstance(node, Scalar) or node in self._known:
                continue
            if isinstance(node, ScalarVar):
                raise CompilerBug(f"{node.name} is no dim of the program.")
            if isinstance(node, Lit):
                self._known[node] = str(int(node.value))
                continue
            kids = [self._known[each] for each in operands(node)]
            if (word := WORDS.get(type(node))) is None:
                self._known[node] = operation(node, kids, self.place)
            else:
                self._known[node] = self.combined(word, kids[0], kids[1])
        return self._known[of]

    def combined(self, word: str, left: str, right: str) -> str:
        """A sum, a difference or a product of two numbers."""
        name = f"@llvm.{word}.with.overflow.i64"
        both = self.w.let(f"call {{i64, i1}} {name}(i64 {left}, i64 {right})")
        value = self.w.let(f"extractvalue {{i64, i1}} {both}, 0")
        over = self.w.let(f"extractvalue {{i64, i1}} {both}, 1")
        self.failed = over if self.failed == "false" else self.w.let(f"or i1 {self.failed}, {over}")
        return value

    def at_least_none(self, of: Scalar) -> None:
        """Note where a size would be less than nothing."""
        below = self.w.let(f"icmp slt i64 {self.text(of)}, 0")
        before = self.negative
        self.negative = below if before == "false" else self.w.let(f"or i1 {before}, {below}")
