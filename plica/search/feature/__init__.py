"""Features of schedules: numbers from which a model tells how fast they are."""

from __future__ import annotations

from plica.search.feature.featuriser import Featuriser, features
from plica.search.feature.packs import Packs, SpaceFeaturiser
from plica.search.feature.store import NAMES, WIDTH

__all__ = ["NAMES", "WIDTH", "Featuriser", "Packs", "SpaceFeaturiser", "features"]
