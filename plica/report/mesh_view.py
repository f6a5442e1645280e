"""Mesh views: a device's program, the placement of values and the bytes moved, as JSON data."""

from __future__ import annotations

from typing import Any

from plica.mesh.picture import plan_data, size_text
from plica.mesh.plan import MeshPlan
from plica.mesh.sharded import ShardedProgram
from plica.report.graph_film import film
from plica.rewrite.derivation import Derivation


def mesh_view(name: str, plan: MeshPlan, sharded: ShardedProgram) -> dict[str, Any]:
    """A plan for a mesh, with the graph that every device runs."""
    data = plan_data(sharded)
    axes = sharded.mesh.names
    return {
        "kind": "mesh",
        "name": name,
        "facts": [
            ["mesh", str(sharded.mesh)], ["devices", str(data["devices"])],
            ["held by each device", size_text(data["bytes_held"]["device"])],
            ["held by one device alone", size_text(data["bytes_held"]["whole"])],
            ["sent by each device in a call", size_text(sum(data["sent"].values()))],
        ],
        "graph": film(Derivation(sharded.module, ())).to_data(),
        "kernels": [],
        "axes": list(axes),
        "plan": [[str(step)] for step in plan.steps],
        "held": [
            [each["values"], each["count"], each["type"], str(tuple(each["local"])),
             *each["layout"]] for each in data["held"]
        ],
        "blocks": [[f"device {at}: {list(sharded.mesh.coordinates(at))}",
                    *[each["blocks"][at] for each in data["held"]]]
                   for at in range(len(data["held"][0]["blocks"]) if data["held"] else 0)],
        "sent": [
            [each["collective"], each["axis"], each["count"], each["type"],
             size_text(each["bytes"] * each["count"])] for each in data["exchanges"]
        ],
        "roof": None,
        "lines": [],
    }  # fmt: skip
