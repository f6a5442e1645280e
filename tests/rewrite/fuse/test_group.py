"""Fusing keeps meaning, can be undone, and makes groups that are one kernel each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from plica.codegen.llvm.processor import find_target
from plica.codegen.program import Launch
from plica.core.digest import digest
from plica.core.name import Name
from plica.ir.graph.check import check
from plica.ir.graph.expression import Apply, Call, Expr, Function, If, Tuple, Var, const
from plica.ir.graph.module import Module, module
from plica.ir.interpret.interpreter import interpret
from plica.ir.text.script import from_text
from plica.ir.text.show import show_module
from plica.ir.type.dim import dim_var
from plica.ir.type.infer import infer
from plica.ir.type.term import tensor
from plica.pipeline import build, lower
from plica.rewrite.fuse import FusionLimits, defuse, explain, fuse, is_fused, is_primitive, table
from plica.rewrite.fuse.decide import decide, inside
from plica.rewrite.fuse.reading import AccessPattern, parts, reading
from plica.rewrite.graph.dominator import PostDominators
from plica.rewrite.graph.walk import expressions
from tests.codegen.native import assert_close
from tests.conftest import Golden
from tests.rewrite.fuse.graph import AT, X, Y, Z, graphs, module_of, op
from tests.strategies import inputs_for, modules, static_modules

FEW = settings(max_examples=max(5, settings().max_examples // 2))
FEWER = settings(max_examples=max(5, settings().max_examples // 3))

W = Var(Name("w"), tensor((3, 3, 2, 2), "f32"))
V = Var(Name("v"), tensor((4,), "f32"))


def leaves(value: Any) -> list[Any]:
    return [x for item in value for x in leaves(item)] if isinstance(value, tuple) else [value]


def arrays(seed: int, *params: Var) -> list[Any]:
    random = np.random.default_rng(seed)
    found = []
    for each in params:
        shape = [size.value for size in each.type.shape]  # type: ignore[union-attr]
        if each is AT:
            found.append(random.integers(0, 3, shape))
        else:
            found.append(random.standard_normal(shape).astype(np.float32))
    return found


def functions(of: Module) -> list[Function]:
    """The primitive functions that are called, each once."""
    inner = expressions(*[value.body for _, value in of.functions()])
    return [node for node in inner if isinstance(node, Function) and is_primitive(node)]


def operators(of: Expr) -> list[str]:
    return [node.op for node in expressions(of) if isinstance(node, Apply)]


def known(value: Expr) -> AccessPattern:
    found = reading(value)
    assert found is not None
    return found


def assert_undone(of: Module) -> None:
    whole = fuse(of)
    assert digest(defuse(whole)) == digest(of)
    assert fuse(whole) is whole
    assert is_fused(whole)


@given(graphs())
def test_fusing_can_be_undone_and_is_done_at_once(of: Module) -> None:
    assert_undone(of)
    assert not check(fuse(of))
    assert infer(fuse(of)) is fuse(of)


@given(modules())
@FEW
def test_it_can_be_undone_in_any_program(of: Module) -> None:
    assert_undone(infer(of))


@given(graphs())
@FEW
def test_it_prints_and_reads_back(of: Module) -> None:
    whole = fuse(of)
    assert digest(from_text(show_module(whole).text)) == digest(whole)


@given(graphs(), st.integers(0, 9))
@FEW
def test_meaning_is_kept_to_the_bit(of: Module, seed: int) -> None:
    args = arrays(seed, *of.main_function().params)
    before, after = interpret(of, *args), interpret(fuse(of), *args)
    for old, new in zip(leaves(before), leaves(after), strict=True):
        np.testing.assert_array_equal(old, new)


@given(graphs(), st.integers(0, 9))
@FEW
def test_compiled_is_interpreted(of: Module, seed: int) -> None:
    args = arrays(seed, *of.main_function().params)
    found = build(lower(of), find_target("cpu"))(*args)
    about = [each for each in args if each.dtype == np.float32]
    for ours, meant in zip(leaves(found), leaves(interpret(of, *args)), strict=True):
        assert_close(ours, meant, about)


@given(st.data())
@FEWER
def test_compiled_static_modules_are_interpreted(data: st.DataObject) -> None:
    of = infer(data.draw(static_modules()))
    args = data.draw(inputs_for(of))
    found = build(lower(of), find_target("cpu"))(*args)
    for ours, meant in zip(leaves(found), leaves(interpret(of, *args)), strict=True):
        assert_close(ours, meant)


@given(graphs(), st.integers(2, 6), st.integers(2, 6))
def test_groups_are_sound(of: Module, size: int, depth: int) -> None:
    """Groups are disjoint, reduce once, end in a post-dominator, and need no circle."""
    limits = FusionLimits(size, depth)
    root = of.main_function().body
    found = decide(root, limits)
    tree = PostDominators(root, inside)
    members: dict[Expr, list[Expr]] = {}
    for value, group in found.groups.items():
        members.setdefault(group.sink, []).append(value)
    for sink, group_members in members.items():
        assert len(group_members) <= size
        kinds = [each for each in map(reading, group_members) if each is not None]
        assert sum(each.reduces for each in kinds) <= 1
        spots = found.groups[sink].spots.values()
        assert max((spot.depth for spot in spots), default=1) <= depth
        for value in group_members:
            assert tree.dominates(sink, value)
            assert value is sink or not known(value).may_fail
    finished: set[Expr] = set()
    for node in found.order:  # a sink comes after all that its group needs from others
        if node in members:
            for value in members[node]:
                for part in parts(value) or ():
                    other = found.groups.get(part)
                    assert other is None or other.sink is node or other.sink in finished
            finished.add(node)


@given(graphs())
def test_every_edge_is_explained_as_it_was_decided(of: Module) -> None:
    groups = decide(of.main_function().body, FusionLimits()).groups
    edges = explain(of)
    pairs = {(each.producer.term, each.consumer.term): each for each in edges}
    assert len(pairs) == len(edges)
    for value in groups:
        for part in parts(value) or ():
            if part in groups:
                edge = pairs.pop((part, value), None) or _seen(edges, part, value)
                assert edge.fused == (groups[part] is groups[value])
                assert str(edge).endswith(".")
    assert not pairs


def _seen(edges: Any, part: Expr, value: Expr) -> Any:
    """An edge that was popped already: the producer is two arguments of the consumer."""
    return next(e for e in edges if e.producer.term is part and e.consumer.term is value)


@given(graphs())
@FEWER
def test_a_group_is_one_launch(of: Module) -> None:
    launched = [step for steps in lower(of).program.regions for step in steps]
    found = decide(of.main_function().body, FusionLimits())
    sinks = [value for value, group in found.groups.items() if group.sink is value]
    views = [value for value in sinks if known(value).is_view]
    assert sum(isinstance(step, Launch) for step in launched) <= len(sinks) - len(views)


PRODUCT = op("matmul", X, Z)
# fmt: off
CASES: dict[str, tuple[Expr, list[list[str]]]] = {
    "a chain":         (op("exp", X * 2.0 + 1.0),                 [["multiply", "add", "exp"]]),
    "a diamond":       ((X + 1.0) * op("exp", X + 1.0),           [["add", "exp", "multiply"]]),
    "an epilogue":     (op("exp", op("nn.conv", X, W) + 1.0),     [["nn.conv", "add", "exp"]]),
    "a diamond after": (PRODUCT * op("exp", PRODUCT),             [["matmul", "exp", "multiply"]]),
    "a prologue":      (op("sum", op("exp", X), axis=(3,)),       [["exp", "sum"]]),
    "both":            (op("exp", op("sum", X * X, axis=(3,))),   [["multiply", "sum", "exp"]]),
    "a turned result": (op("transpose", PRODUCT, (0, 2, 3, 1)),   [["matmul", "transpose"]]),
    "two of a kind":   (op("nn.conv", X, W) + op("nn.conv", -X, W), [["nn.conv", "add"]]),
    "no prologue":     (op("nn.conv", op("nn.relu", X), W),       []),
    "two sums":        (op("sum", op("sum", X, axis=(3,)), axis=(2,)), []),
    "normalised":      (op("exp", X) / op("sum", op("exp", X)),   []),
}
# fmt: on


@pytest.mark.parametrize("name", CASES)
def test_groups(name: str) -> None:
    body, expected = CASES[name]
    params = tuple(each for each in (X, Z, W) if each in set(expressions(body)))
    of = module_of(body, *params)
    assert [operators(each.body) for each in functions(fuse(of))] == expected
    args = arrays(1, *params)
    found = build(lower(of), find_target("cpu"))(*args)
    assert_close(np.asarray(found), np.asarray(interpret(of, *args)), args)


def test_branches_have_groups_of_their_own() -> None:
    flag = Var(Name("c"), tensor((), "bool"))
    shared = op("exp", X)
    of = module_of(If(flag, shared * 2.0 + 1.0, op("negative", shared) - 1.0), X, flag)
    found = [operators(each.body) for each in functions(fuse(of))]
    assert found == [["multiply", "add"], ["negative", "subtract"]]


def test_symbolic_dims() -> None:
    rows = Var(Name("r"), tensor(("n", 4), "f32"))
    body = op("exp", op("sum", op("nn.relu", op("nn.dense", rows, Y) + 1.0), axis=(1,)))
    main = Var(Name("main"), None)
    of = infer(module({main: Function((dim_var("n"),), (), (rows, Y), None, body)}, main))
    found = [operators(each.body) for each in functions(fuse(of))]
    assert found == [["add", "nn.relu", "sum", "exp"]]
    assert_undone(of)
    args = [np.ones((5, 4), np.float32), np.ones((3, 4), np.float32)]
    np.testing.assert_array_equal(interpret(of, *args), interpret(fuse(of), *args))


def test_what_a_user_fused_stays() -> None:
    p = Var(Name("p"), X.type)
    mine = Function((), (), (p,), X.type, p + 1.0, (("primitive", True),))
    of = module_of(op("exp", Call(mine, (X * 2.0,))) * 3.0, X)
    found = functions(fuse(of))
    assert sorted(operators(each.body) for each in found) == [["add"], ["exp", "multiply"]]


def test_numbers_go_inside_and_arrays_do_not() -> None:
    of = module_of(X * const(2.0, "f32") + const(np.ones((4, 4)), "f32"), X)
    (found,) = functions(fuse(of))
    assert len(found.params) == 2


def test_limits_cut_a_long_chain() -> None:
    body: Expr = X
    for _ in range(100):
        body = op("exp", body)
    of = module_of(body, X)
    by_size = [len(operators(each.body)) for each in functions(fuse(of, FusionLimits(size=30)))]
    assert sorted(by_size) == [10, 30]  # the three of thirty are one function
    reasons = {
        each.reason for each in explain(of, FusionLimits(size=30, depth=40)) if not each.fused
    }
    assert reasons == {"size"}
    reasons = {
        each.reason for each in explain(of, FusionLimits(size=50, depth=40)) if not each.fused
    }
    assert reasons == {"depth"}
    stopped = explain(of, FusionLimits(stop=("exp",)))
    assert {each.reason for each in stopped} == {"stopped"}


def test_deep_and_shared_graphs() -> None:
    body: Expr = X
    for _ in range(5_000):
        body = body + 1.0
    of = module_of(body, X)
    assert digest(defuse(fuse(of))) == digest(of)
    body = X
    for _ in range(60):
        body = body + body
    of = module_of(body, X)
    assert sum(len(operators(each.body)) for each in functions(fuse(of))) == 60
    assert_undone(of)


def network() -> Module:
    bias = const(np.ones((3, 1, 1)), "f32")
    first = op("nn.relu", op("nn.conv", X, W, padding=1) + bias)
    second = op("nn.conv", first, W) + X
    pooled = op("mean", op("nn.relu", second), axis=(2, 3))
    scores = op("matmul", pooled, Y) + V
    shifted = scores - op("max", scores, axis=(1,), keepdims=True)
    total = op("sum", op("exp", shifted), axis=(1,), keepdims=True)
    return module_of(shifted - op("log", total), X, W, Y, V)


def test_text(golden: Golden) -> None:
    of = network()
    golden(f"{fuse(of)}\n{table(explain(of))}\n", "network")


def test_a_tuple_result_is_no_group() -> None:
    of = module_of(Tuple((X + 1.0, X * 2.0)), X)
    assert fuse(of) is of
