"""Lay networks out by 4 plans each on 8 simulated devices, and compare with the interpreter.

    python benchmarks/mesh_models.py --models 40 -o models.json
    python benchmarks/mesh_models.py --first 40 --models 10

The networks are those of `benchmarks/drawn_networks.py` with at most `--macs` multiply-adds, since
the interpreter runs them; the plans are an automatic one and three drawn ones, on three meshes.  A
line per network says the largest difference, of the largest number of a result; the exit code is 1
if one is above 1e-4.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from random import Random

import numpy as np

from benchmarks.drawn_networks import network
from plica.frontend.onnx import from_onnx
from plica.frontend.zoo import macs
from plica.ir.interpret.interpreter import interpret
from plica.mesh import Mesh, automatic_plan, replay, simulate
from plica.mesh.fuzz import drawn_plan
from plica.mesh.program import flat_program, leaves

MESHES = ("data=2,model=4", "model=8", "a=2,b=2,c=2")
TOLERANCE = 1e-4


def differences(number: int, seed: int, limit: int) -> dict[str, object] | None:
    """What a network's plans give; None if it is too large for the interpreter."""
    name, model, inputs = network(seed, number)
    module = from_onnx(model)
    if macs(module) > limit:
        return None
    program = flat_program(module)
    random = Random(f"{seed}/{number}")
    meshes = [Mesh.parse(text) for text in (MESHES[0], *MESHES)]
    plans = [automatic_plan(module, meshes[0])]
    plans += [drawn_plan(program, mesh, random) for mesh in meshes[1:]]
    expected = [np.asarray(each, np.float64) for each in leaves(interpret(module, *inputs))]
    found = {}
    for mesh, plan in zip(meshes, plans, strict=True):
        results = leaves(simulate(replay(plan, module, mesh), *inputs))
        found[f"{mesh}: {'; '.join(map(str, plan.steps))}"] = max([
            float(np.max(np.abs(np.asarray(mine, np.float64) - right), initial=0.0))
            / max(1e-30, float(np.max(np.abs(right), initial=0.0)))
            for mine, right in zip(results, expected, strict=True)
        ])  # fmt: skip
    return {"network": name, "plans": found}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=50)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--models", type=int, default=40)
    parser.add_argument("--macs", type=int, default=30_000_000)
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    rows: list[dict[str, object]] = []
    number, worst = arguments.first, 0.0
    while len(rows) < arguments.models:
        start = time.perf_counter()
        row = differences(number, arguments.seed, arguments.macs)
        number += 1
        if row is None:
            continue
        plans = row["plans"]
        assert isinstance(plans, dict)
        rows.append({**row, "number": number - 1})
        worst = max(worst, *plans.values())
        numbers = " ".join([f"{each:.1e}" for each in plans.values()])
        print(f"{number - 1:4} {row['network']:40} {numbers}  {time.perf_counter() - start:.1f} s",
              flush=True)  # fmt: skip
        if arguments.output:
            arguments.output.write_text(json.dumps(rows, indent=1))
    print(f"{len(rows)} networks of numbers {arguments.first} to {number - 1}, worst {worst:.2g}")
    return int(not worst <= TOLERANCE)


if __name__ == "__main__":
    sys.exit(main())
