"""Groups: an axis of results that are made in groups becomes two, the group and the one in it.

    out[n, o, i, j] = sum over c, k, l of x[n, o // 4 * 8 + c, i + k, j + l] * w[o, c, k, l]
      -->  out[n, g, p, i, j] = sum over c, k, l of x[n, g * 8 + c, …] * w[g, p, c, k, l]

Memory is unchanged, so buffers are only reshaped. Each group is then a separate contraction of a
known kind.

>>> from plica.ir.type.dtype import f32
>>> from plica.ir.loop.stage import stage
>>> from plica.ir.loop.tensor import buffer, reduce
>>> x, w = buffer("x", (24, 9), f32), buffer("w", (12, 8), f32)
>>> conv = stage("y", (12, 9), lambda o, i: reduce(
...     "sum", (8,), lambda c: x[o // 4 * 8 + c, i] * w[o, c]))
>>> print(by_group(stages((x, w), (conv,))))
y[g < 3, p < 4, i_1 < 9] = sum(x[g * 8 + k, i_1] * w[g, p, k] for k in range(8))
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import evolve

from plica.core import Term, free_vars, map_bottom_up, post_order
from plica.ir.loop.scalar import Buffer, FloorDiv, FloorMod, Lit, Load, Scalar, ScalarVar, index
from plica.ir.loop.stage import Each
from plica.ir.loop.stages import Names, Stages, loads, stages
from plica.ir.type import known, polynomial
from plica.schedule.default.contraction import Contraction, Index


def by_group(of: Stages) -> Stages | None:
    """The stages with their groups as an axis, or None if there are none."""
    every = [stage for stage in of.stages if isinstance(stage, Each)]
    if len(every) != len(of.stages) or not every:
        return None
    if (found := _group(every[0])) is None:
        return None
    axis, each = found
    names = Names(of)
    apart = AxisSplit(each, names.var("g"), names.var("p"))
    made: list[Each] = []
    whole: ScalarVar | None = axis
    for number, one in enumerate(every):
        if number:  # the axis of an epilogue that reads what was made is the same one
            whole = _same(one, every[:number], apart)
        made.append(apart.stage(one, whole))
    if apart.fails:
        return None
    inputs = tuple([apart.views.get(buffer, buffer) for buffer in of.inputs])
    return stages(inputs, made, [apart.views.get(output, output) for output in of.outputs])


def _same(of: Each, before: Sequence[Each], apart: AxisSplit) -> ScalarVar | None:
    """The axis of a stage at which it reads the cut axis of stages before it."""
    cut = {stage.out: apart.cut[stage.out] for stage in before if stage.out in apart.cut}
    scalars = {load.indices[cut[load.buffer]] for load in loads(of.value) if load.buffer in cut}
    if len(scalars) != 1:
        apart.fails = apart.fails or bool(scalars)
        return None
    (place,) = scalars
    if not isinstance(place, ScalarVar) or place not in of.axes:
        apart.fails = True
        return None
    return place


def _group(of: Each) -> tuple[ScalarVar, int] | None:
    """The axis that is divided into groups, and how many results are in each."""
    found: dict[ScalarVar, int] = {}
    for node in post_order(of.value):
        match node:
            case FloorDiv(ScalarVar() as axis, Lit(int() as each)) if axis in of.axes:
                if found.setdefault(axis, each) != each:
                    return None
    if len(found) != 1:
        return None
    ((axis, each),) = found.items()
    size = known(of.out.shape[of.axes.index(axis)])
    return (axis, each) if size and each > 1 and size % each == 0 else None


def by_channel(of: Contraction) -> Contraction:
    """The contraction whose data has an axis for groups, and one for the terms of each, where these
    lie side by side.

    x[n, g * 8 + c, i]  -->  x[n, g, c, i]
    """
    data = of.data
    for at, (place, size) in enumerate(zip(data.indices, data.buffer.shape, strict=True)):
        factors = dict(polynomial(place).values())
        if len(factors) != 2 or any(len(atoms) != 1 for atoms in factors):
            continue
        ((term,), one), ((group,), each) = sorted(factors.items(), key=lambda pair: pair[1])
        if one != 1 or not (isinstance(term, ScalarVar) and isinstance(group, ScalarVar)):
            continue
        if of.sizes[term] != each or known(size) != of.sizes[group] * each:
            continue
        shape = data.buffer.shape
        apart = (index(of.sizes[group]), index(each))
        view = Buffer(data.buffer.name, (*shape[:at], *apart, *shape[at + 1 :]), data.buffer.dtype)
        places = (*data.indices[:at], group, term, *data.indices[at + 1 :])
        inputs = tuple([view if buffer is data.buffer else buffer for buffer in of.inputs])
        return evolve(of, inputs=inputs, data=Load(view, places))
    return of


class AxisSplit:
    """Puts two axes in the place of one, in terms and in shapes."""

    def __init__(self, each: int, group: ScalarVar, one: ScalarVar) -> None:
        self.each, self.group, self.one = each, group, one
        self.axis: ScalarVar | None = None
        self.views: dict[Buffer, Buffer] = {}
        self.whole: set[Buffer] = set()  # what is read in its own shape
        self.cut: dict[Buffer, int] = {}  # which axis of a buffer that was made is two now
        self.fails = False

    def stage(self, of: Each, axis: ScalarVar | None) -> Each:
        """A stage with one of its axes as two."""
        value = self.scalar(of.value, axis)
        if axis is None:
            return Each(of.out, of.axes, value)
        self.cut[of.out] = of.axes.index(axis)
        out = Buffer(of.out.name, self.shape(of.axes, of.out.shape), of.out.dtype)
        self.views[of.out] = out
        return Each(out, self.places(of.axes), value)  # type: ignore[arg-type]  # axes are variables

    def scalar(self, of: Scalar, axis: ScalarVar | None) -> Scalar:
        """A term with one of its axes as two."""
        self.axis = axis
        value = map_bottom_up(self._node, of)
        assert isinstance(value, Scalar)
        self.fails |= axis in free_vars(value)
        return value

    def _node(self, node: Term) -> Term:
        match node:
            case FloorDiv(left, Lit(number)) if left is self.axis and number == self.each:
                return self.group
            case FloorMod(left, Lit(number)) if left is self.axis and number == self.each:
                return self.one
            case Load(buffer, indices) if self.axis is not None and self.axis in indices:
                view = Buffer(buffer.name, self.shape(indices, buffer.shape), buffer.dtype)
                self.fails |= self.views.setdefault(buffer, view) is not view
                self.fails |= buffer in self.whole or bool(buffer.strides)
                return Load(view, self.places(indices))
            case Load(buffer, _):
                self.whole.add(buffer)
                self.fails |= buffer in self.views
        return node

    def places(self, indices: Index) -> Index:
        scalars: list[Scalar] = []
        for place in indices:
            scalars += [self.group, self.one] if place is self.axis else [place]
        return tuple(scalars)

    def shape(self, indices: Index, sizes: Index) -> Index:
        scalars: list[Scalar] = []
        for place, size in zip(indices, sizes, strict=True):
            if place is not self.axis:
                scalars.append(size)
                continue
            whole = known(size) or 0
            self.fails |= whole % self.each != 0
            scalars += [index(whole // self.each), index(self.each)]
        return tuple(scalars)
