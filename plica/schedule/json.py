"""JSON: a trace as a versioned document that people can read, too.

    {"format": "plica-trace", "version": 1, "steps": [
      {"kind": "block", "number": 0, "role": "ssr+init"},
      {"kind": "loops", "block": "block 0.0"},
      {"kind": "sample_perfect_tile", "loop": "loop 1.0", …, "decision": [4, 3]},
      {"kind": "split", "loop": "loop 1.0", "factors": ["number 2.0", "number 2.1"]}]}

A step has the fields declared by its kind. A handle is written `sort step.output`; an index map as
`{"map": "lambda i: (i // 4, i % 4)"}`, another term as `{"term": …}` in the encoding of
`plica.core.encode`; values without a JSON form as an object with one key (`text`, `name`, `float`,
`bytes`).

>>> from plica.schedule.primitive import loops
>>> from plica.schedule.spelling import spell
>>> from plica.schedule.trace import Step
>>> of = Trace((Step(spell("block", number=0, role="s")), Step(loops(Handle(0, 0, "block")))))
>>> print(to_json(of))
{"format": "plica-trace", "version": 1, "steps": [
  {"kind": "block", "number": 0, "role": "s"},
  {"kind": "loops", "block": "block 0.0"}
]}
>>> from_json(to_json(of)) is of
True
"""

from __future__ import annotations

import base64
import json
import math
import re
from typing import Any, Final

from plica.core import Name, Term, encode
from plica.ir.loop.index_map import IndexMap
from plica.runtime.error import Place, wrong_argument
from plica.schedule.handle import Handle
from plica.schedule.instruction import Decision, Instruction
from plica.schedule.map_text import read_map, show_map
from plica.schedule.spelling import read, refuse, spelled, trace_from
from plica.schedule.trace import Trace

FORMAT: Final = "plica-trace"
VERSION: Final = 1
"""Renaming a kind or a field, or changing the meaning of a default, makes another."""

WRITE: Final = "plica trace show TRACE.py -o TRACE.json and Trace.to_json() write this form."
LONGEST: Final = 1 << 28  # characters of a document that is read
DEEPEST: Final = 100  # lists in lists
_HANDLE: Final = re.compile(r"(block|loop|number) (\d{1,9})\.(\d{1,9})", re.ASCII)
_ODD_FLOATS: Final = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}


def to_json(trace: Trace) -> str:
    """The trace as text, a step a line; the same bytes in any process."""
    lines = []
    for step in trace.steps:
        kind, fields = spelled(step.instruction)
        row: dict[str, Any] = {"kind": kind}
        row |= {name: _data(value) for name, value in fields.items()}
        if step.decision is not None:
            row["decision"] = list(step.decision)
        lines.append("  " + json.dumps(row, ensure_ascii=True, allow_nan=False))
    head = f'{{"format": "{FORMAT}", "version": {VERSION}, "steps": ['
    return "\n".join((head, ",\n".join(lines), "]}")) if lines else f"{head}]}}"


def from_json(text: str | bytes) -> Trace:
    """Read what `to_json` wrote, now or in an older version; raises `Malformed` at a place."""
    if not isinstance(text, str | bytes):
        raise wrong_argument("A trace is read from a text.", "JSON, as to_json writes it", text)
    if len(text) > LONGEST:
        expected, found = f"{LONGEST} characters at most", str(len(text))
        refuse("bad-json", "The text is too long for a trace.", None, expected, found, WRITE)
    try:
        document = json.loads(text, object_pairs_hook=_object)
    except (ValueError, RecursionError) as reason:  # no JSON, no Unicode, nested too deep
        found = _brief(text if isinstance(text, str) else text[:80])
        refuse("bad-json", f"The text is not JSON: {reason}.", None, "a trace", found, WRITE)
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        expected, found = f'an object with "format": "{FORMAT}"', _brief(document)
        refuse("bad-json", "This is no trace.", None, expected, found, WRITE)
    version = document.get("version")
    if type(version) is not int or version < 1:
        expected, found = "a positive integer", _brief(version)
        refuse("bad-json", "The trace has no version.", None, expected, found, WRITE)
    if version > VERSION:
        expected, found = f"version {VERSION} or older", f"version {version}"
        hint = "Upgrade plica to read this trace."
        message = "The trace was written by a newer Plica."
        refuse("newer-version", message, None, expected, found, hint)
    steps = document.get("steps")
    odd = sorted(document.keys() - {"format", "version", "steps"})
    if not isinstance(steps, list) or odd:
        expected, found = 'a list "steps" and nothing else', ", ".join(odd) or _brief(steps)
        refuse("bad-json", "The trace has no list of steps.", None, expected, found, WRITE)
    return trace_from([_step(row, Place(node=f"step {i}")) for i, row in enumerate(steps)])


def _step(row: object, place: Place) -> tuple[Instruction, Decision | None, Place]:
    if not isinstance(row, dict) or "kind" not in row:
        expected = 'an object with a "kind"'
        refuse("bad-json", "This is no step.", place, expected, _brief(row))
    fields = {key: _value(value, place) for key, value in row.items() if key != "kind"}
    if (decision := fields.pop("decision", None)) is not None:
        if type(decision) is not tuple or any(type(each) is not int for each in decision):
            found = _brief(row["decision"])
            refuse("bad-json", "A decision is a list of integers.", place, None, found)
    elif "decision" in row:
        refuse("bad-json", "A decision is a list of integers.", place, None, "null")
    return read(row["kind"], fields, place), decision, place


def _data(value: Any) -> Any:
    if isinstance(value, Handle):
        return f"{value.sort} {value.step}.{value.output}"
    if isinstance(value, IndexMap) and (text := show_map(value)) is not None:
        return {"map": text}
    if isinstance(value, Term):
        return {"term": json.loads(encode.to_json(value))}
    if isinstance(value, Name):
        return {"name": [value.hint, value.index]}
    if isinstance(value, tuple):
        return [_data(each) for each in value]
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode()}
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": repr(value)}
    if isinstance(value, str) and _HANDLE.fullmatch(value):
        return {"text": value}
    return value


def _value(value: Any, place: Place, depth: int = 0) -> Any:
    if depth > DEEPEST:
        refuse("bad-json", f"Lists are nested deeper than {DEEPEST}.", place)
    if isinstance(value, list):
        return tuple([_value(each, place, depth + 1) for each in value])
    if isinstance(value, str):
        if (match := _HANDLE.fullmatch(value)) is None:
            return value
        sort: Any = match[1]  # one of the sorts, as the pattern says
        return Handle(int(match[2]), int(match[3]), sort)
    if not isinstance(value, dict):
        return value
    match tuple(value.items()):
        case (("term", dict(document)),):
            return encode.from_json(json.dumps(document))
        case (("map", str(text)),):
            if (found_map := read_map(text)) is None:
                refuse("bad-json", "This is no index map.", place, "lambda i, j: (…)", _brief(text))
            return found_map
        case (("text", str(text)),):
            return text
        case (("name", [str(hint), int(index)]),):
            return Name(hint, index)
        case (("float", str(word)),) if word in _ODD_FLOATS:
            return _ODD_FLOATS[word]
        case (("bytes", str(text)),):
            try:
                return base64.b64decode(text, validate=True)
            except ValueError as reason:
                refuse("bad-json", f"Bytes are written in base64: {reason}.", place)
    refuse("bad-json", "This is no value of a field.", place, None, _brief(value))


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        refuse("bad-json", "An object has a key twice.", None, None, _brief([k for k, _ in pairs]))
    return found


def _brief(value: object) -> str:
    text = ascii(value)
    return text if len(text) <= 80 else f"{text[:76]} ..."
