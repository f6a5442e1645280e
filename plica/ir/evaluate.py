"""Evaluation: the numpy meaning of a tensor expression.

`prepare` turns an expression of known sizes into a list of steps over whole arrays, once; running
it costs little more than numpy.  An axis is a range laid along its own dimension, so every term has
just the elements it depends on, and numpy broadcasts the rest.

>>> from plica.ir.dtype import f32
>>> from plica.ir.tensor import buffer, compute, reduce
>>> x = buffer("x", (2, 3), f32)
>>> rows = compute((x,), (2,), lambda i: reduce("sum", (3,), lambda k: x[i, k]))
>>> evaluate(rows, [np.float32([[1, 2, 3], [4, 5, 6]])])
array([ 6., 15.], dtype=float32)

Laws: integers are exact; a reduction of floats goes through its box in row-major order from the
combiner's identity, one rounding at a time, as a plain loop would; so no sum is reassociated.

Note [Guards]: nothing is skipped lane by lane.  A load outside its buffer gives some element and a
*mark* at that place; marks flow with the values, and a `Select`, `And` or `Or` drops those of the
side it does not choose.  Only a mark that reaches the result is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import product as box
from operator import itemgetter
from typing import Any, Final, TypeAlias

import numpy as np

from plica.core.binding import free_vars, substitute
from plica.core.diagnostic import CompilerBug, EvaluationError
from plica.core.term import Term
from plica.ir.arithmetic import Array, Function, binary, cast, constant, identity, intrinsic
from plica.ir.dim import known, normal_dim, polynomial
from plica.ir.dtype import i64
from plica.ir.scalar import (
    And,
    Buffer,
    Cast,
    Intrinsic,
    Lit,
    Load,
    Or,
    Reduce,
    Scalar,
    ScalarVar,
    Select,
    dtype_of,
)
from plica.ir.tensor import Compute
from plica.runtime.error import Diagnostic

Step: TypeAlias = tuple[Function, int, tuple[int, ...]]  # function, where to, from where
Placed: TypeAlias = tuple[int, int]  # the slots of a value and of its marks
Run: TypeAlias = Callable[[Sequence[Array]], Array]

CHUNK: Final = 1 << 21
"""How many elements of a reduction are made at once."""

NO_MARKS: Final = 0
"""The slot that always holds None: a value without marks."""


def evaluate(
    compute: Compute, arrays: Sequence[Array], sizes: Mapping[Term, int] | None = None
) -> Array:
    """The result of a tensor expression on arrays; symbolic dims have the given sizes.

    A dim that is the size of an argument need not be given.
    """
    found: dict[Term, int] = {} if sizes is None else dict(sizes)
    for buffer, array in zip(compute.inputs, arrays, strict=True):
        for size, extent in zip(buffer.shape, np.shape(array), strict=False):
            if isinstance(size, ScalarVar):
                found.setdefault(size, extent)
    if found:
        numbers = {var: Lit(size, i64) for var, size in found.items()}
        sized = substitute(compute, numbers)
        assert isinstance(sized, Compute)
        compute = sized
    return prepare(compute)([np.asarray(each) for each in arrays])


@lru_cache(maxsize=1024)
def prepare(compute: Compute) -> Run:
    """The function from arrays to the result of an expression whose sizes are all known."""
    shape = tuple(_number(size) for size in compute.shape)
    shapes = [tuple(_number(size) for size in each.shape) for each in compute.inputs]
    dtypes = [each.dtype.numpy for each in compute.inputs]
    dtype = compute.dtype.numpy
    if 0 in shape:
        return lambda arrays: np.empty(shape, dtype)
    root = _Scope(None, dict(zip(compute.axes, shape, strict=True)))
    slots = [root.buffer(each) for each in compute.inputs]
    value, marks = root.place(compute.body)
    template, steps, guards = root.template, root.steps, root.loads

    def run(arrays: Sequence[Array]) -> Array:
        values = template.copy()
        for slot, array, wanted, kind in zip(slots, arrays, shapes, dtypes, strict=True):
            if array.shape != wanted or array.dtype != kind:
                raise CompilerBug(
                    f"A tensor expression on {wanted} {kind} is given {array.shape} {array.dtype}."
                )
            values[slot] = array if array.flags.c_contiguous else array.copy()
        with np.errstate(all="ignore"):
            for function, to, sources in steps:
                values[to] = function(*[values[each] for each in sources])
        if values[marks] is not None:
            raise _outside(values[marks], shape, guards)
        result = values[value]
        if np.shape(result) != shape or any(result is each for each in arrays):
            return np.array(np.broadcast_to(result, shape), dtype)
        return np.ascontiguousarray(result) if shape else np.asarray(result)

    return run


def _number(size: Scalar) -> int:
    number = known(normal_dim(size))
    if number is None:
        raise CompilerBug("A tensor expression is evaluated while one of its sizes is unknown.")
    return number


def _outside(marks: Array, shape: tuple[int, ...], loads: list[Load]) -> EvaluationError:
    where = np.unravel_index(int(np.argmax(np.broadcast_to(marks, shape))), shape)
    load = loads[int(marks.max()) - 1]
    name, size = load.buffer.name, tuple(_number(each) for each in load.buffer.shape)
    place = tuple(map(int, where))
    return EvaluationError(
        Diagnostic(
            "index-out-of-bounds",
            f"Element {place} of the result reads {name} outside of its shape.",
            expected=f"an index inside {size}",
        )
    )


class _Scope:
    """The steps of an expression, or of the body of a reduction, over slots for their results.

    A reduction's axes lie in front of the dimensions around it, so that what comes from outside
    broadcasts.  What does not depend on them is placed in the scope around, and brought in.
    """

    def __init__(self, parent: _Scope | None, axes: dict[ScalarVar, int]) -> None:
        self.parent = parent
        self.axes = axes
        self.rank: int = len(axes) + (0 if parent is None else parent.rank)
        self.steps: list[Step] = []
        self.template: list[Any] = [None]
        self.placed: dict[Term, Placed] = {}
        self.brought: list[tuple[int, int]] = []  # (slot outside, slot here)
        self.loads: list[Load] = [] if parent is None else parent.loads
        for position, (axis, extent) in enumerate(axes.items()):
            ahead = self.rank - position
            self.placed[axis] = (self.slot(_laid(0, extent, ahead)), NO_MARKS)

    def slot(self, value: Any = None) -> int:
        self.template.append(value)
        return len(self.template) - 1

    def step(self, function: Function, *sources: int) -> int:
        to = self.slot()
        self.steps.append((function, to, sources))
        return to

    def bring(self, outside: int) -> int:
        if outside == NO_MARKS:
            return NO_MARKS
        here = self.slot()
        self.brought.append((outside, here))
        return here

    def buffer(self, buffer: Buffer) -> int:
        """The slot of a whole buffer."""
        if buffer not in self.placed:
            here = self.slot() if self.parent is None else self.bring(self.parent.buffer(buffer))
            self.placed[buffer] = (here, NO_MARKS)
        return self.placed[buffer][0]

    def place(self, root: Scalar) -> Placed:
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
            if not isinstance(node, Reduce):
                kids = [each for each in node._children if isinstance(each, Scalar)]
                missing = [each for each in kids if each not in self.placed]
                if missing:
                    stack.extend(missing)
                    continue
            stack.pop()
            self.placed[node] = self.add(node)
        return self.placed[root]

    def add(self, node: Scalar) -> Placed:
        """A node whose parts are placed."""
        match node:
            case Lit(value, dtype):
                return self.slot(constant(value, dtype)), NO_MARKS
            case ScalarVar(name, _):
                raise CompilerBug(f"A tensor expression uses {name}, which it does not bind.")
            case Load():
                return self.load(node)
            case Reduce():
                return self.reduce(node)
            case Select() | And() | Or():
                kids = [each for each in node._children if isinstance(each, Scalar)]
                values, marks = zip(*[self.placed[each] for each in kids], strict=True)
                function = np.where if isinstance(node, Select) else binary(type(node))
                value = self.step(function, *values)
                if not any(marks):
                    return value, NO_MARKS
                return value, self.step(_CHOOSE[type(node)], values[0], *marks)
            case Cast(inner, dtype):
                value, marks_ = self.placed[inner]
                return self.step(lambda array: cast(array, dtype), value), marks_
            case Intrinsic(name, args):
                return self.combined(intrinsic(name, dtype_of(args[0])), args)
            case _:
                kids = [each for each in node._children if isinstance(each, Scalar)]
                return self.combined(binary(type(node)), kids)

    def combined(self, function: Function, parts: Sequence[Scalar]) -> Placed:
        values, marks = zip(*[self.placed[each] for each in parts], strict=True)
        return self.step(function, *values), self.either(marks)

    def either(self, marks: Sequence[int]) -> int:
        some = tuple(dict.fromkeys(each for each in marks if each != NO_MARKS))
        if not some:
            return NO_MARKS
        return some[0] if len(some) == 1 else self.step(_either, *some)

    # --- loads -----------------------------------------------------------------------------------

    def load(self, node: Load) -> Placed:
        array = self.buffer(node.buffer)
        shape = tuple(_number(size) for size in node.buffer.shape)
        affine = [_affine(index) for index in node.indices]
        if all(
            each is not None and self.fits(each, n) for each, n in zip(affine, shape, strict=True)
        ):
            plain = [each for each in affine if each is not None]
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
        found = self.step(_locate(shape, code), *indices)
        value = self.step(_take, array, found)
        return value, self.either((self.step(itemgetter(1), found), *marks))

    def extent(self, axis: Term) -> int:
        return self.around(axis)[0]

    def around(self, axis: Term) -> tuple[int, int]:
        """The extent of an axis, and its dimension counted from the last."""
        scope: _Scope | None = self
        while scope is not None:
            if axis in scope.axes:
                position = list(scope.axes).index(axis)
                return scope.axes[axis], scope.rank - position
            scope = scope.parent
        raise CompilerBug("A tensor expression indexes with a variable it does not bind.")

    def fits(self, index: Affine, size: int) -> bool:
        """Whether an affine index stays inside wherever its axes are."""
        low = high = index[0]
        for axis, factor in index[1].items():
            reach = factor * (self.extent(axis) - 1)
            low, high = low + min(reach, 0), high + max(reach, 0)
        return low >= 0 and high < size

    def is_whole(self, indices: list[Affine], shape: tuple[int, ...]) -> bool:
        """Whether a load gives the buffer as it is: its dimensions are the last axes in order."""
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
        strides = _strides(shape)
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
                size[rank - ahead], jump[rank - ahead] = axis.size, move * whole.itemsize
                start += move * int(axis.flat[0])
            if whole.dtype.kind == "V" or whole.dtype.num >= _CUSTOM:
                flat = flat.view(np.dtype(f"u{whole.itemsize}"))
            found: Array = np.ndarray(size, flat.dtype, flat, start * whole.itemsize, jump)
            return found if flat.dtype == whole.dtype else found.view(whole.dtype)

        return self.step(strided, array, *[self.place_axis(axis) for axis in moves])

    def place_axis(self, axis: Term) -> int:
        if not isinstance(axis, ScalarVar):
            raise CompilerBug("An affine index is made of axes.")
        return self.place(axis)[0]

    # --- reductions ------------------------------------------------------------------------------

    def reduce(self, node: Reduce) -> Placed:
        dtype = dtype_of(node.body)
        neutral = identity(node.combiner, dtype)
        extents = [_number(size) for size in node.extents]
        if 0 in extents:
            return self.slot(neutral), NO_MARKS
        inner = _Scope(self, dict(zip(node.axes, extents, strict=True)))
        value, marks = inner.place(node.body)
        lanes = 1
        for axis in free_vars(node):
            if isinstance(axis, ScalarVar):
                lanes *= self.extent(axis)
        chunks = list(_chunks(extents, max(1, CHUNK // max(1, lanes))))
        axes = [inner.placed[axis][0] for axis in node.axes]
        rank, depth = inner.rank, len(extents)
        fold = _fold(node.combiner, dtype.is_float)
        template, steps = inner.template, inner.steps
        targets = [here for _, here in inner.brought]

        def run(*outside: Any) -> tuple[Any, Any]:
            base = template.copy()
            for to, each in zip(targets, outside, strict=True):
                base[to] = each
            total, bad = neutral, None
            for chunk in chunks:
                values = base.copy()
                for position, (slot, (low, high)) in enumerate(zip(axes, chunk, strict=True)):
                    values[slot] = _laid(low, high, rank - position)
                for function, to, sources in steps:
                    values[to] = function(*[values[each] for each in sources])
                sizes = tuple([high - low for low, high in chunk])
                total = fold(total, _rows(values[value], sizes, rank))
                if values[marks] is not None:
                    here = _rows(values[marks], (1,) * depth, rank, keep=True).max(axis=0)
                    bad = here if bad is None else np.maximum(bad, here)
            return total, bad

        both = self.step(run, *[outside for outside, _ in inner.brought])
        result = self.step(itemgetter(0), both)
        return result, (NO_MARKS if marks == NO_MARKS else self.step(itemgetter(1), both))


_CUSTOM: Final = 256
"""Numbers of numpy dtypes that others have added, such as bf16, begin here."""

Affine: TypeAlias = tuple[int, dict[Term, int]]  # a constant, and the factor of each axis


def _affine(index: Scalar) -> Affine | None:
    start = 0
    factors: dict[Term, int] = {}
    for atoms, factor in polynomial(index).values():
        if not atoms:
            start = factor
        elif len(atoms) == 1 and isinstance(atoms[0], ScalarVar):
            factors[atoms[0]] = factor
        else:
            return None
    return start, factors


def _strides(shape: tuple[int, ...]) -> list[int]:
    strides = [1] * len(shape)
    for at in range(len(shape) - 2, -1, -1):
        strides[at] = strides[at + 1] * shape[at + 1]
    return strides


def _laid(low: int, high: int, ahead: int) -> Array:
    """The numbers of a range along the dimension `ahead` from the last."""
    return np.arange(low, high, dtype=np.int64).reshape((-1,) + (1,) * (ahead - 1))


def _locate(shape: tuple[int, ...], code: int) -> Function:
    """From indices to places in the flat buffer, and marks where they are outside."""
    strides = _strides(shape)

    def locate(*indices: Any) -> tuple[Any, Any]:
        places: Any = 0
        marks = None
        for index, size, stride in zip(indices, shape, strides, strict=True):
            index = np.asarray(index, np.int64)
            if int(index.min()) < 0 or int(index.max()) >= size:
                outside = ((index < 0) | (index >= size)).astype(np.uint8) * np.uint8(code)
                marks = outside if marks is None else np.maximum(marks, outside)
                index = np.clip(index, 0, max(0, size - 1))
            places = places + index * stride if stride != 1 else places + index
        return places, marks

    return locate


def _take(array: Array, found: tuple[Any, Any]) -> Array:
    if array.size == 0:
        return np.zeros(np.shape(found[0]), array.dtype)
    return np.asarray(array.reshape(-1).take(found[0]))


def _either(*marks: Any) -> Any:
    some = [each for each in marks if each is not None]
    if len(some) < 2:
        return some[0] if some else None
    total = some[0]
    for each in some[1:]:
        total = np.maximum(total, each)
    return total


def _where_true(condition: Any, marks: Any) -> Any:
    if marks is None:
        return None
    kept = np.where(condition, marks, np.uint8(0))
    return kept if kept.any() else None


def _choose(condition: Any, of_condition: Any, then: Any, orelse: Any) -> Any:
    chosen = _where_true(condition, then), _where_true(np.logical_not(condition), orelse)
    return _either(of_condition, *chosen)


_CHOOSE: Final[dict[type[Scalar], Function]] = {
    Select: _choose,
    And: lambda left, of_left, of_right: _either(of_left, _where_true(left, of_right)),
    Or: lambda left, of_left, of_right: _either(
        of_left, _where_true(np.logical_not(left), of_right)
    ),
}


def _chunks(extents: list[int], rows: int) -> Iterator[tuple[tuple[int, int], ...]]:
    """The box in row-major order, in pieces of about so many rows."""
    inner, at = 1, len(extents)
    while at > 0 and inner * extents[at - 1] <= rows:
        at -= 1
        inner *= extents[at]
    whole = tuple((0, size) for size in extents[at:])
    if at == 0:
        yield whole
        return
    width = max(1, rows // inner)
    cuts = [(low, min(low + width, extents[at - 1])) for low in range(0, extents[at - 1], width)]
    for outer in box(*[range(size) for size in extents[: at - 1]]):
        lead = tuple((place, place + 1) for place in outer)
        for cut in cuts:
            yield (*lead, cut, *whole)


def _rows(value: Any, sizes: tuple[int, ...], rank: int, keep: bool = False) -> Array:
    """The elements of a chunk, its points along the first dimension, the rest as it was."""
    array = np.asarray(value)
    array = array.reshape((1,) * (rank - array.ndim) + array.shape)
    depth, rest = len(sizes), array.shape[len(sizes) :]
    if not keep and array.shape[:depth] != sizes:
        array = np.broadcast_to(array, sizes + rest)
    return array.reshape((-1, *rest))


def _fold(combiner: str, is_float: bool) -> Callable[[Any, Array], Any]:
    """Combine a total with rows, in order where the order matters."""
    function: Any = {
        "sum": np.add,
        "prod": np.multiply,
        "max": np.maximum,
        "min": np.minimum,
        "all": np.logical_and,
        "any": np.logical_or,
    }[combiner]

    def at_once(total: Any, rows: Array) -> Any:
        dtype = rows.dtype
        return function(total, rows[0] if len(rows) == 1 else function.reduce(rows, 0, dtype))

    def in_order(total: Any, rows: Array) -> Any:
        if len(rows) == 1:
            return function(total, rows[0])
        if rows[0].size < 64:
            first = np.broadcast_to(np.asarray(total, rows.dtype), rows.shape[1:])
            return function.accumulate(np.concatenate((first[None], rows)), 0)[-1]
        result = function(total, rows[0])
        for row in rows[1:]:
            function(result, row, out=result)
        return result

    return in_order if is_float and combiner in ("sum", "prod") else at_once
