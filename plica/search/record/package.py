"""Packages of records: what one machine found, as one text that others take over.

    packed(records)           the best schedules for each work and machine, as a text
    unpacked(text)            the records of a text; raises `Malformed` where its digest differs
    winning_records(records)  where the default is not the best: the best, and that default

The first line has the count, the machines, the versions and a digest of the other lines, each of
which is a record in the format of `JsonDatabase`.

>>> from plica.search.record.record import record
>>> slow = record("w", "cpu", "{}", "rowed", (2.0,))
>>> fast = record("w", "cpu", "{}", "blocked", (1.0,))
>>> text = packed([slow, fast])
>>> unpacked(text) == (fast,), described(text).targets
(True, ('cpu',))
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import Any, Final, NoReturn

from attrs import frozen

from plica.core import Malformed
from plica.runtime.error import Diagnostic, Place
from plica.search.record.order import FINAL, IN_PLACE, MAX_SEPARATE_RUN_RATIO, in_order
from plica.search.record.record import Record, from_row, to_row

FORMAT: Final = "plica-records"
VERSION: Final = 1
MAX_CHARACTERS: Final = 1 << 28  # characters of a package
MAX_WINNING_SHARE: Final = 0.97
"""The maximum ratio to the default's time if both were timed in a network; in separate runs it is
`MAX_SEPARATE_RUN_RATIO`."""
SUFFIX: Final = ".records"  # how the names of such files end


@frozen
class PackageHeader:
    """The content of a package's first line."""

    count: int
    targets: tuple[str, ...]
    versions: tuple[tuple[str, str], ...]
    digest: str


def packed(records: Iterable[Record], keep: int = 1) -> str:
    """The best few records of each work on each machine; equal records give equal texts."""
    chosen = [best for _, work in _by_work(records) for best in in_order(work)[:keep]]
    lines = "".join([f"{json.dumps(to_row(record))}\n" for record in chosen])
    return f"{_first_line(chosen, lines)}\n{lines}"


def _by_work(records: Iterable[Record]) -> list[tuple[tuple[str, str], list[Record]]]:
    """Records by work and machine, in the order of these."""
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        groups.setdefault((record.key, record.target), []).append(record)
    return sorted(groups.items(), key=lambda group: group[0])


def _first_line(records: Sequence[Record], lines: str) -> str:
    """The first line of a package of these records."""
    return json.dumps({
        "format": FORMAT,
        "version": VERSION,
        "count": len(records),
        "targets": sorted({record.target for record in records}),
        "versions": sorted({pair for record in records for pair in record.versions}),
        "digest": hashlib.sha256(lines.encode()).hexdigest(),
    })  # fmt: skip


def winning_records(records: Iterable[Record]) -> tuple[Record, ...]:
    """For each work and machine, the best record and that of the default schedule it was compared
    with (the first trial of a run). Work is omitted if the default was never timed, or if the best
    is not significantly faster.

    >>> from plica.search.record.record import record
    >>> default, lucky, fast = [record("w", "m", t, "f", (c, c), trial=n) for n, (t, c) in
    ...     enumerate((("default", 1.0), ("lucky", 0.95), ("fast", 0.8)))]
    >>> [best.trace_json for best in winning_records([lucky, fast, default])]
    ['fast', 'default']
    >>> winning_records([default, lucky])
    ()
    """
    found: list[Record] = []
    for _, work in _by_work(records):
        defaults = {
            (record.form, record.trace_json)
            for record in work
            if record.trial == 0 and record.policy != IN_PLACE and not record.policy.endswith(FINAL)
        }
        order = in_order(work)
        usual = [record for record in order if (record.form, record.trace_json) in defaults]
        if usual and order[0] not in usual:
            pair = (order[0], usual[0])
            # Other schedules may stand between the two; without them it is to be the same order.
            most = MAX_WINNING_SHARE if pair[0].policy == IN_PLACE else MAX_SEPARATE_RUN_RATIO
            clearly = (pair[0].cost or 0.0) <= most * (pair[1].cost or 0.0)
            found += pair if clearly and in_order(pair) == pair else ()
    return tuple(found)


def described(text: str, file: str | None = None) -> PackageHeader:
    """A package's header, after its digest was checked."""
    if len(text) > MAX_CHARACTERS:
        _refuse(file, "It is too large.", f"at most {MAX_CHARACTERS} characters", str(len(text)))
    first, _, rest = text.partition("\n")
    head = _json(first)
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        _refuse(file, "It does not begin as one.", FORMAT, first[:80])
    if head.get("version") != VERSION:
        code = "newer-version" if isinstance(head.get("version"), int) else "bad-record"
        version = repr(head.get("version"))[:40]
        _refuse(file, "It is of another version.", str(VERSION), version, code)
    digest = hashlib.sha256(rest.encode()).hexdigest()
    if head.get("digest") != digest:
        message = "Its records are not those that were written."
        _refuse(file, message, str(head.get("digest"))[:80], digest)
    count, targets, versions = (head.get(each) for each in ("count", "targets", "versions"))
    pairs = _pairs(versions)
    if type(count) is not int or not isinstance(targets, list) or pairs is None:
        _refuse(file, "Its first line is incomplete.", "count, targets, versions", first[:80])
    return PackageHeader(count, tuple(map(str, targets)), pairs, digest)


def unpacked(text: str, file: str | None = None) -> tuple[Record, ...]:
    """The records of a package (of that file)."""
    described(text, file)
    rows = [_json(line) for line in text.splitlines()[1:]]
    if not all(isinstance(row, list) for row in rows):
        _refuse(file, "A line of it is no record.", "a row of JSON", "another")
    records = tuple([from_row(tuple(row)) for row in rows])
    first, _, rest = text.partition("\n")
    if first != (expected := _first_line(records, rest)):
        _refuse(file, "Its first line says something else than the others.", expected, first[:400])
    return records


def _pairs(what: Any) -> tuple[tuple[str, str], ...] | None:  # as below
    """Names and versions, or None if it is no list of them."""
    if not isinstance(what, list) or not all(isinstance(each, list) for each in what):
        return None
    pairs = tuple([tuple(each) for each in what])
    is_text = all(len(pair) == 2 and all(isinstance(one, str) for one in pair) for pair in pairs)
    return pairs if is_text else None


def _json(line: str) -> Any:  # anything JSON holds
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _refuse(
    file: str | None, message: str, expected: str, found: str, code: str = "bad-record"
) -> NoReturn:
    whole = f"This is no package of tuning records. {message}"
    place = Place(file=file) if file is not None else None
    raise Malformed(Diagnostic(code, whole, place, expected, found))
