"""Train a decoder of 10M parameters on ranks, with memory in blocks, checkpoints and resumption.

    python benchmarks/mesh_training.py -o alone.json
    torchrun --nproc-per-node 2 benchmarks/mesh_training.py -o two.json
    mpirun -n 2 python benchmarks/mesh_training.py -o mpi.json
    python benchmarks/mesh_training.py --compare alone.json two.json

With `--checkpoints DIR` every 20th step is saved, and a later run resumes from the newest; with
`--kill STEP` the last rank kills itself at a step.  A file holds the losses by step, and the digest
of the weights at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from contextlib import nullcontext
from hashlib import sha256
from pathlib import Path

import numpy as np

from benchmarks.mesh_decoder import DecoderSize, decoder
from plica.ir.interpret.value import Array
from plica.mesh import Mesh, MeshTrainer, connect, latest, zero_plan
from plica.mesh.execute import Medium, SimulatedDevices, interpreted
from plica.mesh.rank import Ranks
from plica.mesh.training import MeshState, compiled
from plica.training import adamw, step

SIZE = DecoderSize(layers=4, width=256, heads=4, shared=2, hidden=1024, words=12288)
BATCH, LENGTH, EVERY = 4, 16, 20


def batch(at: int) -> tuple[Array, Array]:
    """Tokens of sequences that count by a drawn stride, and the tokens after them."""
    random = np.random.default_rng(at)
    start, stride = random.integers(0, 64, (2, BATCH, 1))
    whole = (start + (stride % 4 + 1) * np.arange(LENGTH + 1)) % 64
    return whole[:, :-1].copy(), whole[:, 1:].reshape(-1).copy()


def weights() -> dict[str, Array]:
    random = np.random.default_rng(0)
    return {
        name: np.ones(shape, "f4") if len(shape) == 1
        else (random.standard_normal(shape) * shape[0] ** -0.5).astype("f4")
        for name, shape in SIZE.weights().items()
    }  # fmt: skip


def train(arguments: argparse.Namespace, medium: Medium, devices: int) -> dict[str, object]:
    made = step(decoder(SIZE, BATCH, LENGTH, loss=True), adamw(1e-3), list(SIZE.weights()))
    mesh = Mesh.parse(f"data={devices}")
    engine = interpreted if arguments.interpret else compiled(1)
    trainer = MeshTrainer(made, zero_plan(made, mesh, "data"), mesh, medium, engine)
    first, state = 0, None
    folder = arguments.checkpoints and latest(arguments.checkpoints)
    losses: dict[int, float] = {}
    if folder:
        state, facts = trainer.load(folder)
        first = facts["step"]
    state = state or trainer.start(**weights())
    start = time.perf_counter()
    for at in range(first, arguments.steps):
        if at == arguments.kill and devices - 1 in medium.devices:
            os.kill(os.getpid(), signal.SIGKILL)
        value, state = trainer(state, *batch(at))
        losses[at] = float(value)
        if at == first:
            start = time.perf_counter()
        if arguments.checkpoints and (at + 1) % EVERY == 0:
            trainer.save(arguments.checkpoints / f"{at + 1:08}", state, step=at + 1)
    seconds = (time.perf_counter() - start) / max(1, len(losses) - 1)
    return {"losses": losses, "weights": digest(trainer, state), "seconds a step": seconds,
            "parameters": sum([each.size for each in weights().values()])}  # fmt: skip


def digest(trainer: MeshTrainer, state: MeshState) -> str:
    whole = trainer.whole(state)
    return sha256(b"".join([each.tobytes() for each in whole.values()])).hexdigest()


def compare(paths: list[Path]) -> None:
    """The largest difference of losses, relative to the first file."""
    one, two = (json.loads(path.read_text()) for path in paths)
    both = sorted(one["losses"].keys() & two["losses"].keys(), key=int)
    worst = max([abs(one["losses"][k] - two["losses"][k]) / abs(one["losses"][k]) for k in both])
    print(f"{len(both)} steps, loss {one['losses'][both[0]]:.4f} to {one['losses'][both[-1]]:.4f}; "
          f"largest relative difference {worst:.2g}; "
          f"weights {'equal' if one['weights'] == two['weights'] else 'differ'}")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--kill", type=int, metavar="STEP")
    parser.add_argument("--checkpoints", type=Path, metavar="DIR")
    parser.add_argument("--interpret", action="store_true", help="do not compile")
    parser.add_argument("--compare", type=Path, nargs=2, metavar="FILE")
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    if arguments.compare:
        compare(arguments.compare)
        return
    launched = {"RANK", "OMPI_COMM_WORLD_SIZE"} & set(os.environ)
    with connect(timeout=60) if launched else nullcontext(SimulatedDevices((0,))) as medium:
        devices = medium.size if isinstance(medium, Ranks) else 1
        found = train(arguments, medium, devices)
        if 0 in medium.devices:
            if arguments.output:
                arguments.output.write_text(json.dumps(found))
            print(f"{found['seconds a step']:.3f} s a step, weights {found['weights']}")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
