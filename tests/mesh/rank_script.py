"""What the ranks of `test_rank` run: a program under plans, with a fault planted in one of them.

    rank_script.py ENGINE OUT MESH [FAULT [TIMEOUT]]

Each rank writes OUT/RANK.json: digests of plans and of results, or the error.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from plica.ir.graph.module import Module
from plica.ir.interpret.value import Array
from plica.mesh import Mesh, MeshPlan, plan_digest, replay, simulate
from plica.mesh.execute import Engine, interpreted
from plica.mesh.program import leaves
from plica.mesh.rank import Ranks, connect
from plica.runtime.error import PlicaError
from tests.mesh.network import inputs, perceptron

PLANS = ("", "split x 0 on {0}", "split w1 1 on {1}", "split x 0 on {0}; split w1 1 on {1}",
         "split result.0 1 on {1}; split x 1 on {0}", "split w? 0 on {0}")  # fmt: skip
CULPRIT = 1


def hashed(value: Any) -> str:
    arrays = [np.ascontiguousarray(each) for each in leaves(value)]
    return sha256(b"".join(each.tobytes() for each in arrays)).hexdigest()


def results(mesh: Mesh, run: Callable[..., Any]) -> list[list[str]]:
    """The digests of the plans, and of what they give."""
    found = []
    for plan in PLANS:
        text = plan.format(mesh.names[0], mesh.names[-1])
        sharded = replay(MeshPlan.from_text(text), perceptron(), mesh)
        found.append([plan_digest(sharded), hashed(run(sharded, *inputs()))])
    return found


def kill(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def during(act: Callable[[], Any]) -> Engine:
    """An engine that does something in the culprit's second segment."""
    calls = []

    def engine(module: Module, rows: Sequence[Sequence[Array]]) -> list[list[Array]]:
        calls.append(module)
        if len(calls) == 2:
            act()
        return interpreted(module, rows)

    return engine


def work(ranks: Ranks, mesh: Mesh, fault: str) -> list[list[str]]:
    culprit = ranks.rank == CULPRIT
    args = inputs()
    plan = MeshPlan.from_text(f"split x 0 on {mesh.names[0]}; split result.0 0 on {mesh.names[0]}")
    engine: Engine = interpreted
    if culprit:
        match fault:
            case "leaves":
                return []
            case "raises":
                engine = during(lambda: 1 // 0)
            case "killed":
                engine = during(kill)
            case "exits":
                engine = during(lambda: os._exit(0))
            case "hangs":
                engine = during(lambda: time.sleep(600))
            case "plan":
                plan = MeshPlan.from_text(f"split x 1 on {mesh.names[0]}")
            case "mesh":
                mesh = Mesh.parse(",".join(f"other{n}={s}" for n, s in enumerate(mesh.sizes)))
                plan = MeshPlan()
            case "inputs":
                args[0] = args[0][:, :3]
            case "one-more":
                ranks.run(replay(plan, perceptron(), mesh), *args)
    if fault == "devices":
        mesh = Mesh.parse("data=8")
    if fault:
        plan = plan if fault in {"plan", "mesh", "devices"} else MeshPlan.from_text(
            f"split x 0 on {mesh.names[0]}; split w1 1 on {mesh.names[-1]}")  # fmt: skip
        sharded = replay(plan, perceptron(), mesh)
        return [["", hashed(ranks.run(sharded, *args, engine=engine))]]
    return results(mesh, ranks.run)


def main(engine: Any, out: str, mesh: str, fault: str = "", timeout: str = "20") -> int:
    name = os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ["RANK"]
    culprit = name == str(CULPRIT)
    said: dict[str, Any] = {}
    import_module("mpi4py.MPI" if engine == "mpi" else "torch.distributed")
    start = time.monotonic()
    facts = {"program": "other" if fault == "version" and culprit else "same"}
    try:
        if fault == "dies-first" and culprit:
            kill()
        with connect(engine, float(timeout), **facts) as ranks:
            start = time.monotonic()
            said["found"] = work(ranks, Mesh.parse(mesh), fault)
    except (PlicaError, ZeroDivisionError) as error:
        notes = getattr(error, "__notes__", [])
        said = {"error": "\n".join([str(error), *notes]), "seconds": time.monotonic() - start}
    path = Path(out) / f"{name}-{os.getpid()}.json"
    path.write_text(json.dumps(said))
    print(said, flush=True)
    return int("error" in said)


if __name__ == "__main__":
    if sys.argv[1] == "simulated":
        print(json.dumps(results(Mesh.parse(sys.argv[2]), simulate)))
    else:
        code = main(*sys.argv[1:])
        sys.stdout.flush()
        sys.exit(code)
