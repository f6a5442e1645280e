"""Counting: how many parameters a network has, and how many products it adds up.

>>> from plica.frontend.zoo.plain import mlp
>>> small = mlp((8, 4, 2))
>>> parameters(small), macs(small)
(46, 40)

Statistics of batch normalisation are no parameters (nothing learns them), nor are single numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Final

from plica.core.fold import post_order
from plica.frontend.zoo.layer import sizes
from plica.ir.graph.expression import Apply, Const
from plica.ir.graph.module import Module


def parameters(of: Module) -> int:
    """The numbers that training would find."""
    found: dict[Const, None] = {}
    for node in post_order(of.main_function().body):
        if isinstance(node, Apply):
            learnt = node.args[:3] if node.op == "nn.batch_norm" else node.args
            found |= {each: None for each in learnt if isinstance(each, Const) and each.shape}
    return sum(prod(constant.shape) for constant in found)


# Which axes of a weight are summed over, for each number of the result.
_SUMMED: Final[dict[str, Callable[[Apply], int]]] = {
    "nn.conv": lambda node: prod(sizes(node.args[1])[1:]),
    "nn.dense": lambda node: sizes(node.args[1])[1],
    "matmul": lambda node: sizes(node.args[0])[-1],
}


def macs(of: Module) -> int:
    """Products that are added up: of convolutions, dense layers and matrices."""
    total = 0
    for node in post_order(of.main_function().body):
        if not isinstance(node, Apply):
            continue
        if node.op in _SUMMED:
            total += prod(sizes(node)) * _SUMMED[node.op](node)
        elif node.op == "nn.conv_transpose":  # every input meets every weight of its channel
            total += prod(sizes(node.args[0])) * prod(sizes(node.args[1])[1:])
    return total
