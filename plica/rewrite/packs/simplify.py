"""Simplification: the tables that make any module simpler, together.

>>> len(SIMPLIFY) > 400, SIMPLIFY.name
(True, 'simplify')

Measure, from the strongest: composite and filled operators become base operators (composite);
operators are removed (algebra, logic, shape, rearrange, cut, cast, reduction); arrangements,
negations and scalings move towards the results (motion, algebra, reduction), cuts towards the
arguments; constants move to the right (canonical).  No rule raises a stronger part to lower a
weaker one, so rewriting ends.
"""

from __future__ import annotations

from typing import Final

from plica.rewrite.pack import Pack
from plica.rewrite.packs import PARTS, united

SIMPLIFY: Final[Pack] = united("simplify", PARTS["simplify"])
