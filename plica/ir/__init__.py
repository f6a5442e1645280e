"""ir: types, dims, the graph language, the tensor language, operators, syntax, interpreters."""

from __future__ import annotations

from plica.runtime.late import require_name_in_plica

require_name_in_plica(__name__)
