"""The tutorial of schedules reaches half of the peak; its page prints what it reaches."""

from __future__ import annotations

import linecache
import sys
import types

import pytest

from tests.test_readme import BLOCK, ROOT

TRIES = 5


@pytest.mark.slow  # it looks at a clock: run it on a quiet machine
def test_the_matmul_by_hand_is_at_half_of_the_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (ROOT / "docs" / "tutorial" / "schedule.md").read_text(encoding="utf-8")
    source = "\n\n".join(BLOCK.findall(text))
    file = "<tutorial>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    module = types.ModuleType("tutorial")
    monkeypatch.setitem(sys.modules, "tutorial", module)
    exec(compile(source, file, "exec"), module.__dict__)
    run = module.scheduled(module.tiled(12, 32))
    assert max(module.share(run) for _ in range(TRIES)) >= 0.5
