"""Launch names: launches that index by data are named by their node of the model.

take  -->  take of node lookup along axis 0 of Tensor[("n", 8), f32] by 'ids'
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import evolve

from plica.analysis.statement import reads_memory
from plica.codegen.compilation import Lowered
from plica.codegen.program import Launch, launches
from plica.core import free_vars, post_order
from plica.ir.graph.expression import Apply, Var
from plica.ir.graph.node_name import names_within
from plica.ir.graph.shape_specialisation import OPEN_PREFIX
from plica.ir.loop.scalar import Load
from plica.ir.loop.statement import Bind, Kernel, Store
from plica.ir.type import type_of
from plica.report.origin import LaunchOrigin, origins
from plica.runtime.error import of_node


def with_node_names(of: Lowered) -> Lowered:
    """The program with names of nodes for launches whose kernels index by data."""
    program = of.program
    chosen = {n for n, kernel in enumerate(program.kernels) if selects(kernel)}
    if not chosen or not (names := names_within(of.module)):
        return of
    names_of: dict[Launch, str] = {}
    inputs = of.module.main_function().params
    for launch, origin in zip(launches(program), origins(of, names), strict=True):
        if launch.kernel in chosen and origin.nodes:
            names_of[launch] = _name_of(launch.source, origin, inputs)
    regions = tuple(
        [
            tuple([evolve(step, source=names_of.get(step, step.source)) if step in names_of else
            step
                   for step in steps])
            for steps in program.regions
        ]
    )  # fmt: skip
    return evolve(of, program=evolve(program, regions=regions)) if names_of else of


def selects(kernel: Kernel) -> bool:
    """Whether an index of a kernel depends on memory, directly or through a bound name."""
    nodes = post_order(kernel.body)
    named = {each.var for each in nodes if isinstance(each, Bind) and reads_memory(each.value)}
    return any(
        reads_memory(place) or not named.isdisjoint(free_vars(place))
        for node in nodes
        if isinstance(node, Load | Store)
        for place in node.indices
    )


def _name_of(source: str, origin: LaunchOrigin, inputs: Sequence[Var]) -> str:
    """The name of a launch, with the indexed axis and the inputs that the indices depend on, if a
    single operator indexes."""
    node = ", ".join(origin.nodes)
    nodes = [
        operator
        for operator in origin.operators
        if isinstance(operator, Apply) and len(operator.args) > 1 and "axis" in dict(operator.attrs)
    ]
    if len(nodes) != 1 or not isinstance(axis := dict(nodes[0].attrs)["axis"], int):
        return of_node(source, node, "")
    whole = f"axis {axis} of {type_of(nodes[0].args[0])}".replace(f'"{OPEN_PREFIX}', '"')
    says = frozenset().union(*map(free_vars, nodes[0].args[1:]))
    return of_node(source, node, whole, [str(var.name) for var in inputs if var in says])
