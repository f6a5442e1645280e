"""Pools: the Dask cluster that tuning measures on runs the devices of a mesh.

    with plica.connect("tcp://127.0.0.1:8786") as remote:
        found = simulate(sharded, x, w, engine=pooled(remote))    sharded: split x 0 on data

A device of the mesh is a call on whatever worker is free; collectives are done by this process, so
that plans without any (data-parallel inference) move inputs and results alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from plica.ir.graph.module import Module
from plica.ir.interpret.value import Array
from plica.mesh.execute import Engine
from plica.mesh.program import leaves
from plica.pipeline.whole import compile_anew
from plica.search.pool.remote import Remote, RemoteExecutable


def pooled(remote: Remote) -> Engine:
    """The engine that compiles each segment once, and runs it for all devices at once."""
    uploaded: dict[Module, RemoteExecutable] = {}

    def run(module: Module, rows: Sequence[Sequence[Array]]) -> list[list[Array]]:
        if module not in uploaded:
            uploaded[module] = remote.upload(compile_anew(module))
        there = uploaded[module]
        with ThreadPoolExecutor(len(rows)) as threads:
            return [leaves(found) for found in threads.map(lambda row: there(*row), rows)]

    return run
