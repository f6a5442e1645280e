"""`plica shard MODEL --mesh data=2,model=4`: how a model is laid out on many devices."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Final

from plica.cli.command import DIFFERS, Command, json_text
from plica.cli.model import read_model
from plica.cli.option import add_dims, add_inputs, read_arrays
from plica.runtime.error import InputError, unreadable

if TYPE_CHECKING:
    from plica.ir.graph.module import Module
    from plica.mesh.mesh import Mesh
    from plica.mesh.plan import MeshPlan
    from plica.mesh.sharded import ShardedProgram
    from plica.mesh.topology import Topology

GIB: Final = 1 << 30
ENGINES: Final = ("gloo", "nccl", "mpi")


def run(arguments: argparse.Namespace) -> int:
    """Make or read a plan, show what it does, and perhaps write and check it."""
    from plica.mesh.mesh import Mesh
    from plica.mesh.picture import picture, plan_data
    from plica.mesh.plan import diff, plan_digest, replay
    from plica.runtime import archive

    mesh = Mesh.parse(arguments.mesh)
    module = read_model(arguments.model, arguments.dim, arguments.input)
    plan = plan_of(arguments.plan, module, mesh, topology_of(arguments, mesh))
    sharded = replay(plan, module, mesh, strict=arguments.strict)
    check = arguments.check or arguments.on is not None
    worst, rank = checked(sharded, arguments) if check else (None, 0)
    if rank:
        return exit_code(worst, arguments)  # rank 0 speaks for all
    if arguments.output is not None:
        view = plan.to_json()
        if arguments.output.suffix == ".html":
            from plica.report import page
            from plica.report.mesh_view import mesh_view

            view = page([mesh_view(arguments.model.stem, plan, sharded)])
        archive.write(arguments.output, view.encode())
    if arguments.json:
        steps = list(map(str, plan.steps))
        data = {"plan": steps, "digest": plan_digest(sharded), **plan_data(sharded)}
        print(json_text({**data, "difference": worst} if worst is not None else data))
    else:
        print("\n".join(["plan", *[f"  {step}" for step in plan.steps or ("replicate all",)]]))
        if arguments.against is not None:
            print(f"steps against {arguments.against}")
            print(diff(read_plan(arguments.against), plan))
        print(picture(sharded))
        if worst is not None:
            where = "simulated" if arguments.on is None else f"run by {arguments.on}"
            print(f"{where} on {mesh.devices} devices: differs by {worst:.2g} of the largest")
    return exit_code(worst, arguments)


def exit_code(worst: float | None, arguments: argparse.Namespace) -> int:
    """0 if nothing differs by more than is accepted."""
    return DIFFERS if worst is not None and not worst <= arguments.tolerance else 0


def plan_of(given: str, module: Module, mesh: Mesh, topology: Topology) -> MeshPlan:
    """The plan that is given as a file or as text, or a new one."""
    from plica.mesh.auto import automatic_plan

    return automatic_plan(module, mesh, topology) if given == "auto" else read_plan(given)


def read_plan(given: str) -> MeshPlan:
    """A plan from a file of JSON or text, or from its steps."""
    from plica.mesh.plan import MeshPlan

    path = Path(given)
    if path.suffix not in {".json", ".plan"}:
        return MeshPlan.from_text(given)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(unreadable(path, "a plan", error, ".json", ".plan")) from error
    return MeshPlan.from_json(text) if path.suffix == ".json" else MeshPlan.from_text(text)


def topology_of(arguments: argparse.Namespace, mesh: Mesh) -> Topology:
    """The topology in a file, or equal links."""
    from plica.mesh.topology import Topology

    memory = float("inf") if arguments.memory is None else arguments.memory * GIB
    if arguments.topology is None:
        return Topology.of(mesh, memory)
    try:
        text = arguments.topology.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(unreadable(arguments.topology, "a topology as JSON", error)) from error
    return Topology.from_json(text)


def checked(sharded: ShardedProgram, arguments: argparse.Namespace) -> tuple[float, int]:
    """How far the devices are from the interpreter, of the largest number; and this rank."""
    import numpy as np

    from plica.ir.interpret.interpreter import interpret
    from plica.mesh.execute import simulate
    from plica.mesh.program import leaves
    from plica.mesh.rank import connect

    given, random = read_arrays(arguments.input), np.random.default_rng(0)
    program = sharded.program
    arrays = []
    for name, of in zip(program.names[: program.params], program.types, strict=False):
        shape = [size.value for size in of.shape]  # type: ignore[attr-defined]  # they are literals
        drawn = random.standard_normal(shape) if of.dtype.is_float else np.zeros(shape)
        arrays.append(given.get(name, drawn.astype(of.dtype.numpy)))
    expected = [np.asarray(leaf, np.float64) for leaf in leaves(interpret(program.module, *arrays))]
    rank = 0
    if arguments.on is None:
        results = simulate(sharded, *arrays)
    else:
        with connect(arguments.on, arguments.timeout) as ranks:
            results, rank = ranks.run(sharded, *arrays), ranks.rank
    found = [np.asarray(leaf, np.float64) for leaf in leaves(results)]
    worst = max([
        float(np.max(np.abs(a - b), initial=0) / max(1e-30, np.max(np.abs(a), initial=0)))
        for a, b in zip(expected, found, strict=True)
    ], default=0.0)  # fmt: skip
    return worst, rank


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("model", type=Path, metavar="MODEL", help="an ONNX file, or a script")
    add_dims(parser)
    add_inputs(parser, "an input of --check; random if not given")
    add = parser.add_argument
    add("--mesh", required=True, metavar="AXES", help="the devices: data=2,model=4")
    add("--plan", default="auto", metavar="PLAN",
        help="auto, a .json or .plan file, or steps: 'split x 0 on data' (auto)")  # fmt: skip
    add("--topology", type=Path, metavar="FILE.json", help="measured links (equal ones)")
    add("--memory", type=float, metavar="GIB", help="memory of a device (unbounded)")
    add("--strict", action="store_true", help="refuse operators that cannot run on blocks")
    add("--check", action="store_true", help="simulate the devices and compare")
    add("--on", choices=ENGINES, metavar="ENGINE",
        help="run on the ranks of torchrun (gloo, nccl) or mpirun (mpi), and compare")  # fmt: skip
    add("--timeout", type=float, default=60.0, metavar="SECONDS",
        help="how long a rank waits for another (60)")  # fmt: skip
    add("--tolerance", type=float, default=1e-4, help="difference that --check accepts (1e-4)")
    add("--against", metavar="PLAN", help="also print the difference to another plan")
    add("-o", "--output", type=Path, metavar="FILE",
        help="write the plan (.json), or a page (.html)")  # fmt: skip
    add("--json", action="store_true", help="print the results as JSON")


COMMAND: Final = Command(
    "shard",
    "Lay a model out on a mesh of devices, and show who holds what and which bytes move",
    run,
    configure,
    (
        "plica shard M.onnx --mesh data=2,model=4 --plan auto",
        "plica shard M.onnx --mesh data=2,model=4 --plan 'split x 0 on data' --check",
        "plica shard M.onnx --mesh model=8 --memory 16 -o plan.json",
        "plica shard M.onnx --mesh model=8 --plan plan.json -o page.html",
    ),
)
