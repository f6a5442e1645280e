"""Exhaustiveness: which values a match leaves out, and which of its clauses nothing reaches.

>>> from plica.core.name import Name
>>> from plica.ir.graph.module import ConstructorDef
>>> from plica.ir.type.term import DataType
>>> tree = DataName(Name("Tree"))
>>> data = DataDef((), (ConstructorDef(Name("Leaf"), ()),
...     ConstructorDef(Name("Node"), (DataType(tree, ()), DataType(tree, ())))))
>>> leaf, node = constructors(tree, data)
>>> row = ex.PConstructor(node, (ex.PConstructor(leaf, ()), ex.PAny()))
>>> [show_pattern(p) for p in missing([row], {tree: data})]
['Leaf()', 'Node(Node(_, _), _)']

Patterns alone decide: values of tensor type can only be matched by a name or `_`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from plica.ir.graph import expression as ex
from plica.ir.graph.module import DataDef, Module, constructors
from plica.ir.type.term import DataName
from plica.ir.type.typing_state import ErrorReport, Places
from plica.runtime.error import Diagnostic

Row: TypeAlias = tuple[ex.Pattern, ...]
Head: TypeAlias = "ex.Constructor | int"  # a constructor, or the number of items of a tuple
DataDefs: TypeAlias = Mapping[Any, object]  # Any: modules map all names, tests some

MAX_LISTED_PATTERNS: Final = 8  # how many missing patterns an error lists
EFFORT: Final = 200_000
"""How many matrices may be looked at for one match: the problem is exponential at worst."""

DEPTH: Final = 200  # how many parts of one pattern may be looked at


class TooHard(Exception):
    """A match with more cases than can be checked."""


class _Budget:
    """The effort that is left."""

    def __init__(self) -> None:
        self.left = EFFORT

    def spend(self, depth: int) -> None:
        self.left -= 1
        if self.left < 0 or depth > DEPTH:
            raise TooHard


def missing(patterns: Sequence[ex.Pattern], data: DataDefs) -> Iterator[ex.Pattern]:
    """The values that no pattern matches, as disjoint patterns."""
    for row in _missing([(pattern,) for pattern in patterns], 1, data, _Budget()):
        yield row[0]


def redundant(patterns: Sequence[ex.Pattern], data: DataDefs) -> tuple[int, ...]:
    """The positions of the patterns that match nothing the ones before them leave."""
    budget = _Budget()
    rows: list[Row] = []
    found = []
    for position, pattern in enumerate(patterns):
        if _is_useful(rows, (pattern,), data, budget):
            rows.append((pattern,))
        else:
            found.append(position)
    return tuple(found)


def match_errors(module: Module, places: Places | None = None) -> tuple[Diagnostic, ...]:
    """The match errors of a module, independent of types."""
    data = module.definitions()
    errors: dict[Diagnostic, None] = {}
    for name, value in module.items():
        report = ErrorReport(str(name.name), (value,), places)
        for match in ex.matches(value):
            _judge(match, data, report)
        errors.update((error, None) for error in report.errors)
    return tuple(errors)


def show_pattern(pattern: ex.Pattern) -> str:
    """A pattern in script syntax."""
    match pattern:
        case ex.PVar(var):
            return str(var.name)
        case ex.PConstructor(constructor, items):
            return f"{constructor.name}({', '.join(map(show_pattern, items))})"
        case ex.PTuple(items):
            inside = ", ".join(map(show_pattern, items))
            return f"({inside},)" if len(items) == 1 else f"({inside})"
        case _:
            return "_"


def _judge(match: ex.Match, data: DataDefs, report: ErrorReport) -> None:
    patterns = [clause.pattern for clause in match.clauses]
    if not patterns or not _is_regular(patterns, data):
        return  # inference says what is wrong with it
    try:
        for position in redundant(patterns, data):
            shown = show_pattern(patterns[position])
            message = f"The clause {shown} is never reached: the ones before it match all it does."
            hint = "Remove it, or move it up."
            report.error(
                "redundant-clause", message, match.clauses[position], match, suggestion=hint
            )
        if match.total:
            _uncovered(match, patterns, data, report)
    except TooHard:
        message = "This match has too many cases to check."
        hint = "Split it into nested matches, or end it with `case _:`."
        report.error("unsupported", message, match, suggestion=hint)


def _uncovered(
    match: ex.Match, patterns: list[ex.Pattern], data: DataDefs, report: ErrorReport
) -> None:
    left = missing(patterns, data)
    listed = [show_pattern(each) for each, _ in zip(left, range(MAX_LISTED_PATTERNS), strict=False)]
    if not listed:
        return
    more = ", …" if next(left, None) is not None else ""
    report.error(
        "non-exhaustive-match",
        "The match does not cover every value.",
        match,
        found=f"no clause for {', '.join(listed)}{more}",
        suggestion="Add the missing clauses, or write `match partial(…)`.",
    )


def _is_regular(patterns: Sequence[ex.Pattern], data: DataDefs) -> bool:
    """Whether patterns that meet in a place are of one kind, as in every well-typed match."""
    columns: list[list[ex.Pattern]] = [list(patterns)]
    while columns:
        column = columns.pop()
        inside: dict[object, list[ex.Pattern]] = {}
        kinds: set[object] = set()
        for pattern in column:
            if (head := _head(pattern)) is None:
                continue
            items = _items(pattern)
            if isinstance(head, ex.Constructor):
                kinds.add(head.data)
                of = data.get(head.data)
                if not isinstance(of, DataDef) or head.index >= len(of.constructors):
                    return False
                if len(of.constructors[head.index].fields) != len(items):
                    return False
            else:
                kinds.add(head)
            for place, item in enumerate(items):
                inside.setdefault((_index(head), place), []).append(item)
        if len(kinds) > 1:
            return False
        columns.extend(inside.values())
    return True


def _head(pattern: ex.Pattern) -> Head | None:
    match pattern:
        case ex.PConstructor(constructor, _):
            return constructor
        case ex.PTuple(items):
            return len(items)
        case _:
            return None


def _index(head: Head) -> int:
    return head.index if isinstance(head, ex.Constructor) else 0


def _items(pattern: ex.Pattern) -> Row:
    return pattern.items if isinstance(pattern, ex.PConstructor | ex.PTuple) else ()


def _signature(head: Head, data: DataDefs) -> list[tuple[Head, int]]:
    """All heads that values in the column of `head` may have, each with its number of parts."""
    if not isinstance(head, ex.Constructor):
        return [(head, head)]
    of = data[head.data]
    assert isinstance(of, DataDef)
    assert isinstance(head.data, DataName)
    whole = constructors(head.data, of)
    return [
        (constructor, len(definition.fields))
        for constructor, definition in zip(whole, of.constructors, strict=True)
    ]


def _built(head: Head, items: Row) -> ex.Pattern:
    return ex.PConstructor(head, items) if isinstance(head, ex.Constructor) else ex.PTuple(items)


def _specialised(rows: Sequence[Row], head: Head, width: int) -> list[Row]:
    """The rows that can match a value with this head, with its parts as new columns."""
    wanted = _index(head)
    kept = []
    for first, *rest in rows:
        if (own := _head(first)) is None:
            kept.append((*(ex.PAny() for _ in range(width)), *rest))
        elif _index(own) == wanted:
            kept.append((*_items(first), *rest))
    return kept


def _missing(
    rows: list[Row], width: int, data: DataDefs, budget: _Budget, depth: int = 0
) -> Iterator[Row]:
    """Rows of patterns, disjoint and complete, for what no row matches."""
    budget.spend(depth)
    if not rows:
        yield tuple(ex.PAny() for _ in range(width))
        return
    if any(all(_head(each) is None for each in row) for row in rows):
        return  # a row that asks nothing
    # Columns that no row inspects stay; at least one row inspects some column.
    at = next(i for i in range(width) if any(_head(row[i]) is not None for row in rows))
    some = next(head for row in rows if (head := _head(row[at])) is not None)
    skipped = tuple(ex.PAny() for _ in range(at))
    after = [row[at:] for row in rows]
    for head, parts in _signature(some, data):
        inner = _specialised(after, head, parts)
        for row in _missing(inner, parts + width - at - 1, data, budget, depth + 1):
            yield (*skipped, _built(head, row[:parts]), *row[parts:])


def _is_useful(rows: list[Row], new: Row, data: DataDefs, budget: _Budget, depth: int = 0) -> bool:
    """Whether some value matches `new` and no row."""
    budget.spend(depth)
    if not rows:
        return True
    if (at := next((i for i, each in enumerate(new) if _head(each) is not None), None)) is None:
        if any(all(_head(each) is None for each in row) for row in rows):
            return False
        at = next(i for i in range(len(new)) if any(_head(row[i]) is not None for row in rows))
    # The order of columns is irrelevant: the inspected one comes first.
    rows = [(row[at], *row[:at], *row[at + 1 :]) for row in rows]
    first, rest = new[at], (*new[:at], *new[at + 1 :])
    if (head := _head(first)) is not None:
        inner = _specialised(rows, head, len(_items(first)))
        return _is_useful(inner, (*_items(first), *rest), data, budget, depth + 1)
    some = next(own for row in rows if (own := _head(row[0])) is not None)
    return any(
        _is_useful(
            _specialised(rows, each, width),
            (*(ex.PAny() for _ in range(width)), *rest),
            data,
            budget,
            depth + 1,
        )
        for each, width in _signature(some, data)
    )
