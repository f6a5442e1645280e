"""The report of a quantisation: which operators became integers, which did not, and why.

>>> from plica.rewrite.quantise.annotate import AnnotationRow
>>> print(QuantisationReport((AnnotationRow("nn.conv", "a", "i8"), AnnotationRow("nn.softmax", "b",
...     "f32", "Why not."))))
 operators  form  why
         1  i8    nn.conv
         1  f32   nn.softmax: Why not.
"""

from __future__ import annotations

from collections import Counter

from attrs import frozen

from plica.rewrite.quantise.annotate import AnnotationRow


@frozen
class QuantisationReport:
    """A row for each operator, in the order of the data."""

    rows: tuple[AnnotationRow, ...]

    def count(self, form: str) -> int:
        """How many operators are of a form."""
        return sum(row.form == form for row in self.rows)

    def __str__(self) -> str:
        said = Counter(
            (row.form, f"{row.op}: {row.why}" if row.why else row.op) for row in self.rows
        )
        # i8 before f32; a Counter keeps insertion order.
        ordered = sorted(said.items(), key=lambda each: each[0][0] != "i8")
        lines = [f"{'operators':>10}  form  why"]
        lines += [f"{count:>10}  {form:<4}  {text}" for (form, text), count in ordered]
        return "\n".join(lines)
