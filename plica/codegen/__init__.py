"""codegen: lowering, then the final folds: llvm, cuda, accel."""

from __future__ import annotations

from plica.runtime.late import require_name_in_plica

require_name_in_plica(__name__)
