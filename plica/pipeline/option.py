"""Options: the parameters of a compilation, and their validation.

Requests: validated compilation parameters, and what distinguishes one from another.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

from attrs import frozen

from plica.codegen.backend import OWN, AnyTarget, Backend, backend_named, backend_of, find_target
from plica.codegen.compilation import check_pipeline
from plica.codegen.machine_table import row_named
from plica.core import Malformed
from plica.ir.contract import Contract, named, unknown_contract
from plica.ir.graph.module import Module
from plica.ir.passes import PassError, Pipeline
from plica.rewrite.optimise import DEFAULT_CONTRACT
from plica.rewrite.pack import Pack
from plica.rewrite.packs import find_pack
from plica.runtime.error import Diagnostic, Place, UnsupportedError, setting, wrong_argument
from plica.runtime.machine import MEASURED, MachineDescription, stored_description
from plica.runtime.record import KernelTrace
from plica.schedule.trace import Trace

if TYPE_CHECKING:
    from plica.codegen.given_trace import GivenSchedule
    from plica.pipeline.extern_source import GivenExtern
    from plica.runtime.machine import MachineDescription
    from plica.runtime.record import KernelTrace
    from plica.search.choice import Records
    from plica.search.record import RecordSource


@frozen(eq=False, kw_only=True)
class CompileOptions:
    """The options of `plica.compile`, as given."""

    target: str | AnyTarget = "cpu"
    threads: int | None = None
    database: RecordSource | str | PathLike[str] | None = None
    cache: bool = True
    packs: str | Pack | Sequence[str | Pack] = ()
    contract: Contract | str | None = None
    passes: Pipeline | None = None
    disabled: str | Sequence[str] = ()
    effort: str = "default"
    validate: bool = False
    schedules: Mapping[str, GivenSchedule | KernelTrace] | None = None
    background: bool = False
    specialise: bool = False
    externs: Mapping[str, GivenExtern] | None = None
    machine: str | MachineDescription | None = None
    donate: str | Sequence[str] = ()

    def pipeline(self, backend: Backend) -> Pipeline:
        """The pipeline of passes that they choose."""
        return chosen_pipeline(backend, self.passes, self.disabled, self.effort)


@frozen(eq=False)
class Request:
    """A validated request, independent of the module."""

    backend: Backend
    target: AnyTarget
    threads: int
    contract: Contract
    packs: tuple[Pack, ...]
    wanted: tuple[str | Pack, ...]
    """The packs as they were asked for."""
    database: RecordSource | str | PathLike[str] | None
    cache: bool
    pipeline: Pipeline
    validate: bool = False
    """Whether to check each kernel against its stages and to recompute store entries."""
    schedules: tuple[tuple[str, GivenSchedule], ...] = ()
    """The schedules of kernels, by kernel name."""
    externs: tuple[tuple[str, GivenExtern], ...] = ()
    """Who serves the externs of a program, by symbol."""
    tier: str = "default"
    """The effort that the pipeline is of."""

    @property
    def spelled(self) -> str | None:
        """The pipeline as text, equal in every process; None if it contains another package's pass
        or backend, which have no digest."""
        if self.backend.name not in OWN or backend_named(self.backend.name) is not self.backend:
            return None
        own = {}
        for effort, pipeline in reversed([*self.backend.pipelines.items()]):
            own.update({each: f"{effort}/{each.name}" for each in pipeline})
        words = [own.get(each) for each in self.pipeline]
        return None if None in words else " ".join(word for word in words if word is not None)


def chosen_pipeline(
    backend: Backend, passes: Pipeline | None, disabled: str | Sequence[str], effort: str
) -> Pipeline:
    """The requested pipeline: the given one or that of an effort level, without disabled passes."""
    given: object = passes
    if given is not None and not isinstance(given, Pipeline):
        message = "This is no pipeline of passes."
        expected, hint = "a Pipeline", "Edit plica.pipeline.pipeline_of('cpu')."
        raise PassError(Diagnostic("unknown-pass", message, None, expected, repr(given), hint))
    if passes is not None and effort != "default":
        message = "A pipeline of one's own has no effort: the effort chooses a pipeline."
        raise UnsupportedError(
            Diagnostic("unsupported", message, None, "passes or effort", f"both, {effort!r}")
        )
    pipeline = backend.pipeline(effort) if passes is None else passes
    named: object = (disabled,) if isinstance(disabled, str) else disabled
    if not isinstance(named, Sequence) or not all(isinstance(each, str) for each in named):
        raise wrong_argument("Passes are disabled by name.", "names of passes", disabled)
    names = tuple(named)
    if passes is None and not names:
        return pipeline
    pipeline = pipeline.without(*names) if names else pipeline
    check_pipeline(pipeline)
    return pipeline


def contract_of(given: Contract | str | None) -> Contract:
    """The contract meant by a name, or the default."""
    if given is None:
        return DEFAULT_CONTRACT
    contract = named(given) if isinstance(given, str) else given
    if isinstance(contract, Contract):
        return contract
    raise UnsupportedError(unknown_contract(given))


def packs_listed(packs: object) -> tuple[str | Pack, ...]:
    """The packs, or the names of some, that were given: one, or several."""
    if not isinstance(packs, str | Pack | Iterable):
        raise wrong_argument("These are no rule packs.", "packs, or their names", packs)
    return (packs,) if isinstance(packs, str | Pack) else tuple(packs)


def packs_of(wanted: Sequence[str | Pack], contract: Contract) -> tuple[Pack, ...]:
    """The packs meant; one that would do nothing under the contract is refused."""
    chosen = tuple(find_pack(each) if isinstance(each, str) else each for each in wanted)
    wrong = []
    for pack in chosen:
        if not isinstance(pack, Pack):
            message = "This is no rule pack."
            wrong.append(Diagnostic("unsupported", message, None, "a name or a Pack", repr(pack)))
        elif len(pack) and not len(pack.within(contract)):
            message = f"No rule of the pack {pack.name} is within the contract {contract}."
            hint = f"Ask for it: contract='{pack.contract}'."
            found = f"{pack.name} keeps {pack.contract}"
            wrong.append(Diagnostic("unsupported", message, None, str(contract), found, hint))
    if wrong:
        raise UnsupportedError(wrong[0], *wrong[1:])
    return chosen


def target_of(of: str | AnyTarget) -> AnyTarget:
    """The target of the backend that the text starts with, or the given target."""
    any_target = find_target(of)
    return any_target if isinstance(of, str) else backend_of(any_target).settled(any_target)


def described_target(of: AnyTarget, given: str | MachineDescription | None) -> AnyTarget:
    """The target with the named or given machine description; unchanged if none is given."""
    if given is None:
        return of
    backend = backend_of(of)
    if backend.described is None:
        message = f"The target {backend.name!r} is not described by a machine: processors are."
        raise UnsupportedError(Diagnostic("unsupported", message, None, "cpu", backend.name))
    any_target: AnyTarget = backend.described(of, machine_of_name(given))
    return any_target


def machine_of_name(given: str | MachineDescription) -> MachineDescription:
    """The machine description: the measured one, a row of the table, or the argument itself."""
    if isinstance(given, MachineDescription):
        return given
    if not isinstance(given, str):
        raise wrong_argument("This is no machine.", "a name, or a MachineDescription", given)
    if given != MEASURED:
        return row_named(given)
    if (description := stored_description()) is None:
        message, hint = "This machine was not measured.", "`plica doctor --measure` does it."
        raise UnsupportedError(Diagnostic("no-source", message, suggestion=hint))
    return description


def read_records(database: RecordSource | str | PathLike[str], target: AnyTarget) -> Records:
    """The records of a tuning database for a machine."""
    # Who has no database need not wait for the room of search.
    from plica.search.choice import records_of
    from plica.search.record import Database, JsonDatabase, RecordSource
    from plica.search.target import tuning_of

    name = tuning_of(target).fingerprint(target)
    if isinstance(database, RecordSource):
        return records_of(database, name)
    if str(database).endswith(".jsonl"):
        return records_of(JsonDatabase(database), name)
    with Database(database) as found:
        return records_of(found, name)


def pipeline_in_form(
    records: Records | ShippedRecords, module: Module, request: Request
) -> Pipeline:
    """The pipeline of a request in the form that records say is the fastest for a model."""
    pipeline = request.pipeline
    if isinstance(records, ShippedRecords) and not records.may_have_forms:
        return pipeline
    from plica.search.graph_form import chosen_form

    form = chosen_form(records.whole().best, module, request.contract, request.packs, pipeline)
    return pipeline if form is None else form.pipeline(pipeline) or pipeline


PACKAGES: Final = Path(__file__).parents[1] / "search" / "record" / "package_files"
"""Tuning records shipped with Plica, one file per machine."""


def package_name(target: AnyTarget) -> str:
    """The name of the file with the records of a machine."""
    machine, _, _ = target.describe().partition(" debug=")  # line tables change no code
    said = hashlib.sha256(machine.encode()).hexdigest()
    return f"{backend_of(target).name}-{said[:16]}.records"


@frozen(eq=False, slots=False)
class ShippedRecords:
    """A file of shipped records and a machine. It is parsed only when a schedule is chosen; cached
    artefacts compare its digest."""

    path: Path
    target: AnyTarget

    @cached_property
    def text(self) -> str:
        """The whole file as text; its first line holds the digest of the others
        (`plica.search.record.package`)."""
        try:
            said = self.path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            self._refuse("a file of records", f"{type(error).__name__}: {error}")
        first, _, rest = said.partition("\n")
        if (digest := hashlib.sha256(rest.encode()).hexdigest()) not in first:
            self._refuse("the digest of its records in its first line", digest)
        return said

    def _refuse(self, expected: str, found: str) -> NoReturn:
        message = "The records that come with Plica for this machine cannot be read."
        hint = "Install Plica again, or leave them out: PLICA_RECORDS=off."
        place = Place(file=str(self.path))
        raise Malformed(Diagnostic("bad-record", message, place, expected, found, hint))

    @cached_property
    def digest(self) -> str:
        """What tells these records from others, of the same target."""
        return hashlib.sha256(f"{self.path.name} {self.text}".encode()).hexdigest()

    @property
    def may_have_forms(self) -> bool:
        """Whether some may be of whole graphs, whose keys begin so."""
        return '"graph:' in self.text

    def may_know(self, key: str) -> bool:
        """Whether some may be of the work with a key, whatever their machine is."""
        return f'"{key}"' in self.text

    def whole(self) -> Records:
        """The records themselves."""
        # Only who has something to find waits for the room of search.
        from plica.search.choice import default_records
        from plica.search.target import tuning_of

        return default_records(self.text, tuning_of(self.target).fingerprint(self.target))


def shipped_records(target: AnyTarget) -> ShippedRecords | None:
    """The shipped records for exactly this machine; None for most machines, and with
    `PLICA_RECORDS=off`."""
    path = PACKAGES / package_name(target)
    meaning = "whether records that come with Plica are used"
    if setting("PLICA_RECORDS", "(?i:off)", meaning, "off, or nothing") or not path.exists():
        return None
    return ShippedRecords(path, target)


@contextmanager
def known_tilings(request: Request) -> Iterator[object]:
    """The entries of a backend's own database; empty for all other backends."""
    database = request.database
    if database is None or not request.backend.native:
        yield None
        return
    from plica.search.record import Database, JsonDatabase, RecordSource  # as above
    from plica.search.target import tuning_of

    known = tuning_of(request.target).known
    if not isinstance(database, RecordSource) and str(database).endswith(".jsonl"):
        database = JsonDatabase(database)
    if isinstance(database, RecordSource):
        yield known(database, request.target)
        return
    with Database(database) as opened:
        yield known(opened, request.target)


def check_options(threads: int | None, database: object) -> None:
    """Refuse options that mean nothing, all at once."""
    wrong = []
    if threads is not None and (type(threads) is not int or threads < 1):
        message = "The number of threads must be a whole number, at least 1."
        wrong.append(Diagnostic("unsupported", message, None, "1 or more, or None", repr(threads)))
    if isinstance(database, str | PathLike):
        if not Path(database).is_file():
            message, hint = "There is no tuning database at this path.", "plica.tune makes one."
            place = Place(file=str(database))
            wrong.append(Diagnostic("no-source", message, place, None, None, hint))
    elif database is not None and not _is_database(database):
        message, expected = "This is no tuning database.", "a path, or a Database"
        wrong.append(Diagnostic("unsupported", message, None, expected, repr(database)))
    if wrong:
        raise UnsupportedError(wrong[0], *wrong[1:])


def _is_database(of: object) -> bool:
    from plica.search.record import RecordSource  # as above

    return isinstance(of, RecordSource)


def schedules_of(given: object) -> tuple[tuple[str, GivenSchedule], ...]:
    """The requested schedules, sorted by kernel name."""
    if given is None:
        return ()
    if not isinstance(given, Mapping) or not all(isinstance(each, str) for each in given):
        message, expected = "Schedules are given by the name of the kernel.", "{'matmul': trace}"
        raise UnsupportedError(Diagnostic("unsupported", message, None, expected, repr(given)))
    return tuple(sorted([(name, _schedule(name, each)) for name, each in given.items()], key=_name))


def _schedule(name: str, given: object) -> GivenSchedule:
    from plica.schedule.do import DoBlock  # whoever gives schedules has it

    match given:
        case Trace() | DoBlock():
            return given
        case KernelTrace():
            return Trace.from_json(given.json)
        case _:
            message = f"This is no schedule for the kernel {name!r}."
            expected = "a trace, a do-block, or what exe.trace gives"
            found = f"{given!r}"[:80]
            raise UnsupportedError(
                Diagnostic("unsupported", message, Place(node=name), expected, found)
            )


def _name(pair: tuple[str, GivenSchedule]) -> str:
    return pair[0]
