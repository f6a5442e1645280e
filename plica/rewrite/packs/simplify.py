"""Simplification: the tables that make any module simpler, together.

>>> len(SIMPLIFY) > 400, SIMPLIFY.name
(True, 'simplify')

Measure, from the strongest: composite and filled operators become base operators (canonical);
operators are removed (algebra, logic, shape, cut, cast, reduction); arrangements, negations and
scalings move towards the results (motion, algebra, reduction), cuts towards the arguments;
constants move to the right (canonical).  No rule raises a stronger part to lower a weaker one, so
rewriting ends.
"""

from __future__ import annotations

from typing import Final

from plica.rewrite.pack import Pack, pack
from plica.rewrite.packs.algebra import ALGEBRA
from plica.rewrite.packs.canonical import CANONICAL
from plica.rewrite.packs.cast import CAST
from plica.rewrite.packs.cut import CUT
from plica.rewrite.packs.logic import LOGIC
from plica.rewrite.packs.motion import MOTION
from plica.rewrite.packs.reduction import REDUCTION
from plica.rewrite.packs.shape import SHAPE

SIMPLIFY: Final[Pack] = pack(
    "simplify",
    CANONICAL,
    ALGEBRA,
    LOGIC,
    CAST,
    SHAPE,
    CUT,
    REDUCTION,
    MOTION,
    version="1",
    doc="Everything that makes a module simpler whatever it is for.",
)
