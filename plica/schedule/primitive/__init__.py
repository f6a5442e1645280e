"""The primitives, one file each."""

from plica.schedule.primitive.add_unit_loop import add_unit_loop
from plica.schedule.primitive.annotate import annotate
from plica.schedule.primitive.block import block
from plica.schedule.primitive.child_blocks import child_blocks
from plica.schedule.primitive.consumers import consumers
from plica.schedule.primitive.enter_postproc import enter_postproc
from plica.schedule.primitive.fuse import fuse
from plica.schedule.primitive.loops import loops
from plica.schedule.primitive.output_blocks import output_blocks
from plica.schedule.primitive.producers import producers
from plica.schedule.primitive.sample_categorical import sample_categorical
from plica.schedule.primitive.sample_tile import sample_perfect_tile, sample_tile
from plica.schedule.primitive.split import split
from plica.schedule.primitive.unannotate import unannotate
from plica.schedule.primitive.unroll import unroll

__all__ = [
    "add_unit_loop",
    "annotate",
    "block",
    "child_blocks",
    "consumers",
    "enter_postproc",
    "fuse",
    "loops",
    "output_blocks",
    "producers",
    "sample_categorical",
    "sample_perfect_tile",
    "sample_tile",
    "split",
    "unannotate",
    "unroll",
]
