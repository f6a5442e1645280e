"""Narrow constants: which tables of a program are kept as bytes."""

from __future__ import annotations

import numpy as np

from plica.codegen.micro.backend import narrow_params, narrow_slots, static_constants
from plica.codegen.native import program_of
from plica.codegen.program import Copy, Launch, Program, Slot
from plica.ir.graph.expression import const
from plica.ir.loop.statement import For, Kernel, Store
from plica.ir.loop.tensor import axis, buffer
from plica.ir.type.dtype import i32

X, Y, AT = buffer("x", (3,), i32), buffer("y", (3,), i32), axis("i")
DOUBLE = Kernel((), (X, Y), 1, For(AT, Y.shape[0], "serial", Store(Y, (AT,), X[AT] + X[AT])))
SMALL, LARGE = const(np.array([1, -128, 127], np.int32)), const(np.array([1, 2, 300], np.int32))


def program(*steps: Launch | Copy) -> Program:
    slots = (
        *[Slot("constant", at, (3,), i32) for at in range(2)],
        *[Slot("output", at, (3,), i32) for at in range(2)],
    )  # fmt: skip
    return Program((DOUBLE,), ("double",), slots, (steps,), 0, (SMALL, LARGE))


def test_a_table_of_small_numbers_is_kept_as_bytes() -> None:
    of = program(Launch(0, (0, 2), "double"))
    assert narrow_slots(of) == {0}
    assert narrow_params(of) == {0: {0}}
    small, large = static_constants(of)
    assert small.tobytes() == np.array([1, -128, 127], np.int8).tobytes()
    assert large.nbytes == 12


def test_a_kernel_that_is_given_others_too_reads_them_as_they_are() -> None:
    assert not narrow_slots(program(Launch(0, (0, 2), "a"), Launch(0, (1, 3), "b")))


def test_what_is_copied_stays_as_it_is() -> None:
    assert not narrow_slots(program(Launch(0, (0, 2), "a"), Copy(0, 3)))


def test_a_program_without_constants_has_none() -> None:
    assert static_constants(program_of(DOUBLE)) == ()
