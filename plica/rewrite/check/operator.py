"""Checks operators: results against a reference, gradients against finite differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import hypothesis
import ml_dtypes
import numpy as np
from attrs import frozen
from hypothesis import strategies as st

from plica.core import Name
from plica.core.extension import FAILURES, said
from plica.ir.graph.expression import Apply, Expr, Function, Project, Var, const
from plica.ir.graph.module import Module, main_module
from plica.ir.graph.operator import Mismatch, Operator
from plica.ir.interpret.interpreter import interpret
from plica.ir.op.reduction import sum_
from plica.ir.type import DType, TensorType, TupleType, dtype, f64, infer, type_of
from plica.rewrite.check.data import TAPE, Choose, reader, sizes
from plica.rewrite.check.instance import Instance, instance
from plica.rewrite.check.report import closed, failing_test, literal, slug
from plica.rewrite.check.slope import Slope
from plica.rewrite.check.verdict import Counterexample, Refuted, Tested, Untested, Verdict
from plica.rewrite.match import plain
from plica.rewrite.pattern import Hole, Rest

Array = np.ndarray[Any, Any]

MAX_SHRINKS: Final = 60  # instances tried to make a wrong one smaller
MAX_GRADIENT_ELEMENTS: Final = 64  # elements of an argument whose gradient is compared
ROUNDING: Final = 64
"""Roundings by which an operator and its reference may differ: they add in other orders."""


@frozen
class _Wrong:
    """An instance on which something is wrong, and a test of it."""

    made: Instance
    reason: str
    pytest: str
    values: tuple[Any, Any] = (None, None)


def check_operator(of: Operator, examples: int = 200, seed: int = 0) -> tuple[Verdict, ...]:
    """A verdict on the meaning of an operator, and one on its gradient if it has one."""
    found = [_searched(f"{of.name}: meaning", examples, seed, lambda choose: _meaning(of, choose),
                       "a reference= in its record" if of.reference is None else "")]  # fmt: skip
    if of.gradient is not None or of.decompose is not None:
        found.append(
            _searched(f"{of.name}: gradient", examples, seed, lambda choose: _slope(of, choose))
        )
    return tuple(found)


def _searched(
    name: str, examples: int, seed: int, judge: Callable[[Choose], _Wrong | bool], lacks: str = ""
) -> Verdict:
    """Runs a number of instances and returns the smallest failure; a False result is
    inconclusive."""
    if lacks:
        return Untested(name, f"there is nothing to hold it against: {lacks} is missing")
    seen = tries = 0
    wrong: dict[bytes, _Wrong] = {}

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=(hypothesis.Phase.generate, hypothesis.Phase.shrink),
        suppress_health_check=list(hypothesis.HealthCheck),
        report_multiple_bugs=False,
        print_blob=False,
        verbosity=hypothesis.Verbosity.quiet,
    )
    @hypothesis.given(st.binary(min_size=TAPE, max_size=TAPE))
    def compare(tape: bytes) -> None:
        nonlocal seen, tries
        if tape not in wrong and tries < MAX_SHRINKS:
            tries += bool(wrong)
            found = judge(reader(tape))
            if not isinstance(found, _Wrong):
                seen += found
                if not found:
                    hypothesis.reject()
                return
            wrong[tape] = found
        if tape in wrong:
            raise _Found(wrong[tape])

    try:
        compare()
    except _Found as smallest:
        found = smallest.wrong
        inputs = tuple((str(var.name), array) for var, array in found.made.inputs)
        example = Counterexample(
            found.made.term, None, inputs, *found.values, found.reason, found.pytest
        )
        return Refuted(name, example)
    except hypothesis.errors.Unsatisfiable:
        pass
    if not seen:
        return Untested(name, "no well-typed arguments were found")
    return Tested(name, seen)


class _Found(AssertionError):
    """Raised inside hypothesis for a failing instance."""

    def __init__(self, wrong: _Wrong) -> None:
        super().__init__(wrong.reason)
        self.wrong = wrong


def _instance(of: Operator, choose: Choose) -> Instance | None:
    """The operator applied to variables."""
    args = (Rest("values"),) if of.variadic else tuple(Hole(name) for name in of.inputs)
    settings = tuple(sorted((each.name, Hole(f"{each.name}_")) for each in of.attributes))
    return instance(Apply(of.name, args, settings), choose)


def _meaning(of: Operator, choose: Choose) -> _Wrong | bool:
    made = _instance(of, choose)
    if made is None or of.reference is None or not isinstance(made.term, Apply):
        return False
    arrays = _arrays(made)
    found = interpret(closed(made.term, made), *[array for _, array in made.inputs])
    given = {name: plain(value) for name, value in made.term.attrs}
    try:
        with np.errstate(all="ignore"):
            wanted = of.reference(*arrays, **given)
    except FAILURES as error:
        return _wrong(of, made, f"the reference fails: {said(error)}", None)
    reason = _unlike(found, wanted)
    return True if reason is None else _wrong(of, made, reason, wanted, (found, wanted))


def _arrays(made: Instance) -> list[Array]:
    """The arguments of an instance, in their order."""
    known = dict(made.inputs)
    assert isinstance(made.term, Apply)
    return [
        known[arg] if isinstance(arg, Var) else interpret(
            closed(arg, made), *[array for _, array in made.inputs])
        for arg in made.term.args
    ]  # fmt: skip


def _unlike(found: Any, wanted: Any) -> str | None:
    """How an operator's result differs from its reference."""
    if isinstance(found, tuple):
        if not isinstance(wanted, tuple | list) or len(wanted) != len(found):
            return f"the reference gives {type(wanted).__name__}, not {len(found)} results"
        reasons = [_unlike(one, two) for one, two in zip(found, wanted, strict=True)]
        return next((reason for reason in reasons if reason is not None), None)
    other = np.asarray(wanted)
    if found.shape != other.shape:
        return f"the shape is {found.shape}, by the reference {other.shape}"
    with np.errstate(all="ignore"):
        expected = other.astype(found.dtype)
        if not _is_float(found.dtype) or not found.size:
            wrong = found != expected
        else:
            one, two = found.astype(np.float64), expected.astype(np.float64)
            unit = float(ml_dtypes.finfo(found.dtype).eps)  # type: ignore[no-untyped-call]  # it has no types
            finite = np.isfinite(two)
            scale = np.maximum(np.abs(two), np.max(np.abs(two[finite]), initial=0.0) * unit)
            near = np.abs(one - two) <= ROUNDING * unit * scale
            wrong = ~(near | (one == two) | (np.isnan(one) & np.isnan(two)))
    if not np.any(wrong):
        return None
    at = tuple(int(each) for each in np.argwhere(wrong)[0])
    return f"element {at} is {found[at]!r}, by the reference {expected[at]!r}"


def _is_float(of: np.dtype[Any]) -> bool:
    return dtype(of).is_float


def _wrong(
    of: Operator, made: Instance, reason: str, wanted: Any, values: tuple[Any, Any] = (None, None)
) -> _Wrong:
    last = "    assert found is not None\n" if wanted is None else _assertion(wanted)
    body = f"    found = plica.interpret(plica.from_text(SOURCE), *inputs)\n{last}"
    sources, arrays = {"SOURCE": closed(made.term, made)}, [array for _, array in made.inputs]
    comment = f"{of.name}: {reason}"
    shown = failing_test(slug(of.name), comment, sources, {"inputs": arrays}, body)
    return _Wrong(made, reason, shown, values)


def _assertion(wanted: Any) -> str:
    several = wanted if isinstance(wanted, tuple | list) else (wanted,)
    lines = "".join(f"        {literal(np.asarray(each))},\n" for each in several)
    return (
        f"    expected = [\n{lines}    ]\n"
        "    several = found if isinstance(found, tuple) else (found,)\n"
        "    for one, two in zip(several, expected, strict=True):\n"
        "        np.testing.assert_allclose(one, two, rtol=1e-5)\n"
    )


def _slope(of: Operator, choose: Choose) -> _Wrong | bool:
    """The gradient against a central difference, at a point and in a direction by chance."""
    made = _instance(of, choose)
    if made is None or not isinstance(made.term, Apply):
        return False
    random = np.random.default_rng(choose(range(64)))
    types = [type_of(arg) for arg in made.term.args]
    wide = [_widened(type_) for type_ in types]
    if not any(isinstance(each, TensorType) and each.dtype is f64 for each in wide):
        return False
    attrs = dict(made.term.attrs)
    if any(
        isinstance(each, TensorType) and np.prod(sizes(each)) > MAX_GRADIENT_ELEMENTS
        for each in wide
    ):
        return False
    if isinstance(of.relation(attrs, *wide), Mismatch):
        return False
    if (whole := _weighted(of, wide, made.term, random)) is None:
        return False
    args = [_point(each, random) for each in wide]
    chosen = tuple(n for n, array in enumerate(args) if array.dtype == np.float64)
    ways = [np.asarray(random.uniform(-1, 1, array.shape)) for array in args]
    at = Instance(made.term, tuple(zip(_params(wide), args, strict=True)), _params(wide))
    subject = Slope(whole, args, ways, chosen)
    found = subject.judged()
    return found if isinstance(found, bool) else _Wrong(at, found.reason, subject.as_pytest(found))


def call_in_f64(of: Operator, choose: Choose) -> tuple[tuple[Array, ...], dict[str, Any]] | None:
    """Arguments of an operator, floats in f64 and away from special numbers, and attributes."""
    made = _instance(of, choose)
    if made is None or not isinstance(made.term, Apply):
        return None
    wide = [_widened(type_of(arg)) for arg in made.term.args]
    small = all(
        isinstance(each, TensorType) and np.prod(sizes(each)) <= MAX_GRADIENT_ELEMENTS
        for each in wide
    )
    if not small or isinstance(of.relation(dict(made.term.attrs), *wide), Mismatch):
        return None
    random = np.random.default_rng(choose(range(64)))
    given = {name: plain(value) for name, value in made.term.attrs}
    return tuple([_point(each, random) for each in wide]), given


def _widened(of: Any) -> Any:
    """A type with f64 floats, for finite differences."""
    return TensorType(of.shape, f64) if isinstance(of, TensorType) and of.dtype.is_float else of


def _params(types: Sequence[Any]) -> tuple[Var, ...]:
    return tuple(Var(Name("x", at), each) for at, each in enumerate(types))


def _weighted(
    of: Operator, types: Sequence[Any], applied: Apply, random: np.random.Generator
) -> Module | None:
    """The sum of the floats that an operator gives, times random numbers."""
    params = _params(types)
    value = Apply(of.name, params, applied.attrs)
    gives = type_of(value)
    results: list[tuple[Expr, Any]] = [(value, gives)]
    if isinstance(gives, TupleType):
        results = [(Project(value, at), item) for at, item in enumerate(gives.items)]
    total: Expr | None = None
    for expr, its in results:
        if isinstance(its, TensorType) and its.dtype is f64:
            term = sum_(expr * const(random.uniform(0.5, 1.5, sizes(its))))
            total = term if total is None else total + term
    if total is None:
        return None
    return infer(main_module(Function((), (), params, None, total)))


def _point(of: Any, random: np.random.Generator) -> Array:
    """An argument away from zero and from special numbers."""
    assert isinstance(of, TensorType)
    shape, kind = sizes(of), of.dtype
    if kind is f64:
        return np.asarray(random.uniform(0.2, 1.7, shape) * random.choice((-1, 1), shape))
    return _whole(kind, shape, random)


def _whole(of: DType, shape: tuple[int, ...], random: np.random.Generator) -> Array:
    return np.asarray(random.integers(0, 2, shape).astype(of.numpy))
