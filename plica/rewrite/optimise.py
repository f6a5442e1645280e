"""Optimising graphs: the passes and packs a module goes through, in order, as data.

    to-dataflow   lets become sharing, so that rules see whole expressions
    the user's packs, then inference, simplify, scale, transposed, padding: within the contract
    fold-constants between them: what rules moved together is computed once
    merge-common, remove-dead: what is left over goes

>>> [each.name for each in stages()][:2]
['to-dataflow', 'inference']

The result is a `History`: the module, and one derivation of all that was done.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

from plica.ir.module import Module
from plica.ir.passes import Pass
from plica.rewrite.contract import Contract, approx
from plica.rewrite.graph import find_pass
from plica.rewrite.history import History, begun
from plica.rewrite.pack import Pack
from plica.rewrite.packs import find_pack

Stage: TypeAlias = Pass | Pack

DEFAULT_CONTRACT: Final = approx(1e-4)

ORDER: Final[tuple[str, ...]] = (
    "pass to-dataflow",
    "packs",
    "pack inference",
    "pack simplify",
    "pass fold-constants",
    "pack scale",
    "pass fold-constants",
    "pack transposed",
    "pack padding",
    "pack simplify",
    "pass fold-constants",
    "pass merge-common",
    "pass remove-dead",
)
"""What is done, by name; `packs` is where those that a user asks for come."""


def stages(packs: Sequence[Pack] = ()) -> tuple[Stage, ...]:
    """The passes and packs in order, with a user's own."""
    found: list[Stage] = []
    for line in ORDER:
        kind, _, name = line.partition(" ")
        if kind == "packs":
            found.extend(packs)
        else:
            found.append(find_pass(name) if kind == "pass" else find_pack(name))
    return tuple(found)


def optimise(
    module: Module, contract: Contract = DEFAULT_CONTRACT, packs: Sequence[Pack] = ()
) -> History:
    """An inferred module after all stages, using only rules within the contract."""
    history = begun(module)
    for stage in stages(packs):
        if isinstance(stage, Pack):
            history = history.under(stage, contract)
        else:
            history = history.through(stage)
    return history
