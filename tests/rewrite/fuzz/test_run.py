"""Fuzzing finds what is planted, names it, and shows a small test; right stages are left alone."""

from __future__ import annotations

import ast
from typing import Any

import numpy as np
import pytest

from plica.core.digest import digest
from plica.core.fold import post_order
from plica.ir.graph.expression import Apply, Function
from plica.ir.graph.module import Module
from plica.ir.op import find
from plica.ir.passes import Pass
from plica.ir.text.script import from_text
from plica.ir.type.dtype import bf16
from plica.ir.type.infer import infer
from plica.rewrite import Pack, approx, exact, hole, holes, pack, reassociates, rule
from plica.rewrite.check.report import literal
from plica.rewrite.fuzz import StageFinding, fuzz
from plica.rewrite.fuzz.difference import Meaning, unlike
from plica.rewrite.graph import find_pass
from plica.rewrite.packs.algebra import ALGEBRA
from plica.runtime.error import Diagnostic, UnsupportedError

x, y = holes("x y")
f: Any = hole("f", dtypes="f32")


def op(name: str) -> Any:
    found = find(name)
    assert found is not None
    return found


# fmt: off
RULES = (
    rule("negative-subtract",  -(f - y),           f - y),
    rule("absolute-nothing",   op("absolute")(f),  f),
    rule("relu-is-absolute",   op("nn.relu")(f),   op("absolute")(f)),
    rule("exact-add-zero",     f + 0,              f),
)
# fmt: on
WRONG = {each.name: pack("w", each, version="0") for each in RULES}
"""A pack for each; the last rule is right but for the sign of a zero, which its contract hides."""


@pytest.mark.parametrize("name", WRONG)
def test_a_planted_rule_is_found_and_named(name: str) -> None:
    wrong = WRONG[name]
    stages = (find_pass("to-dataflow"), wrong, find_pass("remove-dead"))
    found = fuzz(stages, examples=150, focus=wrong.rules).finding
    assert found is not None
    assert (found.kind, found.stage, found.rule) == ("meaning", "w", name)
    assert not passes(found)


def passes(found: StageFinding) -> bool:
    """Whether the printed test passes; it stands by itself."""
    space: dict[str, Any] = {}
    exec(compile(ast.parse(found.pytest), "finding", "exec"), space)
    (test,) = [value for key, value in space.items() if key.startswith("test_")]
    try:
        test()
    except AssertionError:
        return False
    return True


def test_a_counterexample_is_small() -> None:
    found = fuzz([WRONG["absolute-nothing"]], examples=100, focus=WRONG["absolute-nothing"].rules)
    assert found.finding is not None
    before = found.finding.pytest.split('BEFORE = """')[1].split('"""')[0]
    applied = [node for node in post_order(from_text(before)) if isinstance(node, Apply)]
    assert [node.op for node in applied] == ["absolute"]


def test_right_stages_are_left_alone() -> None:
    stages = (find_pass("to-dataflow"), ALGEBRA.within(exact), find_pass("fold-constants"))
    report = fuzz(stages, examples=15)
    assert report.finding is None
    assert report.examples == 15
    assert sum(report["fired"].values()) > 0


def test_rounding_is_no_mistake_under_a_looser_contract() -> None:
    z = hole("z", dtypes="f32")
    loose = rule("distribute", x * y + x * z, x * (y + z), float=reassociates)
    report = fuzz([pack("loose", loose, version="0")], 15, contract=reassociates, focus=[loose])
    assert report.finding is None
    assert report["fired"].get("distribute")


def broken(module: Module) -> Module:
    """Doubles what main gives, where that is a tensor of f32."""
    main = module.main_function()
    if str(main.ret).endswith("f32]"):
        new = Function(main.dims, main.types, main.params, main.ret, main.body + main.body)
        values = tuple(new if value is main else value for value in module.values)
        return infer(Module(module.names, values, module.main))
    return module


def test_a_wrong_pass_is_named() -> None:
    stages = (find_pass("to-anf"), Pass("broken", "Wrong.", broken), find_pass("to-dataflow"))
    found = fuzz(stages, examples=60).finding
    assert found is not None
    assert (found.kind, found.stage, found.rule) == ("meaning", "broken", None)
    assert not passes(found)


def test_a_pass_that_fails_is_named() -> None:
    def fails(module: Module) -> Module:
        raise ValueError(f"{len(module.names)} definitions are too many")

    found = fuzz((find_pass("to-anf"), Pass("fails", "Wrong.", fails)), examples=5).finding
    assert found is not None
    assert (found.kind, found.stage) == ("crash", "fails")
    assert "too many" in found.reason


def test_a_pass_may_refuse_and_is_counted() -> None:
    def refuses(module: Module) -> Module:
        raise UnsupportedError(Diagnostic("unsupported", "There is no form for it."))

    report = fuzz((find_pass("to-anf"), Pass("refuses", "Never.", refuses)), examples=5)
    assert report.finding is None
    assert report.number("refused") == 5


def test_an_approximation_is_relative_to_what_cancels() -> None:
    source = """
# plica 1
@plica.function
def main(x: Tensor[(), f32]) -> Tensor[(), f32]:
    return (op.tanh(x) + {one}) * x
"""
    before, after = (infer(from_text(source.format(one=each))) for each in ("1.0", "1.00005"))
    inputs = (np.array(-2.5, np.float32),)
    assert Meaning(before, inputs, approx(1e-4)).differs(after) is None
    assert Meaning(before, inputs, approx(1e-6)).differs(after) is not None


NARROW = """
@plica.function
def main(x: Tensor[(2,), bf16]) -> Tensor[(2,), {gives}]:
    return {value}
"""
APART = "x * const(3.58, bf16) * const(1.56, bf16)"


@pytest.mark.parametrize(
    ("gives", "value", "of"), [("bf16", "{}", 1), ("i64", "op.cast({}, dtype=i64)", 1),
                               ("i64", "op.cast({}, dtype=i64)", 1 << 20)],
)  # fmt: skip
def test_a_constant_that_was_computed_is_rounded_as_its_dtype(
    gives: str, value: str, of: int
) -> None:
    """Nothing but rounding tells one product of narrow floats from two, before a cast as well."""
    inputs = (np.array([-2.5 * of, 7.25 * of], bf16.numpy),)

    def made(product: str) -> Module:
        return from_text(NARROW.format(gives=gives, value=value.format(product)))

    meaning = Meaning(made(APART), inputs, approx(1e-4))
    assert meaning.differs(made("x * const(5.6, bf16)")) is None
    assert meaning.differs(made("x * const(7.0, bf16)")) is not None
    assert meaning.differs(made("x * x * const(0.01, bf16)")) is not None
    exactly = Meaning(made(APART), inputs, exact)
    assert exactly.differs(made("x * const(5.6, bf16)")) is not None


def test_a_pass_that_breaks_types_is_named() -> None:
    def untyped(module: Module) -> Module:
        main = module.main_function()
        new = Function(main.dims, main.types, main.params, None, main.body)
        values = tuple(new if value is main else value for value in module.values)
        return Module(module.names, values, module.main)

    found = fuzz((Pass("untyped", "Wrong.", untyped),), examples=5).finding
    assert found is not None
    assert (found.kind, found.stage) == ("ill-formed", "untyped")


def test_native_code_that_differs_is_a_finding() -> None:
    def nonsense(module: Module, inputs: tuple[Any, ...]) -> Any:
        value = Meaning(module, inputs, exact).value
        return value + np.asarray(3, value.dtype) if isinstance(value, np.ndarray) else None

    found = fuzz((), examples=40, native=nonsense, every=1).finding
    assert found is None or found.kind == "native"
    assert (
        fuzz((), examples=10, native=lambda module, inputs: None, every=1).number("compiled") == 0
    )


def test_the_same_seed_gives_the_same_report() -> None:
    packs: tuple[Pack, ...] = (ALGEBRA.within(exact), WRONG["relu-is-absolute"])
    assert fuzz(packs, 10, seed=3) == fuzz(packs, 10, seed=3)


def test_fewer_examples_are_the_first_of_more() -> None:
    met: list[list[str]] = []
    for examples in (4, 9):
        seen: list[str] = []

        def note(module: Module, seen: list[str] = seen) -> Module:
            seen.append(digest(module))
            return module

        fuzz((Pass("note", "Remembers.", note),), examples, seed=5, focus=(RULES[1],))
        met.append(seen)
    assert met[0] == met[1][:4]
    assert len(set(met[1])) > 4


def test_every_rule_in_focus_has_its_turn() -> None:
    right = [rule(f"right-{i}", op(name)(op(name)(f)), op(name)(f)) for i, name in enumerate(TWICE)]
    report = fuzz([pack("right", right, version="0")], len(right), focus=right)
    assert report.finding is None
    assert report["fired"].keys() >= {each.name for each in right}


TWICE = ("floor", "ceil", "nn.relu", "absolute", "sign")


def test_results_are_compared_part_by_part() -> None:
    one, other = np.array([0.0], np.float32), np.array([-0.0], np.float32)
    assert unlike((one, (one,)), (one, (one,)), exact) is None
    assert "element (0,)" in str(unlike((one, (one,)), (one, (other,)), exact))
    assert unlike(one, other, reassociates) is None


def test_arrays_print_as_python() -> None:
    value = (np.array([[1, -2]], np.int8), (np.array(-np.inf),))
    again = eval(literal(value), {"np": np})
    assert unlike(value, again, exact) is None
