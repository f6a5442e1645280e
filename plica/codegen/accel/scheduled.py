"""From scheduled kernels: loops, copies into scopes and invoked intrinsics, read as a flow.

>>> from plica.codegen.accel.intrinsic import declare
>>> from plica.codegen.accel.vta import vta
>>> from plica.ir.type.dtype import i8
>>> from plica.ir.loop.statement import Kernel
>>> from plica.ir.loop.tensor import axis, buffer
>>> words = declare(vta())
>>> x, y = buffer("x", (32,), i8), buffer("y", (32,), i8)
>>> i = axis("i")
>>> flow_of(vta(), Kernel((), (x, y), 1, For(i, index(32), "serial", Store(y, (i,), x[i]))))
Traceback (most recent call last):
...
plica.runtime.error.UnsupportedError: y: A copy is between memory and a scope of vta. [unsupported]
  found: global to global
"""

from __future__ import annotations

from math import prod

from attrs import evolve, frozen

from plica.analysis.index.polynomial import Polynomial, polynomial, to_term
from plica.codegen.accel import flow
from plica.codegen.accel.declaration import Accelerator, Move, Operation, Scope as Held, Sweep
from plica.codegen.accel.intrinsic import kernel_of
from plica.codegen.accel.padding import Margin, margins, unguarded
from plica.core import Name, Term, fresh, post_order
from plica.ir.loop import statement as ir
from plica.ir.loop.scalar import Buffer, Cast, Lit, Load, Scalar, ScalarVar, index
from plica.ir.loop.statement import Alloc, For, Invoke, Kernel, Region, Seq, Store, substatements
from plica.ir.type import shape_of
from plica.runtime.error import Diagnostic, Place, UnsupportedError

ONE = index(1)


@frozen
class _Nest:
    """Loops, from the outside in, around one copy or one invocation."""

    loops: tuple[tuple[ScalarVar, int], ...]
    leaf: Store | Invoke


@frozen
class _Line:
    """A loop of a copy: its variable, extent, strides in the scope and in memory, its margins."""

    var: ScalarVar
    extent: int
    near: int
    far: int
    margin: Margin | None = None


def flow_of(machine: Accelerator, kernel: Kernel) -> flow.Flow:
    """The flow of a kernel without blocks; refuses what the machine cannot do."""
    reading = _Reading(machine, kernel)
    body = reading.close(reading.read(kernel.body))
    tensors = tuple(reading.tensors[param] for param in kernel.params if param in reading.tensors)
    return flow.Flow(tensors, tuple(reading.tiles.values()), body)


class _Reading:
    """The buffers of a kernel while it is read."""

    def __init__(self, machine: Accelerator, kernel: Kernel) -> None:
        self.machine = machine
        self.tensors: dict[Buffer, flow.Memory] = {}
        self.tiles: dict[Buffer, flow.Tile] = {}
        variables = (each for each in post_order(kernel.body) if isinstance(each, ScalarVar))
        self.used = {variable.name for variable in variables}
        stack: list[tuple[ir.Stmt, bool]] = [(kernel.body, False)]
        while stack:
            stmt, inside = stack.pop()
            if isinstance(stmt, Alloc):
                if (scope := self.scope(stmt.buffer)) is None:
                    raise _refused(
                        stmt.buffer, f"Room is in a scope of {machine.name}.", stmt.buffer.scope
                    )
                elements = -(-prod(_shape(stmt.buffer)) // prod(scope.shape))
                name = str(stmt.buffer.name)
                self.tiles[stmt.buffer] = flow.Tile(name, scope.name, elements, inside)
            inside |= isinstance(stmt, For) and stmt.kind == "virtual"
            stack += [(substatement, inside) for substatement in reversed(substatements(stmt))]

    def scope(self, buffer: Buffer) -> Held | None:
        """The scope of the machine that a buffer lives in, None for memory."""
        name = buffer.scope.removeprefix(f"{self.machine.name}.")
        if name == buffer.scope:
            return None
        return next((each for each in self.machine.scopes if each.name == name), None)

    def read(self, root: ir.Stmt) -> flow.Stmt | _Nest:
        """Statements from the inside out."""
        memo: dict[Term, flow.Stmt | _Nest] = {}
        for node in post_order(root):
            match node:
                case Store() | Invoke():
                    memo[node] = _Nest((), node)
                case Seq(stmts):
                    memo[node] = flow.Steps(tuple(self.close(memo[each]) for each in stmts))
                case Alloc():
                    memo[node] = memo[node.body]
                case For(var, extent, kind, body):
                    size = shape_of((extent,), {})
                    if size is None or kind not in ("serial", "unrolled", "virtual"):
                        raise _refused(
                            var, "A loop of an accelerator is serial, of known size.", kind
                        )
                    inner = memo[body]
                    if kind == "virtual":
                        memo[node] = flow.Threads(var, size[0], self.close(inner))
                    elif isinstance(inner, _Nest):
                        memo[node] = _Nest(((var, size[0]), *inner.loops), inner.leaf)
                    else:
                        memo[node] = flow.Loop(var, size[0], inner)
                case ir.Block() | ir.Branch() | ir.Bind() | ir.While() | ir.Barrier():
                    kind_of = type(node).__name__
                    raise _refused(
                        None, "An accelerator has loops, copies and intrinsics.", kind_of
                    )
                case _:
                    pass  # index terms and buffers
        return memo[root]

    def close(self, of: flow.Stmt | _Nest) -> flow.Stmt:
        """A nest becomes a transfer or work."""
        if not isinstance(of, _Nest):
            return of
        if isinstance(of.leaf, Invoke):
            return self.work(of.leaf, of.loops)
        return self.transfer(of.leaf, of.loops)

    def work(self, call: Invoke, loops: tuple[tuple[ScalarVar, int], ...]) -> flow.Work:
        """An intrinsic in loops."""
        name = call.name.removeprefix(f"{self.machine.name}.")
        operations = [operation for operation in self.machine.operations if operation.name == name]
        if not operations or name == call.name or not isinstance(operations[0].does, Sweep):
            raise _refused(None, f"{self.machine.name} has no intrinsic {call.name!r}.", call.name)
        meaning = kernel_of(operations[0])
        regions = [operand for operand in call.operands if isinstance(operand, Region)]
        numbers = [operand for operand in call.operands if isinstance(operand, Scalar)]
        given: list[tuple[str, int]] = []
        for dim, value in zip(meaning.dims, numbers, strict=True):
            if not isinstance(value, Lit):
                raise _refused(None, f"The operand {dim.name} is a number.", str(value))
            given.append((str(dim.name), int(value.value)))
        touches: list[flow.Touch] = []
        for region in (regions[-1], *regions[:-1]):
            scope = self.scope(region.buffer)
            if scope is None or region.buffer not in self.tiles:
                raise _refused(region.buffer, "An intrinsic works in scopes.", region.buffer.scope)
            shape = shape_of(region.extents, {})
            rank = len(scope.shape)
            if (
                shape is None
                or shape[len(shape) - rank :] != scope.shape
                or prod(shape) != prod(scope.shape)
            ):
                raise _refused(region.buffer, "An intrinsic touches one element.", str(shape))
            base, strides = self._split(region.buffer, region.starts, loops, prod(scope.shape))
            here = tuple(index(stride) for stride in strides)
            touches.append(flow.Touch(self.tiles[region.buffer], base, here))
        extents = tuple(index(extent) for _, extent in loops)
        return flow.Work(name, extents, tuple(touches), tuple(given))

    def transfer(self, store: Store, loops: tuple[tuple[ScalarVar, int], ...]) -> flow.Stmt:
        """A copy in loops."""
        guard, copied = unguarded(store.value)
        value = copied.value if isinstance(copied, Cast) else copied
        if not isinstance(value, Load):
            raise _refused(
                store.buffer, "A store copies; the rest is intrinsics.", type(value).__name__
            )
        target, source = self.scope(store.buffer), self.scope(value.buffer)
        if (target is None) == (source is None):
            found = f"{value.buffer.scope} to {store.buffer.scope}"
            message = f"A copy is between memory and a scope of {self.machine.name}."
            raise _refused(store.buffer, message, found)
        operation = self._move(target, source, store.buffer)
        assert isinstance(operation.does, Move)
        kind = self.machine.scope(operation.does.scope)
        size = prod(kind.shape)
        into = (store.buffer, store.indices), (value.buffer, value.indices)
        (near, near_at), (far, far_at) = into if target is not None else into[::-1]
        if near not in self.tiles:
            raise _refused(near, "A copy is from or to room that was made.", near.scope)
        tensor = flow.Memory(str(far.name), kind.name, prod(_shape(far)) // size)
        if self.tensors.setdefault(far, tensor) is not tensor:
            raise _refused(far, "A tensor has elements of one kind.", kind.name)
        near_base, near_strides = self._split(near, near_at, loops, 1)
        far_base, far_strides = self._split(far, far_at, loops, 1)
        cut = margins(guard, loops)
        if cut and operation.does.way == "out":
            raise _refused(near, "Nothing is padded on the way out.", operation.name)
        lines = [
            _Line(var, extent, a, b, cut.get(var))
            for (var, extent), a, b in zip(loops, near_strides, far_strides, strict=True)
        ]
        outer = _whole(near, lines, size, self.used)
        bases = [_divided(near, polynomial(scalar), size) for scalar in (near_base, far_base)]
        start = flow.Transfer(
            operation.name, self.tiles[near], bases[0], tensor, bases[1], ONE, ONE, ONE
        )
        return _rows(start, outer)

    def _move(self, target: Held | None, source: Held | None, buffer: Buffer) -> Operation:
        """The move of a scope; what sweeps write to several scopes may leave from any of them."""
        names = {scope.name for scope in (target, source) if scope is not None}
        way = "in" if target is not None else "out"
        if way == "out":
            for each in self.machine.operations:
                if isinstance(each.does, Sweep) and names & set(each.does.writes.scopes[:1]):
                    names |= set(each.does.writes.scopes)
        for operation in self.machine.operations:
            does = operation.does
            if isinstance(does, Move) and does.way == way and does.scope in names and not does.kind:
                return operation
        raise _refused(buffer, f"No move goes {way} there.", ", ".join(sorted(names)))

    def _split(
        self,
        buffer: Buffer,
        indices: tuple[Scalar, ...],
        loops: tuple[tuple[ScalarVar, int], ...],
        size: int,
    ) -> tuple[Scalar, list[int]]:
        """The place in elements of a size: what does not depend on the loops, and their strides."""
        flat, step = Polynomial(0, {}), 1
        for at, extent in zip(reversed(indices), reversed(_shape(buffer)), strict=True):
            flat = flat.plus(polynomial(at), step)
            step *= extent
        strides: list[int] = []
        rest = dict(flat.terms)
        for var, _ in loops:
            strides.append(rest.pop(var, 0))
        inside = {var for var, _ in loops}
        for key in rest:
            if any(
                term in inside
                for atom in Polynomial(0, {key: 1}).atoms()
                for term in post_order(atom)
            ):
                raise _refused(
                    buffer, "Accesses are linear in the loops around them.", str(indices)
                )
        if any(stride % size for stride in strides):
            raise _refused(buffer, "Accesses are to whole elements.", str(strides))
        base = _divided(buffer, Polynomial(flat.constant, rest), size)
        return base, [stride // size for stride in strides]


def _whole(buffer: Buffer, lines: list[_Line], size: int, used: set[Name]) -> list[_Line]:
    """The loops over whole elements, with strides in elements; loops inside an element are
    removed."""
    left, done = list(lines), 1
    while done < size:
        line = next(
            (each for each in left if each.near == each.far == done and each.extent > 1), None
        )
        if line is not None and line.margin is not None:
            raise _refused(buffer, "Whole elements are padded.", "a guard inside an element")
        if line is None or (done * line.extent > size and done * line.extent % size):
            raise _refused(buffer, "A copy moves whole elements.", f"{done} of {size} numbers")
        left.remove(line)
        if done * line.extent > size:
            name = fresh(line.var.name, used)
            used.add(name)
            outer = ScalarVar(name, line.var.dtype)
            left.append(_Line(outer, done * line.extent // size, size, size))
            break
        done *= line.extent
    if any(each.near % size or each.far % size for each in left):
        raise _refused(buffer, "A copy moves whole elements.", "strides inside an element")
    return [
        _Line(e.var, e.extent, e.near // size, e.far // size, e.margin)
        for e in left
        if e.extent > 1 or e.margin is not None
    ]


def _rows(start: flow.Transfer, lines: list[_Line]) -> flow.Stmt:
    """Loops from an element on as rows, as long as can be, and loops around them."""
    left, width = sorted(lines, key=lambda each: each.near), 1
    across: Margin | None = None
    while left and left[0].near == left[0].far == width and across is None:
        if left[0].margin is not None and width > 1:
            break  # what is padded is a loop of its own
        across = left[0].margin
        width *= left.pop(0).extent
    rows, stride = 1, width
    down: Margin | None = None
    if left and left[0].near == width:
        rows, stride, down = left[0].extent, left[0].far, left[0].margin
        left.pop(0)
    if any(line.margin is not None for line in left):
        raise _refused(None, "Rows and columns are padded.", "a guard of another loop")
    near, far = start.sram, start.dram
    for line in left:
        near, far = near + line.var * line.near, far + line.var * line.far
    (top, bottom), (before, after) = (
        down or (flow.ZERO, flow.ZERO),
        across or (flow.ZERO, flow.ZERO),
    )
    found: flow.Stmt = evolve(
        start,
        sram=near,
        dram=far + top * stride + before if down or across else far,
        rows=rows - top - bottom if down else index(rows),
        width=width - before - after if across else index(width),
        stride=index(stride),
        pads=(top, bottom, before, after),
        filled=down is not None or across is not None,
    )
    for line in left:
        found = flow.Loop(line.var, line.extent, found)
    return found


def _divided(buffer: Buffer, of: Polynomial, size: int) -> Scalar:
    if any(each % size for each in (of.constant, *of.terms.values())):
        raise _refused(buffer, "Accesses are to whole elements.", f"not all of {size}")
    scalar = to_term(of.exactly_divided(size))
    assert scalar is not None
    return scalar


def _shape(buffer: Buffer) -> tuple[int, ...]:
    known = shape_of(buffer.shape, {})
    if known is None or buffer.strides:
        raise _refused(buffer, "Buffers of an accelerator are dense and of known size.", "")
    return known


def _refused(where: Buffer | ScalarVar | None, message: str, found: str) -> UnsupportedError:
    place = None if where is None else Place(node=str(where.name))
    return UnsupportedError(Diagnostic("unsupported", message, place, None, found))
