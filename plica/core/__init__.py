"""core: terms, folds, digests, diagnostics.  It knows no tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plica.runtime.late import lazily, require_name_in_plica

require_name_in_plica(__name__)

__all__ = [
    "Name", "Term", "alpha_equal", "at", "children", "digest", "first_difference", "fold",
    "free_vars", "fresh", "from_json", "map_bottom_up", "map_top_down", "post_order", "rebuild",
    "substitute", "to_json", "universe",
]  # fmt: skip

if TYPE_CHECKING:
    from plica.core.binding import free_vars, substitute
    from plica.core.digest import alpha_equal, at, digest, first_difference
    from plica.core.encode import from_json, to_json
    from plica.core.fold import fold, map_bottom_up, map_top_down, post_order, universe
    from plica.core.name import Name, fresh
    from plica.core.term import Term, children, rebuild
else:
    lazily(__name__)
