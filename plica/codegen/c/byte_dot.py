"""Dot products of bytes in C: a helper that multiplies and adds four neighbours for four outputs.

    y[l] += x[0] * w[l, 0] + x[1] * w[l, 1] + x[2] * w[l, 2] + x[3] * w[l, 3]        for l in 0 … 3

Arm cores with DSP instructions do two products and sums at once; elsewhere the helper is loops.

>>> BYTE_DOT.intrinsic, BYTE_DOT.lanes, BYTE_DOT.terms
('c.dot_i8i8_4', 4, 4)
"""

from __future__ import annotations

from typing import Final

from plica.codegen.dot_product import meaning
from plica.codegen.emit.expression import Expressions
from plica.core import CompilerBug
from plica.ir.loop.invocation import TensorIntrinsic, register
from plica.ir.loop.statement import Invoke, Region
from plica.ir.type import i8
from plica.schedule.default.machine import Dot

BYTE_DOT: Final = Dot("c.dot_i8i8_4", 4, i8)

HELPER: Final = "p_dot_i8"

register(TensorIntrinsic(BYTE_DOT.intrinsic, meaning(BYTE_DOT.lanes, i8), None, (("c", HELPER),)))

TEXT: Final = """\
#if defined(__ARM_FEATURE_DSP) && defined(__ARM_FEATURE_SIMD32)
#include <arm_acle.h>
typedef unsigned int p_word __attribute__((may_alias, aligned(1)));
static inline void p_dot_i8(const signed char *x, const signed char *w, int *y) {
  const unsigned int of = *(const p_word *)x;
  const int16x2_t even = __sxtb16(of), odd = __sxtb16(of >> 8 | of << 24);
  for (int l = 0; l < 4; ++l) {
    const unsigned int by = ((const p_word *)w)[l];
    y[l] = __smlad(odd, __sxtb16(by >> 8 | by << 24), __smlad(even, __sxtb16(by), y[l]));
  }
}
#else
static inline void p_dot_i8(const signed char *x, const signed char *w, int *y) {
  for (int l = 0; l < 4; ++l) {
    int sum = 0;
    for (int k = 0; k < 4; ++k) sum += x[k] * w[4 * l + k];
    y[l] = (int)((unsigned int)y[l] + (unsigned int)sum);
  }
}
#endif
"""


def invoke(values: Expressions, of: Invoke) -> None:
    """The helper call for the regions of an invocation, each of which is contiguous."""
    if of.name != BYTE_DOT.intrinsic:
        raise CompilerBug(f"Lowering left an invocation of {of.name}, which C does not have.")
    values.helpers.add(HELPER)
    places = []
    for operand in of.operands:
        assert isinstance(operand, Region)
        if values.unproved(operand.buffer, operand.starts):
            raise CompilerBug(f"A region of {operand.buffer.name} may be outside of it.")
        places.append(f"&{values.place(operand.buffer, operand.starts)}")
    values.lines.do(f"{HELPER}({', '.join(places)});")
