"""Codes: conversions of dtypes that no C-like language has, as text: narrow floats, short integers.

>>> from plica.ir.type.dtype import u4
>>> print(*conversions(u4, Words("static")).values(), sep="", end="")
static unsigned char p_pack_u4(unsigned char a) { return a & 15; }
static unsigned char p_unpack_u4(unsigned char a) { return a & 15; }
static unsigned char p_round_u4(unsigned char a) { return p_unpack_u4(p_pack_u4(a)); }
"""

from __future__ import annotations

from typing import Final

from attrs import frozen

from plica.ir.type import DType
from plica.ir.type.float_code import float_code

_CODES: Final = {1: "unsigned char", 2: "unsigned short"}  # the type of a code, by its bytes


@frozen
class Words:
    """A language's function header, and its conversions between floats and bits."""

    head: str
    bits: str = "__float_as_uint"
    real: str = "__uint_as_float"


def conversions(of: DType, words: Words) -> dict[str, str]:
    """The functions of a dtype, by name; each needs those before it."""
    return _of_float(of, words) if of.is_float else _of_integer(of, words)


def _of_float(of: DType, words: Words) -> dict[str, str]:
    """By the numbers of the format."""
    c, code, bits, real = float_code(of), _CODES[of.bytes], words.bits, words.real
    half, down = (1 << (c.cut - 1)) - 1, 32 - c.bits
    signed, lost = f"r | ((whole >> {down}) & {c.sign:#x}U)", ""
    if not c.has_minus_zero:
        signed = f"r == 0 ? 0 : {signed}"
        lost = f"\n  if (a == {c.nan:#x}U) return {real}(0x7fc00000U);"
    return {
        f"p_pack_{of}": f"""\
{words.head} {code} p_pack_{of}(float a) {{
  unsigned int whole = {bits}(a), size = whole & 0x7fffffffU, r;
  if (size < {c.normal:#x}U) r = {bits}(fabsf(a) + {c.magic!r}f) - {c.magic_bits:#x}U;
  else r = ((size + {half:#x}U + ((size >> {c.cut}) & 1)) >> {c.cut}) - {c.rebias >> c.cut:#x}U;
  if (size > 0x7f800000U) r = {c.nan:#x}U;
  else if (r > {c.greatest:#x}U) r = {c.overflow:#x}U;
  return ({code})({signed});
}}
""",
        f"p_unpack_{of}": f"""\
{words.head} float p_unpack_{of}({code} a) {{
  unsigned int size = a & {c.sign - 1:#x}U, sign = (a & {c.sign:#x}U) << {down};{lost}
  if (size < {1 << c.fraction}U) return {real}({bits}((float)size * {c.step!r}f) | sign);
  if (size > {c.greatest:#x}U) return {real}((size << {c.cut}) | 0x7f800000U | sign);
  return {real}(((size << {c.cut}) + {c.rebias:#x}U) | sign);
}}
""",
        f"p_round_{of}": f"""\
{words.head} float p_round_{of}(float a) {{
  return p_unpack_{of}(p_pack_{of}(a));
}}
""",
    }


def _of_integer(of: DType, words: Words) -> dict[str, str]:
    """One in a byte, the other bits zero."""
    head, code = words.head, _CODES[of.bytes]
    kind = "signed char" if of.kind == "int" else code
    low, mask = 8 - of.bits, (1 << of.bits) - 1
    back = f"({kind})(({kind})(a << {low}) >> {low})" if of.kind == "int" else f"a & {mask}"
    once = f"p_unpack_{of}(p_pack_{of}(a))"
    return {
        f"p_pack_{of}": f"{head} {code} p_pack_{of}({kind} a) {{ return a & {mask}; }}\n",
        f"p_unpack_{of}": f"{head} {kind} p_unpack_{of}({code} a) {{ return {back}; }}\n",
        f"p_round_{of}": f"{head} {kind} p_round_{of}({kind} a) {{ return {once}; }}\n",
    }
