"""core: terms, folds, digests, diagnostics.  It knows no tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plica.runtime.late import lazily, require_name_in_plica

require_name_in_plica(__name__)

__all__ = [
    "CompilerBug", "DeferredBytes", "EvaluationError", "ExtensionGroup", "FrozenBytes", "IllFormed",
    "IllTyped", "Malformed", "Memo", "Name", "OutOfRange", "RuleFailed", "RuleRefused",
    "ScriptError", "Task", "Term", "all_of", "alpha_equal", "at", "children", "did_you_mean",
    "digest", "field_names", "first_difference", "fold", "fold_into", "free_vars", "fresh",
    "from_json", "ill_formed", "map_bottom_up", "map_top_down", "name_of", "parts_first",
    "post_order", "reached", "rebuild", "rename", "substitute", "to_json", "universe",
    "variables_of",
]  # fmt: skip

if TYPE_CHECKING:
    from plica.core.binding import free_vars, name_of, rename, substitute, variables_of
    from plica.core.deferred import DeferredBytes
    from plica.core.diagnostic import (
        CompilerBug,
        EvaluationError,
        IllFormed,
        IllTyped,
        Malformed,
        OutOfRange,
        RuleFailed,
        RuleRefused,
        ScriptError,
        did_you_mean,
        ill_formed,
    )
    from plica.core.digest import alpha_equal, at, digest, first_difference
    from plica.core.encode import from_json, to_json
    from plica.core.extension import ExtensionGroup
    from plica.core.fold import (
        all_of,
        fold,
        fold_into,
        map_bottom_up,
        map_top_down,
        parts_first,
        post_order,
        reached,
        universe,
    )
    from plica.core.memo import Memo
    from plica.core.name import Name, fresh
    from plica.core.task import Task
    from plica.core.term import FrozenBytes, Term, children, field_names, rebuild
else:
    lazily(__name__)
