"""Options: what a compilation is asked for, and what is wrong with that."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from plica.codegen.accel.target import AccelTarget, parse_accel
from plica.codegen.cuda.target import GpuTarget, parse_gpu
from plica.codegen.llvm import toolchain
from plica.codegen.llvm.processor import known
from plica.codegen.target import Target, parse, unknown_target
from plica.rewrite.contract import KNOWN, Contract, named
from plica.rewrite.optimise import DEFAULT_CONTRACT
from plica.rewrite.pack import Pack
from plica.rewrite.packs import find_pack
from plica.runtime.cuda.driver import architecture_here
from plica.runtime.error import Diagnostic, Place, UnsupportedError
from plica.search.choice import Records, records_of
from plica.search.record import Database
from plica.search.record import fingerprint as machine_name

if TYPE_CHECKING:
    pass


def contract_of(given: Contract | str | None) -> Contract:
    """The contract meant by a name, or the default."""
    if given is None:
        return DEFAULT_CONTRACT
    found = named(given) if isinstance(given, str) else given
    if isinstance(found, Contract):
        return found
    message = "This float contract is not known."
    raise UnsupportedError(Diagnostic("unsupported", message, None, KNOWN, repr(given)))


def packs_of(wanted: Sequence[str | Pack], contract: Contract) -> tuple[Pack, ...]:
    """The packs meant; one that would do nothing under the contract is refused."""
    chosen = tuple(find_pack(each) if isinstance(each, str) else each for each in wanted)
    wrong = []
    for each in chosen:
        if not isinstance(each, Pack):
            message = "This is no rule pack."
            wrong.append(Diagnostic("unsupported", message, None, "a name or a Pack", repr(each)))
        elif len(each) and not len(each.within(contract)):
            message = f"No rule of the pack {each.name} is within the contract {contract}."
            hint = f"Ask for it: contract='{each.contract}'."
            found = f"{each.name} keeps {each.contract}"
            wrong.append(Diagnostic("unsupported", message, None, str(contract), found, hint))
    if wrong:
        raise UnsupportedError(wrong[0], *wrong[1:])
    return chosen


def target_of(of: str | Target | GpuTarget | AccelTarget) -> Target | GpuTarget | AccelTarget:
    """The target meant: a processor, a GPU, or an accelerator beside a processor."""
    if isinstance(of, GpuTarget | AccelTarget):
        return of
    accel = parse_accel(of) if isinstance(of, str) else None
    if accel is not None:
        return accel
    gpu = parse_gpu(of, architecture_here) if isinstance(of, str) else None
    return gpu or find_target(of)


def find_target(of: str | Target) -> Target:
    """The processor meant: this one, one that differs from it as said, or one given in full."""
    if not isinstance(of, str | Target):
        raise unknown_target(of)
    return known(of if isinstance(of, Target) else parse(of, toolchain.host()))


def read_records(database: Database | str | PathLike[str], target: Target | GpuTarget) -> Records:
    """What a tuning database knows of a machine."""
    name = machine_name(target)
    if isinstance(database, Database):
        return records_of(database, name)
    with Database(database) as found:
        return records_of(found, name)


def check_options(threads: int | None, database: object) -> None:
    wrong = []
    if threads is not None and (type(threads) is not int or threads < 1):
        message = "The number of threads must be a whole number, at least 1."
        wrong.append(Diagnostic("unsupported", message, None, "1 or more, or None", repr(threads)))
    if isinstance(database, str | PathLike) and not Path(database).is_file():
        message = "There is no tuning database at this path."
        hint = "plica.tune makes one."
        wrong.append(Diagnostic("no-source", message, Place(file=str(database)), None, None, hint))
    elif not isinstance(database, Database | str | PathLike | None):
        message, expected = "This is no tuning database.", "a path, or a Database"
        wrong.append(Diagnostic("unsupported", message, None, expected, repr(database)))
    if wrong:
        raise UnsupportedError(wrong[0], *wrong[1:])
