"""Forms of a processor: what stages may be made into before they are scheduled, as a table.

Each form is a function of the stages, facts about their inputs, and the machine. Those that state
no cycles are asked first, in this order; among the others the cheapest is chosen.

>>> [each.name for each in FORMS if each.rank != BY_COST]
['row-chain']
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import prod
from typing import Final

from plica.ir.contract import approx, exact, reassociates
from plica.ir.loop.scalar import Load, Reduce, Select
from plica.ir.loop.stage import Each
from plica.ir.loop.stages import Stages, has_scan, kernel_of, loads, reductions
from plica.ir.loop.statement import Kernel
from plica.ir.type import known
from plica.ir.type.dtype import bf16, f16, f32, f64, i8, i32, i64, u8
from plica.runtime.late import lazy_imports
from plica.schedule.default.contraction import Contraction, contraction, merged
from plica.schedule.default.depthwise import (
    holds_rows,
    is_of_channels,
    is_window,
    through_prologue,
    windowed,
)
from plica.schedule.default.elementwise import elementwise_schedule
from plica.schedule.default.estimate import (
    keeps_totals,
    over_outputs,
    over_rows,
    packed_panels,
    packing,
    panels,
    slides,
    sums_of_rows,
    vectors_across_of,
)
from plica.schedule.default.form import elements, register_tile
from plica.schedule.default.grouped import by_group
from plica.schedule.default.machine import MIN_PRODUCTS, Machine
from plica.schedule.default.memory_estimate import PICKED
from plica.schedule.default.panel import Panel, paneled
from plica.schedule.default.piecewise import piecewise_form
from plica.schedule.default.reduction import is_across_rows, row_form
from plica.schedule.default.row import chain_form
from plica.schedule.default.sample import sampled
from plica.schedule.default.summed import in_runs
from plica.schedule.default.transpose import transpose_schedule
from plica.schedule.form import (
    BY_COST,
    Apply,
    Facts,
    Form,
    Formed,
    Made,
    in_order,
    installed,
    itself,
    priced,
    reach,
)

with lazy_imports(__name__):
    from plica.schedule.default.bilinear import bilinear_form
    from plica.schedule.default.coded import coded_form
    from plica.schedule.default.coded_digit import coded_digit_form
    from plica.schedule.default.coded_dot import coded_dot_form
    from plica.schedule.default.coded_panel import coded_panel_form
    from plica.schedule.default.column import column_form
    from plica.schedule.default.column_chain import column_chain_form
    from plica.schedule.default.digit_product import digit_form
    from plica.schedule.default.dot_product_schedule import dot_form
    from plica.schedule.default.dot_tile import dot_form as dot_tile_form, dots_of
    from plica.schedule.default.few_bits import few_bits, few_bits_form
    from plica.schedule.default.general import general_cycles
    from plica.schedule.default.merging import merging_form
    from plica.schedule.default.scattered import scattered_form
    from plica.schedule.default.selection import selected
    from plica.schedule.default.short_row import short_row_form, short_row_schedule
    from plica.schedule.default.tile_product import tile_form
    from plica.schedule.default.winograd_open import open_winograd


ROUNDED: Final = approx(1e-2)
"""What allows data of 8 bits: each is off by up to 1/254 of the greatest of its group."""
WINOGRAD_WEIGHT_AXES: Final = 3
"""Those of a weight that is transformed: products of a tile, channels, outputs."""


def formed(of: Stages, facts: Facts, machine: Machine, only: str | None = None) -> Formed | None:
    """The best form of some stages, or None.

    With `only` a form's name, only that one is tried, for each group if there are groups.
    """
    apart = None if only is None else by_group(of)
    if apart is not None:
        return formed(apart, facts, machine, only)
    found = reach(every_form(), of, facts, machine, only)
    return found[0] if found else None


def candidates(
    of: Stages, facts: Facts, machine: Machine, forms: Sequence[Form] | None = None
) -> Iterator[Formed]:
    """The alternatives, best first; forms of a higher rank come after all of a lower one."""
    return in_order(every_form(forms), of, facts, machine)


def every_form(forms: Sequence[Form] | None = None) -> tuple[Form, ...]:
    """The forms of a target (`FORMS` if none are given), and those of libraries: what these make is
    reckoned as plain loops if they do not say."""
    own = FORMS if forms is None else forms
    return (*own, *[priced(form, general_cycles) for form in installed()])


def _one(
    make: Callable[[Stages, Facts, Machine], Stages | None],
    takes: Callable[[Stages], bool] = lambda _: True,
) -> Apply:
    """A form that makes one thing of what it `takes`, or nothing."""

    def apply(of: Stages, facts: Facts, machine: Machine) -> list[Stages]:
        stages = make(of, facts, machine) if takes(of) else None
        return [] if stages is None else [stages]

    return apply


def _groups(of: Stages, facts: Facts, machine: Machine) -> list[Made]:
    """Each group as a separate contraction."""
    apart = by_group(of)
    found = None if apart is None else formed(apart, facts, machine)
    return [] if found is None else [(found.cycles, found.make)]


def _contraction(
    of: Stages, facts: Facts, again: bool = False, other: bool = False, opened: bool = False
) -> Contraction | None:
    """The contraction some stages are, if it is worth a tile of registers."""
    found = contraction(of, again, other, opened)
    if found is None or found.reduced.dtype not in (f32, f64, i32, i64):
        return None
    if prod(found.sizes.values()) < MIN_PRODUCTS:
        return None
    return in_runs(found, reassociates=facts.reassociates)


@through_prologue
def _window(of: Stages, facts: Facts, machine: Machine) -> Stages | None:
    found = _contraction(of, facts, again=True)  # what is read stays where it is
    if found is None or (found.run and found.depth > prod(found.run)):
        return None
    varies = is_of_channels(found) and not _is_constant(found.weight, found, facts)
    if varies or not is_window(found, machine):
        return None
    # Windows so wide that rows would not stay in registers for all of them are summed by columns.
    by_columns = facts.reassociates and not holds_rows(found, machine)
    return windowed(found, machine, by_columns=by_columns)


def _ways(of: Contraction) -> list[tuple[Contraction, tuple[Each, ...]]]:
    """A contraction with its last axes merged, directly or through a copying stage."""
    flat = merged(of)
    thin = None if flat is not None or of.open else sampled(of)
    return [(flat or of, ()), *([] if thin is None else [(thin[1], (thin[0],))])]


def _over_n(of: Stages, facts: Facts, machine: Machine) -> Iterator[Made]:
    found = _contraction(of, facts, opened=True)
    if found is not None and found.open and not _has_open_rows(found, facts):
        return
    for whole, before in [] if found is None else _ways(found):
        costs = sum([PICKED * elements(stage.out) for stage in before])
        if not (ready := _is_constant(whole.weight, whole, facts)):
            costs += packing(whole, machine)
        for output in over_outputs(whole, machine):
            made = partial(register_tile, whole, whole.n[-1], output.lanes, machine)
            kept, vectors_across = (
                keeps_totals(whole, machine, output),
                vectors_across_of(output, whole, ready),
            )
            yield (
                output.cycles + costs,
                partial(made, vectors_across=vectors_across, kept=kept, before=before),
            )


def _has_open_rows(of: Contraction, facts: Facts) -> bool:
    """Whether a constant is multiplied by rows of open number, outputs side by side."""
    long = [axis for axis in of.axes if of.sizes[axis] > 1]
    rows = bool(of.n and of.m) and of.m[-1] in of.open and long[-1] is of.n[-1]
    return rows and of.n[-1] not in of.open and _is_constant(of.weight, of, facts)


def _is_constant(of: Load | None, whole: Contraction, facts: Facts) -> bool:
    """Whether an operand is a compile-time constant."""
    if of is None or of.buffer not in whole.inputs:
        return False
    at = whole.inputs.index(of.buffer)
    return at < len(facts.constant) and facts.constant[at]


def _over_rows(of: Stages, facts: Facts, machine: Machine) -> Iterator[Made]:
    found = _contraction(of, facts)
    ways = [found]
    if found is not None and not _is_constant(found.weight, found, facts):
        ways.append(_contraction(of, facts, other=True))  # nothing is packed that lies in rows
    for way in filter(None, ways):
        whole = merged(way) or way
        for row in over_rows(whole, machine):
            yield row.cycles, partial(register_tile, whole, whole.axes[-1], row.lanes, machine)


def _panels(of: Stages, facts: Facts, machine: Machine) -> Iterator[Made]:
    if (found := _contraction(of, facts)) is None:
        return
    columns, before = _ways(found)[-1]
    for form_choice in panels(columns, machine, sampled=bool(before)):
        panel = Panel(form_choice.tile, form_choice.lanes)
        yield form_choice.cycles, partial(paneled, columns, panel, before)
    if (swapped := _contraction(of, facts, other=True)) is None:
        return
    copied, packed = (_is_constant(e, swapped, facts) for e in (swapped.data, swapped.weight))
    for packed_panel in packed_panels(swapped, machine, copied=copied, packed=packed):
        panel = Panel(packed_panel.tile, packed_panel.lanes, tiles=packed_panel.tiles)
        yield packed_panel.cycles, partial(paneled, swapped, panel, copied=packed_panel.whole)


def _partial_sums(of: Stages, facts: Facts, machine: Machine) -> Iterator[Made]:
    """For tiles of results where two sides lie along their terms, else for each; a reduction of
    rows that has no weight is one of rows before it is anything else.

    A constant operand is packed once, and is then one stream for any tiles."""
    found, stages = contraction(of, opened=True), row_form(of, machine)
    if found is not None and found.open and not _has_open_rows(found, facts):
        found = None
    if found is None or (found.weight is None and not slides(found, machine)):
        yield from () if stages is None else [stages]
        return
    found = contraction(of)
    dots = None if found is None or any(facts.constant) else dots_of(found, machine)
    if dots is not None:
        yield dots.cycles, partial(dot_tile_form, dots, machine)
    elif found is not None and stages is not None and not slides(found, machine):
        yield sums_of_rows(found, machine), partial(itself, stages)


def _columns(of: Stages, facts: Facts, machine: Machine) -> Stages | None:
    ready = any(facts.constant)  # a matrix that is known is packed for tiles
    across = is_across_rows(of, factors=not machine.masks and not ready)
    return column_form(of, machine) if across else None


def _chooses(of: Stages) -> bool:
    """Whether stages begin with a reduction over selected terms."""
    value = of.stages[0].value if isinstance(of.stages[0], Each) else None
    return isinstance(value, Reduce) and isinstance(value.body, Select)


def _map_by(template: Callable[[Kernel, Machine], object]) -> Apply:
    """One stage that folds nothing, as it is, where a template knows it."""

    def apply(of: Stages, _: Facts, machine: Machine) -> list[Stages]:
        match of.stages:
            case (Each(_, _, value),) if not reductions(value) and template(kernel_of(of), machine):
                return [of]
            case _:
                return []

    return apply


def _scattered(of: Stages, facts: Facts, _: Machine) -> Stages | None:
    full = all(known(size) != 0 for size in of.result.shape)
    return scattered_form(of, free=facts.reassociates) if full else None


def _short_rows(of: Stages, facts: Facts, machine: Machine) -> Stages | None:
    """Rows with elements besides their reductions, or with elements only."""
    if len(of.stages) > 1:
        shapes = {stage.out.shape for stage in of.stages if isinstance(stage, Each)}
        return short_row_form(of, machine) if len(shapes) > 1 else None
    return next(iter(_map_by(short_row_schedule)(of, facts, machine)), None)  # type: ignore[return-value]  # stages


def _winograd(of: Stages, facts: Facts, machine: Machine) -> Stages | None:
    """The stages of a Winograd convolution; of an open size with the loops it should have."""
    if not any(len(buffer.shape) == WINOGRAD_WEIGHT_AXES for buffer in of.inputs):
        return None
    return open_winograd(of, facts, machine) if of.dims else bilinear_form(of, facts, machine)


def _merging(of: Stages, _: Facts, machine: Machine) -> Stages | None:
    match of.stages:
        case (Each(out, _, Select() | Load() as value),) if len(of.inputs) <= 3:
            # An index, or the element: indices are loaded from memory, too, except for the first
            # runs.
            read = isinstance(value, Load) and any(map(loads, value.indices))
            return merging_form(of, machine) if read or out.dtype is i64 else None
        case _:
            return None


def _has_bytes(of: Stages) -> bool:
    return any(buffer.dtype in (i8, u8) for buffer in of.inputs)


def _few_bits(of: Stages, _: Facts, machine: Machine) -> Stages | None:
    if not any(buffer.dtype is i32 for buffer in of.inputs) or (bits := few_bits(of)) is None:
        return None
    return digit_form(bits, of, machine) or few_bits_form(bits, of, machine)


def _has_codes(of: Stages) -> bool:
    return any(buffer.dtype in (i8, u8, f16, bf16) for buffer in of.inputs)


# fmt: off
FORMS: Final[tuple[Form, ...]] = (
    Form("scan", "A place goes on from the one before it.", exact,
         lambda of, _, machine: [of] if has_scan(of) else [], templates=("scan",)),
    Form("transpose-tiles", "Squares of elements are transposed in registers.", exact,
         _map_by(transpose_schedule), templates=("transpose-tiles",)),
    Form("merged-runs", "Of two sorted runs the first element of either comes next.", exact,
         _one(_merging)),
    Form("kept-places", "The first elements in order are kept as one goes through a row.", exact,
         _one(lambda of, _, machine: selected(of, machine), _chooses)),
    Form("split-pieces", "Each piece of a piecewise tensor has loops of its own.", exact,
         _one(lambda of, _, machine: piecewise_form(of, machine)), templates=("pieces",)),
    Form("share-rows", "Cores share the rows of elementwise work.", exact,
         _map_by(elementwise_schedule), templates=("elementwise",)),
    Form("coded-bytes", "Data is rounded to bytes, which are multiplied by codes.", ROUNDED,
         _one(lambda of, _, machine: coded_digit_form(of, machine, digits=1)
              or coded_dot_form(of, machine, digits=1), _has_codes),
         templates=("coded-digits", "coded-rows")),
    Form("coded-digits", "Panels of codes are multiplied by digits of many rows.", approx(5e-6),
         _one(lambda of, _, machine: coded_digit_form(of, machine), _has_codes),
         templates=("coded-digits",)),
    Form("coded-panels", "Panels of a weight are unpacked once for many rows.", approx(5e-6),
         _one(lambda of, _, machine: coded_panel_form(of, machine), _has_codes),
         templates=("register-tile",)),
    Form("scattered-terms", "Each term goes to the place that it names.", exact,
         _one(_scattered, _chooses), templates=("scatter",)),
    Form("winograd-tiles", "Tiles are transformed, multiplied and transformed back.", exact,
         _one(_winograd), templates=("bilinear",)),
    Form("byte-tiles", "An instruction multiplies tiles of bytes.", exact,
         _one(tile_form, _has_bytes), templates=("byte-tiles",)),
    Form("coded-rows", "Weights are unpacked from bytes, with lanes along these.", approx(5e-6),
         _one(lambda of, _, machine: coded_dot_form(of, machine) or coded_form(of, machine),
              _has_codes), templates=("coded-rows", "rows")),
    Form("dot-by-four", "An instruction adds products of four bytes.", exact,
         _one(dot_form, _has_bytes), templates=("dot-by-four",)),
    Form("few-bits", "Weights of few bits are widened in registers.", approx(5e-6),
         _one(_few_bits), templates=("dot-by-four", "register-tile")),
    Form("split-groups", "Groups of channels become an axis.", exact, _groups),
    Form("column-sums", "Sums across rows keep several vectors under way.", reassociates,
         _one(_columns), templates=("folds",)),
    Form("column-chain", "Stages of rows before few columns follow one another.", reassociates,
         _one(lambda of, _, machine: column_chain_form(of, machine), lambda of: len(of.stages) > 2),
         templates=("column-chain",)),
    Form("partial-sums", "Lanes sum parts of a row.", reassociates, _partial_sums,
         templates=("dot-tiles", "rows")),
    Form("window", "Windows over one channel read rows as they lie.", exact, _one(_window),
         templates=("window",)),
    Form("short-rows", "Rows that fill no vector go side by side, one in each lane.", exact,
         _one(_short_rows), templates=("short-rows",)),
    Form("lanes-over-n", "Lanes over outputs; the weight is packed.", exact, _over_n,
         templates=("register-tile",)),
    Form("lanes-over-row", "Lanes over a row of the result.", exact, _over_rows,
         templates=("window", "register-tile")),
    Form("column-panels", "Columns of the data are copied to where they are read.", exact,
         _panels, templates=("column-panels", "register-tile")),
    Form("row-chain", "Stages of a row follow one another.", reassociates, _one(
        lambda of, facts, machine: chain_form(of, machine, approximates=facts.approximates)),
         BY_COST + 1, ("rows",)),
)
# fmt: on
"""What stages may be made into; the last of them where nothing else is."""
