"""Cost models of libraries: what learns which candidates are fast, found by entry point.

A library names a learner under the entry-point group `plica.cost_models`: a value with `fitted`
and `scores` as `plica.search.model.model` says.  `plica.tune(model, policy="guided:acme")` searches
with the one that is called `acme`.
"""

from __future__ import annotations

from typing import Final

from plica.core import ExtensionGroup
from plica.runtime.error import InputError
from plica.search.model.model import Model


def _learns(of: object) -> bool:
    return not isinstance(of, type) and all(
        callable(getattr(of, word, None)) for word in ("fitted", "scores")
    )


COST_MODELS: Final[ExtensionGroup[Model]] = ExtensionGroup(
    "plica.cost_models", "cost model", _learns, error=InputError, unknown="unknown-policy"
)
"""The cost models that libraries offer, by name."""
