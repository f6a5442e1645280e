"""Reading: every construct, every refusal with its place, and functions in a running program."""

from __future__ import annotations

import contextlib
import linecache
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import plica
from plica.core.diagnostic import CompilerBug, IllTyped, ScriptError
from plica.core.digest import digest
from plica.core.name import Name
from plica.ir.graph.expression import (
    Apply,
    Call,
    Const,
    Function,
    If,
    Let,
    Literal,
    Project,
    Tuple,
    Var,
)
from plica.ir.graph.module import Extern, Module
from plica.ir.interpret.interpreter import interpret
from plica.ir.loop.scalar import Scalar
from plica.ir.op import find
from plica.ir.text.script import Scripted, as_module, from_text, read_text
from plica.ir.text.script.expression import INSTEAD, PYTHONIC, operator_meant
from plica.ir.text.script.origin import MAX_PROBLEMS
from plica.ir.text.show.type import show_dim
from plica.ir.type.dim import dim_var, same_dim
from plica.ir.type.dim_text import read_dim
from plica.runtime.error import PlicaError
from plica.script import Fn, Tensor, bf16, dim, f32, forall, partial as partial_word
from tests.ir.test_show import EVERYTHING
from tests.scripts import live
from tests.strategies import index_terms
from tests.strategies.text import texts

FUNCTION = "@plica.function\n"


def read(text: str) -> Module:
    """A text as it is written, before inference."""
    return read_text(text, "f.py", {})[0]


def body(text: str, params: str = "x: f32, y: f32, c: bool") -> Function:
    """The only function of a text with this body, before inference."""
    lines = "".join(f"    {line}\n" for line in text.split("\n"))
    return read(f"{FUNCTION}def f({params}) -> f32:\n{lines}").main_function()


def variable(hint: str, index: int = 0) -> Var:
    return Var(Name(hint, index), None)


# --- statements and expressions -------------------------------------------------------------------


def test_an_assignment_is_a_let_and_rebinding_makes_a_new_variable() -> None:
    found = body("y = x\ny = y + y\nreturn y").body
    assert isinstance(found, Let)
    assert isinstance(found.body, Let)
    inner, outer = found.var, found.body.var
    assert found.body.value is Apply("add", (inner, inner))
    assert found.body.body is outer
    assert inner is not outer


def test_a_reserved_name_is_the_term_itself() -> None:
    found = body("_0 = x + y\nreturn _0 * _0").body
    assert isinstance(found, Apply)
    assert found.args[0] is found.args[1]


def test_unpacking_is_a_let_of_the_whole() -> None:
    found = body("a, _, b = (x, y, c)\nreturn a").body
    assert isinstance(found, Let)
    whole = found.var
    assert isinstance(found.body, Let)
    assert found.body.value is Project(whole, 0)
    assert isinstance(found.body.body, Let)
    assert found.body.body.value is Project(whole, 2)


def test_the_ways_to_write_a_choice_are_one() -> None:
    texts = [
        "if c:\n    return x\nelse:\n    return y",
        "if c:\n    return x\nreturn y",
        "return x if c else y",
        "if c:\n    _0 = x\nelse:\n    _0 = y\nreturn _0",
        "def _0():\n    return x if c else y\nreturn _0",
    ]
    assert len({body(text).body for text in texts}) == 1
    assert isinstance(body(texts[0]).body, If)


def test_branches_may_nest_and_hold_lets() -> None:
    text = """
if c:
    a = x + x
    z = a
elif c:
    match (x, y):
        case (p, _):
            z = p
else:
    z = y
    z += x
return z"""
    found = body(text.strip()).body
    assert isinstance(found, Let)
    assert isinstance(found.value, If)
    assert found.body is found.var


def test_a_function_may_mention_itself() -> None:
    for text in ("g = lambda n: g(n)", "def g(n):\n    return g(n)"):
        found = body(f"{text}\nreturn g(x)").body
        assert isinstance(found, Let)
        assert isinstance(found.value, Function)
        assert isinstance(found.value.body, Call)
        assert found.value.body.callee is found.var


def test_numbers_are_left_to_inference() -> None:
    found = body("return (1, -1.5, True, -x, -(1), x ** -1, float('inf'))").body
    assert isinstance(found, Tuple)
    assert found.items[:3] == (Literal(1), Literal(-1.5), Literal(True))
    assert found.items[3] is Apply("negative", (found_param("x", "f32"),))
    assert found.items[4] is Literal(-1)
    assert found.items[6] is Literal(float("inf"))


def found_param(name: str, kind: str) -> Var:
    function = read(f"{FUNCTION}def f({name}: {kind}) -> {kind}:\n    return {name}\n")
    return function.main_function().params[0]


def test_typed_constants() -> None:
    found = body(
        'return (f32(0.1), const([[1, 2], [3, 4]], i8), f32("nan"), const([1.5]), const([]),'
        ' bool(True), data("00000", (1,), f32), const([True]))'
    ).body
    assert isinstance(found, Tuple)
    shapes = [each.shape for each in found.items if isinstance(each, Const)]
    assert shapes == [(), (2, 2), (), (1,), (0,), (), (1,), (1,)]
    names = [each.dtype.name for each in found.items if isinstance(each, Const)]
    assert names == ["f32", "i8", "f32", "f32", "i64", "bool", "f32", "bool"]


def test_aliases_of_operators_and_attributes_by_position() -> None:
    same = ("op.sum(z, 0)", "op.sum(z, axis=0)", "op.sum(x=z, axis=(0,))", "plica.op.sum(z, [0])")
    found = {body(f"return {text}", "z: Tensor[(2,), f32]").body for text in same}
    assert len(found) == 1
    assert body("return op.mul(x, y)").body is body("return x * y").body
    assert body('return op["add"](x, y)').body is body("return x + y").body


def test_imports_may_rename() -> None:
    text = (
        "import plica as p\nfrom plica import op as o\nfrom plica.op import nn as n\n"
        "from plica.script import Tensor as T, f32 as real\n"
        "@p.function\ndef f(x: T[(2,), real]) -> T[(2,), real]:\n    return n.relu(o.exp(x))\n"
    )
    kind = "Tensor[(2,), f32]"
    plain = f"{FUNCTION}def f(x: {kind}) -> {kind}:\n    return nn.relu(op.exp(x))\n"
    assert digest(from_text(text)) == digest(from_text(plain))


def test_dims_belong_to_the_outermost_function_that_mentions_them() -> None:
    text = """
def g(u: Tensor[("n",), f32], v: Tensor[("k",), f32]) -> f32:
    return x
return x"""
    function = body(text.strip(), 'x: f32, z: Tensor[("n",), f32]')
    assert [str(each.name) for each in function.dims] == ["n"]
    assert isinstance(function.body, Let)
    assert isinstance(function.body.value, Function)
    assert [str(each.name) for each in function.body.value.dims] == ["k"]


def test_dims_in_attributes_are_those_of_the_function() -> None:
    found = body('return op.reshape(z, ("2*n",))', 'z: Tensor[("n", 2), f32]')
    assert isinstance(found.body, Apply)
    (shape,) = [value for name, value in found.body.attrs if name == "shape"]
    assert same_dim(shape[0], 2 * found.dims[0])


def test_polymorphic_types_of_values() -> None:
    module = read(
        f'{FUNCTION}def f(g: Fn[(A, Tensor[("n",), f32]), A, forall("A", dims="n")]) -> f32:\n'
        "    return f32(1.0)\n"
    )
    kind = str(module.main_function().params[0].type)
    assert kind == 'Fn[(A, Tensor[("n",), f32]), A, forall("A", dims="n")]'


def test_type_arguments_and_projections_are_told_apart() -> None:
    found = body(
        "return (t[0](x), t[0], g[f32](x))", "x: f32, t: tuple[Fn[(f32,), f32]], g: f32"
    ).body
    assert isinstance(found, Tuple)
    first, second, third = found.items
    assert isinstance(first, Call)
    assert first.callee is second
    assert first.types == ()
    assert isinstance(third, Call)
    assert len(third.types) == 1


def test_constructors_may_be_qualified() -> None:
    data = "@plica.data\nclass {}:\n    A: ()\n    B: (f32,)\n"
    text = data.format("T") + data.format("U")
    text += f"{FUNCTION}def f(t: T) -> U:\n    match t:\n"
    text += "        case T.A(): return U.A()\n        case T.B(v): return U.B(v)\n"
    assert str(from_text(text).main_function().ret) == "U"


def test_the_last_function_is_main_unless_the_text_says_otherwise() -> None:
    text = "".join(f"{FUNCTION}def {name}() -> f32:\n    return f32(1.0)\n" for name in "ab")
    assert str(getattr(from_text(text).main, "name", None)) == "b"
    assert str(getattr(from_text(f"{text}__main__ = a\n").main, "name", None)) == "a"
    assert from_text(f"{text}__main__ = None\n").main is None


# --- refusals --------------------------------------------------------------------------------


REFUSALS = [
    ("unbound-name", "3:12", "return z + x", None),
    ("unbound-name", "3:12", "return exp(x)", "Write op.exp."),
    ("unknown-operator", "3:12", "return nn.sofmax(x)", "Did you mean 'nn.softmax'?"),
    ("unknown-operator", "3:12", "return op.nn.sum(x)", "Did you mean 'sum'?"),
    ("unknown-attribute", "3:22", "return op.sum(x, axes=0)", "Did you mean 'axis'?"),
    ("bad-attribute", "3:27", "return op.sum(x, axis=1.5)", None),
    ("wrong-arity", "3:12", "return op.add(x)", None),
    ("wrong-arity", "3:12", "return op.exp(x, x, x)", None),
    ("wrong-arity", "3:22", "return op.concat(x, axis=0)", None),
    ("unbound-name", "3:26", 'return op.reshape(x, ("m",))', None),
    ("unsupported-syntax", "3:12", "return [x]", None),
    ("unsupported-syntax", "3:12", "return x and y", None),
    ("unsupported-syntax", "3:12", "return x < y < x", None),
    ("unsupported-syntax", "3:12", "return x.T", None),
    ("unsupported-syntax", "3:12", "return x[1:2]", None),
    ("unsupported-syntax", "3:12", "return x[c]", None),
    ("unsupported-syntax", "3:12", "return x & y", None),
    ("unsupported-syntax", "3:12", "return not c", None),
    ("unsupported-syntax", "3:12", "return op", None),
    ("unsupported-syntax", "3:12", "return op.add", None),
    ("unsupported-syntax", "3:12", "return partial(x)", None),
    ("unsupported-syntax", "3:12", "return 'text'", None),
    ("unsupported-syntax", "3:14", "return f(x=x)", None),
    ("unsupported-syntax", "3:14", "return f(*x)", None),
    ("unsupported-syntax", "3:5", "for i in x:\n        pass\n    return x", None),
    ("unsupported-syntax", "3:5", "return", None),
    ("unsupported-syntax", "4:5", "return x\n    return y", None),
    ("unsupported-syntax", "3:5", "z = x", None),
    ("unsupported-syntax", "3:5", "if c:\n        z = x\n    return z", None),
    (
        "unsupported-syntax",
        "6:9",
        "if c:\n        z = x\n    else:\n        w = x\n    return z",
        None,
    ),
    ("unsupported-syntax", "4:12", "z = x\n    return z[0:1]", None),
    ("unsupported-syntax", "3:12", "def g(*a):\n        return x\n    return x", None),
    ("duplicate-name", "3:14", "def g(a, a):\n        return x\n    return x", None),
    ("bad-pattern", "4:14", "match x:\n        case 1: return x", None),
    ("bad-pattern", "4:15", "match x:\n        case (a | b): return x", None),
    ("duplicate-name", "4:18", "match x:\n        case (a, a): return a", None),
    ("unbound-name", "4:14", "match x:\n        case Foo(z): return z", None),
    ("unsupported-syntax", "4:19", "match x:\n        case z if c: return z", None),
    ("bad-constant", "3:12", "return i8(300)", None),
    ("bad-constant", "3:12", "return f16(1e9)", None),
    ("bad-constant", "3:12", "return i8(1.5)", None),
    ("bad-constant", "3:12", "return const([[1], [1, 2]], f32)", None),
    ("bad-constant", "3:12", 'return data("!!", (3,), f32)', None),
    ("missing-constant", "3:12", 'return archived("key", (3,), f32)', None),
    ("cyclic-data", "4:16", "def _0():\n        return _0\n    return _0", None),
    (
        "unbound-name",
        "7:12",
        "def _0():\n        return x\n    z = _0\n    x = y\n    return _0",
        None,
    ),
]


@pytest.mark.parametrize(("code", "place", "text", "suggestion"), REFUSALS)
def test_a_refusal_has_its_code_and_place(
    code: str, place: str, text: str, suggestion: str | None
) -> None:
    source = f"{FUNCTION}def f(x: f32, y: f32, c: bool) -> f32:\n    {text}\n"
    with pytest.raises(ScriptError) as caught:
        from_text(source, "f.py")
    (problem,) = caught.value.diagnostics
    assert (problem.code, str(problem.place)) == (code, f"f.py:{place}")
    if suggestion is not None:
        assert problem.suggestion == suggestion


END = "    return f32(1.0)\n"
DATA = "@plica.data\nclass A:\n    B: ()\n"
DEFINITIONS = [
    ("duplicate-name", "4:1", f"{FUNCTION}def f() -> f32:\n{END}def f(): pass\n"),
    ("unsupported-syntax", "1:1", "x = [3]\n"),
    ("unsupported-syntax", "1:1", "import os\n"),
    ("unsupported-syntax", "1:1", "from . import op\n"),
    ("unsupported-syntax", "1:1", f"def f() -> f32:\n{END}"),
    ("unsupported-syntax", "1:1", "class A:\n    pass\n"),
    ("unsupported-syntax", "3:5", "@plica.data\nclass A:\n    B: f32\n"),
    ("duplicate-name", "4:5", "@plica.data\nclass A:\n    B: ()\n    B: ()\n"),
    ("unsupported-syntax", "1:5", 'f = plica.extern("f", f32)\n'),
    ("unbound-name", "1:1", "__main__ = f\n"),
    ("unsupported-syntax", "1:2", f"@staticmethod\ndef f() -> f32:\n{END}"),
    ("unknown-attribute", "1:17", f"@plica.function(inline=True)\ndef f() -> f32:\n{END}"),
    ("unbound-name", "2:10", f"{FUNCTION}def f(x: Tensr[(1,), f32]) -> f32:\n{END}"),
    ("unbound-name", "2:23", f"{FUNCTION}def f(x: Tensor[(1,), f33]) -> f32:\n{END}"),
    ("unsupported-syntax", "2:18", f"{FUNCTION}def f(x: Tensor[(n,), f32]) -> f32:\n{END}"),
    ("unsupported-syntax", "2:10", f"{FUNCTION}def f(x: 3) -> f32:\n{END}"),
    ("unbound-name", "2:20", f'{FUNCTION}def f() -> Tensor[("n",), f32]:\n{END}'),
    ("wrong-arity", "5:10", f"{DATA}{FUNCTION}def f(x: A[f32]) -> f32:\n{END}"),
    (
        "bad-pattern",
        "7:14",
        f"{DATA}{FUNCTION}def f(x: A) -> f32:\n    match x:\n        case B:\n        {END}",
    ),
    ("newer-version", "1:1", "# plica 2\n"),
    ("syntax", "1:7", "def f(:\n"),
]


@pytest.mark.parametrize(("code", "place", "text"), DEFINITIONS)
def test_a_definition_is_refused_with_its_code_and_place(code: str, place: str, text: str) -> None:
    with pytest.raises(ScriptError) as caught:
        from_text(text, "f.py")
    found = [(each.code, str(each.place)) for each in caught.value.diagnostics]
    assert (code, f"f.py:{place}") in found


@pytest.mark.parametrize(
    "text",
    [
        "\0",
        "x = " + "(" * 5_000,
        f"{FUNCTION}def f(x: f32) -> f32:\n    return " + "-" * 100_000 + "x\n",
        f"{FUNCTION}def f(x: f32) -> f32:\n    return " + "x+" * 100_000 + "x\n",
        "x = " + "9" * 5_000,
    ],
    ids=["nul", "parentheses", "minuses", "sums", "digits"],
)
def test_what_the_parser_cannot_take_is_a_syntax_error(text: str) -> None:
    with pytest.raises(ScriptError) as caught:
        from_text(text)
    assert caught.value.code == "syntax"


def test_problems_are_reported_together_in_order() -> None:
    text = f"{FUNCTION}def f(x: f32) -> f32:\n    y = a + b\n    return nn.foo(x) + c\n"
    with pytest.raises(ScriptError) as caught:
        from_text(text)
    places = [
        (each.place.line, each.place.column) for each in caught.value.diagnostics if each.place
    ]
    assert places == [(3, 9), (3, 13), (4, 12), (4, 24)]


def test_no_more_problems_are_collected_than_anybody_reads() -> None:
    lines = "".join(f"    y{i} = z{i}\n" for i in range(5 * MAX_PROBLEMS))
    with pytest.raises(ScriptError) as caught:
        from_text(f"{FUNCTION}def f(x: f32) -> f32:\n{lines}    return x\n")
    assert len(caught.value.diagnostics) == MAX_PROBLEMS


def test_columns_count_characters() -> None:
    with pytest.raises(ScriptError) as caught:
        from_text(f"{FUNCTION}def f(é: f32) -> f32:\n    return é + ñ\n")
    assert str(caught.value.diagnostics[0].place) == "<text>:3:16"


def test_type_errors_point_at_the_text() -> None:
    kind = "Tensor[(2,), f32], y: Tensor[(3,), f32]) -> Tensor[(3,), f32]"
    text = f"{FUNCTION}def f(x: {kind}:\n    return x + y\n"
    with pytest.raises(IllTyped) as caught:
        from_text(text, "f.py")
    assert str(caught.value.diagnostics[0].place) == "f.py:3:12"


@given(texts(40))
def test_any_text_is_read_or_refused(text: str) -> None:
    for source in (text, f"{FUNCTION}def f(x: f32) -> f32:\n    return {text}\n"):
        with contextlib.suppress(PlicaError):
            from_text(source)


@given(st.data())
def test_damaged_texts_are_read_or_refused(data: st.DataObject) -> None:
    tokens = EVERYTHING.split(" ")
    at = data.draw(st.integers(0, len(tokens) - 1))
    tokens[at] = data.draw(
        st.sampled_from(["", "(", "lambda: 1", "x", "_0", "f32", "op", "3", "match"])
    )
    with contextlib.suppress(PlicaError):
        from_text(" ".join(tokens))


def test_dims_that_would_explode_are_refused() -> None:
    huge = "*".join(f"(a{i}+b{i})" for i in range(40))
    text = f'{FUNCTION}def f(x: Tensor[("{huge}",), f32]) -> f32:\n    return f32(1.0)\n'
    with pytest.raises(ScriptError, match="multiplies out"):
        from_text(text)


@given(index_terms())
def test_dims_read_back(term: Scalar) -> None:
    def name(of: object) -> str:
        assert isinstance(of, Scalar)
        return str(getattr(of, "name", ""))

    try:
        text = show_dim(term, name)
    except CompilerBug:  # not every index term is a dim
        return
    assert read_dim(text, lambda word: _variable_called(word, term)) is term


def _variable_called(word: str, inside: Scalar) -> Scalar | None:
    stack: list[object] = [inside]
    while stack:
        node = stack.pop()
        if isinstance(node, Scalar) and str(getattr(node, "name", None)) == word:
            return node
        stack.extend(getattr(node, "_children", ()))
    return None


# --- depth -----------------------------------------------------------------------------------


def test_long_and_deep_texts() -> None:
    lines = "".join(f"    v{i + 1} = v{i} + v0\n" for i in range(20_000))
    text = f"{FUNCTION}def f(v0: f32) -> f32:\n{lines}    return v20000\n"
    assert from_text(text).main_function().ret is not None
    early = "".join(f"    if x < {i}:\n        return x\n" for i in range(3_000))
    assert isinstance(body(early.strip().replace("\n    ", "\n") + "\nreturn y").body, If)


# --- a running program -------------------------------------------------------------------------


def test_functions_find_what_they_need() -> None:
    names = [str(name.name) for name in live.both.module.names]
    assert names == ["List", "both", "fold", "layer", "probe", "total"]
    assert live.both.module is live.both.module
    assert digest(from_text(str(live.both))) == digest(live.both.module)


def test_forward_and_mutual_references() -> None:
    assert bool(interpret(live.is_even, 10))
    assert not bool(interpret(live.is_odd, 10))


def test_python_values_are_constants() -> None:
    x = np.array([1.0, 2.0, 3.0], np.float32)
    np.testing.assert_array_equal(interpret(live.layer, x), np.maximum(live.WEIGHTS @ x, 0) * 2.5)
    assert float(np.asarray(interpret(live.closed_over(3.0), np.float32(2.0)))) == 6.0


def test_types_and_functions_inside_functions() -> None:
    assert [str(name.name) for name in live.local_types().module.names] == ["Shape", "length"]


def test_errors_point_into_the_file() -> None:
    with pytest.raises(ScriptError) as caught:
        _ = live.wrong.module
    lines = Path(live.__file__).read_text(encoding="utf-8").split("\n")
    first, second = caught.value.diagnostics
    assert first.place is not None
    assert second.place is not None
    assert first.place.line is not None
    assert lines[first.place.line - 1].strip() == "y = nn.rleu(x)"
    assert (first.place.file, first.place.column) == (live.__file__, 9)
    assert (second.code, second.suggestion) == ("unbound-name", "Did you mean 'y'?")


def test_a_script_that_is_called_is_interpreted() -> None:
    with pytest.raises(plica.InputError):
        live.layer(np.zeros(3))
    assert isinstance(live.layer, Scripted)
    assert repr(live.layer) == "<plica function layer>"
    assert repr(live.List) == "<plica data List>"


def test_a_function_without_source_is_refused() -> None:
    space: dict[str, Callable[..., object]] = {}
    exec(compile("def f(x):\n    return x\n", "<nowhere>", "exec"), space)  # only a test does so
    linecache.checkcache()
    with pytest.raises(ScriptError) as caught:
        _ = plica.function(space["f"]).module
    assert caught.value.code == "no-source"


def test_only_functions_are_marked() -> None:
    with pytest.raises(TypeError, match="marks functions"):
        plica.function(len)


def test_as_module() -> None:
    module = live.layer.module
    assert as_module(module) is module
    assert as_module(live.layer) is module
    with pytest.raises(TypeError, match="This is no program"):
        as_module(3)  # type: ignore[arg-type]  # that is the point


# --- public functions --------------------------------------------------------------------------


def test_words_have_a_meaning_at_run_time() -> None:
    kind = Fn[(Tensor[("n", "2*n+1"), f32], bf16), f32, forall("A", dims="n")]
    params = 'Tensor[("n", "2*n+1"), f32], Tensor[(), bf16]'
    assert str(kind) == f'Fn[({params}), Tensor[(), f32], forall("A", dims="n")]'
    assert same_dim(dim("1+n"), dim_var("n") + 1)
    assert isinstance(live.probe, Extern)
    assert (
        str(live.probe.type) == 'Fn[(Tensor[("n",), f32],), Tensor[("n",), f32], forall(dims="n")]'
    )
    with pytest.raises(ScriptError, match="inside scripts only"):
        partial_word(3)
    with pytest.raises(ScriptError, match="is no dim"):
        dim("n**2")
    with pytest.raises(TypeError, match="written Fn"):
        Fn[f32, f32]


@pytest.mark.parametrize(
    "lines",
    [
        "f = lambda g: g(g)",
        "f = lambda g: lambda h: (g(h), h(g))",
        "f = lambda a, b, c: (a(b), b(c), c(a))",
        "f = lambda g: g((g, x))",
        "f = lambda g: Cons(g, g)",
        "f = lambda g: g(Cons(g, Nil()))",
        "def f(g):\n        return (f(g), g)",
    ],
)
def test_a_type_that_would_contain_itself_is_refused(lines: str) -> None:
    head = "@plica.data(forall='A')\nclass L:\n    Nil: ()\n    Cons: (A, L[A])\n"
    with pytest.raises(IllTyped, match="would contain itself") as caught:
        from_text(f"{head}{FUNCTION}def main(x: f32):\n    {lines}\n    return x\n")
    first = caught.value.diagnostics[0]
    assert first.code == "type-conflict"
    assert first.place is not None
    assert first.place.line is not None


GROWING = (
    f'{FUNCTION}def f(y: Tensor[("n",), f32]) -> Tensor[("1099511627776*n",), f32]:\n'
    '    return op.broadcast_to(f32(0.0), ("1099511627776*n",))\n'
)


@pytest.mark.parametrize(
    ("shape", "value"),
    [
        ("1180591620717411303424,", "x"),
        ('"1180591620717411303424",', "x"),
        ('"4611686018427387904*4",', "x"),
        ('"n*4611686018427387904*4",', "x"),
        ("9223372036854775807,", "op.concat((x, x), 0)"),
        ("2,", "op.reshape(x, (1180591620717411303424,))"),
        ("1099511627776,", "f(x)"),
        ("1099511627776,", "op.exp(f(x))"),
    ],
)
def test_a_dim_outside_of_i64_is_refused_with_a_place(shape: str, value: str) -> None:
    with pytest.raises((ScriptError, IllTyped), match=r"too big|no value of i64") as caught:
        from_text(f"{GROWING}{FUNCTION}def main(x: Tensor[({shape}), f32]):\n    return {value}\n")
    for each in caught.value.diagnostics:
        assert each.place is not None
        assert each.place.line in (5, 6)


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        ("q.T", "op.transpose(q)"),
        ("q.shape", "op.shape_of(q)"),
        ("q.sum(0)", "op.sum(q, ...)"),
        ("abs(q)", "op.absolute"),
        ("q[:, 1:3]", "op.slice"),
        ("q[1:3]", "op.slice"),
    ],
)
def test_hints_name_operators_that_exist(value: str, hint: str) -> None:
    with pytest.raises(ScriptError) as caught:
        from_text(f"{FUNCTION}def main(q: Tensor[(4, 4), f32]):\n    return {value}\n")
    assert hint in (caught.value.diagnostics[0].suggestion or "")


def test_every_operator_in_a_fixed_hint_exists() -> None:
    hints = " ".join(INSTEAD.values())
    named = [each.strip(".,") for each in hints.split() if each.startswith("op.")]
    assert named
    assert all(find(each.removeprefix("op.")) for each in named)
    assert all(find(each) for each in PYTHONIC.values())
    assert operator_meant("frobnicate") is None


def test_a_star_import_is_refused_as_such() -> None:
    with pytest.raises(ScriptError, match="Star imports are not read"):
        from_text(f"from plica.script import *\n{FUNCTION}def main(x: f32):\n    return x\n")


@pytest.mark.parametrize("of", ["f32", "Tensor[(2,), f32]"])
def test_a_shadowed_word_is_said_to_be(of: str) -> None:
    other = f"{FUNCTION}def f32(x: i64):\n    return x\n"
    with pytest.raises(ScriptError, match="'f32' is shadowed") as caught:
        from_text(f"{other}{FUNCTION}def main(x: {of}):\n    return x\n")
    assert "plica.script.f32" in (caught.value.diagnostics[0].suggestion or "")
    free = of.replace("f32", "plica.script.f32")
    from_text(f"{other}{FUNCTION}def main(x: {free}):\n    return x\n")


@pytest.mark.parametrize("head", ["", "from plica.script import bool_\n"])
def test_bool_has_in_texts_the_name_it_has_in_python(head: str) -> None:
    text = f"{FUNCTION}def main(x: Tensor[(1,), bool_], y: bool_):\n"
    text += "    return x, y, const([True], bool_), bool_(True), op.cast(x, bool_)\n"
    assert from_text(head + text) is from_text(text.replace("bool_", "bool"))


def test_constants_are_written_in_live_functions_as_in_texts() -> None:
    text = f"{FUNCTION}def with_constants(x: Tensor[(2,), f32]):\n"
    text += '    return x + const([1.0, 2.0], f32) + data("0000000000", (2,), f32)\n'
    assert live.with_constants.module is from_text(text)


def test_what_stands_before_the_dot_is_no_argument_where_it_is_pythons() -> None:
    source = "from __future__ import annotations\n@plica.function\n"
    source += "def wrong(x: Tensor[(2,), f32]):\n    return np.exp(x)\n"
    name = "<np.exp>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    space: dict[str, Any] = {
        "plica": plica,
        "np": np,
        "Tensor": plica.script.Tensor,
        "f32": plica.script.f32,
    }
    exec(compile(source, name, "exec"), space)
    with pytest.raises(ScriptError, match="Only Plica's operators can be called here") as caught:
        as_module(space["wrong"])
    assert caught.value.diagnostics[0].suggestion == "Operators are functions: op.exp(...)."
