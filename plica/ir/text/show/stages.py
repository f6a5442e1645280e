"""Stages in print: a line for each tensor, in the syntax of kernels.

>>> from plica.ir.type.dtype import f32
>>> from plica.ir.loop.stage import placeholder, stage
>>> x = placeholder("x", (3,), f32)
>>> shown_stages([stage("y", (3,), lambda i: x[i] * 2)])
'y[i < 3] = x[i] * 2.0'
"""

from __future__ import annotations

from collections.abc import Sequence

from plica.ir.loop.scalar import Buffer, Scalar, ScalarVar
from plica.ir.loop.stage import Each, ExternStage, Fold, Recurrence, Scan, Scatter, Stage
from plica.ir.text.show.name import IdentifierSupply
from plica.ir.text.show.scalar import ScalarNames, ScalarPrinter


def shown_stages(of: Sequence[Stage]) -> str:
    """All stages, one per line; deep or shared terms are named on lines before their stage."""
    printer = ScalarPrinter(ScalarNames(IdentifierSupply(())))
    return "\n".join([line for stage in of for line in _lines(stage, printer)])


def _lines(of: Stage, printer: ScalarPrinter) -> list[str]:
    names = printer.names
    mark = names.mark()
    outs = [names.of(buffer) for buffer in of.outs]
    match of:
        case Each(out, axes, value):
            before, text = _value(printer, value, _bound(printer, axes, out))
            found = [*before, f"{outs[0]}{text[0]} = {text[1]}"]
        case Fold(results, axes, terms, extents, _, values):
            place = _bound(printer, axes, results[0])
            over = ", ".join(_ranged(printer, terms, extents))
            before, texts = printer.lines([(scalar, None) for scalar in values])
            found = [*before, f"{', '.join(outs)}{place} = combine({', '.join(texts)} for {over})"]
        case Scan(out, axes, along, combiner, value, exclusive, reverse):
            before, text = _value(printer, value, _bound(printer, axes, out))
            ways = [names.of(axes[along])] + ["exclusive"] * exclusive + ["reverse"] * reverse
            found = [*before, f"{outs[0]}{text[0]} = {combiner}({text[1]}) along {', '.join(ways)}"]
        case Recurrence(out, axes, count, first, next_):
            place = _bound(printer, axes, out)
            before, texts = printer.lines([(first, None), (next_, None)])
            found = [*before, f"{outs[0]}{place} = {texts[0]} before {count}, then {texts[1]}"]
        case Scatter(out, axes, first, terms, extents, condition, indices, value):
            place = _bound(printer, axes, out)
            before, began = printer.lines([] if first is None else [(first, None)])
            over = ", ".join(_ranged(printer, terms, extents))
            more, texts = printer.lines([(scalar, None) for scalar in (condition, value, *indices)])
            holds, stored, *at = texts
            begins = f"{outs[0]}{place} = {began[0]}, then " if began else ""
            found = [
                *before,
                *more,
                f"{begins}{outs[0]}[{', '.join(at)}] = {stored} if {holds} for {over}",
            ]
        case ExternStage():
            found = [f"{', '.join(outs)} = statements"]
    names.leave(mark)
    return found


def _value(printer: ScalarPrinter, of: Scalar, place: str) -> tuple[list[str], tuple[str, str]]:
    before, (text,) = printer.lines([(of, None)])
    return before, (place, text)


def _bound(printer: ScalarPrinter, axes: Sequence[ScalarVar], out: Buffer) -> str:
    return f"[{', '.join(_ranged(printer, axes, out.shape))}]" if axes else ""


def _ranged(
    printer: ScalarPrinter, axes: Sequence[ScalarVar], sizes: Sequence[Scalar]
) -> list[str]:
    _, ends = printer.lines([(size, None) for size in sizes])
    return [f"{printer.names.bind(axis)} < {end}" for axis, end in zip(axes, ends, strict=True)]
