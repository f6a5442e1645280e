"""Optimising graphs: the part of every pipeline that knows no machine, as data.

>>> print(*OPTIMISE.names[:4])
to-dataflow packs inference simplify
>>> print(OPTIMISE.find("packs").why)
Apply the rule packs of the user.

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
    rules("packs", "Apply the rule packs of the user.", asked_for),
    rules("inference", "Expand norms for inference; drop dropout.", "inference"),
    rules("simplify", "Remove no-ops; reduce the strength of operators.", "simplify"),
    _FOLD,
    rules("scale", "Fold per-channel constants into weights.", "scale"),
    renamed(_FOLD, "fold-scales", "Fold scaled weights."),
    rules("transposed", "Rewrite transposed convolutions as ordinary ones.", "transposed"),
    rules("fourier", "Factor Fourier transforms of composite length.", "fourier"),
    rules("padding", "Fold explicit padding into the window operator that follows.", "padding"),
    rules("simplify-again", "Simplify what other rules brought together.", "simplify"),
    renamed(_FOLD, "fold-again", "Fold constants that rules brought together."),
    find_pass("merge-common"),
    find_pass("remove-dead"),
))
# fmt: on
"""The graph pipeline: passes, and rules within the contract."""


def optimise(
    module: Module, contract: Contract = DEFAULT_CONTRACT, packs: Sequence[Pack] = ()
) -> History:
    """An inferred module after all of it."""
    return through(OPTIMISE, begun(module), Setting(contract, tuple(packs)))
