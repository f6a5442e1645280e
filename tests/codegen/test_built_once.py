"""No kernel is built and thrown away: as many are built as become code."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import plica
from plica.codegen.lower import processor, scheduled
from plica.codegen.lower.nest import nest
from plica.frontend.zoo import resnet, transformer
from plica.ir.graph.module import Module
from plica.ir.loop import stages
from plica.ir.loop.define import define
from plica.ir.loop.statement import Kernel

NETWORKS: dict[str, Callable[[], Module]] = {
    "resnet18": partial(resnet, 18, image=32, width=0.25),
    "transformer": transformer,
}


@pytest.mark.parametrize("name", NETWORKS)
def test_every_kernel_that_is_built_is_emitted(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[Any] = []  # kernels, as those who build them give them

    def counted(make: Callable[..., Any], *given: Any, **more: Any) -> Any:  # as what it counts
        built.append(make(*given, **more))
        return built[-1]

    for cached in (stages.kernel_of, processor.on_processor, scheduled.plain):
        cached.cache_clear()
    monkeypatch.setattr(stages, "define", partial(counted, define))
    monkeypatch.setattr(stages, "Kernel", partial(counted, Kernel))
    monkeypatch.setattr(scheduled, "nest", partial(counted, nest))
    monkeypatch.setattr(processor, "nest", partial(counted, nest))
    exe = plica.compile(NETWORKS[name](), threads=1, cache=False)
    assert len(built) == exe.source("kernel").count("@plica.kernel")
