"""Operators: importing this package loads every record.

>>> find("sub") is find("subtract"), "nn.conv" in names()
(True, True)
"""

from plica.ir.graph.operator import (
    Attribute,
    Mismatch,
    Operator,
    aliases,
    find,
    names,
    namespaces,
    register,
)
from plica.ir.op import (  # noqa: F401  # imported for their records
    activation,
    arrange,
    bitserial,
    comparison,
    convolution,
    create,
    cut,
    elementwise,
    index,
    join,
    laid,
    linear,
    loss,
    mark,
    normalize,
    order,
    pad,
    pixel,
    pool,
    put,
    quantise,
    reduction,
    repeat,
    roi,
    sampled,
    scatter,
    shape,
    sparse,
    top_k,
    unpool,
    winograd,
)

__all__ = [
    "Attribute",
    "Mismatch",
    "Operator",
    "aliases",
    "find",
    "names",
    "namespaces",
    "register",
]
