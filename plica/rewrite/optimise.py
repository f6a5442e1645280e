"""Optimising graphs: the part of every page that knows no machine, as data.

>>> print(*OPTIMISE.names[:4])
to-dataflow packs inference simplify
>>> print(OPTIMISE.find("packs").why)
The rules that a user asks for come first.

The result is a `History`: the module, and one derivation of all that was done.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from plica.ir.contract import DEFAULT_CONTRACT, Contract
from plica.ir.graph.module import Module
from plica.ir.passes import Pipeline, renamed
from plica.rewrite.graph import find_pass
from plica.rewrite.history import History, begun
from plica.rewrite.pack import Pack
from plica.rewrite.rule_pass import Setting, asked_for, rules, through

__all__ = ["DEFAULT_CONTRACT", "OPTIMISE", "optimise"]

_FOLD: Final = find_pass("fold-constants")

# fmt: off
OPTIMISE: Final = Pipeline((
    find_pass("to-dataflow"),
    rules("packs",          "The rules that a user asks for come first.",              asked_for),
    rules("inference",      "Norms are written out, dropout is dropped.", "inference"),
    rules("simplify",       "Operators that do nothing go, others become cheaper.",    "simplify"),
    _FOLD,
    rules("scale",          "Constants per channel move into weights.",         "scale"),
    renamed(_FOLD, "fold-scales",  "Weights that were scaled are constants again."),
    rules("transposed",     "Transposed convolutions become ordinary ones.",         "transposed"),
    rules("fourier",        "Fourier transforms of composite length become short ones.", "fourier"),
    rules("padding",        "Explicit padding becomes that of the window behind it.", "padding"),
    rules("simplify-again", "What other rules brought together is simplified.",        "simplify"),
    renamed(_FOLD, "fold-again",   "Constants that rules moved together are computed."),
    find_pass("merge-common"),
    find_pass("remove-dead"),
))
# fmt: on
"""What is done to every graph, by passes and by rules within the contract."""


def optimise(
    module: Module, contract: Contract = DEFAULT_CONTRACT, packs: Sequence[Pack] = ()
) -> History:
    """An inferred module after all of it."""
    return through(OPTIMISE, begun(module), Setting(contract, tuple(packs)))
