"""Specialised modules: the symbolic dims of a main function replaced by numbers.

The sizes come from the input arrays: a dim that stands alone in a parameter's shape is the array's
extent there.

>>> from plica.core.name import Name
>>> from plica.ir.type.dim import dim_var
>>> from plica.ir.type.term import tensor
>>> x = Var(Name("x"), tensor(("n", 3), "f32"))
>>> main = Var(Name("main"), None)
>>> whole = infer(module({main: Function((dim_var("n"),), (), (x,), None, x + x)}, main))
>>> [str(each.name) for each in open_dims(whole)]
['n']
>>> str(sized(whole, {dim_var("n"): 4}).main_function().ret)
'Tensor[(4, 3), f32]'
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Any, Final

from plica.core.binding import free_vars, substitute
from plica.core.diagnostic import CompilerBug, EvaluationError
from plica.core.fold import all_of, map_bottom_up
from plica.core.name import Name
from plica.core.term import Term
from plica.ir.graph.expression import Apply, Function, If, Var, attr
from plica.ir.graph.module import Module, module, selecting_names
from plica.ir.graph.operator import Mismatch
from plica.ir.loop.scalar import Lit, Scalar, ScalarVar
from plica.ir.op import find
from plica.ir.type import TensorType, TupleType, Type, infer, known, normal_dim, static_shape
from plica.runtime.error import InputError, Place, PlicaError
from plica.runtime.late import lazy_imports
from plica.runtime.port import out_of_range

with lazy_imports(__name__):  # most programs have no open sizes
    from plica.ir.graph.node_name import carry
    from plica.ir.loop.need import guarded, needs, settled


def open_dims(of: Module) -> tuple[ScalarVar, ...]:
    """The symbolic dims of the main function, those that stand alone in a shape first found."""
    found: dict[ScalarVar, None] = {}
    for param in of.main_function().params:
        for tensor in tensors(param.type):
            found |= dict.fromkeys(each for each in tensor.shape if isinstance(each, ScalarVar))
    return tuple(found)


def has_open_dims(of: Module) -> bool:
    """Whether some parameter of the main function has a size that is no number."""
    if of.main is None or not isinstance(of.definitions().get(of.main), Function):
        return False
    params = of.main_function().params
    return any(static_shape(tensor) is None for param in params for tensor in tensors(param.type))


def tensors(of: Type | None) -> tuple[TensorType, ...]:
    """The tensors of a parameter, in order; empty if it contains functions or data."""
    tensor_types: list[TensorType] = []
    stack = [of]
    while stack:
        if isinstance(each := stack.pop(), TupleType):
            stack += reversed(each.items)
        elif isinstance(each, TensorType):
            tensor_types.append(each)
    return tuple(tensor_types)


def sizes_of(of: Module, shapes: Sequence[Sequence[int]]) -> dict[ScalarVar, int]:
    """The dims that the shapes of the arrays, one per parameter tensor, determine.

    The first array that has a dim decides; whether the others agree is seen once all sizes are
    numbers.
    """
    found: dict[ScalarVar, int] = {}
    types = [each for param in of.main_function().params for each in tensors(param.type)]
    for tensor, shape in zip(types, shapes, strict=True):
        for dim, size in zip(tensor.shape, shape, strict=False):
            if isinstance(dim, ScalarVar):
                found.setdefault(dim, size)
    return found


def check_ranges(of: Function, sizes: Mapping[str, int]) -> None:
    """Refuses sizes outside a function's ranges: `dim_ranges` holds (dim, minimum, maximum).

    Code traced at some sizes may be wrong at others.
    """
    wrong = []
    for name, least, most in attr(of, "dim_ranges", ()):
        if name in sizes and (reason := out_of_range(name, sizes[name], least, most)) is not None:
            wrong.append(reason)
    if wrong:
        raise InputError(wrong[0], *wrong[1:])


def sized(of: Module, sizes: Mapping[ScalarVar, int]) -> Module:
    """The module at some sizes; other dims stay symbolic."""
    if all_of(If, of.main_function().body):
        of = settled(infer(of), sizes)  # a branch that does not run may have no value at these
    main = of.main_function()
    assert of.main is not None
    function = function_at(main, sizes)
    rest = {each: value for each, value in of.items() if each is not of.main}
    if any(of.main in free_vars(value) for value in of.values):
        rest[of.main] = main  # whoever calls it has other sizes in mind, and is refused later
    taken = {each.name for each in rest}
    name = Var(next(_name for _name in _names(of.main.name) if _name not in taken), None)
    return infer(module({**rest, name: function}, name))


def function_at(function: Function, sizes: Mapping[ScalarVar, int]) -> Function:
    """A function at some sizes of its dims, its result to be inferred."""
    numbers = {dim: Lit(size, dim.dtype) for dim, size in sizes.items()}
    dims = tuple(var for var in function.dims if var not in numbers)
    # The old result type holds for every size; it is inferred again for these.
    loose = Function(dims, function.types, function.params, None, function.body, function.attrs)
    made = map_bottom_up(_settled, substitute(loose, numbers))
    if not isinstance(made, Function):
        raise CompilerBug("A function with sizes in place of dims is no function.")
    return made


def open_form(of: Module) -> Module:
    """The module in the form compiled for all sizes at once; unchanged if all sizes are static."""
    if not has_open_dims(of):
        return of
    whole = infer(of)
    checked = guarded(whole)
    # The needs of a branch are checked when it runs.
    opened = apart(with_least(checked, None if checked is whole else needs(checked)))
    if selecting_names(of):
        carry(of, opened)
    return opened


LEAST_SIZE_LIMIT: Final = 16
"""Sizes less than this are tried, to find the least a program makes sense for."""

LARGE_SIZE: Final = 4096
"""The size assumed for all other dims: a need of several dims is not a need of one (`need`)."""


def with_least(of: Module, asked: Sequence[Scalar] | None = None) -> Module:
    """The module saying of its dims which sizes are too small for some operator of it.

    If the needs (`asked`) are given, they alone are used.
    """
    main = of.main_function()
    assert of.main is not None
    told = {name for name, _, _ in attr(main, "dim_ranges", ())}
    dims = [dim for dim in open_dims(of) if str(dim.name) not in told]
    if not _has_meaning(of, asked, dict.fromkeys(open_dims(of), LARGE_SIZE)):
        return of  # sizes are asked to agree, which no one of them can be blamed for
    least = [(str(dim.name), _least(of, asked, dim), None) for dim in dims]
    if not (found := [each for each in least if each[1]]):
        return of
    ranges = (*attr(main, "dim_ranges", ()), *found)
    attrs = {**dict(main.attrs), "dim_ranges": ranges}
    new = Function(
        main.dims, main.types, main.params, main.ret, main.body, tuple(sorted(attrs.items()))
    )
    return infer(module({**dict(of.items()), of.main: new}, of.main))


def _least(of: Module, asked: Sequence[Scalar] | None, dim: ScalarVar) -> int:
    """The least size of a dim that every operator accepts, whatever the other dims are."""
    others = dict.fromkeys(open_dims(of), LARGE_SIZE)
    for size in range(LEAST_SIZE_LIMIT):
        sizes = {**others, dim: size}
        if _has_meaning(of, asked, sizes):
            return size
        # A need of several dims is not a need of this one.
        joint = [scalar for scalar in asked or needs(of) if len(free_vars(scalar)) > 1]
        if not _has_meaning(of, joint, sizes):
            return size
    return 0  # it is not this size that is wrong


def _has_meaning(
    of: Module, asked: Sequence[Scalar] | None, sizes: Mapping[ScalarVar, int]
) -> bool:
    """Whether every operator of a module accepts some sizes."""
    if asked is not None:
        numbers: dict[Term, Term] = {dim: Lit(size, dim.dtype) for dim, size in sizes.items()}
        return all((known(normal_dim(substitute(t, numbers))) or 0) >= 0 for t in asked)
    try:
        sized(of, sizes)
    except PlicaError:
        return False
    return True


OPEN_PREFIX: Final = "open_"
"""The prefix of dim names that must not be confused with loop variables."""


def apart(of: Module) -> Module:
    """The module with names for its open dims that no loop has, and no two of them as a text."""
    main = of.main_function()
    assert of.main is not None
    new: dict[Term, ScalarVar] = {}
    said: set[str] = set()
    for dim in main.dims:
        first = Name(f"{OPEN_PREFIX}{dim.name.hint}", dim.name.index)
        name = next(name for name in _names(first) if str(name) not in said)
        said.add(str(name))
        new[dim] = ScalarVar(name, dim.dtype)
    if not new:
        return of
    named = substitute(
        Function((), main.types, main.params, main.ret, main.body, main.attrs), dict(new)
    )
    whole = Function(
        tuple(new.values()), named.types, named.params, named.ret, named.body, named.attrs
    )
    return infer(module({**dict(of.items()), of.main: whole}, of.main))


def named(of: ScalarVar) -> str:
    """The name of a dim as it was written."""
    return str(of.name).removeprefix(OPEN_PREFIX)


def _settled(node: Term) -> Term:
    """An operator call with canonical attributes after its dims were substituted."""
    if not isinstance(node, Apply) or len(node._children) == len(node.args):
        return node
    record = find(node.op)
    readers = {attribute.name: attribute.read for attribute in record.attributes} if record else {}
    found = []
    for name, value in node.attrs:
        if isinstance(read := readers[name](_normal(value)), Mismatch):
            message = f"{node.op}: {read.message}"
            place = Place(node=node.op)
            raise EvaluationError.of(read.code, message, place, read.expected, read.found)
        found.append((name, read))
    return Apply(node.op, node.args, tuple(found))


def _normal(value: Any) -> Any:  # Any: what an attribute holds
    if isinstance(value, Scalar):
        return normal_dim(value)
    return tuple([_normal(each) for each in value]) if isinstance(value, tuple) else value


def _names(first: Name) -> Iterator[Name]:
    """A name and others like it."""
    return (Name(first.hint, first.index + more) for more in count())
