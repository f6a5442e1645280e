"""Tapes: a tensor expression as a list of steps over whole arrays.

Not here: the operations of steps (`plica.ir.interpret.array_arithmetic`,
`plica.ir.interpret.lane`), and running them (`plica.ir.interpret.evaluate`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any, Final, TypeAlias

import numpy as np

from plica.core import CompilerBug, EvaluationError, Term, free_vars
from plica.ir.graph.weight_array import chunks
from plica.ir.interpret.array_arithmetic import (
    Array,
    Function,
    binary,
    cast,
    constant,
    identity,
    intrinsic,
)
from plica.ir.interpret.lane import CHOOSE, either, fold, laid, locate, rows, strides_of, take
from plica.ir.loop import scalar as sc
from plica.ir.loop.summation import spelled
from plica.ir.type import known, normal_dim, polynomial

Step: TypeAlias = tuple[Function, int, tuple[int, ...]]  # function, where to, from where
Released: TypeAlias = tuple[
    Function, int, tuple[int, ...], tuple[int, ...]
]  # and what is done with
Placed: TypeAlias = tuple[int, int]  # the slots of a value and of its marks

CHUNK: Final = 1 << 21  # how many elements of a reduction are made at once
MAX_AXES: Final = 60  # numpy's arrays have at most 64 dimensions
NO_MARKS: Final = 0  # the slot that always holds None: a value without marks


class Tape:
    """The steps of an expression, or of the body of a reduction, over slots for their results.

    A reduction's axes precede the outer dimensions, so that outer values broadcast. Terms
    independent of them are placed in the outer scope and imported.
    """

    def __init__(
        self,
        parent: Tape | None,
        axes: Mapping[Any, int],  # Any: an axis, asked for by any term
        at_once: tuple[int, ...] | None = None,
    ) -> None:
        self.parent = parent
        self.axes = axes
        # How many places of each axis a run is given; all of them if nothing is said.
        self.at_once = dict(zip(axes, at_once or axes.values(), strict=True))
        self.rank: int = len(axes) + (0 if parent is None else parent.rank)
        if self.rank > MAX_AXES:
            message = (
                "A tensor expression has more axes and nested reductions than numpy can lay out."
            )
            expected = f"at most {MAX_AXES}"
            raise EvaluationError.of("unsupported", message, None, expected, str(self.rank))
        self.steps: list[Step] = []
        self.template: list[Any] = [None]
        self.placed: dict[Term, Placed] = {}
        self.brought: list[tuple[int, int]] = []  # (slot outside, slot here)
        self.loads: list[sc.Load] = [] if parent is None else parent.loads
        for position, (axis, extent) in enumerate(axes.items()):
            ahead = self.rank - position
            self.placed[axis] = (self.slot(laid(0, extent, ahead)), NO_MARKS)

    def slot(self, value: Any = None) -> int:
        self.template.append(value)
        return len(self.template) - 1

    def step(self, function: Function, *sources: int) -> int:
        to = self.slot()
        self.steps.append((function, to, sources))
        return to

    def released(self, *kept: int) -> list[Released]:
        """The steps, each with the results that are dead after it."""
        last: dict[int, int] = {}
        for at, (_, to, sources) in enumerate(self.steps):
            last.update(dict.fromkeys((to, *sources), at))
        mine = {to for _, to, _ in self.steps}.difference(kept)
        dead: list[list[int]] = [[] for _ in self.steps]
        for slot, at in last.items():
            if slot in mine:
                dead[at].append(slot)
        return [(*step, tuple(slots)) for step, slots in zip(self.steps, dead, strict=True)]

    def bring(self, outside: int) -> int:
        if outside == NO_MARKS:
            return NO_MARKS
        here = self.slot()
        self.brought.append((outside, here))
        return here

    def buffer(self, buffer: sc.Buffer) -> int:
        """The slot of a whole buffer."""
        if buffer not in self.placed:
            here = self.slot() if self.parent is None else self.bring(self.parent.buffer(buffer))
            self.placed[buffer] = (here, NO_MARKS)
        return self.placed[buffer][0]

    def place(self, root: sc.Scalar) -> Placed:
        """The slots of a term, after adding the steps it still needs."""
        stack = [root]
        while stack:
            node = stack[-1]
            if node in self.placed:
                stack.pop()
                continue
            if self.parent is not None and free_vars(node).isdisjoint(self.axes):
                value, marks = self.parent.place(node)
                self.placed[node] = (self.bring(value), self.bring(marks))
                continue
            if not isinstance(node, sc.Reduce):
                kids = [child for child in node._children if isinstance(child, sc.Scalar)]
                if missing := [child for child in kids if child not in self.placed]:
                    stack.extend(missing)
                    continue
            stack.pop()
            self.placed[node] = self.add(node)
        return self.placed[root]

    def add(self, node: sc.Scalar) -> Placed:
        """A node whose parts are placed."""
        match node:
            case sc.Lit(value, dtype):
                return self.slot(constant(value, dtype)), NO_MARKS
            case sc.ScalarVar(name, _):
                raise CompilerBug(f"A tensor expression uses {name}, which it does not bind.")
            case sc.Load():
                return self.load(node)
            case sc.Reduce():
                return self.reduce(node)
            case sc.Select() | sc.And() | sc.Or():
                kids = [child for child in node._children if isinstance(child, sc.Scalar)]
                values, marks = zip(*[self.placed[child] for child in kids], strict=True)
                function = np.where if isinstance(node, sc.Select) else binary(type(node))
                value = self.step(function, *values)
                if not any(marks):
                    return value, NO_MARKS
                return value, self.step(CHOOSE[type(node)], values[0], *marks)
            case sc.Cast(inner, dtype):
                value, marks_ = self.placed[inner]
                return self.step(lambda array: cast(array, dtype), value), marks_
            case sc.Intrinsic(name, args):
                return self.combined(intrinsic(name, sc.dtype_of(args[0])), args)
            case _:
                kids = [child for child in node._children if isinstance(child, sc.Scalar)]
                return self.combined(binary(type(node)), kids)

    def combined(self, function: Function, parts: Sequence[sc.Scalar]) -> Placed:
        values, marks = zip(*[self.placed[part] for part in parts], strict=True)
        return self.step(function, *values), self.either(marks)

    def either(self, marks: Sequence[int]) -> int:
        if not (some := tuple(dict.fromkeys(mark for mark in marks if mark != NO_MARKS))):
            return NO_MARKS
        return some[0] if len(some) == 1 else self.step(either, *some)

    # --- loads -----------------------------------------------------------------------------------

    def load(self, node: sc.Load) -> Placed:
        array = self.buffer(node.buffer)
        shape = tuple(number(size) for size in node.buffer.shape)
        found = [affine(index) for index in node.indices]
        plain = [each for each in found if each is not None]
        if len(plain) == len(found) and all(map(self.fits, plain, shape)):
            if self.is_whole(plain, shape):
                return array, NO_MARKS
            return self.view(array, plain, shape), NO_MARKS
        self.loads.append(node)
        code = min(len(self.loads), 255)
        indices, marks = [], []
        for index in node.indices:
            value, mark = self.placed[index]
            indices.append(value)
            marks.append(mark)
        place = self.step(locate(shape, code), *indices)
        value = self.step(take, array, place)
        return value, self.either((self.step(itemgetter(1), place), *marks))

    def extent(self, axis: Term) -> int:
        return self.around(axis)[0]

    def home(self, axis: Term) -> Tape:
        """The scope that an axis belongs to."""
        scope: Tape | None = self
        while scope is not None:
            if axis in scope.axes:
                return scope
            scope = scope.parent
        raise CompilerBug("A tensor expression indexes with a variable it does not bind.")

    def around(self, axis: Term) -> tuple[int, int]:
        """The extent of an axis, and its dimension counted from the last."""
        scope = self.home(axis)
        position = list(scope.axes).index(axis)
        return scope.axes[axis], scope.rank - position

    def fits(self, index: Affine, size: int) -> bool:
        """Whether an affine index is in bounds for all values of its axes."""
        low = high = index[0]
        for axis, factor in index[1].items():
            reach = factor * (self.extent(axis) - 1)
            low, high = low + min(reach, 0), high + max(reach, 0)
        return low >= 0 and high < size

    def is_whole(self, indices: list[Affine], shape: tuple[int, ...]) -> bool:
        """Whether a load is the whole buffer: its dimensions are the last axes in order."""
        if len(shape) > self.rank:
            return False  # dimensions of size 1 that the result does not have
        for at, ((start, factors), size) in enumerate(zip(indices, shape, strict=True)):
            if size == 1 and start == 0 and not factors:
                continue
            if start or len(factors) != 1:
                return False
            ((axis, factor),) = factors.items()
            extent, ahead = self.around(axis)
            if factor != 1 or extent != size or ahead != len(shape) - at:
                return False
            if axis in self.axes and self.parent is not None:
                return False  # a reduction's axis comes in chunks
        return True

    def view(self, array: int, indices: list[Affine], shape: tuple[int, ...]) -> int:
        """A strided view of the buffer: an affine index needs no copy."""
        strides = strides_of(shape)
        offset = sum(start * stride for (start, _), stride in zip(indices, strides, strict=True))
        moves: dict[Term, int] = {}
        for (_, factors), stride in zip(indices, strides, strict=True):
            for axis, factor in factors.items():
                moves[axis] = moves.get(axis, 0) + factor * stride
        aheads = [self.around(axis)[1] for axis in moves]
        rank = max(aheads, default=0)
        steps = list(moves.values())

        def strided(whole: Array, *axes: Array) -> Array:
            flat = whole.reshape(-1)
            size, jump, start = [1] * rank, [0] * rank, offset
            for axis, ahead, move in zip(axes, aheads, steps, strict=True):
                size[rank - ahead] = axis.size
                if axis.size > 1:  # a step that is never taken may be longer than any array
                    jump[rank - ahead] = move * whole.itemsize
                start += move * int(axis.flat[0])
            if whole.dtype.kind == "V" or whole.dtype.num >= _CUSTOM:
                flat = flat.view(np.dtype(f"u{whole.itemsize}"))
            found: Array = np.ndarray(size, flat.dtype, flat, start * whole.itemsize, jump)
            return found if flat.dtype == whole.dtype else found.view(whole.dtype)

        return self.step(strided, array, *[self.place_axis(axis) for axis in moves])

    def place_axis(self, axis: Term) -> int:
        if not isinstance(axis, sc.ScalarVar):
            raise CompilerBug("An affine index is made of axes.")
        return self.place(axis)[0]

    # --- reductions ------------------------------------------------------------------------------

    def reduce(self, node: sc.Reduce) -> Placed:
        if node.runs:
            return self.place(spelled(node))
        dtype = sc.dtype_of(node.body)
        neutral = identity(node.combiner, dtype)
        extents = [number(size) for size in node.extents]
        if 0 in extents:
            return self.slot(neutral), NO_MARKS
        inner = Tape(self, dict(zip(node.axes, extents, strict=True)))
        value, marks = inner.place(node.body)
        lanes = 1
        for axis in free_vars(node):
            if isinstance(axis, sc.ScalarVar):
                lanes *= self.home(axis).at_once[axis]
        pieces = list(chunks(extents, max(1, CHUNK // max(1, lanes))))
        axes = [inner.placed[axis][0] for axis in node.axes]
        rank, depth = inner.rank, len(extents)
        combine = fold(node.combiner, dtype.is_float)
        template, steps = inner.template, inner.released(value, marks)
        targets = [here for _, here in inner.brought]

        def run(*outside: Any) -> tuple[Any, Any]:
            base = template.copy()
            for to, each in zip(targets, outside, strict=True):
                base[to] = each
            total, bad = neutral, None
            for chunk in pieces:
                values = base.copy()
                for position, (slot, (low, high)) in enumerate(zip(axes, chunk, strict=True)):
                    values[slot] = laid(low, high, rank - position)
                play(steps, values)
                sizes = tuple([high - low for low, high in chunk])
                total = combine(total, rows(values[value], sizes, rank))
                if values[marks] is not None:
                    here = rows(values[marks], (1,) * depth, rank, keep=True).max(axis=0)
                    bad = here if bad is None else np.maximum(bad, here)
            return total, bad

        both = self.step(run, *[outside for outside, _ in inner.brought])
        result = self.step(itemgetter(0), both)
        return result, (NO_MARKS if marks == NO_MARKS else self.step(itemgetter(1), both))


def play(steps: list[Released], values: list[Any]) -> None:
    """Run the steps over the slots."""
    for function, to, sources, dead in steps:
        values[to] = function(*[values[source] for source in sources])
        for slot in dead:
            values[slot] = None


def number(size: sc.Scalar) -> int:
    """The value of a size, which must be known."""
    if (found := known(normal_dim(size))) is None:
        raise CompilerBug("A tensor expression is evaluated while one of its sizes is unknown.")
    return found


_CUSTOM: Final = 256  # numbers of numpy dtypes that others have added begin here

Affine: TypeAlias = tuple[int, dict[Term, int]]  # a constant, and the factor of each axis


def affine(index: sc.Scalar) -> Affine | None:
    """The constant and the factors of axes of an index, None where it is made otherwise."""
    start = 0
    factors: dict[Term, int] = {}
    for atoms, factor in polynomial(index).values():
        if not atoms:
            start = factor
        elif len(atoms) == 1 and isinstance(atoms[0], sc.ScalarVar):
            factors[atoms[0]] = factor
        else:
            return None
    return start, factors
