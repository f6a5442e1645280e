"""Commands that packages add: entry points of the group `plica.commands`.

>>> "compile" in COMMANDS.own
True
"""

from __future__ import annotations

from typing import Final

from plica.cli.command import OWN_COMMANDS, Command
from plica.core.extension import ExtensionGroup

COMMANDS: Final = ExtensionGroup(
    "plica.commands", "command", Command, OWN_COMMANDS, lambda each: each.name
)
"""The commands by name, Plica's own and those of packages."""
