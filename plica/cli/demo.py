"""`plica demo`: the main job in one go."""

from __future__ import annotations

import argparse
from typing import Final

from plica.cli.command import Command


def run(arguments: argparse.Namespace) -> int:
    """Run the demonstration; it brings the compiler, so it is imported only here."""
    from plica.demo import main

    return main()


COMMAND: Final = Command(
    "demo", "Compile a small model, check it against its meaning, time it", run
)
