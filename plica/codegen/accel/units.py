"""Units of integer layers: the machine's instructions for products, sums, shifts and clips, by
meaning.

A declaration says what every operation does to elements; nothing is said by names.  A layer needs
one operation that adds products of two scopes to a third, one that clears these sums, some that
change a sum by a number or by a tensor, and moves in and out:

    sums[m, n] += sum over k of data[m, k] * weight[n, k]       any of m, n, k may be absent
    sums = 0,  sums + b,  sums >> n,  max(sums, low),  min(sums, high)

>>> from plica.codegen.accel.vta import vta
>>> units = units_of(vta())
>>> units.multiply.name, units.clear.name, units.data.scope.name, units.weight.scope.name
('gemm', 'gemm.reset', 'inp', 'wgt')
>>> units.rows, units.columns, units.depth
(1, 16, 16)
>>> units.change("shift", 8).name, units.change("shift", None).name
('alu.shr.imm', 'alu.shr')

A machine without one of them is refused, and the error names it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Final, Literal, TypeAlias, get_args

from attrs import frozen

from plica.codegen.accel.declaration import Accelerator, Move, Operation, Scope, Sweep
from plica.codegen.accel.meaning import contraction
from plica.core import CompilerBug
from plica.ir.loop import scalar as s
from plica.ir.loop.layout import Layout, read_layout
from plica.ir.loop.scalar import Cast, Lit, Load, Scalar, ScalarVar
from plica.ir.type import DType, i8, i32
from plica.runtime.error import Diagnostic, Place, UnsupportedError

Role: TypeAlias = Literal["sums", "data", "weight", "tensor"]
"""The role of an operation's operand: sums, either factor of a product, or an epilogue operand."""

Change: TypeAlias = Literal["add", "shift", "max", "min"]

_HEADS: Final[Mapping[type[Scalar], Change]] = {
    s.Add: "add",
    s.ShiftRight: "shift",
    s.Max: "max",
    s.Min: "min",
}
_VERBS: Final[Mapping[Change, str]] = {
    "add": "adds {by} to {sums}",
    "shift": "shifts {sums} to the right by {by}",
    "max": "takes the greater of {sums} and {by}",
    "min": "takes the lesser of {sums} and {by}",
}


@frozen
class MachineUnit:
    """An operation: what it touches in order, the operand of its number where it has one."""

    operation: Operation
    roles: tuple[Role, ...]
    immediate: str = ""

    @property
    def name(self) -> str:
        return self.operation.name

    @property
    def sweep(self) -> Sweep:
        assert isinstance(self.operation.does, Sweep)  # only sweeps are units
        return self.operation.does

    def holds(self, number: int) -> bool:
        """Whether the field of its number has room for this one."""
        field = next(each for each in self.operation.operands if each.name == self.immediate)
        return field.least <= number <= field.most


@frozen
class Side:
    """A scope with its elements' axes in order (letters of m, n, k) and the move that serves it."""

    scope: Scope
    axes: str
    move: Operation

    @property
    def can_pad(self) -> bool:
        """Whether its move surrounds what it copies with zeros."""
        return isinstance(self.move.does, Move) and bool(self.move.does.pads)

    def layout(self, letters: str, named: str) -> Layout:
        """Its memory layout: axes as in `letters`, with n and c blocked.

        `named` are the letters of the axes of an element: "nc" for its rows and columns.
        """
        sizes = zip(named, self.scope.shape, strict=True)
        word = letters + "".join(f"{size}{axis}" for axis, size in sizes if size > 1)
        return read_layout(word, "NCHW" if "H" in letters else "NC")


@frozen(eq=False)
class MachineUnits:
    """The instructions for integer layers; `changes` are those by a number or by a tensor."""

    machine: Accelerator
    multiply: MachineUnit
    clear: MachineUnit
    data: Side
    weight: Side
    sums: Scope
    result: Side
    changes: Mapping[tuple[Change, bool], MachineUnit]
    """By operation, and whether the operand is a tensor."""
    load_sums: Operation | None

    @property
    def rows(self) -> int:
        """M: the number of data rows in an element."""
        return self._size(self.data, "m")

    @property
    def columns(self) -> int:
        """N: how many outputs a step of the product computes."""
        return self._size(self.weight, "n")

    @property
    def depth(self) -> int:
        """K: how many products a step adds up for each."""
        return self._size(self.weight, "k")

    @staticmethod
    def _size(side: Side, axis: str) -> int:
        return side.scope.shape[side.axes.index(axis)] if axis in side.axes else 1

    @property
    def max_iterations(self) -> int:
        """The maximum iterations of each loop of the product."""
        fields = {operand.name: operand.most for operand in self.multiply.operation.operands}
        return min(fields[word] for word in self.multiply.sweep.loops)

    def data_layout(self, letters: str) -> Layout:
        """Where the machine reads data: "NCHW" or "CN" in blocks."""
        return self.data.layout(letters, self.data.axes.translate(_OF_DATA))

    def result_layout(self, letters: str) -> Layout:
        """Where it leaves results."""
        return self.result.layout(letters, self.result.axes.translate(_OF_RESULT))

    def change(self, what: Change, number: int | None) -> MachineUnit | str:
        """The instruction that changes sums by a number, or by a tensor (None); or what is missing.

        A number too large for its field becomes a constant tensor.
        """
        given = self.changes.get((what, False))
        if number is not None and given is not None and given.holds(number):
            return given
        given = self.changes.get((what, True))
        if given is not None and self.load_sums is not None:
            return given
        by = "a tensor" if number is None else f"the number {number} or a tensor"
        return f"no operation that {_VERBS[what].format(sums=self.sums.name, by=by)}"


_OF_DATA: Final = str.maketrans("mk", "nc")
_OF_RESULT: Final = str.maketrans("mn", "nc")


@lru_cache(maxsize=64)
def units_of(machine: Accelerator) -> MachineUnits:
    """The machine's instructions for integer layers; refuses a machine that lacks one."""
    why = ["no operation that adds products of elements of two scopes to a third, of i32"]
    for found in _candidates(machine):
        if isinstance(found, MachineUnits):
            return found
        why.append(found)
    message = f"Integer layers cannot run on the accelerator {machine.name}: it has {why[-1]}."
    expected = "a product of integers, a clear, a shift, clips, and moves in and out"
    hint = "Declare an operation with that meaning."
    place = Place(node=machine.name)
    raise UnsupportedError(Diagnostic("unsupported", message, place, expected, why[-1], hint))


def _candidates(machine: Accelerator) -> Iterator[MachineUnits | str]:
    """For every product, with either operand as the data, its units; or what is missing.

    The fewest rows come first: that wastes least for a single image.
    """
    sides = [(operation, swapped) for operation in machine.operations for swapped in (False, True)]
    found = [given for side in sides if (given := _product(machine, *side)) is not None]
    for unit, data, weight, sums in sorted(found, key=lambda each: each[1][2]):
        yield _with_sides(machine, unit, (data[0], data[1]), weight, sums)


_Shape: TypeAlias = tuple[Scope, str]
"""A scope, and the axes of its elements as letters of m, n and k."""


def _product(
    machine: Accelerator, operation: Operation, swapped: bool
) -> tuple[MachineUnit, tuple[Scope, str, int], _Shape, _Shape] | None:
    """The operation as a product of data and weights, if it is one; the data with its rows."""
    does = operation.does
    found = contraction(does.meaning) if isinstance(does, Sweep) else None
    if not isinstance(does, Sweep) or found is None:
        return None
    first, second = reversed(found.operands) if swapped else found.operands
    left, right, result = found.subscripts
    words = (right, left) if swapped else (left, right)
    classes = {each: "m" if each in words[0] else "n" for each in result}
    classes |= {each: "k" for each in words[0] if each in words[1]}
    axes = ["".join(classes[each] for each in word) for word in (*words, result)]
    if any(len(set(axis)) < len(axis) for axis in axes):
        return None  # two axes of one class: an element is no block of a matrix
    places: dict[int, Role] = {0: "sums", first: "data", second: "weight"}
    roles = _roles(does, places)
    scopes = [machine.scope(does.reads[at].scopes[0]) for at in (first, second, 0)]
    if roles is None or not all(_holds(scope.dtype, i8) for scope in scopes[:2]):
        return None
    if scopes[2].name != does.writes.scopes[0] or scopes[2].dtype is not i32:
        return None
    rows = scopes[0].shape[axes[0].index("m")] if "m" in axes[0] else 1
    data, weight, sums = zip(scopes, axes, strict=True)
    return MachineUnit(operation, roles), (*data, rows), weight, sums


def _with_sides(
    machine: Accelerator, multiply: MachineUnit, data: _Shape, weight: _Shape, sums: _Shape
) -> MachineUnits | str:
    moves: list[Operation] = []
    for scope, _ in (data, weight):
        if (found := _move(machine, scope.name, "in")) is None:
            return f"no move into {scope.name}"
        moves.append(found)
    clear = next((each for each in machine.operations if _clears(each, sums[0].name)), None)
    if clear is None:
        return f"no operation that clears {sums[0].name}"
    changes: dict[tuple[Change, bool], MachineUnit] = {}
    for operation in machine.operations:
        if (change := _change(operation, sums[0].name)) is not None:
            changes.setdefault(change[0], change[1])
    load = _move(machine, sums[0].name, "in")
    for what in get_args(Change)[2:]:  # every layer is clipped; not every one is shifted
        if (what, False) not in changes and ((what, True) not in changes or load is None):
            lacks = _VERBS[what].format(sums=sums[0].name, by="a number or a tensor")
            return f"no operation that {lacks}"
    lasts = [unit.sweep.writes.scopes for (what, _), unit in changes.items() if what == "min"]
    stores = [
        (machine.scope(name), move)
        for name in lasts[0]
        if all(name in last for last in lasts)
        and (move := _move(machine, name, "out")) is not None
        and _holds(machine.scope(name).dtype, i8)
    ]
    if not stores:
        return f"no move out of {' or '.join(lasts[0])}"
    scope, store = min(stores, key=lambda each: each[0].bytes)
    return MachineUnits(
        machine, multiply, MachineUnit(clear, ("sums",)),
        Side(*data, moves[0]), Side(*weight, moves[1]),
        sums[0], Side(scope, sums[1], store), changes, load,
    )  # fmt: skip


def _holds(dtype: DType, other: DType) -> bool:
    """Whether every number of the other type is one of this type."""
    if dtype.kind != "int":
        return False
    low, high = dtype.bounds
    return low <= other.bounds[0] and other.bounds[1] <= high


def _move(machine: Accelerator, scope: str, way: str) -> Operation | None:
    """The plain move of a scope's elements in that direction."""
    for operation in machine.operations:
        does = operation.does
        if isinstance(does, Move) and (does.scope, does.memory, does.way) == (scope, scope, way):
            return operation
    return None


def _roles(does: Sweep, places: Mapping[int, Role]) -> tuple[Role, ...] | None:
    """The operands of a sweep, in order; None if two have one place, or sums have two scopes."""
    written = (does.writes.base, does.writes.strides)
    roles: list[Role] = ["sums"]
    bases = [does.writes.base]
    for at, read in enumerate(does.reads):
        role = places[at]
        if (read.base, read.strides) == written:
            if role != "sums":
                return None
            continue
        if role != "sums" and read.base in bases:
            return None
        roles.append(role)
        bases.append(read.base)
    return tuple(roles)


def _clears(of: Operation, scope: str) -> bool:
    does = of.does
    if not isinstance(does, Sweep) or does.writes.scopes[0] != scope or does.reads:
        return False
    body = does.meaning.body
    return isinstance(body, Lit) and body.value == 0


def _change(of: Operation, scope: str) -> tuple[tuple[Change, bool], MachineUnit] | None:
    """An operation that changes every sum by a number or a tensor: how, by which of the two."""
    does = of.does
    if not isinstance(does, Sweep) or does.writes.scopes[0] != scope or len(does.reads) > 2:
        return None
    if any(read.scopes[0] != scope for read in does.reads):
        return None
    loads = [Load(buffer, does.meaning.axes) for buffer in does.meaning.inputs]
    numbers = {operand.name: operand for operand in of.operands}
    for what, value, by in _sides(does.meaning.body):
        if value not in loads:
            continue
        at = loads.index(value)
        if len(loads) == 1 and isinstance(by, ScalarVar) and str(by.name) in numbers:
            roles = _roles(does, {at: "sums"})
            return None if roles is None else ((what, False), MachineUnit(of, roles, str(by.name)))
        if len(loads) == 2 and by is loads[1 - at]:
            roles = _roles(does, {at: "sums", 1 - at: "tensor"})
            if roles is not None:
                return (what, True), MachineUnit(of, roles)
    return None


def _sides(body: Scalar) -> Iterator[tuple[Change, Scalar, Scalar]]:
    """A meaning as a change of one side by the other; a conditional by its non-negative case."""
    if isinstance(body, s.Select) and isinstance(body.then, s.ShiftRight):
        by = body.then.right
        if body.condition is (by >= 0):
            body = body.then
    if (what := _HEADS.get(type(body))) is None:
        return
    left, right = body._children
    if not isinstance(left, Scalar) or not isinstance(right, Scalar):
        raise CompilerBug(f"{type(body).__name__} has no two sides")
    orders = ((left, right), (right, left))
    for value, by in orders[: 1 if what == "shift" else 2]:
        yield what, value, by.value if isinstance(by, Cast) else by
