"""enter_postproc: a mark in the trace, nothing in the kernel."""

from __future__ import annotations

from plica.core.digest import digest
from plica.schedule import enter_postproc
from plica.schedule.do import Body
from tests.schedule.hostile import after
from tests.schedule.kernel import matmul


def test_it_changes_nothing() -> None:
    def schedule() -> Body:
        yield enter_postproc()

    assert digest(after(matmul(), schedule)) == digest(matmul())
