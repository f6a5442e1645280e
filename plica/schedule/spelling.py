"""Spelling: an instruction as the word of its kind and its fields by name, and back.

JSON and Python text are two ways of writing the same spelling, so both read every kind of
instruction, those of other packages too, and refuse the same mistakes.

>>> from plica.schedule.handle import Handle
>>> from plica.schedule.primitive import split
>>> spelled(split(Handle(1, 0, "loop"), (None, 4)))
('split', {'loop': Handle(1, 0, 'loop'), 'factors': (None, 4)})
>>> spell("split", loop=Handle(1, 0, "loop"), factors=(None, 4))
Split(Handle(1, 0, 'loop'), (None, 4))
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NoReturn, cast

import attrs

from plica.core import IllFormed, Malformed, did_you_mean, field_names
from plica.core.encode import misfit
from plica.runtime.error import Diagnostic, Place
from plica.schedule.instruction import Decision, Instruction, Sampling, kind_of, kinds
from plica.schedule.trace import Step, Trace, handles


def spelled(of: Instruction) -> tuple[str, dict[str, Any]]:
    """The kind of an instruction, and its fields in order."""
    return of.kind, {name: getattr(of, name) for name in field_names(type(of))}


def spell(kind: str, **fields: Any) -> Instruction:
    """The instruction of a kind with these fields; raises `Malformed` if there is none."""
    return read(kind, fields, None)


def read(kind: object, fields: Mapping[str, Any], place: Place | None) -> Instruction:
    """The instruction that is spelled so; fields with a default may be left out."""
    cls = kind_of(kind) if isinstance(kind, str) else None
    if cls is None:
        hint = did_you_mean(kind, kinds()) if isinstance(kind, str) else None
        expected = "a kind of instruction that is installed"
        refuse("unknown-class", "No instruction has this kind.", place, expected, repr(kind), hint)
    names = field_names(cls)
    if unknown := [name for name in fields if name not in names]:
        hint = did_you_mean(unknown[0], names)
        expected = f"the fields {', '.join(names)}" if names else "no fields"
        message = f"{kind} has no field {unknown[0]!r}."
        refuse("bad-json", message, place, expected, ", ".join(unknown), hint)
    values = []
    for field in attrs.fields(cast(Any, cls)):
        if field.name not in fields and field.default is attrs.NOTHING:
            refuse("bad-json", f"{kind} misses the field {field.name!r}.", place)
        values.append(fields.get(field.name, field.default))
    if (wrong := misfit(cls, values)) is not None:
        refuse("bad-json", wrong, place)
    try:
        return cls(*values)
    except IllFormed as reason:
        message = f"{kind} refuses its fields: {reason.diagnostics[0].message}"
        refuse("bad-json", message, place)


def trace_from(steps: Iterable[tuple[Instruction, Decision | None, Place]]) -> Trace:
    """The trace of steps that were read, once they fit together."""
    found: list[Step] = []
    sorts: dict[tuple[int, int], str] = {}
    ended = False
    for what, decision, place in steps:
        late = next((handle for handle in handles(what) if not 0 <= handle.step < len(found)), None)
        if late is not None:
            message = f"A step uses what step {late.step} gives, which does not come before it."
            refuse("cyclic-data", message, place)
        for handle in handles(what):
            first = sorts.setdefault((handle.step, handle.output), handle.sort)
            if first != handle.sort:
                message = f"What step {handle.step} gives is used as two things."
                refuse("bad-json", message, place, f"a {first}", f"a {handle.sort}")
        if decision is not None and not isinstance(what, Sampling):
            message = f"{what.kind} does not decide numbers."
            refuse("bad-json", message, place, "no decision", str(decision))
        if what.kind == "enter_postproc":
            if ended:
                refuse("bad-json", "enter_postproc comes once in a trace.", place)
            ended = True
        found.append(Step(what, decision))
    return Trace(tuple(found))


def refuse(  # noqa: PLR0917  # the parts of a diagnostic, in its order
    code: str,
    message: str,
    place: Place | None = None,
    expected: str | None = None,
    found: str | None = None,
    hint: str | None = None,
) -> NoReturn:
    """Raise `Malformed`."""
    raise Malformed(Diagnostic(code, message, place, expected, found, hint))
