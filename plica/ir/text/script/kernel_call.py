"""Calls in the text of kernels: casts, intrinsics, reductions, vectors."""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from plica.ir.loop import scalar as sc
from plica.ir.loop.scalar_table import INTRINSICS
from plica.ir.text.script.kernel_number import Bare, Build, NumberReader, ScopeOnly, Value, Work
from plica.ir.text.script.kernel_scope import Bound
from plica.ir.text.script.value import WRONG, named_float
from plica.ir.text.word import DTYPE_WORDS, TAKEN_IN_KERNELS, is_reserved
from plica.ir.type import DType, i64

PAIRS: Final[dict[str, type[sc.Scalar]]] = {
    scalar_row.word: of for of, scalar_row in sc.ROW_OF.items() if scalar_row.word
}
COMBINERS: Final[dict[str, sc.Combiner]] = {
    "sum": "sum", "prod": "prod", "max": "max", "min": "min", "all": "all", "any": "any",
}  # fmt: skip


class CallReader(NumberReader):
    """Reads calls that have a value."""

    def call(self, node: ast.Call, work: list[Work], done: list[Value]) -> None:
        name = self.word(node.func)
        args = node.args
        if name is None:
            done.append(self._no_call(node))
        elif name in COMBINERS and len(args) == 1 and (runs := _runs(node)) is not None:
            self._reduce(node, COMBINERS[name], args[0], runs, work, done)
        elif node.keywords or any(isinstance(arg, ast.Starred) for arg in args):
            self.unsupported(node, f"{name} takes its arguments in order.")
            done.append(None)
        elif name in DTYPE_WORDS:
            self._cast(node, DTYPE_WORDS[name], work, done)
        elif name == "float" and len(args) == 1:
            number = self._named_float(args[0])
            done.append(self._arity(node, 'float("inf")') if number is None else Bare(number))
        elif name in PAIRS and (len(args) == 2 or (len(args) > 2 and name != "pow")):
            kind = PAIRS[name]
            work += [(lambda kids: self._chain(node, kind, kids), len(args)), *reversed(args)]
        elif name in INTRINSICS and len(args) == INTRINSICS[name].arity:
            work += [(lambda kids: self._intrinsic(node, name, kids), len(args)), *reversed(args)]
        elif name == "intrinsic" and len(args) > 1 and (of := _string(args[0])) is not None:
            rest = args[1:]
            work += [(lambda kids: self._opaque(rest, of, kids), len(rest)), *reversed(rest)]
        elif name == "ramp" and len(args) == 3 and (lanes := _count(args[2])):
            ramp = partial(sc.Ramp, lanes=lanes)
            work += [(lambda kids: self._agreeing(node, kids, ramp), 2), args[1], args[0]]
        elif name == "broadcast" and len(args) == 2 and (lanes := _count(args[1])):
            broadcast = partial(sc.Broadcast, lanes=lanes)
            work += [(lambda kids: self._agreeing(node, kids, broadcast), 1), args[0]]
        elif name == "shuffle" and len(args) == 2:
            self._shuffle(node, work, done)
        else:
            done.append(self._arity(node, _SHAPES.get(name)))

    def _no_call(self, node: ast.Call) -> Value:
        shown = self.origin.excerpt(node.func)
        if isinstance(node.func, ast.Name) and self.scope.find(node.func.id) is None:
            hint = self.problems.suggest(shown, TAKEN_IN_KERNELS)
            message = f"No function is called {shown!r} in kernels."
            self.error(node, "unbound-name", message, suggestion=hint)
        else:
            self.unsupported(node, "A kernel calls intrinsics only.", found=shown)
        return None

    def _arity(self, node: ast.Call, expected: str | None) -> Value:
        shown = self.origin.excerpt(node)
        if expected is None:
            self.unsupported(node, f"{self.origin.excerpt(node.func)} has no value.", found=shown)
        else:
            message = "A function is called with the wrong arguments."
            self.error(node, "wrong-arity", message, expected=expected, found=shown)
        return None

    def _cast(self, node: ast.Call, to: DType, work: list[Work], done: list[Value]) -> None:
        if len(node.args) != 1:
            done.append(self._arity(node, f"{to}(x)"))
            return
        (arg,) = node.args
        number = self._named_float(arg)
        if number is not None and to.is_float:
            done.append(self.number(node, number, to))
            return

        def cast(kids: list[Value]) -> Value:
            (kid,) = kids
            if isinstance(kid, Bare):
                return self.number(arg, kid.value, to)
            return None if kid is None else sc.Cast(kid, to)

        work += [(cast, 1), arg]

    def _named_float(self, node: ast.expr) -> float | None:
        text = _string(node)
        found = WRONG if text is None else named_float(text)
        return None if found is WRONG else found  # type: ignore[return-value]  # a float

    def _chain(self, node: ast.Call, kind: type[Any], kids: list[Value]) -> Value:
        whole = kids[0]
        for child in kids[1:]:
            whole = self.pair(node, kind, whole, child)
        return whole

    def _intrinsic(self, node: ast.Call, name: str, kids: list[Value]) -> Value:
        if (args := self.agree(node, kids)) is None:
            return None
        dtype = sc.dtype_of(args[0])
        takes = INTRINSICS[name].takes
        if dtype.kind not in takes:
            kind, like = ("float", "f32") if "float" in takes else ("integer", "i32")
            message = f"{name} is for {kind}s."
            hint = f"Write {name}({like}({self.origin.excerpt(node.args[0])}))."
            self.error(
                node, "dtype-conflict", message, expected=f"a {kind}" if kind == "float" else
                f"an {kind}", found=str(dtype), suggestion=hint,
            )  # fmt: skip
            return None
        return sc.Intrinsic(name, tuple(args))

    def _opaque(self, nodes: list[ast.expr], name: str, kids: list[Value]) -> Value:
        args = [self.settle(at, kid) for at, kid in zip(nodes, kids, strict=True)]
        return None if None in args else sc.Intrinsic(name, tuple(args))  # type: ignore[arg-type]  # None was just ruled out

    def _agreeing(
        self, node: ast.Call, kids: list[Value], build: Callable[..., sc.Scalar]
    ) -> Value:
        """A term of parts of one dtype."""
        sides = self.agree(node, kids)
        return None if sides is None else build(*sides)

    def _shuffle(self, node: ast.Call, work: list[Work], done: list[Value]) -> None:
        match node.args:
            case [ast.Tuple(vectors), ast.Tuple(numbers)] if vectors and all(
                isinstance(number, ast.Constant) and type(number.value) is int for number in numbers
            ):
                picked = tuple([each.value for each in numbers])  # type: ignore[attr-defined]  # the class was just seen
                build = partial(_shuffled, picked)
                work += [(lambda kids: self._agreeing(node, kids, build), len(vectors))]
                work += reversed(vectors)
            case _:
                done.append(self._arity(node, _SHAPES["shuffle"]))

    def _reduce(  # noqa: PLR0917  # a reduction is these things
        self, node: ast.Call, combiner: sc.Combiner, arg: ast.expr, runs: sc.Runs, work: list[Work],
        done: list[Value],
    ) -> None:  # fmt: skip
        """`sum(body for k in range(n))`, optionally in runs; shared terms are named after
        the axes."""
        axes: list[ast.comprehension] = []
        shared: list[ast.comprehension] = []
        match arg:
            case ast.GeneratorExp(body, clauses) if not any(
                clause.ifs or clause.is_async or not isinstance(clause.target, ast.Name)
                for clause in clauses
            ):
                for clause in clauses:
                    (shared if _is_alias(clause) else axes).append(clause)
            case ast.List([body]):
                pass
            case _:
                done.append(self._arity(node, f"{combiner}(x[k] for k in range(n))"))
                return
        extents = [self._extent_of(axis.iter) for axis in axes]
        if None in extents or (shared and not axes):
            done.append(self._arity(node, f"{combiner}(x[k] for k in range(n))"))
            return
        mark = self.scope.mark()
        made: list[tuple[tuple[sc.ScalarVar, ...], tuple[sc.Scalar, ...]] | None] = []

        def begin(kids: list[Value]) -> type[ScopeOnly]:
            sizes = [self.as_index(node, kid) for kid in kids]
            names = [axis.target.id for axis in axes]  # type: ignore[attr-defined]  # all Names
            bound = tuple([self.scope.variable(name, "axis", i64) for name in names])
            known = [size for size in sizes if size is not None]
            made.append((bound, tuple(known)) if len(known) == len(sizes) else None)
            return ScopeOnly

        def finish(kids: list[Value]) -> Value:
            self.scope.leave(mark)
            value = self.settle(body, kids[0])
            if combiner in ("all", "any"):
                value = self.as_bool(body, value)
            (over,) = made
            return (
                None if value is None or over is None else sc.Reduce(combiner, *over, value, runs)
            )

        work += [(finish, 1), body]
        for each in reversed(shared):
            assert isinstance(each.target, ast.Name)
            assert isinstance(each.iter, ast.List)
            work += [(self._share(each.target.id, each.iter), 1), each.iter.elts[0]]
        work.append((begin, len(extents)))
        work += reversed([extent for extent in extents if extent is not None])

    def _share(self, name: str, node: ast.expr) -> Build:
        def share(kids: list[Value]) -> type[ScopeOnly]:
            self.scope.bind(name, Bound("alias", self.settle(node, kids[0])))
            return ScopeOnly

        return share

    def _extent_of(self, node: ast.expr) -> ast.expr | None:
        match node:
            case ast.Call(callee, [extent], []) if self.word(callee) == "range":
                return extent
        return None


_COUNTS: Final = {1: "one number", 2: "two numbers", 3: "three numbers"}
_SHAPES: Final[dict[str, str]] = {
    **{name: _COUNTS[scalar_row.arity] for name, scalar_row in INTRINSICS.items()},
    **dict.fromkeys(COMBINERS, "sum(x[k] for k in range(n))"),
    "min": "min(a, b)", "max": "max(a, b)", "pow": "pow(a, b)",
    "intrinsic": 'intrinsic("name", a)', "ramp": "ramp(base, stride, 4)",
    "broadcast": "broadcast(value, 4)", "shuffle": "shuffle((a, b), (0, 5))",
}  # fmt: skip
"""How each function is called."""


def _shuffled(picked: tuple[int, ...], *vectors: sc.Scalar) -> sc.Scalar:
    return sc.Shuffle(vectors, picked)


def _is_alias(clause: ast.comprehension) -> bool:
    target = clause.target
    one = isinstance(clause.iter, ast.List) and len(clause.iter.elts) == 1
    return one and isinstance(target, ast.Name) and is_reserved(target.id)


def _runs(node: ast.Call) -> sc.Runs | None:
    """The runs of a reduction, or None if the syntax is different."""
    match node.keywords:
        case []:
            return ""
        case [ast.keyword("runs", ast.Constant("row" | "box" as word))]:
            return word
        case _:
            return None


def _string(node: ast.expr) -> str | None:
    """The string a node is."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _count(node: ast.expr) -> int:
    """The positive number of a node, or 0 if it is none."""
    number = node.value if isinstance(node, ast.Constant) and type(node.value) is int else 0
    return max(0, number)
