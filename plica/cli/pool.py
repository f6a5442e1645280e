"""`plica pool`: starts a pool of devices, adds this machine to one, lists its members."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Final

from plica.cli.command import Command
from plica.cli.progress import stdout_console
from plica.runtime.error import Diagnostic, InputError

if TYPE_CHECKING:
    from plica.search.pool.address import Certificates

DEFAULT: Final = "tcp://127.0.0.1:8786"


def configure(parser: argparse.ArgumentParser) -> None:
    """`plica pool start`, `plica pool worker ADDRESS` and `plica pool status [ADDRESS]`."""
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    starting = verbs.add_parser("start", help="run the scheduler of a pool until it is stopped")
    starting.add_argument("--host", default="127.0.0.1", help="where to listen (this machine only)")
    starting.add_argument("--port", type=int, default=8786, help="0 for any that is free (8786)")
    starting.set_defaults(verb=start)
    working = verbs.add_parser("worker", help="offer this machine to a pool")
    working.add_argument("address", nargs="?", default=DEFAULT, help=f"the scheduler ({DEFAULT})")
    working.set_defaults(verb=worker)
    asking = verbs.add_parser("status", help="list the devices of a pool")
    asking.add_argument("address", nargs="?", default=DEFAULT, help=f"the scheduler ({DEFAULT})")
    asking.add_argument("--json", action="store_true", help="print JSON")
    asking.set_defaults(verb=status)
    making = verbs.add_parser("server", help="build a program that runs models without Python")
    making.add_argument("path", help="the program to write, for copying to the machine")
    making.add_argument("--target", default="", help="aarch64, riscv64, armv7 (this machine)")
    making.set_defaults(verb=server)
    for each in (starting, working, asking):
        each.add_argument("--tls-ca", metavar="PEM", help="the trusted certificate authority")
        each.add_argument("--tls-cert", metavar="PEM", help="the certificate of this side")
        each.add_argument("--tls-key", metavar="PEM", help="the key of that certificate")


def certificates_of(arguments: argparse.Namespace) -> Certificates | None:
    """The certificates that were given: all three files or none."""
    from plica.search.pool.address import Certificates

    files = (arguments.tls_ca, arguments.tls_cert, arguments.tls_key)
    if not any(files):
        return None
    if not all(files):
        message = "TLS needs three files."
        expected = "--tls-ca, --tls-cert and --tls-key together"
        found = ", ".join(file for file in files if file)
        raise InputError(Diagnostic("input-missing", message, None, expected, found))
    return Certificates(*files)


def _say(line: str) -> None:
    print(line, flush=True)


def start(arguments: argparse.Namespace) -> int:
    """Run a scheduler; its address is the first line."""
    from plica.search.pool.serve import serve_scheduler

    serve_scheduler(arguments.host, arguments.port, certificates_of(arguments), _say)
    return 0


def worker(arguments: argparse.Namespace) -> int:
    """Run a worker; its address and what it offers are the first line."""
    from plica.search.pool.serve import serve_worker

    serve_worker(arguments.address, certificates_of(arguments), _say)
    return 0


def status(arguments: argparse.Namespace) -> int:
    """Show the devices of a pool."""
    from plica.search.pool.remote import connect

    with connect(arguments.address, certificates_of(arguments)) as remote:
        pool_devices = remote.devices
    if arguments.json:
        rows = [{"address": e.address, "target": e.target, "busy": e.busy} for e in pool_devices]
        print(json.dumps({"devices": rows}, indent=2))
        return 0
    from rich.table import Table

    table = Table("Device", "Machine", "Jobs", title="Pool", title_justify="left")
    for pool_device in pool_devices:
        table.add_row(pool_device.address, pool_device.target, str(pool_device.busy))
    stdout_console().print(table)
    return 0


def server(arguments: argparse.Namespace) -> int:
    """Make the program that serves a machine without Python."""
    from plica.search.pool.served import build_server

    build_server(arguments.path, arguments.target)
    print(f"{arguments.path}: run it there, then plica.connect('plica://127.0.0.1:9190')")
    return 0


def run(arguments: argparse.Namespace) -> int:
    """Runs the verb."""
    done: int = arguments.verb(arguments)
    return done


COMMAND: Final = Command(
    "pool",
    "Device pools: start, join, status",
    run,
    configure,
    ("plica pool start", "plica pool worker tcp://127.0.0.1:8786", "plica pool status"),
)
