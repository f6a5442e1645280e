"""Fuzzing of code for GPUs: the same numbers give the same case, and a wrong result is told."""

from __future__ import annotations

import numpy as np
import pytest

from plica.codegen.cuda.fuzz import KINDS, CudaCase, case, differs, report
from plica.ir.interpret.value import Array
from plica.runtime.cuda.driver import DeviceError
from plica.runtime.error import Diagnostic
from tests.codegen.cuda.emulate import COMPILER, run


def some(number: int) -> CudaCase:
    found = case(0, number)
    assert isinstance(found, CudaCase)
    return found


def emulated(of: CudaCase) -> list[Array]:
    outputs = [np.full_like(each, -1) for each in of.expected]
    given = [np.ascontiguousarray(each) for each in of.inputs]
    run(of.code, [*given, *outputs], watched=True)
    return outputs


@pytest.mark.skipif(COMPILER is None, reason="no C++ compiler on this machine")
@pytest.mark.parametrize("number", [1, 3])
def test_cases_compute_what_they_mean(number: int) -> None:
    assert differs(some(number), emulated(some(number))) == ""


def test_a_case_is_the_same_again() -> None:
    one, two = some(2), some(2)
    assert one.kind == KINDS[2]
    assert one.code == two.code
    assert all((a == b).all() for a, b in zip(one.inputs, two.inputs, strict=True))


def test_what_is_wrong_is_told() -> None:
    cases: list[CudaCase | str] = [some(1), "it is no contraction", some(2)]

    def spoiled(of: CudaCase) -> list[Array]:
        found = [each.copy() for each in of.expected]
        if of.number == 2:
            found[0].reshape(-1)[3] += 1
        return found

    told = report(cases.__getitem__, 2, 0, spoiled)
    assert told.examples == 2
    assert told["skipped"] == {"it is no contraction": 1}
    (finding,) = told.findings
    assert (finding.case, finding.guilty) == (2, "product")
    assert "result 0" in finding.reason
    assert not report(cases.__getitem__, 2, 0, lambda of: list(of.expected)).findings


def test_a_fault_is_the_last_finding() -> None:
    def faulty(of: CudaCase) -> list[Array]:
        raise DeviceError(Diagnostic("device-fault", "A kernel failed on the GPU."))

    told = report(lambda number: some(number + 1), 2, 0, faulty)
    assert told.examples == 1
    assert "failed on the GPU" in told.findings[0].reason
