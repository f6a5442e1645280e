"""bench: models timed beside other systems, and what the machine could do at best."""

from plica.bench.comparison import AbsentSystem, SystemComparison, SystemTiming, compare_systems
from plica.bench.peer import PEERS, PeerOptions
from plica.bench.roof import Roof, roof_of

__all__ = [
    "PEERS",
    "AbsentSystem",
    "PeerOptions",
    "Roof",
    "SystemComparison",
    "SystemTiming",
    "compare_systems",
    "roof_of",
]
