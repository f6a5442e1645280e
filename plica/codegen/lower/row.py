"""Rows: stages that follow one another along the same rows, in one loop over these.

    m[i]    = max over k of x[i, k]        -->  for i:
    y[i, j] = x[i, j] - m[i]                        m = max over k of x[i, k]
                                                    for j: y[i, j] = x[i, j] - m

What a stage makes is kept for one row only, but for the last, which is the result.

>>> from plica.ir.dtype import f32
>>> from plica.ir.tensor import buffer, compute, reduce
>>> x, m = buffer("x", (4, 20), f32), buffer("m", (4,), f32)
>>> top = compute((x,), (4,), lambda i: reduce("max", (20,), lambda k: x[i, k]))
>>> away = compute((x, m), (4, 20), lambda i, j: x[i, j] - m[i])
>>> kernel = rowed((Stage(top, None, m), Stage(away, None, m)), 1, (x,))
>>> [str(each.name) for each in kernel.params], type(kernel.body).__name__
(['x', 'out'], 'For')
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import frozen

from plica.codegen.lower.nest import Finish, elements, loops_around, open_sizes
from plica.core.binding import substitute
from plica.core.fold import map_bottom_up, post_order
from plica.core.name import Name, fresh
from plica.core.term import Term
from plica.ir.loop import Alloc, Kernel, Seq, Stmt
from plica.ir.scalar import Buffer, Load, Scalar, ScalarVar, dtype_of
from plica.ir.tensor import Compute


@frozen(eq=False)
class Stage:
    """A tensor, what is stored once an element of it is known, and where later stages read that."""

    compute: Compute
    finish: Finish | None
    result: Buffer

    def reading(self, instead: Mapping[Buffer, Buffer]) -> Stage:
        """The stage with some buffers instead of others."""

        def new(node: Term) -> Term:
            if isinstance(node, Load) and node.buffer in instead:
                return Load(instead[node.buffer], node.indices)
            return node

        body = map_bottom_up(new, self.compute.body)
        assert isinstance(body, Scalar)
        end = self.finish
        if end is not None:
            value = map_bottom_up(new, end.value)
            assert isinstance(value, Scalar)
            end = Finish(end.reduced, end.shape, end.indices, value)
        inputs = tuple([instead.get(each, each) for each in self.compute.inputs])
        compute = Compute(inputs, self.compute.axes, self.compute.shape, body)
        return Stage(compute, end, self.result)


def rowed(stages: Sequence[Stage], rows: int, inputs: tuple[Buffer, ...]) -> Kernel:
    """The kernel of some stages that share their first axes, as many as there are `rows`."""
    used = {each.name for each in inputs}
    for stage in stages:
        used |= {n.name for n in post_order(stage.compute) if isinstance(n, ScalarVar | Buffer)}
        if stage.finish is not None:
            used.add(stage.finish.reduced.name)
    last = stages[-1]
    end = last.finish
    axes = last.compute.axes
    shape, dtype = last.compute.shape, last.compute.dtype
    if end is not None:
        shape, dtype = end.shape, dtype_of(end.value)
    own: list[ScalarVar] = []
    for axis in axes[:rows]:
        own.append(ScalarVar(fresh(Name("row"), used), axis.dtype))
        used.add(own[-1].name)
    out = Buffer(fresh(Name("out"), used), shape, dtype)
    used.add(out.name)
    kept: dict[Buffer, Buffer] = {}
    steps: list[Stmt] = []
    for stage in stages:
        target = out
        if stage is not last:
            name = fresh(Name("kept"), used)
            used.add(name)
            target = Buffer(name, stage.result.shape[rows:], stage.result.dtype)
        steps.append(_of_row(stage, tuple(own), target, kept, whole=stage is last))
        kept[stage.result] = target
    body: Stmt = Seq(tuple(steps))
    for stage in reversed(stages[:-1]):
        body = Alloc(kept[stage.result], body)
    around = tuple(zip(own, shape[:rows], strict=True))
    params, whole = (*inputs, out), loops_around(around, body)
    return Kernel(open_sizes(params, whole), params, len(inputs), whole)


def _of_row(
    stage: Stage,
    row: tuple[ScalarVar, ...],
    target: Buffer,
    kept: Mapping[Buffer, Buffer],
    *,
    whole: bool,
) -> Stmt:
    """One stage for one row."""
    of, end = stage.compute, stage.finish
    rows = len(row)
    here: dict[Term, Term] = dict(zip(of.axes[:rows], row, strict=True))

    def moved(term: Scalar) -> Scalar:
        def new(node: Term) -> Term:
            if isinstance(node, Load) and node.buffer in kept:
                return Load(kept[node.buffer], node.indices[rows:])
            return node

        found = map_bottom_up(new, substitute(term, here))
        assert isinstance(found, Scalar)
        return found

    inner = of.axes[rows:]
    compute = Compute(of.inputs, inner, of.shape[rows:], moved(of.body))
    if end is None:
        reduced = Buffer(stage.result.name, compute.shape, of.dtype)
        indices: tuple[Scalar, ...] = inner
        value: Scalar = Load(reduced, inner)
    else:
        reduced = Buffer(end.reduced.name, compute.shape, end.reduced.dtype)
        indices = tuple([moved(each) for each in end.indices[rows:]])

        def element(node: Term) -> Term:
            if isinstance(node, Load) and node.buffer is end.reduced:
                return Load(reduced, inner)
            return node

        filled = map_bottom_up(element, moved(end.value))
        assert isinstance(filled, Scalar)
        value = filled
    places = (*row, *indices) if whole else indices
    return elements(compute, target, Finish(reduced, target.shape, places, value))
