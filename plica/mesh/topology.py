"""Topologies: how fast the devices of a mesh compute and send, from which plans are priced.

>>> links = Topology((Link(1e9, 1e-5), Link(1e10, 1e-6)))
>>> Topology.from_json(links.to_json()) == links
True
"""

from __future__ import annotations

import json
from typing import Any, Final

import attrs
from attrs import frozen

from plica.mesh.mesh import Mesh, refusal
from plica.mesh.sharded import LayoutCost

FLOPS_PER_STEP: Final = 2
MEMORY_PENALTY: Final = 1e-8
"""Seconds that a byte costs that does not fit: more than to fetch it anew in each call."""


@frozen
class Link:
    """What one axis carries: bytes a second from each device, and the seconds of a message."""

    bandwidth: float = 1e11
    latency: float = 1e-5


@frozen
class Topology:
    """The links of the axes of a mesh, and what one device does."""

    links: tuple[Link, ...]
    flops: float = 1e14
    memory: float = float("inf")

    @staticmethod
    def of(mesh: Mesh, memory: float = float("inf")) -> Topology:
        """Equal links on all axes, as of GPUs in one box, where nothing was measured."""
        return Topology(tuple([Link() for _ in mesh.axes]), memory=memory)

    def seconds(self, cost: LayoutCost) -> float:
        """An estimate of a call: work, then bytes on each axis, then messages."""
        sending = sum(
            sent / link.bandwidth for sent, link in zip(cost.sent, self.links, strict=True)
        )
        waiting = cost.exchanges * max([link.latency for link in self.links], default=0.0)
        excess = max(0.0, cost.held - self.memory) * MEMORY_PENALTY
        return FLOPS_PER_STEP * cost.steps / self.flops + sending + waiting + excess

    def to_json(self) -> str:
        """The topology as JSON."""
        return json.dumps(attrs.asdict(self))

    @staticmethod
    def from_json(text: str) -> Topology:
        """The topology that a JSON text holds."""
        try:
            data: Any = json.loads(text)
            links = [Link(*map(float, attrs.astuple(Link(**link)))) for link in data["links"]]
            topology = Topology(tuple(links), float(data["flops"]), float(data["memory"]))
            rates = [topology.flops, topology.memory, *[link.bandwidth for link in links]]
            if all(rate > 0 for rate in rates):
                return topology
        except (ValueError, KeyError, TypeError, RecursionError):
            pass
        expected = "links with bandwidth and latency, flops and memory"
        raise refusal("bad-mesh", "This is no topology in JSON.", expected, text[:60])
