"""training: optimisers in the graph language, and compiled steps."""

from plica.training.optimisers import (
    Optimiser,
    adafactor,
    adam,
    adamw,
    momentum,
    muon,
    optimiser,
    sgd,
)
from plica.training.step import TrainingStep, step
from plica.training.trainer import State, Trainer, trainer

__all__ = [
    "Optimiser", "State", "Trainer", "TrainingStep", "adafactor", "adam", "adamw", "momentum",
    "muon", "optimiser", "sgd", "step", "trainer",
]  # fmt: skip
