"""Open windows: windows over one channel, of images of any size.

Depthwise convolutions and pools with a border.  Images that are wide enough are made in strips
(`plica.codegen.lower.strip_window`).  In those that are not both ends of a row may be outside of a
strip: where vectors can be read in part each lane is asked for, and where they cannot, images are
copied to where their border has room (`plica.codegen.lower.padded_window`).

Law: each sum has its terms in the order that it says, unless sums are free to take another.
"""

from __future__ import annotations

from plica.codegen.lower.image_window import image_window
from plica.codegen.lower.nest import open_sizes
from plica.codegen.lower.padded_window import PaddedWriter
from plica.codegen.lower.strip_window import StripWriter
from plica.core import Term, map_bottom_up, substitute
from plica.ir.loop import Branch, Each, Kernel, Stages, scalar as sc
from plica.ir.loop.stages import stages as joined
from plica.ir.type import dim, i64, known
from plica.schedule.default.machine import Machine


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


def open_windows(of: Stages, machine: Machine, *, free: bool = False) -> Kernel | None:
    """The loops of stages that are windows of images of any size, None where they are not; `free`
    are sums that may take their terms in another order.  Strips have a text for each end of a row,
    which takes long: who wants code soon has one."""
    if (window := image_window(_without_units(of))) is None:
        return None
    columns, lanes = window.columns, machine.lanes(window.data.buffer.dtype)
    # No more lanes are outside than the first strip has, or the last.
    fits = max(columns.before, columns.behind) <= lanes
    are_wide = min(known(columns.made) or 0, known(columns.read) or 0) >= lanes
    if fits and are_wide and not machine.soon:
        return StripWriter(window, machine, free=free).kernel()
    if machine.masks:
        slim = StripWriter(window, machine, free=free, narrow=True).kernel()
    else:
        slim = PaddedWriter(window, machine).kernel()
    if known(columns.made) is not None or not fits:
        return slim
    least = sc.index(lanes + columns.before + columns.behind)
    wide = StripWriter(window, machine, free=free).kernel()
    body = Branch(sc.Le(least, columns.made), wide.body, slim.body)
    return Kernel(open_sizes(slim.params, body), slim.params, slim.inputs, body)
