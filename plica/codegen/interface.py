"""The interface of compiled code: names and types visible to callers, and an artefact's constants
and memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from itertools import permutations
from operator import add
from typing import Literal

import numpy as np

from plica.codegen.memory_plan import WorkspacePlan
from plica.codegen.program import Program, Slot
from plica.core.binding import free_vars
from plica.core.deferred import unobserved
from plica.core.term import Term
from plica.ir.graph.expression import Const, Function, attr
from plica.ir.graph.shape_specialisation import named
from plica.ir.loop.scalar import Scalar, ScalarVar, index
from plica.ir.type.dim import (
    from_polynomial,
    is_size,
    known as size_of,
    normal_dim,
    polynomial,
    quotient,
    same_dim,
)
from plica.ir.type.dtype import DType
from plica.ir.type.term import TensorType, TupleType, Type
from plica.runtime.artefact import ALIGNMENT, StoredAllocation, aligned_array
from plica.runtime.executable import Interface, Shape
from plica.runtime.late import lazy_imports
from plica.runtime.port import Array, OpenPort, Port

with lazy_imports(__name__):
    from plica.ir.text.show.type import show_dim


def interface(main: Function, program: Program) -> Interface:
    """The names and types a caller sees; a tuple's tensors are named after it."""
    found = with_ports(main, program.space("input"), program.space("output"))
    return replace(found, donated=program.donated, needs=_need_texts(program.needs))


def names_of(main: Function) -> str:
    """The names a caller sees, of which the digest of a module knows nothing.

    Those of outputs and the ranges of dims are attributes, which it knows.
    """
    return f"{[str(param.name) for param in main.params]} {[str(dim.name) for dim in main.dims]}"


def with_ports(main: Function, slots: Sequence[Slot], space: Sequence[Slot]) -> Interface:
    """The same, from inputs and outputs."""
    inputs: list[Port] = []
    params: list[tuple[str, Shape]] = []
    for param in main.params:
        assert param.type is not None
        params.append((str(param.name), _ports(str(param.name), param.type, slots, inputs)))
    assert main.ret is not None
    outputs: list[Port] = []
    names = attr(main, "outputs")
    single = not isinstance(main.ret, TupleType)
    if names is None:
        _ports("output", main.ret, space, outputs)
    else:  # a model that was read has names for what it gives
        parts = main.ret.items if isinstance(main.ret, TupleType) else (main.ret,)
        for name, of in zip(names, parts, strict=True):
            _ports(name, of, space, outputs)
    ranges = tuple(attr(main, "dim_ranges", ()))
    return Interface(tuple(params), tuple(inputs), tuple(outputs), single, ranges)


def _ports(name: str, type: Type, slots: Sequence[Slot], into: list[Port]) -> Shape:
    """Add a port for each tensor of a type, and say where they are."""
    if isinstance(type, TupleType):
        inside = [_ports(f"{name}[{i}]", item, slots, into) for i, item in enumerate(type.items)]
        return tuple(inside)
    slot = slots[len(into)]
    if all(isinstance(each, int) for each in slot.shape):
        into.append(Port(name, slot.fixed, slot.dtype.name, slot.dtype.numpy))
    else:
        shape = tuple([each if isinstance(each, int) else size_text(each) for each in slot.shape])
        into.append(OpenPort(name, shape, slot.dtype.name, slot.dtype.numpy))
    return len(into) - 1


def slots_of(space: Literal["input", "output"], of: Type) -> list[Slot]:
    """A slot for each tensor of a type whose sizes are known."""
    slots: list[Slot] = []
    stack = [of]
    while stack:
        if isinstance(each := stack.pop(), TupleType):
            stack += reversed(each.items)
            continue
        assert isinstance(each, TensorType)  # `offload` has resolved the module
        sizes = tuple([size_of(size) or 0 for size in each.shape])
        assert isinstance(each.dtype, DType)
        slots.append(Slot(space, len(slots), sizes, each.dtype))
    return slots


def _need_texts(terms: Sequence[Scalar]) -> tuple[str, ...]:
    """That terms are not negative, as a caller reads it; one that is not positive either is 0."""
    found: dict[str, None] = {}
    for at, least in enumerate(terms):
        opposite = index(0) - least
        if not any(same_dim(opposite, term) for term in terms):
            found[_need_text(least, ">=")] = None
        elif not any(same_dim(opposite, term) for term in terms[:at]):
            found[_one_or_same(least) or _need_text(least, "==")] = None
    return tuple(found)


def _need_text(least: Scalar, relation: str) -> str:
    """A requirement in text form: positive terms on the left, negative ones on the right.

    >>> from plica.ir.type.dim import dim_var
    >>> n, m = dim_var("n"), dim_var("m")
    >>> _need_text(m - n % 2 - 3, ">="), _need_text(index(0) - n % 2, ">=")
    ('m >= n%2+3', 'n%2 == 0')
    >>> _need_text((n - m) * (n - m) - 1, ">=")
    'n != m'
    """
    if is_size(opposite := normal_dim(index(0) - least)):
        least, relation = opposite, "=="
    elif relation == ">=" and (difference := _square_root(normal_dim(least + 1))) is not None:
        least, relation = difference, "!="
    terms = polynomial(least)
    sides = [
        {key: (atoms, abs(count)) for key, (atoms, count) in terms.items() if (count > 0) is added}
        for added in (True, False)
    ]
    return f" {relation} ".join([size_text(from_polynomial(side)) for side in sides])


def _square_root(square: Scalar) -> Scalar | None:
    """The sum whose square a term is, or None."""
    terms = polynomial(square)
    for size in [atoms[0] for atoms, _ in terms.values() if len(atoms) == 2]:
        parts = [quotient(from_polynomial({key: each}), size * 2) for key, each in terms.items()]
        root = normal_dim(reduce(add, [part for part in parts if part is not None], size))
        if same_dim(root * root, square):
            return root
    return None


def _one_or_same(zero: Scalar) -> str | None:
    """The relation of broadcast sizes expressed by a product that is 0."""
    dims = sorted(free_vars(zero), key=str)
    for one, other in permutations(dims, 2) if len(dims) == 2 else ():
        assert isinstance(one, ScalarVar)
        assert isinstance(other, ScalarVar)
        apart = (one - 1) * (other - one)
        for product in (apart, apart * (other - 1)):
            for sign in (1, -1):
                if same_dim(product * sign, zero):
                    many = "" if product is apart else f" or {named(other)} == 1"
                    return f"{named(one)} == {named(other)} or {named(one)} == 1{many}"
    return None


def size_text(of: Scalar) -> str:
    """An open size as a caller reads it."""
    return show_dim(of, _written)


def _written(of: Term) -> str:
    assert isinstance(of, ScalarVar)
    return named(of)


def tenants(plan: WorkspacePlan) -> tuple[StoredAllocation, ...]:
    """Who lives where in the workspace."""
    return tuple(
        [
            StoredAllocation(
                offset, each.size, each.born, each.last, each.view_of, each.in_place_of
            )
            for each, offset in zip(plan.memory.tenants, plan.memory.offsets, strict=True)
        ]
    )


def aligned_bytes(of: Const) -> Array:
    """The bytes of a constant at a multiple of 64, where they are if they are at one already."""
    with unobserved():
        content = of.content
    array = np.frombuffer(content or b"\0", np.uint8)  # an empty one needs some address too
    if array.__array_interface__["data"][0] % ALIGNMENT == 0:
        return array
    copy = aligned_array(array.size)
    copy[:] = array
    return copy
