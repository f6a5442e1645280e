"""Processors: their names stand for features, and what LLVM does not know is refused."""

from __future__ import annotations

import pytest
from attrs import evolve

from plica.codegen.llvm import toolchain
from plica.codegen.llvm.processor import find_target, known
from plica.codegen.target import Target
from plica.runtime.error import UnsupportedError
from plica.runtime.host import features, lacking, unsaid

X86 = "x86_64-unknown-linux-gnu"
ARM = "aarch64-unknown-linux-gnu"


@pytest.mark.parametrize(
    ("triple", "cpu", "given", "has", "lacks"),
    [
        (X86, "diamondrapids", (), ("avx512f", "avx10.2", "egpr"), ()),
        pytest.param(
            X86,
            "haswell",
            ("+avx512f", "-avx"),
            ("sse4.2",),
            ("avx", "avx2", "avx512f"),
            marks=pytest.mark.slow,
        ),
        (X86, "x86-64", ("+avx2",), ("avx", "avx2"), ("fma", "avx512f")),
        (ARM, "neoverse-n1", (), ("neon", "dotprod"), ("sve", "i8mm")),
    ],
)
def test_a_processor_has_what_its_name_says(
    triple: str, cpu: str, given: tuple[str, ...], has: tuple[str, ...], lacks: tuple[str, ...]
) -> None:
    found = find_target(Target("cpu", triple, cpu, given))
    assert [each for each in has if not found.has(each)] == []
    assert [each for each in lacks if found.has(each)] == []


@pytest.mark.parametrize(
    ("cpu", "given", "message"),
    [
        ("haswel", (), "no such processor"),
        ("i386", (), "with this processor"),
        ("x86-64", ("+avx9000",), "no such feature"),
        ("x86-64", ("-sse2",), "with this processor"),
        ("x86-64", ("avx2",), "is '\\+' or '-'"),
        ('x"y', (), "no such processor"),
    ],
)
def test_what_llvm_does_not_know_is_refused(cpu: str, given: tuple[str, ...], message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        known(Target("cpu", X86, cpu, given))


def test_this_machine_has_only_what_the_system_tells_of() -> None:
    here = toolchain.host()
    assert known(here) is here
    assert lacking(here.architecture, here.features, features()) == ()
    assert unsaid(here.architecture, here.features, features()) == ()


def test_what_is_left_out_is_as_in_the_target() -> None:
    given = evolve(toolchain.host(), triple=ARM, cpu="neoverse-n1", features=(), cores=3)
    found = known(given)
    assert (found.cores, found.caches) == (3, given.caches)
    assert known(found) == found


@pytest.mark.parametrize("triple", ["wasm32-unknown-unknown", "sparc64-unknown-linux-gnu"])
def test_objects_of_another_kind_are_refused_by_name(triple: str) -> None:
    with pytest.raises(UnsupportedError, match=f"no artefacts for {triple}"):
        toolchain.cross("", Target("cpu", triple, "generic"))
