"""Layouts of whole programs: transforms as terms, moves of operators, conversion of modules."""

from typing import TYPE_CHECKING

from plica.runtime.late import lazily

__all__ = ["LAYOUT", "Desired", "Moved", "channels_last", "convert_layout", "moved", "transform"]

if TYPE_CHECKING:
    from plica.rewrite.layout.channels_last import channels_last
    from plica.rewrite.layout.convert import Desired, convert_layout
    from plica.rewrite.layout.move import Moved, moved
    from plica.rewrite.layout.rules import LAYOUT
    from plica.rewrite.layout.transform import transform
else:
    lazily(__name__)
