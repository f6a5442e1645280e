"""Operators: every record is whole, and means what numpy means; what does not fit is refused."""

from __future__ import annotations

import warnings
from typing import Any, Final

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import plica.op
from plica.core.diagnostic import CODES, IllTyped
from plica.core.name import Name
from plica.ir.graph.expression import Apply, Literal, Var, const
from plica.ir.loop.fusion_kind import KINDS, kind
from plica.ir.op import Mismatch, Operator, aliases, find, names, namespaces
from plica.ir.op.attribute import read_dim
from plica.ir.op.shape_function import shapes_of
from plica.ir.type.dim import dim_var, evaluate, same_dim
from plica.ir.type.dtype import DTYPES
from plica.ir.type.infer import type_of
from plica.ir.type.term import tensor
from plica.op import nn
from tests.ir.reference import CASES, REFERENCE, attributes, close, run, types_of
from tests.ir.refused import REFUSED, f32

EXAMPLES: Final = max(1, min(settings().max_examples * 2 // 5, 400))


def record_of(name: str) -> Operator:
    found = find(name)
    assert found is not None
    return found


def relation(name: str, *types: Any, **given_: Any) -> Any:
    """What the relation says of argument types and attributes as a user writes them."""
    record = record_of(name)
    return record.relation(attributes(record, given_), *types)


# --- every record --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", names())
@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_it_means_what_the_reference_means(name: str, data: st.DataObject) -> None:
    record, case = record_of(name), data.draw(CASES[name])
    found = run(record, case.args, case.attrs)  # checks the relation against the result
    attrs, types = attributes(record, case.attrs), types_of(case.args)
    shapes = [each.shape for each in case.args]
    assert shapes_of(record, attrs, shapes, [t.dtype for t in types]) == tuple(
        each.shape for each in found
    )
    assert kind(record, attrs, *types) in KINDS
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of an empty mean
        wanted = REFERENCE[name](*case.args, **case.attrs)
    several = wanted if isinstance(wanted, tuple) else (wanted,)
    for ours, theirs in zip(found, several, strict=True):
        close(ours, theirs, case.args)


def test_nothing_is_missing() -> None:
    """The completeness of the registry: a hole is a failure."""
    holes = []
    for name in names():
        record = record_of(name)
        parts = {
            "relation": callable(record.relation),
            "definition": (record.compute is None) != (record.decompose is None),
            "reference": name in REFERENCE,
            "cases": name in CASES,
            "doc": record.doc.endswith(".") or record.doc.endswith('".'),
        }
        holes += [f"{name}: {part}" for part, there in parts.items() if not there]
    assert holes == []
    assert sorted(REFERENCE) == sorted(CASES) == list(names())
    assert len(names()) >= 120


@pytest.mark.parametrize("name", names())
@settings(max_examples=1)
@given(data=st.data())
def test_terms_have_the_type_of_the_relation(name: str, data: st.DataObject) -> None:
    record, case = record_of(name), data.draw(CASES[name])
    args: Any = [const(each) for each in case.args]
    term = record(args, **case.attrs) if record.variadic else record(*args, **case.attrs)
    assert isinstance(term, Apply)
    assert type_of(term) is record.relation(dict(term.attrs), *types_of(case.args))


@pytest.mark.parametrize("name", [n for n in names() if record_of(n).decompose is not None])
@settings(max_examples=2)
@given(data=st.data())
def test_a_decomposition_has_the_type_of_the_relation(name: str, data: st.DataObject) -> None:
    record, case = record_of(name), data.draw(CASES[name])
    attrs, types = attributes(record, case.attrs), types_of(case.args)
    params = [Var(Name("x", i), each) for i, each in enumerate(types)]
    assert record.decompose is not None
    assert type_of(record.decompose(attrs, *params)) is record.relation(attrs, *types)


# --- names ---------------------------------------------------------------------------------------


def test_aliases_find_the_one_record() -> None:
    for alias in aliases():
        assert record_of(alias).name in names()
    assert find("sub") is find("subtract")
    assert find("nn.conv2d") is find("nn.conv")
    assert find("no_such_operator") is None


def test_the_face_shows_the_registry() -> None:
    assert plica.op.add is find("add")
    assert nn.relu is find("nn.relu")
    assert nn.conv2d is find("nn.conv")
    own = {each for each in names() if "." not in each or each.startswith("nn.")}
    shown = {*dir(plica.op), *(f"nn.{name}" for name in dir(nn))} - {*namespaces()}
    assert shown == {*own, "nn"}


@pytest.mark.parametrize(
    ("module", "name", "hint"),
    [(plica.op, "exq", "'exp'"), (nn, "sofmax", "'softmax'"), (plica.op, "substract", "subtract")],
)
def test_an_unknown_name_is_refused_with_a_suggestion(module: Any, name: str, hint: str) -> None:
    with pytest.raises(AttributeError, match="Did you mean") as caught:
        getattr(module, name)
    assert hint in str(caught.value)


# --- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize("why", REFUSED)
def test_what_does_not_fit_is_refused(why: str) -> None:
    code, name, types, given_ = REFUSED[why]
    found = relation(name, *types, **given_)
    assert isinstance(found, Mismatch)
    assert found.code == code
    assert code in CODES
    assert found.message.endswith(".")


@pytest.mark.parametrize(
    ("name", "given_"),
    [
        ("sum", {"axis": 1.5}),
        ("sum", {"axis": True}),
        ("sum", {"keepdims": 1}),
        ("cast", {"dtype": "f31"}),
        ("cast", {"dtype": 3}),
        ("reshape", {"shape": (-1, -1)}),
        ("reshape", {"shape": (-2,)}),
        ("reshape", {"shape": ("n n",)}),
        ("reshape", {"shape": ("__import__('os')",)}),
        ("reshape", {"shape": ("n" * 2000,)}),
        ("broadcast_to", {"shape": (-1,)}),
        ("pad", {"pad_width": (1, 2)}),
        ("pad", {"pad_width": -1}),
        ("pad", {"pad_width": 1, "mode": "wrapped"}),
        ("clip", {"min": "low"}),
        ("clip", {"min": float, "max": None}),
        ("nn.elu", {"alpha": True}),
        ("nn.conv", {"strides": 0}),
        ("nn.conv", {"padding": ((1, 2, 3),)}),
        ("nn.conv", {"groups": 0}),
        ("einsum", {"equation": 3}),
    ],
)
def test_bad_attributes_are_refused(name: str, given_: dict[str, Any]) -> None:
    with pytest.raises(IllTyped) as caught:
        attributes(record_of(name), given_)
    assert caught.value.code == "bad-attribute"
    assert caught.value.diagnostics[0].expected is not None


@pytest.mark.parametrize("scale", [2.0, 0])
def test_a_scale_is_a_whole_number_above_zero(scale: float) -> None:
    with pytest.raises(IllTyped, match="a whole number above 0"):
        attributes(record_of("nn.upsample"), {"scale": scale})


# --- symbolic dims -------------------------------------------------------------------------------


def test_dims_stay_symbolic() -> None:
    n, m = dim_var("n"), dim_var("m")
    (whole,) = relation("concat", f32(n), f32(m)).shape
    assert same_dim(whole, m + n)
    (flat,) = relation("reshape", f32(n, 4), shape=(-1,)).shape
    assert same_dim(flat, 4 * n)
    rows, columns = relation("reshape", f32("n", 4), shape=("2*n", 2)).shape
    assert same_dim(rows, 2 * n)
    assert columns.value == 2
    size = relation("nn.conv", f32(1, 1, n), f32(1, 1, 3), padding=1, strides=2).shape[2]
    assert same_dim(size, (n - 1) // 2 + 1)
    assert same_dim(relation("matmul", f32(n, 3), f32(3, m)).shape[1], m)
    assert relation("add", f32(n, 1), f32(n, 4)) is f32(n, 4)
    assert same_dim(relation("pad", f32(n), pad_width=2).shape[0], n + 4)
    parts = relation("split", f32(4 * n), indices_or_sections=2).items
    assert all(same_dim(part.shape[0], 2 * n) for part in parts)


@given(st.integers(-9, 9), st.integers(-9, 9), st.integers(1, 9))
def test_index_terms_are_read_from_text(a: int, b: int, c: int) -> None:
    source = f"min({a} + {b}*n, max(n, -{c})) // {c} - (n % {c})"
    found = read_dim(source)
    assert not isinstance(found, Mismatch)
    for n in range(5):
        wanted = eval(source, {"n": n, "min": min, "max": max})
        assert evaluate(found, {dim_var("n"): n}) == wanted


# --- decisions worth pinning ---------------------------------------------------------------------


def one(name: str, *args: Any, **attrs: Any) -> Any:
    (found,) = run(record_of(name), [np.asarray(each) for each in args], attrs)
    return found


def test_sums_keep_their_dtype_and_wrap() -> None:
    assert one("sum", np.full(3, 100, np.int8)) == np.int8(44)
    assert one("prod", np.full(3, 100, np.uint8)).dtype == np.uint8


def test_small_floats_are_summed_in_f32() -> None:
    ones = np.ones(5000, np.float16)
    assert one("sum", ones) == np.float16(5000)  # in f16 it would stop at 2048
    assert one("mean", ones) == np.float16(1)
    assert one("matmul", ones, ones) == np.float16(5000)


def test_argmax_takes_the_first_and_nan_is_extreme() -> None:
    assert one("argmax", np.array([1, 3, 3], np.float32)) == 1
    assert one("argmax", np.array([1, 3, 3], np.float32), last=True) == 2
    assert one("argmin", np.array([1, np.nan, 0, np.nan], np.float32)) == 1


def test_reductions_of_nothing() -> None:
    empty = np.zeros((2, 0), np.float32)
    assert one("sum", empty, axis=1).tolist() == [0, 0]
    assert one("prod", empty, axis=1).tolist() == [1, 1]
    assert one("all", empty == 0, axis=1).tolist() == [True, True]
    assert one("any", empty == 0, axis=1).tolist() == [False, False]
    assert np.isnan(one("mean", empty, axis=1)).all()
    assert one("max", empty, axis=0).shape == (0,)


def test_numbers_become_literals() -> None:
    term = plica.op.add(Var(Name("x"), f32(2)), 1.0)
    assert isinstance(term, Apply)
    assert isinstance(term.args[1], Literal)


def test_every_dtype_is_admitted_somewhere() -> None:
    for each in DTYPES:
        assert relation("copy", tensor((2,), each)) is tensor((2,), each)
