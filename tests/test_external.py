"""External code generators: what they take is convex, as large as can be, and means the same."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import plica
from plica import op
from plica.core.name import Name
from plica.extending.external import SourceGenerator, check_generator, compile_external, outsourced
from plica.ir.graph.expression import Expr, Function, Var, const
from plica.ir.graph.module import Module, module as build
from plica.ir.type.infer import infer
from plica.ir.type.term import tensor
from plica.rewrite.code_region import CodeRegion, outlined
from plica.rewrite.pattern import holes
from plica.runtime.error import ArgumentError, EvaluationError, PlicaError, UnsupportedError

x, y = holes("x y")
SUMS = (("sum", x + y), ("product", x * y))
ROOT = Path(__file__).parents[1]
needs_cc = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")


def example(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


A, B = (Var(Name(each), tensor((2, 2), "f32")) for each in "ab")


def program(body: Expr) -> Module:
    main = Var(Name("main"), None)
    return infer(build({main: Function((), (), (A, B), None, body)}, main))


def arrays(seed: int = 0) -> list[Any]:
    random = np.random.default_rng(seed)
    return [random.standard_normal((2, 2)).astype(np.float32) for _ in range(2)]


class Interpreted:
    """A generator that calls the interpreter."""

    name = "interpreted"
    patterns: tuple[tuple[str, Any], ...] = SUMS

    def build(self, region: CodeRegion) -> Any:
        whole = region.module()
        return lambda *given_: plica.interpret(whole, *given_)


def test_neighbours_are_one_region_and_constants_come_along() -> None:
    weight = const(np.ones((2, 2), np.float32))
    found = outlined(program((A + weight) * A + B), SUMS, "acme")
    (region,) = found.regions
    assert region.symbol == "acme_0"
    assert len(region.function.params) == 2


def test_a_path_that_leaves_and_comes_back_parts_regions() -> None:
    total = A + B
    found = outlined(program(total * op.exp(total)), SUMS, "acme")
    assert [each.patterns for each in found.regions] == [("sum",), ("product",)]


def test_what_others_read_is_a_result() -> None:
    total = A + B
    found = outlined(program(op.exp(total) @ op.exp(total * A)), SUMS, "acme")
    (region,) = found.regions
    assert str(region.function.ret).startswith("tuple[")


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9), st.integers(0, 9)), max_size=8))
def test_any_program_means_the_same(steps: list[tuple[int, int, int]]) -> None:
    values: list[Expr] = [A, B]
    for kind, left, right in steps:
        one, other = values[left % len(values)], values[right % len(values)]
        values.append(one + other if kind == 0 else one * other if kind == 1 else op.tanh(one))
    whole = program(values[-1])
    parts = outsourced(whole, [Interpreted()])
    found = plica.interpret(parts.module, *arrays(), externs=parts.externs)
    np.testing.assert_array_equal(found, plica.interpret(whole, *arrays()))


def test_a_mixed_model_is_compiled() -> None:
    whole = program(op.exp(A + B) * A)
    made = compile_external(whole, [Interpreted()], cache=False)
    wanted = plica.interpret(whole, *arrays())
    np.testing.assert_allclose(made(*arrays()), wanted, rtol=1e-5, atol=1e-5)


@needs_cc
def test_a_generator_of_c_and_blas_share_a_model_that_is_saved(tmp_path: Path) -> None:
    elements, blas = example("external_source"), example("external_blas")
    if blas.find_blas() is None:
        pytest.skip("numpy brings no BLAS along here")
    whole = program(op.exp((A * B + A) @ B) - A)
    parts = outsourced(whole, [elements.Elements(tmp_path), blas.Blas(tmp_path)])
    assert {name for name, _ in parts.regions} == {"elements", "blas"}
    assert "blas  plica_blas_0: product" in parts.report
    made = plica.compile(parts.module, externs=parts.externs, cache=False)
    wanted = plica.interpret(whole, *arrays())
    np.testing.assert_allclose(made(*arrays()), wanted, rtol=1e-4, atol=1e-5)
    made.save(tmp_path / "m.plica")
    libraries = {symbol: str(path) for symbol, path in parts.externs.items()}
    loaded = plica.load(tmp_path / "m.plica", externs=libraries)
    np.testing.assert_array_equal(loaded(*arrays()), made(*arrays()))


@needs_cc
def test_the_conformance_kit_passes_what_is_right(tmp_path: Path) -> None:
    made = check_generator(example("external_source").Elements(tmp_path), examples=6)
    assert [each.word for each in made] == ["tested"] * 3


def test_the_conformance_kit_finds_what_is_wrong() -> None:
    class Wrong(Interpreted):
        name = "wrong"
        patterns = (("sum", x + y),)

        def build(self, region: CodeRegion) -> Any:
            return lambda one, other: one - other

    (verdict,) = check_generator(Wrong(), examples=8)
    assert verdict.word == "refuted"
    assert verdict.example


def test_what_a_hook_leaves_stays_here() -> None:
    class Idle(Interpreted):
        def build(self, region: CodeRegion) -> None:
            return None

    parts = outsourced(program(A + B), [Idle()])
    assert parts.report == "no region was taken"
    (verdict, _) = check_generator(Idle(), examples=2)
    assert verdict.word == "untested"


@needs_cc
def test_refusals(tmp_path: Path) -> None:
    class Broken(SourceGenerator):
        name = "broken"
        patterns = SUMS

        def source(self, region: CodeRegion) -> str:
            return "this is no C"

    with pytest.raises(UnsupportedError, match="refuses what 'broken' made"):
        outsourced(program(A + B), [Broken(tmp_path)])

    class Unnamed(Interpreted):
        name = "two words"

    with pytest.raises(UnsupportedError, match="begins the symbols"):
        outsourced(program(A + B), [Unnamed()])


class Served(Interpreted):
    """A generator of sums whose hook gives what it is told to."""

    name = "served"
    patterns = (("sum", x + y),)

    def __init__(self, gives: Any) -> None:
        self.gives = gives

    def build(self, region: CodeRegion) -> Any:
        if isinstance(self.gives, BaseException):
            raise self.gives
        return self.gives


def test_a_hook_that_raises_is_heard_and_leaves_nothing_behind() -> None:
    a, b = arrays()
    with pytest.raises(KeyError, match="no such chip"):
        compile_external(program(A + B), [Served(KeyError("no such chip"))], cache=False)
    exe = compile_external(program(A + B), [Served(lambda one, other: one + other)], cache=False)
    np.testing.assert_array_equal(exe(a, b), a + b)


def test_a_device_that_is_lost_and_comes_back() -> None:
    """The call that it is lost in raises what it raised; no other call knows of it."""
    lost = [False, True, False]

    def device(one: Any, other: Any) -> Any:
        if lost.pop(0):
            raise ConnectionError("the device is gone")
        return one + other

    a, b = arrays()
    exe = compile_external(program((A + B) * A), [Served(device)], cache=False)
    np.testing.assert_allclose(exe(a, b), (a + b) * a, rtol=1e-6)
    with pytest.raises(ConnectionError, match="is gone"):
        exe(a, b)
    np.testing.assert_allclose(exe(a, b), (a + b) * a, rtol=1e-6)


@pytest.mark.parametrize(
    "gives", [np.float32(1), np.ones((3, 3), np.float32), np.ones((2, 2)), None]
)
def test_what_a_device_gives_is_of_its_type(gives: Any) -> None:
    exe = compile_external(program(A + B), [Served(lambda *_: gives)], cache=False)
    with pytest.raises(EvaluationError, match="not of its type"):
        exe(*arrays())


@needs_cc
def test_a_library_that_is_gone_is_refused_when_it_is_loaded(tmp_path: Path) -> None:
    made = example("external_source").Elements(tmp_path)
    exe = compile_external(program(A * B), [made], cache=False)
    exe.save(tmp_path / "m.plica")
    (symbol,) = outsourced(program(A * B), [made]).externs
    with pytest.raises(PlicaError, match="cannot be opened"):
        plica.load(tmp_path / "m.plica", externs={symbol: tmp_path / "gone.so"})


@pytest.mark.parametrize("wrong", [5, [5], [object()], "blas"])
def test_what_is_no_generator_is_refused(wrong: Any) -> None:
    with pytest.raises(ArgumentError, match="no code generator"):
        outsourced(program(A + B), wrong)


@pytest.mark.parametrize("rows", [(5,), (("sum",),), (("sum", 5),)])
def test_what_is_no_pattern_is_refused(rows: Any) -> None:
    generator = Served(None)
    generator.patterns = rows
    with pytest.raises(ArgumentError, match="no pattern"):
        outsourced(program(A + B), [generator])
