"""To stages: a primitive function becomes tensors computed one from another.

    relu(conv(x, w) + b)
      -->  reduced[n, o, i, j] = sum over c, k, l of x[n, c, i + k, j + l] * w[o, c, k, l]
           out[n, o, i, j] = max(reduced[n, o, i, j] + b[o], 0)

>>> from plica.ir.graph.expression import Apply
>>> from plica.ir.type.term import tensor
>>> x = Var(Name("x"), tensor((3,), "f32"))
>>> function = Function((), (), (x,), x.type, Apply("exp", (x + x,)))
>>> print(to_stages(function).stages)
out[i < 3] = exp(x[i] + x[i])
>>> to_stages(function).source, to_stages(function).reads
('add + exp', (0,))

Buffer roles: an input that a contraction reads in several roles is one input for each.

    y[i, j] = sum(x[i, k] * x[j, k] for k)          x @ x.T
      -->  y[i, j] = sum(x[i, k] * x_1[j, k] for k)
    out[i] = x[i] + tanh(sum(x[i + k] * w[k] for k))
      -->  out[i] = x_1[i] + tanh(sum(x[i + k] * w[k] for k))

>>> from plica.ir.loop.stage import stage
>>> from plica.ir.loop.tensor import buffer, reduce
>>> from plica.ir.type.dtype import f32
>>> x = buffer("x", (4, 8), f32)
>>> gram = stage("y", (4, 4), lambda i, j: reduce("sum", (8,), lambda k: x[i, k] * x[j, k]))
>>> inputs, made, reads = one_role_each((x,), [gram], (0,), {x.name})
>>> [str(each.name) for each in inputs], reads
(['x', 'x_1'], (0, 0))

Law: the stages mean the same where inputs of one number are equal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import product
from typing import Final, TypeAlias

from attrs import evolve, frozen

from plica.core.binding import free_vars, substitute
from plica.core.diagnostic import MAX_TENSOR_BYTES, CompilerBug, too_large
from plica.core.fold import map_bottom_up, map_top_down, post_order
from plica.core.name import Name, fresh
from plica.core.term import Term
from plica.ir.graph.expression import Const, Expr, Function, Var, attr
from plica.ir.loop.reduction import exposed
from plica.ir.loop.scalar import Buffer, Lit, Load, Mul, Reduce, Scalar, ScalarVar, dtype_of, index
from plica.ir.loop.stage import Each, Scan, stage_of
from plica.ir.loop.stages import Stages, loads, stages
from plica.ir.loop.tensor import Prefix
from plica.ir.type import TensorType, Type, i64, type_of
from plica.rewrite.fuse.decide import moved
from plica.rewrite.fuse.group import is_small, labelled
from plica.rewrite.fuse.reading import (
    AccessPattern,
    Index,
    count,
    operator,
    parts,
    reading,
    values_below,
    with_parts,
)
from plica.runtime.error import UnsupportedError

SPELLED: Final = 4  # how many operators the name of a kernel spells out


@frozen(eq=False)
class Fused:
    """The stages of a primitive function, which parameter each input is, and its operators.

    A parameter that is read in several roles is several inputs (`plica.rewrite.fuse.to_stages`).
    """

    stages: Stages
    reads: tuple[int, ...]
    source: str


def alone(value: Expr) -> tuple[Function, tuple[Expr, ...]]:
    """A single operator as a primitive function, and the arguments of that.

    Scalars stay arguments unless their values make elements cheaper: one kernel serves all values.
    """
    params: dict[Expr, Var] = {}
    labels: dict[str, int] = {}
    args: list[Expr] = []
    of = reading(value)
    known_now = of is not None and not of.is_cheap
    for number, part in enumerate(parts(value) or ()):
        if part not in params and not (known_now and is_small(part)):
            params[part] = labelled(value, number, labels, type_of(part))
        args.append(params.get(part, part))
    body = with_parts(value, tuple(args))
    return Function((), (), tuple(params.values()), type_of(value), body), tuple(params)


@lru_cache(maxsize=512)
def to_stages(function: Function) -> Fused:
    """The stages of a primitive function."""
    order = values_below(function.body)
    params = {param: _buffer(param.name, param.type) for param in function.params}
    used = {each.name for each in params.values()}
    held: dict[Expr, Buffer] = {param: buffer for param, buffer in params.items()}  # noqa: C416  # wider keys
    made: list[Each | Scan] = []
    for number in (*attr(function, "stages", ())[:-1], len(order) - 1):
        made += _stages(order[number], held, used)
        held[order[number]] = made[-1].out
    read = {load.buffer for each in made for load in loads(each.value)}
    inputs = [(n, buffer) for n, buffer in enumerate(params.values()) if buffer in read]
    numbers, buffers = [n for n, _ in inputs], [buffer for _, buffer in inputs]
    apart, every, reads = one_role_each(buffers, made, numbers, used)
    return Fused(stages(apart, every), reads, _source(order))


def _stages(body: Expr, held: Mapping[Expr, Buffer], used: set[Name]) -> list[Each | Scan]:
    """The stages that compute a value from buffers; their names are added to `used`."""
    order = values_below(body, held)
    known_: dict[Expr, AccessPattern] = {value: _known(value) for value in order}
    anchor = next((value for value, of in known_.items() if of.reduces), None)
    sink = known_[body]
    if anchor is None or anchor is body:
        value = _composed(order, known_, held, {body: sink.identity}, {})
        return _bare(_out(used, body), sink.compute.axes, value, used)
    # The anchor is computed at its own axes; the sink is stored at these, in its own order.
    (there,) = _places(order, known_, {body: sink.identity})[anchor]
    here = _transposed(sink, there, known_[anchor])
    before = values_below(anchor, held)
    axes = known_[anchor].compute.axes
    value = _composed(before, known_, held, {anchor: axes}, {})
    first = _bare(_named("reduced", type_of(anchor), used), axes, value, used)
    given: dict[Expr, Scalar] = {anchor: Load(first[-1].out, axes)}
    after = [value for value in order if value not in before or value is anchor]
    last = _composed(after, known_, held, {body: here}, given)
    return _joined(first, _epilogue(_out(used, body), here, axes, last, used))


def _bare(
    out: Buffer, axes: tuple[ScalarVar, ...], value: Scalar, used: set[Name]
) -> list[Each | Scan]:
    """A stage; one that does more than to reduce, or to scan, is two.

    out[i] = (sum over k of x[i, k]) / 3  -->  held[i] = sum over k of x[i, k]
                                               out[i] = held[i] / 3
    """
    found = [node for node in post_order(value) if isinstance(node, Reduce | Prefix)]
    scans = [node for node in found if isinstance(node, Prefix)]
    if len(found) != 1 or found[0] is value or (not scans and exposed(value) != found):
        return [stage_of(out, axes, value)]
    held = Buffer(_fresh("held", used), out.shape, dtype_of(found[0]))
    read = Load(held, axes)
    rest = map_top_down(lambda node: read if node is found[0] else node, value)
    return [stage_of(held, axes, found[0]), Each(out, axes, rest)]


def _joined(first: list[Each | Scan], last: Each) -> list[Each | Scan]:
    """A reduction and its epilogue; operations in between become part of the epilogue."""
    if len(first) == 1:
        return [*first, last]
    total, between = first
    assert isinstance(between, Each)
    there: dict[Term, Scalar] = {}
    for load in loads(last.value):
        if load.buffer is between.out:
            at: dict[Term, Term] = dict(zip(between.axes, load.indices, strict=True))
            value = substitute(between.value, at)
            there[load] = value
    whole = map_top_down(lambda node: there.get(node, node), last.value)
    return [total, Each(last.out, last.axes, whole)]


def _epilogue(
    out: Buffer, here: Index, axes: tuple[ScalarVar, ...], value: Scalar, used: set[Name]
) -> Each:
    """The stage that stores `value`, a term over the axes of a reduction, at `here`."""
    own: list[ScalarVar] = []
    for place in here:
        if isinstance(place, ScalarVar) and place not in own:
            own.append(place)
        else:  # an axis of length 1
            own.append(ScalarVar(_fresh("one", used), i64))
    units: dict[Term, Term] = {axis: index(0) for axis in axes if axis not in own}
    whole = substitute(value, units) if not free_vars(value).isdisjoint(units) else value
    return Each(out, tuple(own), whole)


def _known(value: Expr) -> AccessPattern:
    """The access pattern of an operator; tensors beyond any memory are still refused."""
    if (of := reading(value)) is None:
        raise CompilerBug(f"The operator {operator(value)} has no tensor expression.")
    elements = count(of.compute.shape) or 0  # where it is open, it is looked at when it is known
    if elements * of.compute.dtype.bytes > MAX_TENSOR_BYTES:
        raise UnsupportedError(too_large(str(type_of(value))))
    return of


def _buffer(name: Name, of: Type | None) -> Buffer:
    if not isinstance(of, TensorType):
        raise CompilerBug(f"A kernel is to read a value of type {of}.")
    return Buffer(name, of.shape, of.dtype)


def _named(like: str, of: Type, used: set[Name]) -> Buffer:
    return _buffer(_fresh(like, used), of)


def _out(used: set[Name], of: Expr) -> Buffer:
    return _named("out", type_of(of), used)


def _fresh(like: str, used: set[Name]) -> Name:
    found = fresh(Name(like), used)
    used.add(found)
    return found


def _places(
    order: Sequence[Expr], made: dict[Expr, AccessPattern], start: dict[Expr, Index]
) -> dict[Expr, dict[Index, None]]:
    """Where each value is computed, from the sink back to the first."""
    places = {value: {place: None} for value, place in start.items()}
    for value in reversed(order):
        of = made[value]
        for number, part in enumerate(parts(value) or ()):
            if part not in made:
                continue
            found = places.setdefault(part, {})
            for place, to in product(of.places[number], places[value]):
                found[moved(place, of, to)] = None
            if len(found) > 1 and not made[part].moves_rows:
                raise CompilerBug(f"{operator(part)} is fused and needed at two places.")
    return places


def _composed(
    order: Sequence[Expr],
    made: dict[Expr, AccessPattern],
    params: Mapping[Expr, Buffer],
    start: dict[Expr, Index],
    given: dict[Expr, Scalar],
) -> Scalar:
    """The scalar that the last value is at its place; those in `given` are known."""
    places = _places([expr for expr in order if expr not in given], made, start)
    found: dict[Expr, _Element] = {}
    for value in order:
        if value in given:
            found[value] = _Same(given[value])
            continue
        held = [_holds(part, params, found) for part in parts(value) or ()]
        read = _Read(made[value], held)
        to, *others = places[value]
        found[value] = read if others else _Same(read(to))
    return found[order[-1]](start[order[-1]])


def _holds(
    part: Expr, held: Mapping[Expr, Buffer], found: Mapping[Expr, _Element]
) -> Buffer | _Element:
    """The replacement of an argument: a buffer, or its elements."""
    if part in held:
        return held[part]
    if isinstance(part, Const):
        return _Same(Lit(part.numpy().reshape(()).item(), part.dtype))
    return found[part]


@frozen
class _Same:
    """A value of one element, at whatever index it is read."""

    element: Scalar

    def __call__(self, _: Index) -> Scalar:
        return self.element


class _Read:
    """The element of a value at a place, as it reads the arguments."""

    def __init__(self, of: AccessPattern, held: Sequence[Buffer | _Element]) -> None:
        self.of, self.held = of, dict(zip(of.operands, held, strict=True))

    def __call__(self, to: Index) -> Scalar:
        compute = self.of.compute
        at: dict[Term, Term] = {
            axis: place for axis, place in zip(compute.axes, to, strict=True) if axis is not place
        }
        body = substitute(compute.body, at) if at else compute.body
        return map_bottom_up(self._filled, body)

    def _filled(self, node: Term) -> Term:
        """The replacement of a load of an argument."""
        if not isinstance(node, Load) or node.buffer not in self.held:
            return node
        holds = self.held[node.buffer]
        return Load(holds, node.indices) if isinstance(holds, Buffer) else holds(node.indices)


_Element: TypeAlias = _Same | _Read


def _transposed(sink: AccessPattern, there: Index, anchor: AccessPattern) -> Index:
    """The place in the sink of an element of the anchor, which the sink reads at `there`."""
    back = dict(zip(there, anchor.compute.axes, strict=True))
    ones = [axis for axis, at in zip(anchor.compute.axes, there, strict=True) if at is index(0)]
    scalars: list[Scalar] = []
    for number, place in enumerate(sink.identity):
        if isinstance(place, ScalarVar):
            scalars.append(back[place])
        else:  # an axis of length 1: the anchor's, if it has one there
            same = anchor.compute.axes[number : number + 1]
            scalars += same if same and same[0] in ones else (index(0),)
    return tuple(scalars)


def _source(order: Sequence[Expr]) -> str:
    """The operators of a kernel, as a person would call it."""
    names = [operator(value) for value in order]
    if len(names) > SPELLED:
        names = [*names[: SPELLED - 1], f"{len(names) - SPELLED + 1} more"]
    return " + ".join(names)


# --- buffer roles ------------------------------------------------------------------------------


def one_role_each(
    inputs: Sequence[Buffer], made: Sequence[Each | Scan], reads: Sequence[int], used: set[Name]
) -> tuple[tuple[Buffer, ...], tuple[Each | Scan, ...], tuple[int, ...]]:
    """The inputs, the stages and the parameter of each input, with an input for each role."""
    every = [each for each in made if isinstance(each, Each)]
    if len(made) > 2 or len(every) < len(made) or not isinstance(every[0].value, Reduce):
        return tuple(inputs), tuple(made), tuple(reads)
    numbers = dict(zip(inputs, reads, strict=True))

    def second(buffer: Buffer) -> Buffer:
        """Another input of the tensor that a buffer is."""
        name = fresh(buffer.name, used)
        used.add(name)
        found = Buffer(name, buffer.shape, buffer.dtype)
        numbers[found] = numbers[buffer]
        return found

    contraction, *after = every
    value, body = every[0].value, every[0].value.body
    if isinstance(body, Mul):
        both = _read_by(body.left) & _read_by(body.right) & numbers.keys()
        if both and _loads_of(body.left, both) != _loads_of(body.right, both):
            names = {each: second(each) for each in inputs if each in both}
            body = Mul(body.left, _renamed(body.right, names))
            value = Reduce(value.combiner, value.axes, value.extents, body, value.runs)
            contraction = Each(contraction.out, contraction.axes, value)
    if after and _is_epilogue(after[0], contraction):
        again = _read_by(after[0].value) & _read_by(value)
        names = {each: second(each) for each in inputs if each in again}
        after = [evolve(after[0], value=_renamed(after[0].value, names))]
    return tuple(numbers), (contraction, *after), tuple(numbers.values())


def _is_epilogue(of: Each, contraction: Each) -> bool:
    """Whether a stage computes one element per element of a contraction."""
    read = [load for load in loads(of.value) if load.buffer is contraction.out]
    places = {place for load in read for place in load.indices if isinstance(place, ScalarVar)}
    return len(read) == 1 and places >= {*of.axes}


def _read_by(of: Term) -> set[Buffer]:
    return {load.buffer for load in loads(of)}


def _loads_of(of: Term, buffers: set[Buffer]) -> set[Load]:
    return {load for load in loads(of) if load.buffer in buffers}


def _renamed(of: Scalar, names: dict[Buffer, Buffer]) -> Scalar:
    def rename(node: Term) -> Term:
        if isinstance(node, Load) and node.buffer in names:
            return Load(names[node.buffer], node.indices)
        return node

    return map_bottom_up(rename, of)
