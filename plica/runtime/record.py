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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final, TypeAlias, TypeVar

from plica.runtime.error import ArtefactError, Diagnostic, InputError, damaged

T = TypeVar("T")

Step: TypeAlias = tuple[str, str, str, str]
"""A rule's name and contract, and the digests of the replaced and the new term."""

KINDS: Final = ("equation", "computed", "pass")
"""Kinds of rules: two terms, a term and a function, or a whole pass."""


@dataclass(frozen=True, slots=True)
class RecordStage:
    """A number of steps from one module to the next."""

    name: str
    before: str
    after: str
    steps: int


@dataclass(frozen=True, slots=True)
class Used:
    """A rule that was applied: its kind and contract, and its digest."""

    name: str
    kind: str
    contract: str
    digest: str


@dataclass(frozen=True, slots=True)
class KernelTrace:
    """How a kernel was scheduled: the trace, as Python and as JSON, and what it begins with.

    `before` is a script: `plica.replay(Trace.from_json(t.to_json()), plica.from_text(t.before))`
    schedules again.  A kernel that no rule of thumb knows has an empty trace.
    """

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
    lowering: tuple[str, ...] = ()  # the names of the passes between the end of a trace and code

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
    derivation = {
        "module": of.module,
        "result": of.result,
        "contract": of.contract,
        "asked": of.asked,
        "packs": list(of.packs),
        "stages": [[stage.name, stage.before, stage.after, stage.steps] for stage in of.stages],
        "rules": [[rule.name, rule.kind, rule.contract, rule.digest] for rule in of.rules],
        "steps": [list(step) for step in of.steps],
        "kernels": list(of.digests),
        "lowering": list(of.lowering),
    }
    traces = [[trace.kernel, trace.before, trace.python, trace.json] for trace in of.traces]
    return {
        "derivation.json": to_json(derivation),
        "traces.json": to_json(traces),
        "kernels.txt": of.kernels.encode(),
    }


def read_record(members: Mapping[str, bytes]) -> CompilationRecord:
    """The record of an archive."""
    derivation = read_json(members, "derivation.json")
    match derivation:
        case {
            "module": str(module),
            "result": str(result),
            "contract": str(contract),
            "asked": str(asked),
            "packs": [*packs],
            "stages": [*stages],
            "rules": [*rules],
            "steps": [*steps],
        } if all(isinstance(pack, str) for pack in packs):
            pass
        case _:
            raise damaged("The derivation in the artefact is damaged.")
    traces = read_json(members, "traces.json")
    if not isinstance(traces, list):
        raise damaged("The traces in the artefact are damaged.")
    return CompilationRecord(
        module,
        contract,
        _all(_step, steps),
        members.get("kernels.txt", b"").decode("utf-8", "replace"),
        result,
        asked,
        tuple(packs),
        _all(_stage, stages),
        _all(_used, rules),
        _all(_traced, traces),
        _words(derivation, "kernels"),
        _words(derivation, "lowering"),
    )


def _words(given: Any, name: str) -> tuple[str, ...]:  # Any: JSON
    """Words that older artefacts do not have."""
    found = given.get(name, [])
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise damaged("The derivation in the artefact is damaged.", repr(found))
    return tuple(found)


def _all(read: Callable[[object], T], given: list[object]) -> tuple[T, ...]:
    return tuple([read(each) for each in given])


def _step(given: object) -> Step:
    match given:
        case [str(rule), str(contract), str(before), str(after)]:
            return rule, contract, before, after
    raise damaged("A step of the derivation is damaged.", repr(given))


def _stage(given: object) -> RecordStage:
    match given:
        case [str(name), str(before), str(after), int(steps)] if steps >= 0:
            return RecordStage(name, before, after, steps)
    raise damaged("A stage of the derivation is damaged.", repr(given))


def _used(given: object) -> Used:
    match given:
        case [str(name), str(kind), str(contract), str(digest)] if kind in KINDS:
            return Used(name, kind, contract, digest)
    raise damaged("A rule of the derivation is damaged.", repr(given))


def _traced(given: object) -> KernelTrace:
    match given:
        case [str(kernel), str(before), str(python), str(text)]:
            return KernelTrace(kernel, before, python, text)
    raise damaged("A trace in the artefact is damaged.", repr(given))


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
