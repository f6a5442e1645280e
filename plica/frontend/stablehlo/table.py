"""The table: one row per operation, a function from a node to terms; and the unsupported
operations.

>>> len(TABLE) > 100, REFUSED["infeed"]
(True, 'a program of Plica has no channels')
"""

from __future__ import annotations

from typing import Final

from plica.frontend.stablehlo.row import (
    complex_number,
    elementwise,
    gather,
    linear,
    reduction,
    shape,
)
from plica.frontend.stablehlo.row.reduction import Rows
from plica.frontend.stablehlo.syntax import MlirOp, malformed

FILES: Final = (elementwise, shape, reduction, gather, linear, complex_number)

TABLE: Final[dict[str, Rows]] = {name: row for file in FILES for name, row in file.TABLE.items()}

CONTROL: Final = (
    "while", "if", "case", "call", "composite", "return", "tuple", "get_tuple_element",
    "optimization_barrier", "custom_call", "after_all", "create_token", "replica_id",
    "partition_id", "all_reduce", "all_gather", "all_to_all", "reduce_scatter",
    "collective_permute", "collective_broadcast", "cross-replica-sum",
)  # fmt: skip
"""Operations of the reader itself."""

_CHANNELS = "a program of Plica has no channels"
_ASYNC = "a program of Plica runs in one order"
_QUANTISED = "element types that are quantised are not supported"
_RANDOM = "the numbers that it gives are not specified"

REFUSED: Final = {
    **dict.fromkeys(("infeed", "outfeed", "send", "recv"), _CHANNELS),
    **dict.fromkeys(("async_start", "async_done"), _ASYNC),
    **dict.fromkeys(("uniform_quantize", "uniform_dequantize"), _QUANTISED),
    **dict.fromkeys(("rng", "rng_bit_generator"), _RANDOM),
}
"""The operations of the specification that have no row, and why."""

_OPERANDS: Final = {
    **dict.fromkeys(elementwise.UNARY, 1),
    **dict.fromkeys(elementwise.BINARY, 2),
    **dict.fromkeys(
        ("broadcast_in_dim", "reshape", "transpose", "slice", "reverse", "real", "imag", "fft",
         "cholesky", "get_dimension_size", "get_tuple_element", "if", "case", "dynamic_iota",
         "chlo.top_k"), 1),
    **dict.fromkeys(
        ("pad", "dot_general", "convolution", "triangular_solve", "complex", "gather",
         "dynamic_broadcast_in_dim", "dynamic_reshape"), 2),
    **dict.fromkeys(("clamp", "select", "select_and_scatter", "batch_norm_training", "dynamic_conv",
                     "dynamic_gather"), 3),
    "real_dynamic_slice": 4, "dynamic_pad": 5, "batch_norm_inference": 5, "batch_norm_grad": 5,
    "constant": 0, "iota": 0,
}  # fmt: skip
"""How many operands an operation has, where that is one number."""

_REGIONS: Final = {"while": 2, "if": 2, "select_and_scatter": 2} | dict.fromkeys(
    ("reduce", "reduce_window", "map", "sort", "scatter"), 1
)


def check_arity(of: MlirOp, name: str) -> None:
    """Refuse an operation with another number of operands or regions."""
    count, regions = len(of.operands), _REGIONS.get(name, len(of.regions))
    if count != _OPERANDS.get(name, count) or (count == 0 and name in _SOME):
        malformed(f"{of.name} has the wrong number of operands.", of.line,
                  str(_OPERANDS.get(name, "some")), str(count))  # fmt: skip
    if regions != len(of.regions) or (name == "case" and not regions):
        malformed(f"{of.name} has the wrong number of regions.", of.line, str(regions),
                  str(len(of.regions)))  # fmt: skip
    if name in _PAIRED and count % 2 != (name == "scatter"):
        malformed(f"{of.name} has an operand without its other.", of.line, None, str(count))


_PAIRED: Final = ("reduce", "reduce_window", "scatter")
_SOME: Final = (*_PAIRED, "concatenate", "map", "sort", "dynamic_slice", "dynamic_update_slice")
