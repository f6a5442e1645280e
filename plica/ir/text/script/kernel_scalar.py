"""Scalars in text: Python's expressions as scalar terms of a kernel.

A number takes the dtype of the adjacent operand; alone it is i64, f32 or bool. Scalars are read
with an explicit stack, so nesting is limited only by Python's parser.
"""

from __future__ import annotations

import ast
from typing import Any, Final

from plica.ir.graph.expression import Literal
from plica.ir.loop import scalar as sc
from plica.ir.text.script.kernel_call import CallReader
from plica.ir.text.script.kernel_number import Bare, ScopeOnly, Value, Work
from plica.ir.type import DType
from plica.runtime.late import lazy_imports

with lazy_imports(__name__):  # few kernels have views
    from plica.ir.text.script.kernel_view import place_in

# fmt: off
_PYTHON: Final[dict[type[ast.AST], str]] = {
    ast.Add:    "+",     ast.Sub:    "-",       ast.Mult:   "*",
    ast.Div:    "/",     ast.FloorDiv: "//",    ast.Mod:    "%",
    ast.BitAnd: "&",     ast.BitOr:  "|",       ast.BitXor: "^",
    ast.LShift: "<<",    ast.RShift: ">>",
    ast.Lt:     "<",     ast.LtE:    "<=",      ast.Eq:     "==",       ast.NotEq: "!=",
}
_SIGNED: Final = {scalar_row.sign: of for of, scalar_row in sc.ROW_OF.items() if scalar_row.sign}
SIGNS: Final[dict[type[ast.AST], type[sc.Scalar]]] = {
    ast.Pow: sc.Pow, **{node: _SIGNED[sign] for node, sign in _PYTHON.items()},
}
"""The scalar class of each Python operator; the spellings come from the rows."""
SWAPPED: Final[dict[type[ast.AST], type[sc.Scalar]]] = {ast.Gt: sc.Lt, ast.GtE: sc.Le}
# fmt: on


class ScalarReader(CallReader):
    """Reads scalars in a scope; records errors and continues."""

    def scalar(self, root: ast.expr, like: DType | None = None) -> sc.Scalar | None:
        """The term of an expression; a literal takes the given dtype."""
        return self.settle(root, self.value(root), like)

    def condition(self, root: ast.expr) -> sc.Scalar | None:
        """A scalar that is true or false."""
        return self.as_bool(root, self.scalar(root))

    def index(self, root: ast.expr) -> sc.Scalar | None:
        """A scalar that is an integer."""
        return self.as_index(root, self.value(root))

    def placed(
        self, buffer: sc.Buffer, indices: tuple[sc.Scalar, ...]
    ) -> tuple[sc.Buffer, tuple[sc.Scalar, ...]]:
        """The buffer and indices of an element; a view refers to another buffer."""
        while buffer in self.scope.views:
            of, begins = self.scope.views[buffer]
            indices = place_in(of, buffer, begins, indices, self.scope.extents)
            buffer = of
        return buffer, indices

    def buffer(self, node: ast.expr) -> sc.Buffer | None:
        """The buffer of a name."""
        bound = self.scope.find(node.id) if isinstance(node, ast.Name) else None
        if bound is not None and isinstance(bound.term, sc.Buffer):
            return bound.term
        shown = self.origin.excerpt(node)
        if bound is not None:
            if bound.term is not None or bound.what != "buffer":
                message = f"{shown} is {bound}, not a buffer."
                self.error(node, "type-conflict", message, expected="a buffer", found=str(bound))
            return None
        hint = self.problems.suggest(shown, self.scope.buffers())
        self.error(node, "unbound-name", f"No buffer is called {shown!r} here.", suggestion=hint)
        return None

    def indices(self, buffer: sc.Buffer, node: ast.Subscript) -> list[ast.expr] | None:
        """The expressions in the brackets after a buffer, as many as it has dims."""
        items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if len(items) == len(buffer.shape):
            return items
        message = f"{buffer.name} has rank {len(buffer.shape)}."
        expected = f"{len(buffer.shape)} indices"
        self.error(node, "wrong-arity", message, expected=expected, found=str(len(items)))
        return None

    def value(self, root: ast.expr) -> Value:
        """The value of an expression."""
        done: list[Any] = []  # Any: values, while steps are under way
        work: list[Work] = [root]
        while work:
            if isinstance(item := work.pop(), tuple):
                build, count = item
                cut = len(done) - count
                made = build(done[cut:])
                del done[cut:]
                if made is not ScopeOnly:
                    done.append(made)
                continue
            self._open(item, work, done)
        return done[0]  # type: ignore[no-any-return]  # the root's own value

    def _open(self, node: ast.expr, work: list[Work], done: list[Value]) -> None:
        match node:
            case ast.Name():
                done.append(self._name(node))
            case ast.Constant(bool() | int() | float() as number):
                done.append(Bare(number))
            case ast.UnaryOp(ast.USub(), ast.Constant(int() | float() as number)) if not isinstance(
                number, bool
            ):
                done.append(Bare(-number))
            case ast.UnaryOp(ast.USub(), operand):
                work += [(lambda kids: self.pair(node, sc.Sub, Bare(0), kids[0]), 1), operand]
            case ast.UnaryOp(ast.Not(), operand):
                work += [(lambda kids: self._not(operand, kids[0]), 1), operand]
            case ast.BinOp(left, sign, right) if type(sign) in SIGNS:
                kind = SIGNS[type(sign)]
                work += [(lambda kids: self.pair(node, kind, *kids), 2), right, left]
            case ast.Compare(left, signs, others) if all(
                type(sign) in SIGNS or type(sign) in SWAPPED for sign in signs
            ):
                parts = [left, *others]
                work += [(lambda kids: self._compare(node, signs, kids), len(parts))]
                work += reversed(parts)
            case ast.BoolOp(sign, values):
                join = sc.And if isinstance(sign, ast.And) else sc.Or
                work += [(lambda kids: self._logic(values, join, kids), len(values))]
                work += reversed(values)
            case ast.IfExp(test, then, orelse):
                work += [(lambda kids: self._select(node, kids), 3), orelse, then, test]
            case ast.Subscript(ast.Name() as base):
                self._load(node, base, work, done)
            case ast.Call():
                self.call(node, work, done)
            case _:
                done.append(self._unsupported(node))

    def _name(self, node: ast.Name) -> Value:
        if (bound := self.scope.find(node.id)) is not None:
            if isinstance(bound.term, sc.Scalar) or (bound.term is None and bound.region is None):
                return bound.term
            message = f"{node.id} is {bound}; it is no number."
            hint = f"Write {node.id}[...]." if bound.what == "buffer" else None
            self.error(node, "type-conflict", message, expected="a number", suggestion=hint)
            return None
        found = self.scope.outer.find(node.id)
        if isinstance(found, Literal):  # a number of the Python program around
            return Bare(found.value)
        if self.word(node) is not None:
            self.unsupported(node, f"{node.id} is a word of the language, not a value.")
            return None
        hint = self.problems.suggest(node.id, self.scope.known())
        self.error(node, "unbound-name", f"Nothing here is called {node.id!r}.", suggestion=hint)
        return None

    def _load(
        self, node: ast.Subscript, base: ast.Name, work: list[Work], done: list[Value]
    ) -> None:
        buffer = self.buffer(base)
        items = None if buffer is None else self.indices(buffer, node)
        if buffer is None or items is None:
            done.append(None)
            return
        if any(isinstance(item, ast.Slice) for item in items):
            hint = "Regions stand in reads, writes and invoke; elsewhere a loop reads one element."
            self.unsupported(node, "A slice of a buffer is no number.", suggestion=hint)
            done.append(None)
            return

        def load(kids: list[Value]) -> Value:
            scalars = [self.as_index(at, kid) for at, kid in zip(items, kids, strict=True)]
            fixed = tuple([scalar for scalar in scalars if scalar is not None])
            return sc.Load(*self.placed(buffer, fixed)) if len(fixed) == len(scalars) else None

        work.append((load, len(items)))
        work += reversed(items)

    def _compare(self, node: ast.Compare, signs: list[ast.cmpop], kids: list[Value]) -> Value:
        whole: sc.Scalar | None = None
        for sign, left, right in zip(signs, kids, kids[1:], strict=False):
            if (sides := self.agree(node, [left, right])) is None:
                return None
            one, two = sides[::-1] if type(sign) in SWAPPED else sides
            kind: Any = SWAPPED.get(type(sign)) or SIGNS[type(sign)]
            made = kind(one, two)
            whole = made if whole is None else sc.And(whole, made)
        return whole

    def _logic(self, nodes: list[ast.expr], join: type[sc.And | sc.Or], kids: list[Value]) -> Value:
        scalars = [self.as_bool(n, self.settle(n, k)) for n, k in zip(nodes, kids, strict=True)]
        whole: sc.Scalar | None = scalars[0]
        for scalar in scalars[1:]:
            whole = None if whole is None or scalar is None else join(whole, scalar)
        return whole

    def _not(self, node: ast.expr, value: Value) -> Value:
        scalar = self.as_bool(node, self.settle(node, value))
        return None if scalar is None else sc.Not(scalar)

    def _select(self, node: ast.IfExp, kids: list[Value]) -> Value:
        test = self.as_bool(node.test, self.settle(node.test, kids[0]))
        sides = self.agree(node, kids[1:])
        return None if test is None or sides is None else sc.Select(test, *sides)

    def _unsupported(self, node: ast.expr) -> Value:
        what = type(node.op if isinstance(node, ast.BinOp | ast.UnaryOp) else node).__name__
        message = f"Python's {what} is not part of the language of kernels."
        self.unsupported(node, message, found=self.origin.excerpt(node))
        return None
