"""Training on a mesh: a step laid out by a plan, whose state stays on the devices in blocks.

    zero_plan       data in blocks, the optimiser's memory in blocks: slopes meet in a
                    reduce_scatter, new weights in an all_gather (ZeRO)
    MeshTrainer     from state to state, on simulated devices or on ranks
    save, load      checkpoints: every block once, to be read on any number of devices

Laws: a step gives what it gives on one device, within the contract of the sums that are cut;
`load(save(state))` has the bits of the state on every mesh.

Not here: gradients and optimisers (`plica.training`), which know of no devices.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import Any, Final
from zipfile import BadZipFile
from zlib import error as BadBytes

import numpy as np
from attrs import frozen

from plica.core import Malformed
from plica.ir.graph.module import Module
from plica.ir.interpret.value import Array
from plica.mesh.execute import Engine, Medium, check_inputs, execute, gathered_value, in_blocks
from plica.mesh.mesh import Layout, Mesh, parse_layout, refusal, show_layout, sizes_of
from plica.mesh.plan import MeshPlan, PlanStep, plan_digest, replay
from plica.mesh.program import FlatProgram, flat_program, leaves
from plica.mesh.sharded import HeldValue, ShardedProgram
from plica.pipeline import compile
from plica.runtime import archive
from plica.runtime.error import Diagnostic
from plica.training.step import TrainingStep

FORMAT: Final = 1
MANIFEST: Final = "manifest.json"


def zero_plan(step: TrainingStep, mesh: Mesh, axis: str, *, weights: bool = False) -> MeshPlan:
    """Data parallel along an axis with the optimiser's memory in blocks; with `weights` those
    too, which are then gathered where they are used."""
    program, size = flat_program(step.module), mesh.sizes[mesh.axis(axis)]
    state = state_size(step)
    data, held, memory = [], [], []
    for value in range(program.params):
        name, shape = program.names[value], sizes_of(program.types[value])
        dim = next((at for at, extent in enumerate(shape) if extent and extent % size == 0), None)
        if value >= state:
            if dim == 0:
                data.append(PlanStep(name, axis, 0))
        elif value >= len(step.weights):
            memory += [PlanStep(each, axis, dim) for each in (name, f"result.{value + 1}")
                       if dim is not None]  # fmt: skip
        else:
            held += [PlanStep(each, axis, dim if weights else None)
                     for each in (name, f"result.{value + 1}")]  # fmt: skip
    return MeshPlan((*data, *held, *memory))


def state_size(step: TrainingStep) -> int:
    """How many tensors the weights and the memory are: the first parameters of the step."""
    way = step.optimiser
    return way.counts + sum([1 + len(way.memory(of)) for _, of in step.weights])


@lru_cache(maxsize=256)
def _executable(module: Module, threads: int | None) -> Any:  # Any: an executable of any kind
    return compile(module, threads=threads)


def compiled(threads: int | None = None) -> Engine:
    """The engine that compiles each segment when it is first run."""

    def run(module: Module, rows: Sequence[Sequence[Array]]) -> list[list[Array]]:
        return [leaves(_executable(module, threads)(*arrays)) for arrays in rows]

    return run


@frozen(eq=False)
class MeshState:
    """Weights and memory: what the devices of this process hold of each, by device."""

    parts: Mapping[int, Sequence[Array]]


class MeshTrainer:
    """A step on a mesh: `loss, state = train(state, x, y)`."""

    def __init__(
        self, step: TrainingStep, plan: MeshPlan, mesh: Mesh, medium: Medium,
        engine: Engine | None = None,
    ) -> None:  # fmt: skip
        self.step, self.medium, self.engine = step, medium, engine or compiled()
        self.sharded: ShardedProgram = replay(plan, step.module, mesh)
        self.program: FlatProgram = self.sharded.program
        self.size = state_size(step)
        self._check_layouts()
        medium.agree("plan", {"the plan": plan_digest(self.sharded), "the mesh": str(mesh)})
        held = self.sharded.held[self.program.params :]
        constants = [self.program.constants[it.value].numpy() for it in held]
        self.constants = self._blocks(constants, held)

    def _check_layouts(self) -> None:
        """Refuse plans after which the state is held otherwise than before."""
        for at, held_value in enumerate(self.sharded.held[: self.size]):
            after = self.sharded.results[1 + at]
            if after != held_value.layout:
                name, mesh = self.program.names[at], self.sharded.mesh
                raise refusal(
                    "bad-plan", f"After a step {name} is held otherwise than before.",
                    show_layout(held_value.layout, mesh), show_layout(after, mesh),
                    f"Lay out result.{at + 1} as {name}.",
                )  # fmt: skip

    def _blocks(self, arrays: Sequence[Array], held: Sequence[HeldValue]) -> dict[int, list[Array]]:
        pairs = [(array, it.layout) for array, it in zip(arrays, held, strict=True)]
        return in_blocks(self.sharded, pairs, self.medium.devices)

    def start(self, **weights: Array) -> MeshState:
        """The state before the first step: these weights, and a memory of zeros."""
        names = [name for name, _ in self.step.weights]
        if {*names} != {*weights}:
            message, found = "The weights are others.", ", ".join(weights)
            raise refusal("input-missing", message, ", ".join(names), found)
        given = [np.asarray(weights[name]) for name in names]
        return self._state(given + self._zeros(len(given)))

    def _zeros(self, start: int) -> list[Array]:
        return [np.zeros(sizes_of(of), of.dtype.numpy)
                for of in self.program.types[start : self.size]]  # fmt: skip

    def _state(self, whole: Sequence[Array]) -> MeshState:
        return MeshState(self._blocks(whole, self.sharded.held[: self.size]))

    def __call__(self, state: MeshState, *data: Array) -> tuple[Array, MeshState]:
        """The loss before the step, and the state after it; the data is that of all devices."""
        arrays = [np.asarray(each) for each in data]
        check_inputs(self.sharded, [*self._zeros(0), *arrays])
        batch = self._blocks(arrays, self.sharded.held[self.size : self.program.params])
        held = {device: [*parts, *batch[device], *self.constants[device]]
                for device, parts in state.parts.items()}  # fmt: skip
        results = execute(self.sharded, held, self.medium, self.engine)
        loss = self._gathered(results, 0, self.sharded.results[0])
        return loss, MeshState({d: parts[1 : 1 + self.size] for d, parts in results.items()})

    def _gathered(self, parts: Mapping[int, Sequence[Array]], at: int, layout: Layout) -> Array:
        values = {device: arrays[at] for device, arrays in parts.items()}
        return gathered_value(self.sharded.mesh, layout, values, self.medium)

    def whole(self, state: MeshState) -> dict[str, Array]:
        """The whole weights by name, on every rank."""
        return {name: self._gathered(state.parts, at, self.sharded.held[at].layout)
                for at, (name, _) in enumerate(self.step.weights)}  # fmt: skip

    # --- checkpoints -----------------------------------------------------------------------------

    def save(self, folder: Path, state: MeshState, **facts: int | float | str) -> None:
        """Write a checkpoint with facts of one's own; it is none before all ranks have written.

        All ranks write into one folder, which must be new.
        """
        mesh = self.sharded.mesh
        folder.mkdir(parents=True, exist_ok=True)
        for device, parts in state.parts.items():
            own = {
                str(at): np.ascontiguousarray(part).reshape(-1).view(np.uint8)
                for at, (part, of) in enumerate(zip(parts, self.program.types, strict=False))
                if _writer(mesh, sizes_of(of), self.sharded.held[at].layout, device) == device
            }
            stream = io.BytesIO()
            np.savez(stream, **own)  # type: ignore[arg-type]  # the stub knows of no names
            archive.write(folder / f"{device}.npz", stream.getvalue())
        self.medium.agree("checkpoint", {"the checkpoint": json.dumps(facts)})
        if 0 in state.parts:
            data = {
                "plica-checkpoint": FORMAT, "mesh": str(mesh), "facts": facts,
                "values": self._values(),
            }  # fmt: skip
            archive.write(folder / MANIFEST, json.dumps(data, indent=1).encode())
        self.medium.agree("checkpoint", {"the checkpoint": "complete"})

    def _values(self) -> list[list[str]]:
        """Name, type and layout of each tensor of the state."""
        return [[self.program.names[at], str(self.program.types[at]),
                 show_layout(self.sharded.held[at].layout, self.sharded.mesh)]
                for at in range(self.size)]  # fmt: skip

    def load(self, folder: Path) -> tuple[MeshState, dict[str, Any]]:  # Any: facts of one's own
        """The state of a checkpoint that any mesh wrote, and its facts; raises `Malformed`."""
        data = _manifest(folder)
        mesh = Mesh.parse(data["mesh"])
        stored, names = ([row[:2] for row in rows] for rows in (data["values"], self._values()))
        if stored != names:
            other = next((a for a, b in zip(stored, names, strict=False) if a != b), stored[-1:])
            raise _malformed("The checkpoint is of another step.", str(names[0]), str(other))
        layouts = [parse_layout(row[2], mesh) for row in data["values"]]
        arrays = self._zeros(0)
        for device in range(mesh.devices):
            _read(folder / f"{device}.npz", mesh, device, layouts, arrays)
        return self._state(arrays), dict(data["facts"])


def _read(
    path: Path, mesh: Mesh, device: int, layouts: Sequence[Layout], arrays: Sequence[Array]
) -> None:
    """Fill in the blocks that a device wrote."""
    try:
        with np.load(path, allow_pickle=False) as file:
            for at, (array, layout) in enumerate(zip(arrays, layouts, strict=True)):
                if _writer(mesh, array.shape, layout, device) == device:
                    shape, block = mesh.local_shape(array.shape, layout), file[str(at)]
                    if block.dtype != np.uint8 or block.size != prod(shape) * array.itemsize:
                        raise ValueError(f"value {at} has {block.size} bytes")
                    where = mesh.block(array.shape, layout, device)
                    array[where] = block.view(array.dtype).reshape(shape)
    except (OSError, ValueError, KeyError, EOFError, BadZipFile, BadBytes) as error:
        raise _malformed("A file of the checkpoint is damaged.", str(path), str(error)) from error


def latest(folder: Path) -> Path | None:
    """The newest complete checkpoint among the folders in one, by name; None if there is none."""
    return max([path.parent for path in folder.glob(f"*/{MANIFEST}")], default=None)


@lru_cache(maxsize=1 << 12)
def _writer(mesh: Mesh, shape: tuple[int, ...], layout: Layout, device: int) -> int:
    """The first device that holds the block of a device."""
    where = mesh.block(shape, layout, device)
    return next(d for d in range(mesh.devices) if mesh.block(shape, layout, d) == where)


def _manifest(folder: Path) -> dict[str, Any]:  # Any: JSON
    try:
        data: Any = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        good = data["plica-checkpoint"] == FORMAT and isinstance(data["facts"], dict)
        good = good and all(len(row) == 3 for row in data["values"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        message, path = "This folder holds no complete checkpoint.", str(folder / MANIFEST)
        raise _malformed(message, path, str(error)) from error
    if not good:
        raise _malformed("The checkpoint is of another version.", str(FORMAT), str(folder))
    return {**data}


def _malformed(message: str, expected: str, found: str) -> Malformed:
    return Malformed(Diagnostic("bad-artefact", message, None, expected, found))
