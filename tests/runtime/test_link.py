"""Object files: taken apart without trust, placed, and told where everything is."""

from __future__ import annotations

import ctypes
import struct
from contextlib import suppress

import pytest
from hypothesis import given, strategies as st

from plica.codegen.llvm import pool, toolchain
from plica.codegen.target import Target
from plica.runtime.elf import ALLOC, JUMP, JUMP_SIZE, RECIPES, header, parse
from plica.runtime.error import ArtefactError
from plica.runtime.link import can_link, link
from tests.runtime.model import model

needs_link = pytest.mark.skipif(not can_link(), reason="objects are not loaded here")

# What kernels are made of: calls near and far, constants, tables, memory, atomic words.
PROGRAM = """
@cell = hidden global i64 5, align 8
@table = internal constant [4 x double] [double 1.0, double 2.5, double 4.0, double 8.0], align 16
declare double @cos(double)
declare ptr @memcpy(ptr, ptr, i64)
declare hidden i64 @other(i64)

define i64 @plica_main(ptr %to) {
  %a = load double, ptr @table
  %b = call double @cos(double 0.0)
  %c = fadd double %a, %b
  %at = getelementptr double, ptr %to, i64 3
  %d = call ptr @memcpy(ptr %to, ptr @table, i64 24)
  store double %c, ptr %at
  %f = call i64 @other(i64 37)
  %p = select i1 true, ptr @memcpy, ptr null
  %old = atomicrmw add ptr @cell, i64 %f seq_cst
  %new = load i64, ptr @cell
  ret i64 %new
}
"""
OTHER = """
@cell = external hidden global i64
define hidden i64 @other(i64 %x) {
  %y = load i64, ptr @cell
  %z = mul i64 %x, %y
  ret i64 %z
}
"""


def emitted(text: str, target: Target) -> bytes:
    return toolchain.emit(f'target triple = "{target.triple}"\n{text}', target)


@needs_link
def test_objects_find_each_other_and_the_libraries() -> None:
    here = toolchain.host()
    code = link((emitted(PROGRAM, here), emitted(OTHER, here)))
    room = (ctypes.c_double * 4)()
    main = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(code.address("plica_main"))
    assert main(ctypes.addressof(room)) == 5 + 37 * 5
    assert list(room) == [1.0, 2.5, 4.0, 2.0]
    assert main(ctypes.addressof(room)) == 190 + 37 * 190
    assert "plica_main" in code
    assert "table" not in code
    with pytest.raises(ArtefactError, match="does not define"):
        code.address("nothing")


@needs_link
def test_what_is_missing_or_twice_is_told() -> None:
    here = toolchain.host()
    with pytest.raises(ArtefactError, match="does not have") as caught:
        link((emitted(PROGRAM, here),))
    assert "other" in str(caught.value)
    with pytest.raises(ArtefactError, match="defined twice"):
        link((emitted(PROGRAM, here), emitted(OTHER, here), emitted(OTHER, here)))


@needs_link
@given(st.data())
def test_damaged_objects_are_refused_or_read(data: st.DataObject) -> None:
    whole = bytearray(model().artefact.objects[0])
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(whole) - 1))
        whole[place] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(whole)))
    for each in (bytes(whole), bytes(whole[:cut])):
        with suppress(ArtefactError):  # any other error is a failure of this test
            parse(each)


@pytest.mark.parametrize(
    ("triple", "features"),
    [("x86_64-unknown-linux-gnu", ("+avx2", "+fma")), ("aarch64-unknown-linux-gnu", ("+neon",))],
)
def test_every_relocation_of_our_code_has_a_recipe(triple: str, features: tuple[str, ...]) -> None:
    target = Target("cpu", triple, "generic", features)
    text = "\n".join([PROGRAM, pool.text(triple)])
    found = parse(emitted(text, target))
    kinds = {each.kind for each in found.relocations if found.sections[each.section].flags & ALLOC}
    assert kinds
    assert kinds <= set(RECIPES[found.machine])
    assert len(JUMP[found.machine]) + 8 <= JUMP_SIZE


def test_a_header_tells_the_machine() -> None:
    with pytest.raises(ArtefactError, match="not an object file"):
        header(b"MZ" + bytes(100))
    with pytest.raises(ArtefactError, match="no machine"):
        header(b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HH", 1, 8) + bytes(60))


addresses = st.integers(0, (1 << 47) - 1)


@given(addresses, st.integers(-(1 << 31), (1 << 31) - 1))
def test_x86_64_distances(place: int, distance: int) -> None:
    image = bytearray(8)
    RECIPES["x86_64"][4].write(image, 2, place, place + distance)
    assert struct.unpack_from("<i", image, 2) == (distance,)
    with pytest.raises(ArtefactError, match="too far"):
        RECIPES["x86_64"][4].write(image, 2, place, place + (1 << 31))


@given(addresses, addresses, st.integers(0, 31))
def test_aarch64_page_and_offset(place: int, value: int, register: int) -> None:
    place, value = place & ~3, (place & ~3) + (value % (1 << 32)) - (1 << 31)
    image = bytearray(struct.pack("<II", 0x90000000 | register, 0x91000000 | register << 5))
    recipes = RECIPES["aarch64"]
    recipes[275].write(image, 0, place, value)
    recipes[277].write(image, 4, place + 4, value)
    adrp, add = struct.unpack("<II", image)
    pages = (adrp >> 5 & 0x7FFFF) << 2 | adrp >> 29 & 3
    pages -= (pages >> 20 & 1) << 21
    assert (place & ~0xFFF) + (pages << 12) + (add >> 10 & 0xFFF) == value
    assert (adrp & 0x9F00001F, add & 0xFFC003FF) == (
        0x90000000 | register,
        0x91000000 | register << 5,
    )


@given(addresses, st.integers(-(1 << 25), (1 << 25) - 1))
def test_aarch64_calls(place: int, words: int) -> None:
    image = bytearray(struct.pack("<I", 0x94000000))
    RECIPES["aarch64"][283].write(image, 0, place, place + 4 * words)
    (call,) = struct.unpack("<I", image)
    found = call & 0x3FFFFFF
    assert found - (found >> 25 << 26) == words
    assert call >> 26 == 0x94000000 >> 26


def test_a_load_that_is_not_aligned_is_refused() -> None:
    with pytest.raises(ArtefactError, match="aligned"):
        RECIPES["aarch64"][286].write(bytearray(4), 0, 0, 4)
