"""What no GPU launches is refused before it is compiled, with the limits of that GPU."""

from __future__ import annotations

import pytest

from plica.analysis.statement import LoweringRefused
from plica.codegen.cuda.code import KernelLaunch
from plica.codegen.cuda.limit import check
from plica.codegen.cuda.target import GpuTarget

KIB = 1024


@pytest.mark.parametrize(
    ("launch", "message"),
    [
        (KernelLaunch("k", (1, 1, 1), (1024, 2, 1), 0), "more threads"),
        (KernelLaunch("k", (1, 1, 1), (1, 1, 65), 0), "more threads"),
        (KernelLaunch("k", (1, 65536, 1), (32, 1, 1), 0), "more blocks"),
        (KernelLaunch("k", (1 << 31, 1, 1), (32, 1, 1), 0), "more blocks"),
        (KernelLaunch("k", (1, 1, 1), (32, 1, 1), 100 * KIB), "share more memory"),
        (KernelLaunch("k", (1, 1, 1), (1, 1, 1), own=17 * KIB), "memory to itself"),
    ],
)
def test_too_much_is_refused(launch: KernelLaunch, message: str) -> None:
    with pytest.raises(LoweringRefused, match=message) as caught:
        check([launch], GpuTarget("sm_86").gpu, "sum")
    assert "sum" in caught.value.diagnostics[0].message
    assert caught.value.diagnostics[0].suggestion


def test_what_an_architecture_has_is_taken() -> None:
    check(
        [KernelLaunch("k", (1 << 20, 65535, 1), (32, 32, 1), 160 * KIB)],
        GpuTarget("sm_80").gpu,
        "k",
    )
    most = KernelLaunch("k", (1, 1, 1), (32, 1, 1), 227 * KIB, own=16 * KIB)
    check([most], GpuTarget("sm_90").gpu, "k")
