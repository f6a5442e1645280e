"""Rows of linear algebra."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from plica.frontend.onnx.node import OnnxNode
from plica.frontend.onnx.row.word import Row, dtype, like, rank, shape
from plica.ir.graph.expression import Expr
from plica.ir.graph.operator import Mismatch
from plica.ir.loop.scalar import Scalar
from plica.ir.op.linear import einsum_letters
from plica.ir.op.namespace import op
from plica.ir.type.dim import known
from plica.runtime.late import lazy_imports

with lazy_imports(__name__):  # few models compute sizes
    from plica.frontend.onnx.run_time import broadcast_size, spread


def _gemm(node: OnnxNode) -> Expr:
    a, b, c = node.x(0), node.x(1), node.maybe(2)
    alpha, beta = node.real("alpha", 1.0), node.real("beta", 1.0)
    node.ignore("broadcast")  # it allows what versions from 7 on always do
    if rank(a) != 2 or rank(b) != 2:
        node.malformed("Gemm takes matrices.", "rank 2", f"{node.type(0)} and {node.type(1)}")
    if not dtype(a).is_float and (alpha != int(alpha) or beta != int(beta)):
        node.unsupported("Gemm of integers takes whole factors.", "whole numbers", str(alpha))
    a = op.transpose(a, (1, 0)) if node.flag("transA") else a
    # A dense layer has its weight transposed already, as exported models mostly have it.
    whole = op.nn.dense(a, b) if node.flag("transB") else op.matmul(a, b)
    if alpha != 1.0:
        whole = whole * like(alpha, whole)
    if c is None or beta == 0.0:
        return whole
    return whole + (c if beta == 1.0 else c * like(beta, c))


def _einsum(node: OnnxNode) -> Expr:
    equation = node.text("equation", "").replace(" ", "")
    if "..." in equation:
        equation = _without_dots(node, equation)
    if "->" not in equation:
        letters = equation.replace(",", "")
        kept = sorted(letter for letter in set(letters) if letters.count(letter) == 1)
        equation += "->" + "".join(kept)
    if isinstance(wrong := einsum_letters(equation, len(node.all())), Mismatch):
        node.malformed(wrong.message, str(wrong.expected), str(wrong.found))
    return _contracted(_spread_out(node, equation), equation)


def _contracted(given: Sequence[Expr], equation: str) -> Expr:
    """Contracts pair after pair: one sum over the letters of many inputs would be exponential."""
    left, _, result = equation.partition("->")
    terms = left.split(",")
    if len(given) < 3:
        return op.einsum(tuple(given), equation=equation)
    whole, letters = given[0], terms[0]
    for at in range(1, len(given) - 1):
        later = {*result, *"".join(terms[at + 1 :])}
        kept = "".join(dict.fromkeys(letter for letter in letters + terms[at] if letter in later))
        whole = op.einsum((whole, given[at]), equation=f"{letters},{terms[at]}->{kept}")
        letters = kept
    return op.einsum((whole, given[-1]), equation=f"{letters},{terms[-1]}->{result}")


def _spread_out(node: OnnxNode, equation: str) -> tuple[Expr, ...]:
    """The inputs with axes of 1 as long as the others that have their letter."""
    given, terms = node.all(), equation.partition("->")[0].split(",")
    ranks, letters = [rank(x) for x in given], [len(term) for term in terms]
    if ranks != letters:
        node.malformed("Einsum has one letter for each axis.", f"ranks {letters}", f"{ranks}")
    whole: dict[str, Scalar] = {}
    for x, term in zip(given, terms, strict=True):
        for letter, size in zip(term, shape(x), strict=True):
            whole[letter] = broadcast_size(node, whole.get(letter, size), size)
    return tuple(
        spread(node, x, [
            whole[letter] if known(size) in (None, 1) else size
            for letter, size in zip(term, shape(x), strict=True)
        ])
        for x, term in zip(given, terms, strict=True)
    )  # fmt: skip


def _without_dots(node: OnnxNode, equation: str) -> str:
    """An equation in which the axes that dots stand for have letters."""
    terms, arrow, result = equation.partition("->")
    parts = terms.split(",")
    if len(parts) != len(node.inputs):
        node.malformed("An equation has one part for each input.", str(len(parts)), terms)
    free = [each for each in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
            if each not in equation]  # fmt: skip
    hidden = [node.rank(at) - len(part.replace("...", "")) if "..." in part else 0
              for at, part in enumerate(parts)]  # fmt: skip
    most = max(hidden)
    if min(hidden) < 0 or most > len(free):
        node.malformed("An equation does not fit its inputs.", terms, str(node.type(0)))
    if len({count for count, part in zip(hidden, parts, strict=True) if "..." in part}) > 1:
        node.unsupported("Dots that stand for different numbers of axes are not supported.")
    letters = "".join(free[:most])
    whole = [part.replace("...", letters) for part in parts]
    if not arrow:
        every = terms.replace("...", "").replace(",", "")
        result = "..." + "".join(sorted(e for e in set(every) if every.count(e) == 1))
    return ",".join(whole) + "->" + result.replace("...", letters)


# fmt: off
TABLE: Final[dict[str, Row]] = {
    "MatMul": lambda node: op.matmul(node.x(0), node.x(1)),
    "Gemm":   _gemm,
    "Einsum": _einsum,
}
# fmt: on
