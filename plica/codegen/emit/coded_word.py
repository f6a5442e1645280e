"""Codes as parts of words: narrow floats and short integers in languages like WGSL, and back.

>>> print(*conversions(DType("u4")).values(), sep="", end="")
fn p_pack_u4(a: u32) -> u32 { return a & 15u; }
fn p_unpack_u4(a: u32) -> u32 { return extractBits(a, 0u, 4u); }
fn p_round_u4(a: u32) -> u32 { return p_unpack_u4(p_pack_u4(a)); }
"""

from __future__ import annotations

from plica.ir.type import DType
from plica.ir.type.float_code import float_code


def conversions(of: DType) -> dict[str, str]:
    """The functions of a dtype, by name; each needs those before it."""
    found = _of_float(of) if of.is_float else _of_integer(of)
    kind = "f32" if of.is_float else _kind(of)
    once = f"p_unpack_{of}(p_pack_{of}(a))"
    return {
        **found,
        f"p_round_{of}": f"fn p_round_{of}(a: {kind}) -> {kind} {{ return {once}; }}\n",
    }


def _kind(of: DType) -> str:
    return "i32" if of.kind == "int" else "u32"


def _of_integer(of: DType) -> dict[str, str]:
    kind, mask = _kind(of), (1 << of.bits) - 1
    pack, unpack = f"p_pack_{of}", f"p_unpack_{of}"
    code = "a" if kind == "u32" else "bitcast<u32>(a)"
    back = f"extractBits({'a' if kind == 'u32' else 'bitcast<i32>(a)'}, 0u, {of.bits}u)"
    return {
        pack: f"fn {pack}(a: {kind}) -> u32 {{ return {code} & {mask}u; }}\n",
        unpack: f"fn {unpack}(a: u32) -> {kind} {{ return {back}; }}\n",
    }


def _of_float(of: DType) -> dict[str, str]:
    c = float_code(of)
    half, down = (1 << (c.cut - 1)) - 1, 32 - c.bits
    signed, lost = f"r | ((whole >> {down}u) & {c.sign:#x}u)", ""
    if not c.has_minus_zero:
        signed = f"select({signed}, 0u, r == 0u)"
        lost = f"\n  if (a == {c.nan:#x}u) {{ return bitcast<f32>(0x7fc00000u | nothing); }}"
    return {
        f"p_pack_{of}": f"""\
fn p_pack_{of}(a: f32) -> u32 {{
  let whole = bitcast<u32>(a);
  let size = whole & 0x7fffffffu;
  var r = ((size + {half:#x}u + ((size >> {c.cut}u) & 1u)) >> {c.cut}u) - {c.rebias >> c.cut:#x}u;
  if (size < {c.normal:#x}u) {{ r = bitcast<u32>(abs(a) + {c.magic!r}f) - {c.magic_bits:#x}u; }}
  if (size > 0x7f800000u) {{ r = {c.nan:#x}u; }} else if (r > {c.greatest:#x}u) {{
    r = {c.overflow:#x}u;
  }}
  return {signed};
}}
""",
        f"p_unpack_{of}": f"""\
fn p_unpack_{of}(a: u32) -> f32 {{
  let size = a & {c.sign - 1:#x}u;
  let sign = (a & {c.sign:#x}u) << {down}u;{lost}
  if (size < {1 << c.fraction}u) {{
    return bitcast<f32>(bitcast<u32>(f32(size) * {c.step!r}f) | sign);
  }}
  if (size > {c.greatest:#x}u) {{ return bitcast<f32>((size << {c.cut}u) | 0x7f800000u | sign); }}
  return bitcast<f32>(((size << {c.cut}u) + {c.rebias:#x}u) | sign);
}}
""",
    }
