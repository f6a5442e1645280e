"""Declarations: changing the configuration changes everything, and a bad one is refused."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
from attrs import evolve

import plica.codegen.accel.vta as module
from plica.codegen.accel.declaration import (
    Accelerator,
    BadAccelerator,
    Field,
    Micro,
    Move,
    Queue,
    Scope,
    Sweep,
    Timing,
    element,
    pack,
)
from plica.codegen.accel.vta import Configuration, osdi, vta
from plica.core.name import Name
from plica.ir.loop.scalar import Buffer, Scalar, ScalarVar, lit
from plica.ir.loop.tensor import Compute, compute
from plica.ir.type.dtype import DType, i8, i32
from tests.codegen.accel.machines import EXAMPLE, OUTER, SMALL


def _with(name: str, **changes: Any) -> Callable[[], Accelerator]:
    """The machine with one operation changed."""

    def make() -> Accelerator:
        operations = tuple(
            evolve(each, **changes) if each.name == name else each for each in vta().operations
        )
        return evolve(vta(), operations=operations)

    return make


def _does(name: str, **changes: Any) -> Callable[[], Accelerator]:
    does = vta().operation(name).does
    assert isinstance(does, Move | Sweep)
    return _with(name, does=evolve(does, **changes))


COMMON = vta().operation("finish").fields
REACH = vta().operation("gemm").does.writes  # type: ignore[union-attr]  # a sweep
NOTHING = Scope("z", 0, (1,), i8)
UNNAMED = Scope("", 1, (), i8)
MORE = (*vta().scopes, Scope("acc32", 8, (), i32))
ACC = element(vta().scope("acc"))
OTHER = Buffer(Name("other"), ACC.shape, ACC.dtype)
FREE = ScalarVar(Name("amount"), i32)


def _computed(shape: tuple[int, ...], dtype: DType) -> Compute:
    return compute((), shape, lambda *_: lit(0, dtype))


def _reading(body: Callable[[Scalar, Scalar], Scalar]) -> Compute:
    return compute((ACC,), ACC.shape, body)


# fmt: off
WRONG: list[tuple[str, Callable[[], Accelerator]]] = [
    ("overlap",                 _with("finish", fields=(*COMMON, Field("x", 6, 2)))),
    ("crosses a word",          _with("finish", fields=(*COMMON, Field("x", 60, 8)))),
    ("beyond the word",         _with("finish", fields=(*COMMON, Field("x", 126, 4)))),
    ("has no bits",             _with("finish", fields=(*COMMON, Field("x", 20, 0)))),
    ("Two fields have one name", _with("finish", fields=(*COMMON, Field("opcode", 20, 2)))),
    ("no unit 'lod'",           _with("load.inp", unit="lod")),
    ("no field 'op'",           _with("finish", fixed=(("op", 3),))),
    ("does not fit",            _with("finish", fixed=(("opcode", 8),))),
    ("cannot be told apart",    _with("finish", fixed=(("opcode", 2),))),
    ("no scope 'imp'",          _does("load.inp", scope="imp")),
    ("no scope 'imp'",          _does("load.acc.out", kind="imp")),
    ("have another shape",      _does("load.acc.out", kind="wgt")),
    ("no field 'srm'",          _does("load.inp", sram="srm")),
    ("four pads or none",       _does("load.inp", pads=("y_pad_0",))),
    ("no field 'iter'",         _does("gemm", loops=("iter", "iter_in"))),
    ("a stride for each loop",  _does("gemm", loops=("iter_in",))),
    ("its first and last",      _does("gemm", micro=("uop_bgn",))),
    ("no field 'dest'",         _does("gemm", writes=evolve(REACH, base="dest"))),
    ("another number",          _does("gemm", reads=())),
    ("as another element",      _does("alu.min.imm", reads=(evolve(REACH, scopes=("inp",)),))),
    ("too many bits",           lambda: evolve(vta(), bits=256)),
    ("declared twice",          lambda: evolve(vta(), units=("load", "compute", "store", "load"))),
    ("holds nothing",           lambda: evolve(vta(), scopes=(*vta().scopes, NOTHING))),
    ("joins no neighbours",     lambda: evolve(vta(), queues=(Queue("load", "store"),))),
    ("has no room",             lambda: evolve(vta(), queues=(Queue("load", "compute", 0),))),
    ("is not positive",         lambda: evolve(vta(), timing=Timing(bus=0))),
    ("no operation 'end'",      lambda: evolve(vta(), finish="end")),
    ("does something",          lambda: evolve(vta(), finish="gemm")),
    ("ends beyond the word",    lambda: vta(Configuration(wgt=20, acc=18))),
    ("no way 'sideways'",       _does("load.inp", way="sideways")),
    ("'sram' for two things",   _does("load.inp", dram="sram")),
    ("is fixed, or a flag",     _does("load.inp", sram="memory")),
    ("and a width",             _does("load.inp", width="")),
    ("less than one cycle",     _with("gemm", interval=-1)),
    ("before its turn",         _does("gemm", latency=-2)),
    ("Two loops of a sweep",    _does("gemm", loops=("iter_in", "iter_in"))),
    ("gives another element",   _does("gemm", writes=evolve(REACH, scopes=("out", "acc")))),
    ("gives another element",   _does("gemm.reset", meaning=_computed((2, 16), i32))),
    ("gives another element",   _does("gemm.reset", meaning=_computed((1, 16), i8))),
    ("does not fit wgt",        _does("gemm", writes=evolve(REACH, scopes=("acc", "wgt")))),
    ("is in one scope",         _does("alu.min.imm", reads=(evolve(REACH, scopes=()),))),
    ("outside of its element",  _does("alu.min.imm", meaning=_reading(lambda r, c: ACC[r, c + 1]))),
    ("outside of its element",  _does("alu.min.imm", meaning=_reading(lambda r, c: ACC[r, c - 1]))),
    ("none of its inputs",      _does("alu.min.imm", meaning=_reading(lambda r, c: OTHER[r, c]))),
    ("no field 'amount'",       _does("alu.min.imm", meaning=_reading(lambda _r, _c: FREE))),
    ("A queue is declared twice", lambda: evolve(vta(), queues=(*vta().queues, vta().queues[0]))),
    ("less than no cycles",     lambda: evolve(vta(), timing=Timing(latency=-1))),
    ("accelerator is no word",  lambda: evolve(vta(), name="")),
    ("a scope is no word",      lambda: evolve(vta(), scopes=(*vta().scopes, UNNAMED))),
    ("a field is no word",      _with("finish", fields=(*COMMON, Field("", 20, 2)))),
    ("no whole number",         lambda: evolve(vta(), micro=Micro("inp", ()))),
    ("loads the micro",         lambda: evolve(vta(), micro=Micro("acc32", ()), scopes=MORE)),
]
# fmt: on


@pytest.mark.parametrize(("message", "make"), WRONG, ids=[message for message, _ in WRONG])
def test_a_bad_declaration_is_refused(message: str, make: Callable[[], Accelerator]) -> None:
    with pytest.raises(BadAccelerator, match=message) as refused:
        make()
    assert refused.value.code == "bad-accelerator"


def test_the_default_sizes() -> None:
    depths = {each.name: (each.depth, each.shape) for each in vta().scopes}
    assert depths == {
        "uop": (8192, ()), "inp": (2048, (1, 16)), "wgt": (1024, (16, 16)),
        "acc": (2048, (1, 16)), "out": (2048, (1, 16)),
    }  # fmt: skip


def test_field_widths_follow_from_the_configuration() -> None:
    def bits(machine: Accelerator) -> dict[str, int]:
        return {field.name: field.bits for field in machine.operation("gemm").fields}

    assert bits(vta())["wgt_in"] == 10
    assert bits(osdi())["wgt_in"] == 7
    assert bits(SMALL)["dst_in"] == SMALL.scope("acc").depth.bit_length() - 1


def test_declarations_are_short() -> None:
    assert len(inspect.getsource(module).splitlines()) <= 150
    assert len(EXAMPLE.read_text(encoding="utf-8").splitlines()) <= 80


def test_a_machine_is_one_value() -> None:
    assert vta() is vta(Configuration())
    assert evolve(OUTER) is OUTER
    assert pack(3, a=2, b=-4) == (Field("a", 3, 2), Field("b", 5, 4, True))
