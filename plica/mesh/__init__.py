"""mesh: programs on many devices: placements, plans, simulation, ranks, training."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plica.runtime.late import lazily

__all__ = [
    "Mesh", "MeshPlan", "MeshTrainer", "Ranks", "ShardedProgram", "Topology", "automatic_plan",
    "bisect", "connect", "diff", "latest", "picture", "plan_digest", "pooled", "replay", "simulate",
    "zero_plan",
]  # fmt: skip

if TYPE_CHECKING:
    from plica.mesh.auto import automatic_plan
    from plica.mesh.execute import simulate
    from plica.mesh.mesh import Mesh
    from plica.mesh.picture import picture
    from plica.mesh.plan import MeshPlan, bisect, diff, plan_digest, replay
    from plica.mesh.pool import pooled
    from plica.mesh.rank import Ranks, connect
    from plica.mesh.sharded import ShardedProgram
    from plica.mesh.topology import Topology
    from plica.mesh.training import MeshTrainer, latest, zero_plan
else:
    lazily(__name__)
