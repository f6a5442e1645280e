"""Prepare: from a module to one whose operators are grouped into kernels.

First the graph is optimised (`plica.rewrite.optimise`), then rules are used that pay on the machine
the code is for; `PASSES` is data: what is done then, in order, before the module is sequenced into
a program.

>>> [each.name for each in PASSES]
['infer', 'resolve', 'decompose', 'fuse']
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from plica.codegen.lower.decompose import decompose
from plica.codegen.lower.resolve import resolve
from plica.ir.dtype import f32
from plica.ir.infer import infer
from plica.ir.module import Module
from plica.ir.passes import Pass, Pipeline
from plica.rewrite.contract import Contract
from plica.rewrite.fuse import fuse
from plica.rewrite.graph import find_pass
from plica.rewrite.history import History
from plica.rewrite.optimise import optimise
from plica.rewrite.pack import Pack
from plica.rewrite.packs.winograd import Costs, winograd_for
from plica.schedule.default.machine import Machine

PASSES: Final = Pipeline(
    (
        Pass("infer", "Every later step asks for types.", infer, after=("inferred",)),
        Pass(
            "resolve",
            "Calls, lets and tuples are known before the program runs.",
            resolve,
            before=("inferred",),
            after=("resolved",),
        ),
        Pass(
            "decompose",
            "Only operators with a tensor definition become kernels.",
            decompose,
            requires=("resolve",),
            before=("resolved",),
            after=("resolved", "primitive"),
        ),
        Pass(
            "fuse",
            "What can be computed together costs one kernel and no memory between.",
            fuse,
            requires=("decompose",),
            before=("resolved", "primitive"),
            after=("primitive", "fused"),
        ),
    )
)
"""What is done to a module, in order."""


def prepared(
    module: Module, contract: Contract, packs: Sequence[Pack], machine: Machine | None
) -> History:
    """The history of a module before any pass; with a machine, after rules that pay there."""
    history = optimise(infer(module), contract, packs)
    return history if machine is None else faster(history, machine, contract)


def faster(history: History, machine: Machine, contract: Contract) -> History:
    """The history after rules that pay on a machine; what they made of constants is computed."""
    costs = Costs(machine.lanes(f32), machine.cache(2))
    after = history.under(winograd_for(costs), contract)
    return history if after is history else after.through(find_pass("fold-constants"))


def grouped(history: History) -> History:
    """The history through all passes."""
    for each in PASSES:
        history = history.through(each)
    return history
