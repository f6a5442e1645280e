"""What the compiler refuses: one test per reason, and all reasons at once."""

from __future__ import annotations

import pytest

import plica
from plica.codegen.lower.supported import unsupported
from plica.core.name import Name
from plica.ir.graph.expression import (
    Call,
    Clause as Case,
    Expr,
    Function,
    Let,
    Match,
    PAny,
    Tuple,
    Var,
)
from plica.ir.graph.module import (
    ConstructorDef,
    DataDef,
    Definition,
    Extern,
    Module,
    constructors,
    module,
)
from plica.ir.loop.scalar import Lit
from plica.ir.loop.statement import Kernel, Store
from plica.ir.loop.tensor import axis, buffer
from plica.ir.type.dim import dim_var
from plica.ir.type.dtype import f32
from plica.ir.type.infer import infer
from plica.ir.type.term import DataName, DataType, FuncType, Type, TypeVar, tensor
from plica.pipeline import compile
from plica.runtime.error import UnsupportedError

VECTOR = tensor((3,), "f32")
X = Var(Name("x"), VECTOR)
N = Var(Name("n"), tensor(("n", 4), "f32"))


def main_of(
    params: tuple[Var, ...], body: Expr, more: dict[Var | DataName, Definition] | None = None
) -> Module:
    main = Var(Name("main"), None)
    return infer(module({**(more or {}), main: Function((), (), params, None, body)}, main))


def said(of: Module) -> list[tuple[str | None, str]]:
    """Where and why a module is refused."""
    found = unsupported(of)
    assert all(each.code in ("unsupported", "no-main") for each in found)
    return [(None if each.place is None else each.place.node, each.message) for each in found]


def test_nothing_is_wrong_with_static_first_order_programs() -> None:
    assert said(main_of((X,), X + 1.0)) == []


def symbolic(body: Expr, more: dict[Var | DataName, Definition] | None = None) -> Module:
    """A main function of `x` and a tensor of symbolic size."""
    main = Var(Name("main"), None)
    whole = Function((dim_var("n"),), (), (X, N), None, body)
    return infer(module({**(more or {}), main: whole}, main))


def test_symbolic_dims() -> None:
    assert said(symbolic(Tuple((X, N + 1.0)))) == [
        ("n", "The input 'n' has a symbolic dim."),
        (None, "The output has a symbolic dim."),
    ]


def test_functions_as_inputs_and_outputs() -> None:
    f = Var(Name("f"), FuncType((), (), (VECTOR,), VECTOR))
    assert said(main_of((f, X), Tuple((f, Call(f, (X,)))))) == [
        ("f", "The input 'f' is a function."),
        (None, "The output is a function."),
    ]


def test_unknown_types() -> None:
    a = TypeVar(Name("A"))
    v = Var(Name("v"), a)
    main = Var(Name("main"), None)
    of = infer(module({main: Function((), (a,), (v,), a, v)}, main))
    assert said(of) == [
        ("v", "The input 'v' has a type that is not known."),
        (None, "The output has a type that is not known."),
    ]


def test_data_types() -> None:
    name = DataName(Name("Box"))
    data = DataDef((), (ConstructorDef(Name("Box"), (VECTOR,)),))
    (box,) = constructors(name, data)
    whole = DataType(name, ())
    b = Var(Name("b"), whole)
    body = Match(b, (Case(PAny(), X),))
    of = main_of((b, X), body, {name: data})
    assert said(of) == [
        ("b", "The input 'b' is of the data type 'Box'."),
        ("Box", "The program uses the data type 'Box'."),
    ]
    inside = main_of((X,), Match(Call(box, (X,)), (Case(PAny(), X),)), {name: data})
    assert said(inside) == [("Box", "The program uses the data type 'Box'.")]


def test_externs_and_kernels() -> None:
    type_: Type = FuncType((), (), (VECTOR,), VECTOR)
    e, k = Var(Name("e"), type_), Var(Name("k"), type_)
    x, y, i = buffer("x", (3,), f32), buffer("y", (3,), f32), axis("i")
    kernel = Kernel((), (x, y), 1, Store(y, (Lit(0, i.dtype),), x[0]))
    assert isinstance(type_, FuncType)
    of = main_of((X,), Call(e, (Call(k, (X,)),)), {e: Extern("sym", type_), k: kernel})
    assert not said(of)
    refused = unsupported(of, objects=True)
    found = [(each.place and each.place.node, each.message) for each in refused]

    assert found == [("e", "A program with data or recursion calls the extern 'sym'.")]


def test_recursion_global_mutual_and_local() -> None:
    type_ = FuncType((), (), (VECTOR,), VECTOR)
    f, g, h = (Var(Name(each), type_) for each in "fgh")
    more: dict[Var | DataName, Definition] = {
        f: Function((), (), (X,), VECTOR, Call(g, (X,))),
        g: Function((), (), (X,), VECTOR, Call(f, (X,))),
        h: Function((), (), (X,), VECTOR, Call(f, (X,))),  # calls recursion, is none
    }
    assert said(main_of((X,), Call(h, (X,)), more)) == [
        ("f", "The function 'f' is recursive."),
        ("g", "The function 'g' is recursive."),
    ]
    loop = Var(Name("loop"), type_)
    local = Function((), (), (X,), VECTOR, Call(loop, (X,)))
    of = main_of((X,), Let(loop, local, Call(loop, (X,))))
    assert said(of) == [("main", "The local function 'loop' of 'main' is recursive.")]


def test_what_main_does_not_reach_is_not_looked_at() -> None:
    f = Var(Name("f"), FuncType((), (), (VECTOR,), VECTOR))
    more: dict[Var | DataName, Definition] = {f: Function((), (), (X,), VECTOR, Call(f, (X,)))}
    assert said(main_of((X,), X, more)) == []


def test_no_main() -> None:
    assert said(module({})) == [(None, "The module has no main function to compile.")]
    with pytest.raises(UnsupportedError) as caught:
        compile(module({}))
    assert caught.value.code == "no-main"
    assert caught.value.diagnostics[0].found == "no definition"


def test_compile_lists_everything_at_once() -> None:
    of = FuncType((), (), (VECTOR,), VECTOR)
    f, g = Var(Name("f"), of), Var(Name("g"), of)
    more: dict[Var | DataName, Definition] = {f: Extern("outside", of), g: Extern("beyond", of)}
    with pytest.raises(UnsupportedError) as caught:
        compile(symbolic(Tuple((Call(f, (Call(g, (X,)),)), N)), more))
    assert len(caught.value.diagnostics) == 2
    assert all(each.suggestion is not None for each in caught.value.diagnostics)


def nested_pairs(levels: int) -> str:
    lines = "".join([f"    a{n + 1} = (a{n}, a{n})\n" for n in range(levels)])
    head = "import plica\n@plica.function\ndef main(x: f32):\n    a0 = (x, x)\n"
    return f"{head}{lines}    return a{levels}"


def test_pairs_of_pairs_are_refused_at_once() -> None:
    bomb = plica.from_text(f"{nested_pairs(50)}\n")
    with pytest.raises(plica.PlicaError, match="too many tensors") as refused:
        plica.compile(bomb, cache=False)
    assert refused.value.diagnostics[0].found == f"{2**51} tensors"
    with pytest.raises(plica.PlicaError, match="more tensors than there is memory for"):
        plica.interpret(bomb, 1.0)


def test_one_of_many_shared_parts_is_compiled() -> None:
    one = plica.from_text(f"{nested_pairs(50)}{'[1]' * 51}\n")
    assert plica.compile(one, cache=False)(2.5) == 2.5
