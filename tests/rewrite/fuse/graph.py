"""Random dataflow in which there is much to fuse, and much that must not be."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from plica.core.name import Name
from plica.ir.graph.expression import Expr, Function, Project, Tuple, Var, const
from plica.ir.graph.module import Module, module
from plica.ir.op import find
from plica.ir.type.infer import infer, type_of
from plica.ir.type.term import TensorType, tensor

X = Var(Name("x"), tensor((2, 3, 4, 4), "f32"))
Y = Var(Name("y"), tensor((3, 4), "f32"))
Z = Var(Name("z"), tensor((4, 4), "f32"))
AT = Var(Name("at"), tensor((3,), "i64"))
PARAMS = (X, Y, Z, AT)


def op(name: str, *args: Any, **attributes: Any) -> Expr:
    record = find(name)
    assert record is not None, name
    return record(*args, **attributes)


def module_of(body: Expr, *params: Var) -> Module:
    main = Var(Name("main"), None)
    return infer(module({main: Function((), (), params, None, body)}, main))


def shape(of: Expr) -> tuple[int, ...]:
    found = type_of(of)
    assert isinstance(found, TensorType)
    return tuple(size.value for size in found.shape)  # type: ignore[attr-defined]  # all are numbers


def rank(of: Expr) -> int:
    return len(shape(of))


UNARY = ("sigmoid", "negative", "nn.relu", "tanh", "abs")  # none makes a small difference large
BINARY = ("add", "subtract", "multiply", "maximum")


@st.composite
def next_value(draw: st.DrawFn, known: list[Expr]) -> Expr:
    """One operator of values there are; mostly of the last, so that there are chains."""
    recent = st.sampled_from(known[-3:])
    x = draw(st.one_of(recent, st.sampled_from(known)))
    axes = rank(x)
    kind = draw(st.integers(0, 13))
    if kind <= 2 or axes == 0:
        return op(draw(st.sampled_from(UNARY)), x)
    if kind <= 5:
        same = [each for each in known if shape(each) == shape(x)]
        smaller = [Z] if shape(x)[-1:] == (4,) and axes >= 2 and shape(x)[-2] in {1, 4} else []
        y = draw(st.sampled_from([*same, *smaller, const(0.5, "f32")]))
        return op(draw(st.sampled_from(BINARY)), x, y)
    axis = draw(st.integers(0, axes - 1))
    match kind:
        case 6:
            return op("transpose", x, draw(st.permutations(range(axes))))
        case 7:
            name = draw(st.sampled_from(("sum", "max", "mean")))
            return op(name, x, axis=(axis,), keepdims=draw(st.booleans()))
        case 8 if axes == 4 and shape(x)[1] == 3:
            weight = const([[[[0.5, -1.0], [0.25, 1.0]]] * 3] * 3, "f32")
            return op("nn.conv", x, weight, padding=1)
        case 8 | 9 if shape(x)[-1] == 4:
            return op("nn.dense", x, Y) if draw(st.booleans()) else op("matmul", x, Z)
        case 10:
            return op("reshape", x, (-1,)) if draw(st.booleans()) else op("flip", x, axis=(axis,))
        case 11:
            return op("concat", (x, x), axis=axis)
        case 12 if shape(x)[axis] % 2 == 0:
            return Project(op("split", x, 2, axis=axis), draw(st.integers(0, 1)))
        case 13 if shape(x)[axis] >= 3:
            return op("take", x, AT, axis=axis)
        case _:
            return op("where", op("greater", x, const(0.0, "f32")), x, op("negative", x))


@st.composite
def graphs(draw: st.DrawFn, most: int = 10) -> Module:
    """A module of a few operators over one another; several of them may be results."""
    known: list[Expr] = [X, Z]
    for _ in range(draw(st.integers(1, most))):
        known.append(draw(next_value(known)))
    others = draw(st.lists(st.sampled_from(known), max_size=2))
    return module_of(Tuple((known[-1], *others)) if others else known[-1], *PARAMS)
