"""search: spaces, features, models of cost, policies, measuring, records, the device pool."""

from __future__ import annotations

from plica.runtime.late import require_name_in_plica

require_name_in_plica(__name__)
