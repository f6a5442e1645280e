"""Features of schedules: numbers from which a model tells how fast they are."""

from typing import TYPE_CHECKING

from plica.runtime.late import lazily

__all__ = ["NAMES", "WIDTH", "Featuriser", "Packs", "SpaceFeaturiser", "features"]

if TYPE_CHECKING:
    from plica.search.feature.featuriser import Featuriser, features
    from plica.search.feature.packs import Packs, SpaceFeaturiser
    from plica.search.feature.store import NAMES, WIDTH
else:
    lazily(__name__)
