"""The primitives, one file each."""

from plica.schedule.primitive.block import block
from plica.schedule.primitive.fuse import fuse
from plica.schedule.primitive.loops import loops
from plica.schedule.primitive.sample_tile import sample_perfect_tile, sample_tile
from plica.schedule.primitive.split import split

__all__ = ["block", "fuse", "loops", "sample_perfect_tile", "sample_tile", "split"]
