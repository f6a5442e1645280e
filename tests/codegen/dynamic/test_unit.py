"""Native code of dynamic programs: for other machines, from the store, and what is in it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import plica
from plica.cli import main
from plica.codegen.llvm import toolchain
from plica.codegen.llvm.dynamic.fold import routines_text
from plica.codegen.llvm.region import Callee
from plica.codegen.target import Target
from plica.ir.contract import exact
from plica.runtime import archive
from plica.runtime.dynamic.artefact import from_members, is_dynamic, to_members
from plica.runtime.dynamic.form import to_data
from plica.runtime.elf import parse
from plica.runtime.error import ArtefactError
from plica.runtime.store import ArtefactStore
from plica.runtime.verify import verify
from tests.codegen.dynamic.agree import assemble, build, lower, text
from tests.codegen.dynamic.test_program import LOOP, MUTUAL, SUM, TREE

ARM = Target("cpu", "aarch64-unknown-linux-gnu", "generic")


def test_code_for_another_machine() -> None:
    lowered = lower(text(SUM), exact, (), ARM)
    made = assemble(lowered, ARM)
    assert {parse(each).machine for each in made.objects} == {"aarch64"}
    assert to_data(from_members(to_members(made)).interface) == to_data(made.interface)


@pytest.mark.parametrize("triple", ["aarch64-unknown-linux-gnu", "x86_64-unknown-linux-gnu"])
def test_calls_in_tail_position_are_jumps(triple: str) -> None:
    program = lower(text(MUTUAL), exact, ()).program
    callees = [Callee(f"k{number}", False) for number in range(len(program.kernels))]
    shown = routines_text(program, callees, Target("cpu", triple, "generic"))
    assert shown.count("musttail call") == 3
    other = routines_text(program, callees, Target("cpu", "riscv64-unknown-linux-gnu", "generic"))
    assert "musttail" not in other


def test_a_loop_is_a_jump() -> None:
    program = lower(text(LOOP), exact, ()).program
    callees = [Callee(f"k{number}", False) for number in range(len(program.kernels))]
    shown = routines_text(program, callees, toolchain.host())
    assert "br label %r0" in shown.partition("@f1_loop(")[2]


def test_kernels_are_kept_in_the_store(tmp_path: Path) -> None:
    store = ArtefactStore(tmp_path)
    lowered = lower(text(SUM), exact, (), toolchain.host())
    first = assemble(lowered, toolchain.host(), 1, store)
    kept = sorted(tmp_path.rglob("*"))
    again = assemble(lowered, toolchain.host(), 1, store)
    assert first.objects == again.objects
    assert sorted(tmp_path.rglob("*")) == kept


def test_a_damaged_artefact_is_refused(tmp_path: Path) -> None:
    exe = build(lower(text(TREE), exact, (), toolchain.host()), toolchain.host())
    path = tmp_path / "tree.plica"
    exe.save(path)
    members = archive.read(path)
    assert is_dynamic(members)
    for name in members:
        damaged = {**members, name: members[name][:-1] + b"\x7f"}
        with pytest.raises(ArtefactError):
            from_members(damaged)
    newer = members["dynamic.json"].replace(b'"format": 1', b'"format": 9')
    newer = newer.replace(b'"format":1', b'"format":9')
    with pytest.raises(ArtefactError) as caught:
        from_members({**members, "dynamic.json": newer})
    assert caught.value.code == "newer-version"


def test_an_artefact_is_verified(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    exe = build(lower(text(TREE), exact, (), toolchain.host()), toolchain.host())
    path = tmp_path / "tree.plica"
    exe.save(path)
    assert main(["verify", str(path), "--prove", "--rebuild"]) == 0
    said = capsys.readouterr().out
    assert "a dynamic program, which has no record" in said
    assert "traces: taken again" not in said
    assert main(["verify", str(path), "--model", str(path)]) != 0
    assert "does not record its model" in capsys.readouterr().err
    made = from_members(archive.read(path))
    foreign = [each.replace(b"posix_memalign", b"posix_somewhat") for each in made.objects]
    path.write_bytes(archive.pack(to_members(replace(made, objects=tuple(foreign)))))
    with pytest.raises(ArtefactError, match="calls 'posix_somewhat', which no kernel calls"):
        verify(path)


def test_an_example_without_results_or_inputs() -> None:
    module = text(
        """
@plica.data
class Nat:
    Zero: ()
    Succ: (Nat,)

@plica.function
def main(n: Nat) -> tuple[()]:
    match n:
        case Zero():
            return ()
        case Succ(m):
            return main(m)
"""
    )
    from plica.ir.interpret.value import build as made

    exe: Any = plica.compile(module)
    assert exe(made(module, "Succ", made(module, "Zero"))) == ()


def test_big_tensors_stay_where_they_are() -> None:
    module = text(
        """
@plica.data
class Box:
    Box: (Tensor[(64, 128), f32],)
    Empty: ()

@plica.function
def main(b: Box) -> Box:
    match b:
        case Box(x):
            return Box(x + 1.0)
        case Empty():
            return Empty()
"""
    )
    from plica.ir.interpret.value import build as made

    exe: Any = plica.compile(module)
    x = np.arange(64 * 128, dtype=np.float32).reshape(64, 128)
    found = exe(made(module, "Box", x[:, ::-1]))
    assert np.array_equal(found.fields[0], x[:, ::-1] + 1)
    assert exe(made(module, "Empty")).fields == ()
