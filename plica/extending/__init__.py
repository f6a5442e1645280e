"""extending: packages that add to Plica, written (`plica new`) and checked (`plica check`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plica.runtime.late import lazily

__all__ = [
    "KINDS", "ExtensionPackage", "ExtensionVerdict", "check_package", "find_package", "new_package",
]  # fmt: skip

if TYPE_CHECKING:
    from plica.extending.check import check_package
    from plica.extending.new import KINDS, new_package
    from plica.extending.package import ExtensionPackage, ExtensionVerdict, find_package
else:
    lazily(__name__)
