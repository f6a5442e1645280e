"""Records: the origin of an artefact's code, and the schedules of its kernels.

    derivation.json   source and result by digest, what was asked for, stages, steps, rules
    traces.json       for each kernel: the kernel its schedule begins with, and its trace
    kernels.txt       the kernels as text

>>> record = CompilationRecord("0" * 32, "exact", (), "")
>>> read_record(record_members(record)) == record
True
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import field
from difflib import get_close_matches
from typing import Any, Final, TypeAlias

from plica.runtime.error import ArtefactError, Diagnostic, InputError, damaged
from plica.runtime.typed_json import OPTIONAL, Annotated, ClassVar, dataclass, plain, read

Step: TypeAlias = tuple[str, str, str, str]
"""A rule's name and contract, and the digests of the replaced and the new term."""

KINDS: Final = ("equation", "computed", "pass")
"""Kinds of rules: two terms, a term and a function, or a whole pass."""


@dataclass(frozen=True, slots=True)
class RecordStage:
    """A number of steps from one module to the next."""

    DAMAGED: ClassVar = "A stage of the derivation is damaged."

    name: str
    before: str
    after: str
    steps: Annotated[int, range(1 << 48)]


@dataclass(frozen=True, slots=True)
class Used:
    """A rule that was applied: its kind and contract, and its digest."""

    DAMAGED: ClassVar = "A rule of the derivation is damaged."

    name: str
    kind: Annotated[str, KINDS]
    contract: str
    digest: str


@dataclass(frozen=True, slots=True)
class KernelTrace:
    """How a kernel was scheduled: the trace, as Python and as JSON, and what it begins with.

    `before` is a script: `plica.replay(Trace.from_json(t.to_json()), plica.from_text(t.before))`
    schedules again.  A kernel that no rule of thumb knows has an empty trace.
    """

    DAMAGED: ClassVar = "A trace in the artefact is damaged."

    kernel: str
    before: str
    python: str
    json: str

    def to_json(self) -> str:
        """The trace as `Trace.from_json` reads it."""
        return self.json

    def to_python(self) -> str:
        """The trace as `Trace.from_python` reads it."""
        return self.python

    def __str__(self) -> str:
        return self.python


@dataclass(frozen=True, slots=True)
class CompilationRecord:
    """The origin of the code: digests, contract, steps, and kernels as text."""

    KEYED: ClassVar = True
    DAMAGED: ClassVar = "The derivation in the artefact is damaged."

    module: str
    contract: str
    steps: tuple[Step, ...]
    kernels: str
    result: str = ""
    asked: str = ""
    packs: tuple[str, ...] = ()
    stages: tuple[RecordStage, ...] = ()
    rules: tuple[Used, ...] = ()
    traces: tuple[KernelTrace, ...] = ()
    digests: tuple[str, ...] = ()  # of each kernel as its code was made, in the order of the traces
    lowering: tuple[str, ...] = field(default=(), metadata=OPTIONAL)
    """The names of the passes between the end of a trace and code."""

    def __str__(self) -> str:
        kinds = {used.name: used.kind for used in self.rules}
        return steps_text(
            self.contract,
            [
                (kinds.get(rule, ""), rule, contract, f"{before[:8]} -> {after[:8]}")
                for rule, contract, before, after in self.steps
            ],
        )


def steps_text(contract: str, steps: Sequence[tuple[str, str, str, str]]) -> str:
    """The steps of a derivation as a list: kind, name and contract of the rule, what it did.

    >>> print(steps_text("exact", [("pass", "to-dataflow", "exact", ""),
    ...     ("equation", "relu-relu", "exact", "nn.relu -> nn.relu")]))
    2 steps, which keep exact
    1  pass      to-dataflow  exact
    2  equation  relu-relu    exact  nn.relu -> nn.relu
    """
    count = "1 step, which keeps" if len(steps) == 1 else f"{len(steps)} steps, which keep"
    rows = [(str(number), *step) for number, step in enumerate(steps, 1)]
    widths = [max(len(row[at]) for row in rows) if rows else 0 for at in range(5)]
    lines = [
        "  ".join(f"{word:{width}}" for word, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    return "\n".join([f"{count} {contract}", *lines])


def record_members(of: CompilationRecord) -> dict[str, bytes]:
    """The members of an archive that are a record."""
    derivation = plain(of)
    traces, kernels = derivation.pop("traces"), derivation.pop("kernels")
    derivation["kernels"] = derivation.pop("digests")
    return {
        "derivation.json": to_json(derivation),
        "traces.json": to_json(traces),
        "kernels.txt": kernels.encode(),
    }


def read_record(members: Mapping[str, bytes]) -> CompilationRecord:
    """The record of an archive."""
    derivation, traces = (read_json(members, f"{each}.json") for each in ("derivation", "traces"))
    if isinstance(derivation, dict):
        digests = derivation.get("kernels", [])  # which older artefacts do not have
        kernels = members.get("kernels.txt", b"").decode("utf-8", "replace")
        derivation |= {"digests": digests, "kernels": kernels, "traces": traces}
    return read(CompilationRecord, derivation)


def to_json(of: object) -> bytes:
    """JSON with one spelling for one value."""
    return json.dumps(of, sort_keys=True, separators=(",", ":")).encode()


def read_json(members: Mapping[str, bytes], name: str) -> Any:  # Any: JSON
    """The JSON data of an archive member."""
    try:
        return json.loads(members[name])
    except KeyError as error:
        raise damaged(f"The artefact has no member {name!r}.") from error
    except (ValueError, RecursionError) as error:
        raise damaged(f"The member {name!r} is no JSON.", str(error)) from error


def bad_manifest(of: object) -> ArtefactError:
    """The refusal of a manifest without a field, or with one of another kind."""
    found = ", ".join(map(str, of)) if isinstance(of, dict) else repr(of)
    expected = "the fields that plica compile wrote, each of its kind"
    return damaged("The manifest of the artefact is damaged.", found[:200], expected)


def trace_named(name: str, traces: Sequence[KernelTrace]) -> KernelTrace:
    """The trace of a kernel; where only one is meant, its name may lack the digits at its end."""
    known = {trace.kernel: trace for trace in traces}
    meant = [kernel for kernel in known if kernel.rpartition("_")[0] == name]
    if name not in known and len(meant) == 1:
        (name,) = meant
    if name not in known:
        near = get_close_matches(name, known, n=1)
        hint = f"Did you mean '{near[0]}'?" if near else None
        message, expected = f"There is no kernel {name!r}.", ", ".join(known) or "no kernels"
        raise InputError(Diagnostic("input-unknown", message, None, expected, repr(name), hint))
    return known[name]
