"""Modules in which rules meet each other: short programs over the operators the tables speak of."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from plica.core.fold import post_order
from plica.core.name import Name
from plica.ir.graph.expression import Apply, Expr, Function, Tuple, Var, const
from plica.ir.graph.module import Module, module
from plica.ir.loop.scalar import ScalarVar
from plica.ir.op import find
from plica.ir.type.dim import dim_var
from plica.ir.type.infer import infer, type_of
from plica.ir.type.term import TensorType, tensor
from plica.rewrite.check.attribute import attribute_values
from plica.rewrite.check.data import Choose, reader
from plica.rewrite.packs.simplify import SIMPLIFY

OPERATORS = tuple(
    sorted(
        {node.op for rule in SIMPLIFY for node in post_order(rule.left) if isinstance(node, Apply)}
    )
)
USUAL = ("transpose", "reshape", "broadcast_to", "negative", "add", "multiply", "sum", "slice")
SIZES = (2, 3, 1)
N = dim_var("n")


@st.composite
def dense_modules(draw: st.DrawFn, symbolic: bool = False) -> Module:
    """A main function of a few parameters and constants, and a dozen operators on them."""
    return grown(reader(draw(st.binary(min_size=160, max_size=160))), symbolic)


def grown(choose: Choose, symbolic: bool) -> Module:
    """A module by choices."""
    sizes: tuple[Any, ...] = (*SIZES, N) if symbolic else SIZES
    shape = tuple(choose(sizes) for _ in range(choose((2, 1, 3))))
    of = choose(("f32", "i32", "bool", "f64", "f16", "u8", "i8"))
    params = [Var(Name(f"p{i}"), tensor(shape, choose((of, of, "f32", "bool")))) for i in range(2)]
    pool: list[Expr] = [*params]
    pool.extend(const(value, of) for value in (0, 1, 2) if of != "bool" or value < 2)
    for _ in range(choose((4, 8, 12))):
        found = applied(pool, choose)
        if found is not None:
            pool.append(found)
    results = tuple(dict.fromkeys(pool[-1 - i] for i in range(choose((1, 2)))))
    body = results[0] if len(results) == 1 else Tuple(results)
    dims = tuple(dict.fromkeys(each for each in shape if isinstance(each, ScalarVar)))
    main = Var(Name("main"), None)
    return infer(module({main: Function(dims, (), tuple(params), None, body)}, main))


def applied(pool: list[Expr], choose: Choose) -> Expr | None:
    """An operator applied to what there is, None where nothing fits."""
    for _ in range(12):
        operator = find(choose(USUAL if choose((True, False)) else OPERATORS))
        assert operator is not None
        count = choose((2, 1, 3)) if operator.variadic else len(operator.inputs)
        first = pool[-1 - choose(range(min(3, len(pool))))]
        args = [first, *(choose((first, *pool)) for _ in range(count - 1))][:count]
        types = [type_of(each) for each in args]
        values: dict[str, Any] = {}
        for spec in operator.attributes:
            options = attribute_values(spec, types)
            if spec.required and not options:
                break
            plain = () if spec.required else (spec.default,)
            values[spec.name] = choose((*plain, *options))
        else:
            result = operator.relation(values, *types)
            if isinstance(result, TensorType) and _is_small(result):
                return Apply(operator.name, tuple(args), tuple(sorted(values.items())))
    return None


def _is_small(of: TensorType) -> bool:
    total = 1
    for size in of.shape:
        total *= int(getattr(size, "value", 3))
    return len(of.shape) <= 5 and total <= 400
