"""Fused: a primitive function becomes one tensor expression, and one kernel.

Every operator of the function is computed at one place (fusion sees to that), so the expression of
each goes where its element is read.  If one of them reduces, the kernel runs over that one's axes;
what follows it is the finish: how to store the element once it is reduced.

    relu(conv(x, w) + b)[n, o, i, j]
      -->  acc = sum over c, k, l of x[n, c, i + k, j + l] * w[o, c, k, l]
           out[n, o, i, j] = max(acc + b[o], 0)

>>> from plica.ir.graph import Apply
>>> from plica.ir.type import tensor
>>> x = Var(Name("x"), tensor((3,), "f32"))
>>> function = Function((), (), (x,), x.type, Apply("exp", (x + x,)))
>>> fused(function).source, fused(function).reads
('add + exp', (0,))
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from attrs import frozen

from plica.codegen.lower.nest import Finish, nest
from plica.codegen.lower.row import Stage, rowed
from plica.core.binding import substitute
from plica.core.diagnostic import MOST_BYTES, CompilerBug, too_large
from plica.core.digest import digest
from plica.core.fold import map_bottom_up, post_order
from plica.core.name import Name
from plica.core.term import Term
from plica.ir.graph import Const, Expr, Function, Var
from plica.ir.infer import type_of
from plica.ir.loop import Kernel
from plica.ir.scalar import Buffer, Lit, Load, Scalar, ScalarVar, index
from plica.ir.tensor import Compute
from plica.ir.type import TensorType, Type
from plica.rewrite.fuse.decide import Group, Limits, decide, moved
from plica.rewrite.fuse.group import called, is_small, labelled
from plica.rewrite.fuse.reading import Index, Reading, count, operator, parts, reading, with_parts
from plica.rewrite.fuse.row import with_rows
from plica.runtime.error import UnsupportedError

SPELLED: Final = 4
"""How many operators the name of a kernel spells out."""

ALL: Final = Limits(size=1 << 30, depth=1 << 30)
"""What was fused once is looked at as a whole."""


@frozen(eq=False)
class Fused:
    """A kernel: the digest of it, which parameters it reads, and the operators in it.

    The tensor expression it was made of, and the finish, are what schedules begin with.  A kernel
    that goes through rows in several stages has those, the last of which is also told by itself.
    """

    kernel: Kernel
    digest: str
    reads: tuple[int, ...]
    source: str
    compute: Compute
    finish: Finish | None
    stages: tuple[Stage, ...] = ()
    rows: int = 0
    """How many of their first axes the stages share."""


def alone(value: Expr) -> tuple[Function, tuple[Expr, ...]]:
    """A single operator as a primitive function, and the arguments of that.

    Numbers stay arguments where knowing them makes no element cheaper: one kernel serves all.
    """
    params: dict[Expr, Var] = {}
    labels: dict[str, int] = {}
    args: list[Expr] = []
    of = reading(value)
    known = of is not None and not of.is_cheap
    for number, part in enumerate(parts(value) or ()):
        if part not in params and not (known and is_small(part)):
            params[part] = labelled(value, number, labels, type_of(part))
        args.append(params.get(part, part))
    body = with_parts(value, tuple(args))
    return Function((), (), tuple(params.values()), type_of(value), body), tuple(params)


@lru_cache(maxsize=4096)
def fused(function: Function) -> Fused:
    """The kernel of a primitive function."""
    order = _values(function.body)
    made = {value: _known(value) for value in order}
    params = {param: _buffer(param.name, param.type) for param in function.params}
    anchor = next((value for value, of in made.items() if of.reduces), None)
    sink = made[function.body]
    if anchor is not None and anchor is not function.body:
        group = with_rows(decide(function.body, ALL)).groups[function.body]
        if group.stages and len(group.spots) == len(order):
            return _staged(function, group, params, order)
    finish: Finish | None = None
    if anchor is None or anchor is function.body:
        body = _composed(order, made, params, {function.body: sink.identity}, {})
        compute = _compute(params, sink, body[function.body])
    else:
        # The anchor is computed at its own axes; the sink is stored at these, in its own order.
        there = _places(order, made, {function.body: sink.identity})[anchor]
        here = _turned(sink, there, made[anchor])
        before = _values(anchor)
        value = _composed(before, made, params, {anchor: made[anchor].compute.axes}, {})[anchor]
        result = _buffer(Name("reduced"), type_of(anchor))
        given: dict[Expr, Scalar] = {anchor: Load(result, made[anchor].compute.axes)}
        after = [value for value in order if value not in before or value is anchor]
        body = _composed(after, made, params, {function.body: here}, given)
        out = type_of(function.body)
        assert isinstance(out, TensorType)
        finish = Finish(result, out.shape, here, body[function.body])
        compute = _compute(params, made[anchor], value, finish.value)
    kernel = nest(compute, finish)
    buffers = list(params.values())
    read = tuple([buffers.index(each) for each in kernel.params[: kernel.inputs]])
    return Fused(kernel, digest(kernel), read, _source(order), compute, finish)


def _staged(
    function: Function, group: Group, params: dict[Var, Buffer], order: Sequence[Expr]
) -> Fused:
    """The kernel of a function that goes through rows in stages."""
    made: dict[Expr, Buffer] = {param: buffer for param, buffer in params.items()}  # noqa: C416  # wider keys
    stages: list[Stage] = []
    for number, each in enumerate(group.stages):
        inner, args = called(each)
        one = fused(inner)
        result = _buffer(Name("stage", number), type_of(each.sink))
        own = one.kernel.params[: one.kernel.inputs]
        instead = {buffer: made[args[read]] for buffer, read in zip(own, one.reads, strict=True)}
        stages.append(Stage(one.compute, one.finish, result).reading(instead))
        made[each.sink] = result
    used = {buffer for each in stages for buffer in each.compute.inputs}
    inputs = [(n, buffer) for n, buffer in enumerate(params.values()) if buffer in used]
    kernel = rowed(stages, group.rows, tuple([buffer for _, buffer in inputs]))
    last = stages[-1]
    return Fused(
        kernel,
        digest(kernel),
        tuple([number for number, _ in inputs]),
        _source(order),
        last.compute,
        last.finish,
        tuple(stages),
        group.rows,
    )


def _values(root: Expr) -> list[Expr]:
    """The operators of a fused function, arguments first."""
    order: list[Expr] = []
    done: set[Expr] = set()
    stack: list[tuple[Expr, bool]] = [(root, False)]
    while stack:
        node, leaving = stack.pop()
        if leaving:
            order.append(node)
        elif node not in done:
            done.add(node)
            inside = parts(node)
            if inside is not None:
                stack.append((node, True))
                stack += [(part, False) for part in reversed(inside)]
    return order


def _known(value: Expr) -> Reading:
    """What is known of an operator; a tensor that no machine could hold is refused all the same."""
    of = reading(value)
    if of is None:
        raise CompilerBug(f"The operator {operator(value)} has no tensor expression.")
    elements = count(of.compute.shape) or 0  # where it is open, it is looked at when it is known
    if elements * of.compute.dtype.bytes > MOST_BYTES:
        raise UnsupportedError(too_large(str(type_of(value))))
    return of


def _buffer(name: Name, of: Type | None) -> Buffer:
    if not isinstance(of, TensorType):
        raise CompilerBug(f"A kernel is to read a value of type {of}.")
    return Buffer(name, of.shape, of.dtype)


def _places(
    order: Sequence[Expr], made: dict[Expr, Reading], start: dict[Expr, Index]
) -> dict[Expr, Index]:
    """Where each value is computed, from the sink back to the first."""
    places = dict(start)
    for value in reversed(order):
        of = made[value]
        for number, part in enumerate(parts(value) or ()):
            if part not in made:
                continue
            for place in of.places[number]:
                found = moved(place, of, places[value])
                if places.setdefault(part, found) != found:
                    raise CompilerBug(f"{operator(part)} is fused and needed at two places.")
    return places


def _composed(
    order: Sequence[Expr],
    made: dict[Expr, Reading],
    params: dict[Var, Buffer],
    start: dict[Expr, Index],
    given: dict[Expr, Scalar],
) -> dict[Expr, Scalar]:
    """The scalar that each value is at its place; those in `given` are known."""
    places = _places([each for each in order if each not in given], made, start)
    found = dict(given)
    for value in order:
        if value in found:
            continue
        of = made[value]
        at: dict[Term, Term] = {
            axis: place
            for axis, place in zip(of.compute.axes, places[value], strict=True)
            if axis is not place
        }
        body = substitute(of.compute.body, at) if at else of.compute.body
        held = [_holds(part, params, found) for part in parts(value) or ()]
        new = map_bottom_up(_Filled(of.operands, held), body)
        assert isinstance(new, Scalar)
        found[value] = new
    return found


def _holds(part: Expr, params: dict[Var, Buffer], found: dict[Expr, Scalar]) -> Buffer | Scalar:
    """What stands for an argument: a buffer to read from, or the element itself."""
    if isinstance(part, Var):
        return params[part]
    if isinstance(part, Const):
        return Lit(part.numpy().reshape(()).item(), part.dtype)
    return found[part]


class _Filled:
    """Puts in the place of each load what its operand holds."""

    def __init__(self, operands: tuple[Buffer, ...], held: Sequence[Buffer | Scalar]) -> None:
        self.held = dict(zip(operands, held, strict=True))

    def __call__(self, node: Term) -> Term:
        if not isinstance(node, Load) or node.buffer not in self.held:
            return node
        holds = self.held[node.buffer]
        return Load(holds, node.indices) if isinstance(holds, Buffer) else holds


def _turned(sink: Reading, there: Index, anchor: Reading) -> Index:
    """The place in the sink of an element of the anchor, which the sink reads at `there`."""
    back = dict(zip(there, anchor.compute.axes, strict=True))
    ones = [axis for axis, at in zip(anchor.compute.axes, there, strict=True) if at is index(0)]
    found: list[Scalar] = []
    for number, place in enumerate(sink.identity):
        if isinstance(place, ScalarVar):
            found.append(back[place])
        else:  # an axis of length 1: the anchor's, if it has one there
            same = anchor.compute.axes[number : number + 1]
            found += same if same and same[0] in ones else (index(0),)
    return tuple(found)


def _compute(params: dict[Var, Buffer], of: Reading, body: Scalar, *others: Scalar) -> Compute:
    """A tensor expression over the parameters that it, or other terms, really read."""
    terms = (body, *others)
    read = {node.buffer for term in terms for node in post_order(term) if isinstance(node, Load)}
    inputs = tuple([each for each in params.values() if each in read])
    return Compute(inputs, of.compute.axes, of.compute.shape, body)


def _source(order: Sequence[Expr]) -> str:
    """The operators of a kernel, as a person would call it."""
    names = [operator(value) for value in order]
    if len(names) > SPELLED:
        names = [*names[: SPELLED - 1], f"{len(names) - SPELLED + 1} more"]
    return " + ".join(names)
