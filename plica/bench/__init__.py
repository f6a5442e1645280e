"""bench: models timed beside other systems, and what the machine could do at best."""

from plica.bench.contest import Contest, Entry, Missing, compete
from plica.bench.peer import PEERS, PeerOptions
from plica.bench.roof import Roof, roof_of

__all__ = ["PEERS", "Contest", "Entry", "Missing", "PeerOptions", "Roof", "compete", "roof_of"]
