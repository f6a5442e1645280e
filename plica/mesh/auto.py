"""Automatic plans: steps that make a call faster, the best first, until none does.

Candidates split a class of inputs at a dim.  Inputs of one class play the same role: equal types,
taken by equal operators.  So equal layers get equal plans.  A step is priced with all that follows
from it (`plica.mesh.infer`); gains are remembered, and only the best are priced again after a step.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import lru_cache
from hashlib import sha256
from heapq import heapify, heappop, heappush
from math import prod
from typing import Final

import attrs

from plica.ir.graph.module import Module
from plica.mesh.infer import Annotation, Splits, propagated
from plica.mesh.mesh import Mesh, sizes_of
from plica.mesh.plan import MeshPlan, PlanStep
from plica.mesh.program import FlatProgram, flat_program
from plica.mesh.sharded import cost_of
from plica.mesh.topology import Topology
from plica.runtime.error import InputError

ROLE_DEPTH: Final = 2  # how many operators deep two inputs must be used alike to be of one class
MIN_GAIN: Final = 1e-3  # the share of a call that a step must save


def automatic_plan(module: Module, mesh: Mesh, topology: Topology | None = None) -> MeshPlan:
    """A plan for a mesh by greedy search over splits of classes of inputs, axis by axis."""
    program = flat_program(module)
    prices = topology or Topology.of(mesh)
    splits: tuple[Splits, ...] = tuple([{} for _ in mesh.axes])
    steps: list[PlanStep] = []
    for axis, (name, size) in enumerate(mesh.axes):
        if size == 1:
            continue
        # Later axes may divide what is held by their sizes.
        room = prices.memory * prod(mesh.sizes[axis + 1 :])
        pricing = attrs.evolve(prices, memory=room)
        least = pricing.seconds(cost_of(program, mesh, splits))
        waiting = [(float("-inf"), at, each) for at, each in enumerate(_candidates(program))]
        heapify(waiting)
        while waiting:
            gain, at, (values, dim) = heappop(waiting)
            if gain > -MIN_GAIN * least and gain != float("-inf"):
                break
            try:
                notes = [Annotation(value, axis, dim) for value in values]
                tried = propagated(program, mesh, notes, splits)
            except InputError:  # the devices do not divide the dim
                continue
            if all(splits[axis].get(value) is not None for value in values):
                continue
            price = pricing.seconds(cost_of(program, mesh, tried))
            fresh = price - least
            if waiting and fresh > waiting[0][0]:
                if fresh < -MIN_GAIN * least:
                    heappush(waiting, (fresh, at, (values, dim)))
                continue
            if fresh < -MIN_GAIN * least:
                splits, least = tried, price
                steps += [PlanStep(pattern, name, dim) for pattern in _patterns(program, values)]
    return MeshPlan(tuple(steps))


def _candidates(program: FlatProgram) -> Iterator[tuple[tuple[int, ...], int]]:
    """Each class of inputs with each of its dims."""
    for values in classes(program):
        for dim, size in enumerate(sizes_of(program.types[values[0]])):
            if size > 1:
                yield values, dim


@lru_cache(maxsize=8)
def classes(program: FlatProgram) -> tuple[tuple[int, ...], ...]:
    """The inputs and constants by the role that they play, in order of their first."""
    role: list[int] = [hash_of(str(of)) for of in program.types]
    for _ in range(ROLE_DEPTH):
        uses: dict[int, set[int]] = defaultdict(set)
        for operation in program.operations:
            results = tuple([role[value] for value in operation.results])
            for at, value in enumerate(operation.arguments):
                uses[value].add(
                    hash_of(f"{operation.op} {operation.attributes} {at} {sorted(results)}")
                )
        role = [hash_of(f"{own} {sorted(uses[value])}") for value, own in enumerate(role)]
    groups: dict[int, list[int]] = defaultdict(list)
    for value in (*range(program.params), *program.constants):
        groups[role[value]].append(value)
    return tuple(map(tuple, groups.values()))


@lru_cache(maxsize=1 << 14)
def hash_of(text: str) -> int:
    """A number for a text, the same in every process."""
    return int.from_bytes(sha256(text.encode()).digest()[:8])


def _patterns(program: FlatProgram, values: tuple[int, ...]) -> list[str]:
    """One pattern for the names of the values if there is one, or the names."""
    names = [program.names[value] for value in values]
    if len(names) == 1:
        return names
    pattern = re.sub(r"\d+", "*", names[0])
    matched = [name for name in program.names if fnmatchcase(name, pattern)]
    return [pattern] if sorted(matched) == sorted(names) else names
