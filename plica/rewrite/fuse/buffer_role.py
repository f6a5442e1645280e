"""Buffer roles: an input that a contraction reads in several roles is one input for each.

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

from collections.abc import Sequence

from attrs import evolve

from plica.core import Name, Term, fresh, map_bottom_up
from plica.ir.loop import Buffer, Each, Load, Reduce, Scalar, ScalarVar, Scan, loads
from plica.ir.loop.scalar import Mul


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
        if both and _places(body.left, both) != _places(body.right, both):
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
    read = [each for each in loads(of.value) if each.buffer is contraction.out]
    places = {place for each in read for place in each.indices if isinstance(place, ScalarVar)}
    return len(read) == 1 and places >= {*of.axes}


def _read_by(of: Term) -> set[Buffer]:
    return {each.buffer for each in loads(of)}


def _places(of: Term, buffers: set[Buffer]) -> set[Load]:
    return {each for each in loads(of) if each.buffer in buffers}


def _renamed(of: Scalar, names: dict[Buffer, Buffer]) -> Scalar:
    def rename(node: Term) -> Term:
        if isinstance(node, Load) and node.buffer in names:
            return Load(names[node.buffer], node.indices)
        return node

    return map_bottom_up(rename, of)
