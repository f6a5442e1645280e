"""`plica records`: what searches found, to look at, to hand on and to take over."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Final

from plica.cli.command import Command
from plica.cli.option import ending, positive
from plica.cli.progress import stdout_console
from plica.runtime.error import Diagnostic, InputError, Place

if TYPE_CHECKING:
    from plica.search.record.source import RecordSource

SUFFIX: Final = ".records"


def configure(parser: argparse.ArgumentParser) -> None:
    """`plica records show FILE`, `export DB -o FILE` and `import FILE --db DB`."""
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    showing = verbs.add_parser("show", help="count the workloads, machines and trials in a file")
    showing.add_argument("file", type=Path, metavar="FILE", help=f"a database, or a {SUFFIX} file")
    showing.add_argument("--json", action="store_true", help="print JSON")
    showing.set_defaults(verb=show)
    giving = verbs.add_parser("export", help="write the best records as a package")
    giving.add_argument("db", type=Path, metavar="DB", help="a database")
    giving.add_argument("-o", dest="output", type=ending(SUFFIX, ".jsonl"), required=True,
                        metavar="FILE", help=f"a package ({SUFFIX}), or .jsonl")  # fmt: skip
    giving.add_argument("--keep", type=positive, default=1, help="records of each work (1)")
    giving.set_defaults(verb=export)
    taking = verbs.add_parser("import", help="merge the records of a package into a database")
    taking.add_argument("file", type=Path, metavar="FILE", help="a package")
    taking.add_argument("--db", type=Path, default=Path("tune.db"), help="the database (tune.db)")
    taking.set_defaults(verb=take)


def _source(path: Path) -> RecordSource:
    """The records of an existing file."""
    from plica.search.record import Database, JsonDatabase

    try:
        with path.open("rb") as file:
            begun = file.read(1)
    except OSError as error:
        message = f"The records cannot be read: {error.strerror}."
        expected = f"a database of `plica tune`, or a {SUFFIX} file"
        raise InputError(
            Diagnostic("input-missing", message, Place(file=str(path)), expected)
        ) from error
    if not begun and path.suffix != ".jsonl":  # SQLite would take it for a new database
        raise InputError(
            Diagnostic("bad-database", "The file is empty.", Place(file=str(path)), "records")
        )
    if begun == b"{":
        from plica.search.record.package import unpacked

        database = Database()
        database.put_all(unpacked(path.read_text(encoding="utf-8", errors="replace"), str(path)))
        return database
    return JsonDatabase(path) if path.suffix == ".jsonl" else Database(path)


def show(arguments: argparse.Namespace) -> int:
    """One line for each machine."""
    from plica.codegen.backend import backend_of, find_target
    from plica.runtime.host import cores
    from plica.search.target import fingerprint

    this = find_target("cpu")
    here = {
        fingerprint(backend_of(this).with_threads(this, count)): count
        for count in range(1, cores() + 1)
    }
    machines: dict[str, list[int]] = {}
    works: dict[str, set[str]] = {}
    for record in _source(arguments.file):
        counts = machines.setdefault(record.target, [0, 0])
        counts[record.cost is None] += 1
        works.setdefault(record.target, set()).add(record.key)
    rows = [
        {
            "machine": name,
            "works": len(works[name]),
            "timed": timed,
            "failed": failed,
            "here": name in here,
            "threads": here.get(name),
        }
        for name, (timed, failed) in sorted(machines.items())
    ]
    if arguments.json:
        print(json.dumps({"machines": rows}, indent=2))
        return 0
    from rich.table import Table

    table = Table(
        "Machine", "Works", "Timed", "Failed", "This one", title="Records", title_justify="left"
    )
    for row in rows:
        numbers = [str(row[each]) for each in ("machine", "works", "timed", "failed")]
        table.add_row(*numbers, _threads(here[str(row["machine"])]) if row["here"] else "")
    stdout_console().print(table)
    return 0


def _threads(count: int) -> str:
    return "1 thread" if count == 1 else f"{count} threads"


def export(arguments: argparse.Namespace) -> int:
    """Write the best of a database."""
    from plica.runtime import archive
    from plica.search.record.package import described, packed

    text = packed(_source(arguments.db), arguments.keep)
    head = described(text)
    whole = text if arguments.output.suffix == SUFFIX else text.partition("\n")[2]
    archive.write(arguments.output, whole.encode())
    machines = "1 machine" if len(head.targets) == 1 else f"{len(head.targets)} machines"
    of = f"{head.count} {'record' if head.count == 1 else 'records'} of {machines}"
    print(f"{arguments.output}: {of}, {head.digest[:12]}")
    return 0


def take(arguments: argparse.Namespace) -> int:
    """Join the records of a package with those of a database."""
    from plica.search.record import Database

    records = _source(arguments.file).all()
    with Database(arguments.db) as database:
        changed = database.put_all(records)
    print(f"{arguments.db}: {changed} of {len(records)} records are new or better")
    return 0


def run(arguments: argparse.Namespace) -> int:
    """Runs the verb."""
    done: int = arguments.verb(arguments)
    return done


COMMAND: Final = Command(
    "records",
    "Tuning records: show, export, import",
    run,
    configure,
    (
        "plica records show tune.db",
        "plica records export tune.db -o zoo.records",
        "plica records import zoo.records --db tune.db",
    ),
)
