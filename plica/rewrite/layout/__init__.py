"""Layouts of whole programs: transforms as terms, moves of operators, conversion of modules."""

from plica.rewrite.layout.convert import Desired, convert_layout
from plica.rewrite.layout.move import Moved, moved
from plica.rewrite.layout.rules import LAYOUT
from plica.rewrite.layout.transform import transform

__all__ = ["LAYOUT", "Desired", "Moved", "convert_layout", "moved", "transform"]
