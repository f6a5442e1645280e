"""Tensors of nodes: what every node of a model computes, by the interpreter and by its kernel.

    node_tensors(model, inputs)      {node: tensor}, as the model means it
    kernel_tensors(comparison)       {"kernel 3: add + relu": tensor}, as the code computes it

>>> archive_of({"add_0": np.ones(2, np.float32)})[:2]
b'PK'
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import BytesIO

import numpy as np

from plica.core import free_vars
from plica.ir.graph import Apply, Var
from plica.ir.interpret.interpreter import interpret
from plica.report.compare import Comparison, giving, values_of
from plica.report.study import StudiedModel
from plica.rewrite.graph.walk import expressions
from plica.runtime.port import Array


def node_tensors(of: StudiedModel, inputs: Sequence[Array]) -> dict[str, Array]:
    """What each node of a model computes from inputs, by its name; the last of several operators
    that a node became.  What is inside of functions and branches has no one tensor."""
    module = of.lowered.module
    main = module.main_function()
    bound = {*main.params, *module.names}
    terms = [
        each for each in expressions(main.body)
        if isinstance(each, Apply) and each in of.nodes
        and all(var in bound for var in free_vars(each) if isinstance(var, Var))
    ]  # fmt: skip
    found: dict[str, Array] = {}
    for term, value in zip(terms, interpret(giving(module, terms), *inputs), strict=True):
        parts = values_of(value)
        for name in of.nodes[term]:
            for at, part in enumerate(parts):
                found[name if len(parts) == 1 else f"{name}.{at}"] = part
    return found


def kernel_tensors(of: Comparison) -> dict[str, Array]:
    """What each kernel computes from the operands that the interpreter gives it."""
    return {f"kernel {each.number}: {each.source}": each.found for each in of.kernels}


def archive_of(tensors: Mapping[str, Array]) -> bytes:
    """Tensors as an `.npz` archive, by name; a `/` in a name stays."""
    file = BytesIO()
    np.savez(file, allow_pickle=False, **dict(tensors))
    return file.getvalue()
