"""Products of numbers of few bits: what bit planes, combined by `and` and counted, come to.

A plane of x and a plane of the weight count where both have a 1.  Where the weight is `unipolar`
its zeros count as -1: a weight w of b bits then stands for 2 w - (2^b - 1).  Summed with their
powers of two, the planes are a product of whole numbers in i32, which is how it is computed.

>>> from plica.ir.type.term import tensor
>>> how = {"activation_bits": 2, "weight_bits": 1, "unipolar": True}
>>> str(bitserial_dense.relation(how, tensor((2, 8), "u8"), tensor((3, 8), "u8")))
'Tensor[(2, 3), i32]'
"""

from __future__ import annotations

from plica.ir.graph.expression import Expr
from plica.ir.graph.operator import Mismatch, Operator, Values
from plica.ir.op.attribute import attribute, flag, positive
from plica.ir.op.comparison import bitwise_and
from plica.ir.op.convolution import conv
from plica.ir.op.elementwise import cast, multiply, subtract
from plica.ir.op.linear import dense
from plica.ir.op.record import composite, scalar
from plica.ir.op.relation import INTEGER, refuse
from plica.ir.type.dtype import i32
from plica.ir.type.term import TensorType

MOST_BITS = 8
"""Of a number: what more planes come to does not fit i32 any more."""


def _derived(name: str, record: Operator, doc: str) -> Operator:
    def rule(attrs: Values, x: TensorType, weight: TensorType) -> TensorType:
        for bits in (attrs["activation_bits"], attrs["weight_bits"]):
            if bits > MOST_BITS:
                message = f"{name} is of numbers of few bits."
                refuse("bad-attribute", message, f"at most {MOST_BITS}", str(bits))
        own = {each.name: attrs[each.name] for each in record.attributes}
        wide = [TensorType(each.shape, i32) for each in (x, weight)]
        if isinstance(found := record.relation(own, *wide), Mismatch):
            refuse(found.code, f"{name}: {found.message}", found.expected, found.found)
        assert isinstance(found, TensorType)
        return found

    def low_bits(x: Expr, bits: int) -> Expr:
        return bitwise_and(cast(x, i32), scalar(2**bits - 1, i32))

    def build(attrs: Values, x: Expr, weight: Expr) -> Expr:
        own = {each.name: attrs[each.name] for each in record.attributes}
        bits = attrs["weight_bits"]
        signs = low_bits(weight, bits)
        if attrs["unipolar"]:
            signs = subtract(multiply(signs, scalar(2, i32)), scalar(2**bits - 1, i32))
        return record(low_bits(x, attrs["activation_bits"]), signs, **own)

    return composite(
        name,
        ("x", "weight"),
        rule,
        build,
        doc,
        attributes=(
            *record.attributes,
            attribute("activation_bits", positive, 1),
            attribute("weight_bits", positive, 1),
            attribute("unipolar", flag, True),
        ),
        admits=INTEGER,
    )


bitserial_dense = _derived(
    "nn.bitserial_dense", dense, "nn.dense of the low bits of whole numbers, in i32."
)
bitserial_conv = _derived(
    "nn.bitserial_conv", conv, "nn.conv of the low bits of whole numbers, in i32."
)
