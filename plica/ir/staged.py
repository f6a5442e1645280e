"""Staged: a graph function of tensors as stages, one for each result of an operator.

Composite operators are written out first.  Numbers are put where they are read.

    relu(x @ w) with a shape (2, 4)    -->  matmul[i, j] = sum over k of x[i, k] * w[k, j]
                                            relu[i, j] = max(matmul[i, j], 0)

>>> from plica.ir.graph import Var
>>> from plica.ir.type import tensor
>>> x = Var(Name("x"), tensor((2, 3), "f32"))
>>> function = Function((), (), (x,), None, Apply("exp", (x + x,)))
>>> [str(each.out.name) for each in staged(function).stages]
['add', 'exp']
>>> kernel_of(function).inputs
1

Not here: fusion (`plica.rewrite.fuse`), which says what should be one kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from attrs import frozen

from plica.core.binding import free_vars
from plica.core.diagnostic import CompilerBug
from plica.core.fold import map_bottom_up, post_order
from plica.core.name import Name, fresh
from plica.core.term import Term, rebuild
from plica.ir.define import define
from plica.ir.graph import Apply, Attrs, Const, Expr, Function, Project, Tuple, Var
from plica.ir.infer import infer, type_of
from plica.ir.loop import Kernel
from plica.ir.module import module
from plica.ir.op import find
from plica.ir.scalar import Buffer, Lit, Load, Scalar
from plica.ir.stage import Each
from plica.ir.tensor import Compute
from plica.ir.type import TensorType, Type
from plica.runtime.error import Diagnostic, Place, UnsupportedError


@frozen(eq=False)
class Staged:
    """The stages of a function, a buffer for each parameter, and those that hold the results."""

    stages: tuple[Each, ...]
    params: tuple[Buffer, ...]
    results: tuple[Buffer, ...]


def kernel_of(function: Function, *, empty: bool = False) -> Kernel:
    """One kernel for a function: its parameters are read, its results written."""
    of = staged(function)
    made = [each.out for each in of.stages]
    if any(each not in made for each in of.results) or len(set(of.results)) != len(of.results):
        raise _unsupported("function", "a result that is a parameter, or one that is given twice")
    return define(*of.stages, inputs=of.params, outputs=of.results, empty=empty)


def staged(function: Function) -> Staged:
    """The stages of a function whose parameters and results are tensors."""
    body = _written_out(function.body, dict(zip(function.params, function.params, strict=True)))
    used: set[Name] = set()
    params = tuple([_buffer(each.name, each.type, used) for each in function.params])
    held: dict[Expr, tuple[Buffer | Lit, ...]] = {
        var: (buffer,) for var, buffer in zip(function.params, params, strict=True)
    }
    stages: list[Each] = []
    for node in post_order(body):
        match node:
            case Const():
                held[node] = (_number(node),)
            case Project(value, index):
                held[node] = (held[value][index],)
            case Tuple(items):
                held[node] = tuple([each for item in items for each in held[item]])
            case Apply():
                made = _stages(node, [held[each][0] for each in node.args], used)
                stages += made
                held[node] = tuple([each.out for each in made])
            case Expr() if node not in held:
                raise _unsupported(type(node).__name__, "more than operators on tensors")
            case _:
                pass
    results = [each for each in held[body] if isinstance(each, Buffer)]
    if len(results) != len(held[body]):
        raise _unsupported("function", "a result that is a constant")
    return Staged(_needed(stages, results), params, tuple(results))


def _needed(stages: Sequence[Each], results: Sequence[Buffer]) -> tuple[Each, ...]:
    """The stages that something needs, in order: of several results of an operator not all may."""
    wanted = set[object](results)
    found: list[Each] = []
    for each in reversed(stages):
        if each.out in wanted:
            found.append(each)
            wanted |= free_vars(each)
    return tuple(reversed(found))


def _stages(node: Apply, args: Sequence[Buffer | Lit], used: set[Name]) -> list[Each]:
    """A stage for each result of an operator."""
    record = find(node.op)
    if record is None or record.compute is None:
        raise CompilerBug(f"The operator {node.op} has no tensor expression.")
    numbers: dict[Buffer, Lit] = {}
    buffers = []
    for at, each in enumerate(args):
        if isinstance(each, Lit):
            of = type_of(node.args[at])
            assert isinstance(of, TensorType)
            stand_in = Buffer(Name("number", at), of.shape, of.dtype)
            numbers[stand_in] = each
            buffers.append(stand_in)
        else:
            buffers.append(each)
    found = record.compute(dict(node.attrs), *buffers)
    made = []
    for one in (found,) if isinstance(found, Compute) else found:
        name = fresh(Name(node.op.rsplit(".", maxsplit=1)[-1]), used)
        used.add(name)
        out = Buffer(name, one.shape, one.dtype)
        made.append(Each(out, one.axes, _filled(one.body, numbers)))
    return made


def _filled(value: Scalar, numbers: dict[Buffer, Lit]) -> Scalar:
    """The value with numbers where they were read from a buffer."""
    if not numbers:
        return value

    def known(node: Term) -> Term:
        return numbers.get(node.buffer, node) if isinstance(node, Load) else node

    filled = map_bottom_up(known, value)
    assert isinstance(filled, Scalar)
    return filled


def _number(of: Const) -> Lit:
    array = of.numpy()
    if array.size != 1:
        raise _unsupported("constant", "an array, which should be a parameter")
    return Lit(array.reshape(()).item(), of.dtype)


def _buffer(name: Name, of: Type | None, used: set[Name]) -> Buffer:
    if not isinstance(of, TensorType):
        raise _unsupported(str(name), f"a value of type {of}")
    own = fresh(name, used)
    used.add(own)
    return Buffer(own, of.shape, of.dtype)


def _unsupported(where: str, found: str) -> UnsupportedError:
    message = "This function is no kernel."
    return UnsupportedError(
        Diagnostic("unsupported", message, Place(node=where), "operators on tensors", found)
    )


# --- composite operators -------------------------------------------------------------------------


def _written_out(root: Expr, start: dict[Expr, Expr]) -> Expr:
    """The expression with its variables replaced and composite operators written out."""
    memo: dict[Term, Term] = {}
    memo.update(start.items())
    for node in post_order(root):
        if node in memo:
            continue
        if not isinstance(node, Expr) or isinstance(node, Var):
            memo[node] = node
            continue
        new = rebuild(node, tuple([memo[kid] for kid in node._children]))
        if isinstance(new, Apply):
            record = find(new.op)
            if record is not None and record.decompose is not None:
                own = _instance(new.op, new.attrs, tuple([type_of(each) for each in new.args]))
                new = _written_out(own.body, dict(zip(own.params, new.args, strict=True)))
        elif isinstance(new, Project) and isinstance(new.value, Tuple):
            new = new.value.items[new.index]
        memo[node] = new
    result = memo[root]
    assert isinstance(result, Expr)
    return result


@lru_cache(maxsize=1024)
def _instance(name: str, attributes: Attrs, types: tuple[Type, ...]) -> Function:
    """The definition of a composite operator at these types, fully written out."""
    record = find(name)
    assert record is not None
    assert record.decompose is not None
    params = tuple([Var(Name("x", at), each) for at, each in enumerate(types)])
    body = record.decompose(dict(attributes), *params)
    main = Var(Name("main"), None)
    whole = infer(module({main: Function((), (), params, None, body)}, main)).main_function()
    written = _written_out(whole.body, dict(zip(whole.params, whole.params, strict=True)))
    return Function((), (), whole.params, None, written)
