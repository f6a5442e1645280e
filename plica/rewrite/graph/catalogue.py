"""The catalogue: every structural pass, one line each, and the normal forms they give.

>>> [each.name for each in PASSES][:3]
['to-anf', 'to-dataflow', 'to-basic-blocks']
>>> find_pass("to-anf").after
('anf',)
"""

from __future__ import annotations

from typing import Final

from plica.ir.passes import Pass, Pipeline, exact_pass, form
from plica.rewrite.graph.cse import merge_common
from plica.rewrite.graph.dataflow import is_dataflow, to_dataflow
from plica.rewrite.graph.dead import remove_dead
from plica.rewrite.graph.fold import fold_constants
from plica.runtime.late import lazy_imports

with lazy_imports(__name__):
    from plica.rewrite.graph.anf import is_anf, is_basic_block, to_anf, to_basic_blocks
    from plica.rewrite.graph.defunctionalize import defunctionalize
    from plica.rewrite.graph.eta import eta_expand, eta_reduce
    from plica.rewrite.graph.inline import inline
    from plica.rewrite.graph.lift import lift
    from plica.rewrite.graph.monomorphic import is_monomorphic, monomorphise
    from plica.rewrite.graph.partial import evaluate_partially

form("anf", is_anf)
form("dataflow", is_dataflow)
form("basic-blocks", is_basic_block)
form("monomorphic", is_monomorphic)

PASSES: Final[tuple[Pass, ...]] = (
    exact_pass(
        "to-anf", "Name every value, in the lowest scope that needs it.", to_anf, after=("anf",)
    ),
    exact_pass(
        "to-dataflow",
        "Convert lets to a dataflow graph, so that rules match across them.",
        to_dataflow,
        after=("dataflow",),
    ),
    exact_pass(
        "to-basic-blocks",
        "Name what several scopes use, so that each is a graph.",
        to_basic_blocks,
        after=("basic-blocks",),
    ),
    exact_pass("remove-dead", "Eliminate dead lets, parameters and definitions.", remove_dead),
    exact_pass(
        "merge-common", "Eliminate common subexpressions, functions and definitions.", merge_common
    ),
    exact_pass("fold-constants", "Fold constants.", fold_constants),
    exact_pass(
        "inline", "Inline calls where that saves more than it costs.", inline, drops=("attributes",)
    ),
    exact_pass(
        "evaluate-partially",
        "Decide now whatever does not need the inputs.",
        evaluate_partially,
        after=("dataflow",),
        drops=("attributes",),
    ),
    exact_pass(
        "eta-expand", "Give constructors and definitions used as values parameters.", eta_expand
    ),
    exact_pass("eta-reduce", "Drop functions that only pass their arguments on.", eta_reduce),
    exact_pass("lift", "Make local functions definitions.", lift),
    exact_pass(
        "monomorphise",
        "Copy polymorphic functions for the types they are used at.",
        monomorphise,
        after=("monomorphic",),
    ),
    exact_pass(
        "defunctionalize",
        "Defunctionalise: closures become data.",
        defunctionalize,
        after=("first-order",),
    ),
)
"""All of them take any module and give an inferred one."""


def find_pass(name: str) -> Pass:
    """The pass of that name; a wrong name is refused with the nearest right one."""
    return Pipeline(PASSES).find(name)
