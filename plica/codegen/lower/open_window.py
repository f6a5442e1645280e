"""Open windows: windows over one channel, of images of any size.

Depthwise convolutions and pools with a border.  Images that are wide enough are made in strips
(`plica.codegen.lower.strip_window`).  In those that are not both ends of a row may be outside of a
strip: where vectors can be read in part each lane is asked for, and where they cannot, images are
copied to where their border has room (`plica.codegen.lower.padded_window`).

Law: each sum has its terms in the order that it says, unless sums are free to take another.
"""

from __future__ import annotations

from attrs import frozen

from plica.codegen.lower.image_window import ImageWindow, image_window
from plica.codegen.lower.loop_order import StoredElement, stored
from plica.codegen.lower.nest import in_order, open_sizes
from plica.codegen.lower.padded_window import PaddedWriter
from plica.codegen.lower.strip_window import RowEnd, StripWriter, row_end
from plica.core import Term, map_bottom_up, substitute
from plica.ir.loop import Branch, Each, Kernel, Names, Stages, scalar as sc
from plica.ir.loop.stages import pairs, stages as joined
from plica.ir.type import dim, i64, known
from plica.schedule.default.machine import Machine


@frozen(eq=False)
class _Windows:
    """Stages that are windows of images, how these end, and what is made of each sum."""

    stages: Stages
    window: ImageWindow
    ends: tuple[RowEnd, RowEnd]
    after: StoredElement | None
    names: Names

    def strips(self, machine: Machine, *, free: bool, narrow: bool = False) -> Kernel:
        """The loops in strips, `narrow` ones where both ends of a row may be in one of them."""
        writer = StripWriter(
            self.stages, self.window, self.ends, self.names, machine, free=free, narrow=narrow
        )
        return writer.kernel(self.after)

    def fit(self, machine: Machine) -> bool:
        """Whether no more lanes are outside than the first strip has, or the last."""
        columns = self.ends[1]
        lanes = machine.lanes(self.window.data.buffer.dtype)
        return max(columns.before, columns.behind) <= lanes

    def are_wide(self, machine: Machine) -> bool:
        """Whether it is known that rows of the data and of the result are a vector long."""
        sizes = [known(scalar) or 0 for scalar in (self.ends[1].made, self.ends[1].read)]
        return min(sizes) >= machine.lanes(self.window.data.buffer.dtype) and self.fit(machine)


def _without_units(of: Stages) -> Stages:
    """The stages without terms of length 1, which make no difference to the runs of a product."""
    fold = of.stages[0]
    if not isinstance(fold, Each) or not isinstance(fold.value, sc.Reduce):
        return of
    old, every = fold.value, dict(zip(fold.value.axes, fold.value.extents, strict=True))
    left = {axis: size for axis, size in every.items() if known(size) != 1}
    if not left or old.runs == "row":
        return of
    zero: dict[Term, Term] = {axis: sc.index(0) for axis in every if axis not in left}

    def change(node: Term) -> Term:
        match node:
            case sc.Load(buffer, indices):
                return sc.Load(buffer, tuple([dim(index) for index in indices]))
            case sc.Le(low, high) | sc.Lt(low, high) if sc.dtype_of(low) is i64:
                return type(node)(dim(low), dim(high))
            case _:
                return node

    body = map_bottom_up(change, substitute(old.body, zero)) if zero else old.body
    value = sc.Reduce(old.combiner, tuple(left), tuple(left.values()), body, old.runs)
    return joined(of.inputs, (Each(fold.out, fold.axes, value), *of.stages[1:]), of.outputs)


def _windows(of: Stages) -> _Windows | None:
    of = _without_units(of)
    every = pairs(of) if all(isinstance(e, Each) for e in of.stages) else []
    if len(every) != 1:
        return None
    ((fold, epilogue),) = every
    if (window := image_window(in_order(fold))) is None:
        return None
    after = stored(fold, epilogue)
    places, value = (fold.axes, None) if after is None else (after.indices, after.value)
    if tuple(places[-1:]) != fold.axes[-1:]:
        return None
    sizes = fold.out.shape[-2:], window.data.buffer.shape[-2:]
    rows, columns = [row_end(*each) for each in zip(window.sides, *sizes, strict=True)]
    if rows is None or columns is None:
        return None
    names = Names(of, *([] if value is None else [value]))
    return _Windows(of, window, (rows, columns), after, names)


def open_windows(of: Stages, machine: Machine, *, free: bool = False) -> Kernel | None:
    """The loops of stages that are windows of images of any size, None where they are not; `free`
    are sums that may take their terms in another order.  Strips have a text for each end of a row,
    which takes long: who wants code soon has one."""
    if (windows := _windows(of)) is None:
        return None
    if windows.are_wide(machine) and not machine.soon:
        return windows.strips(machine, free=free)
    if machine.masks:
        slim = windows.strips(machine, free=free, narrow=True)
    else:
        padded = PaddedWriter(windows.stages, windows.window, windows.names, machine)
        slim = padded.kernel(windows.after)
    columns, lanes = windows.ends[1], machine.lanes(windows.window.data.buffer.dtype)
    if known(columns.made) is not None or not windows.fit(machine):
        return slim
    least = sc.index(lanes + columns.before + columns.behind)
    wide = windows.strips(machine, free=free)
    body = Branch(sc.Le(least, columns.made), wide.body, slim.body)
    return Kernel(open_sizes(slim.params, body), slim.params, slim.inputs, body)
