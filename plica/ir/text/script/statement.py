"""Statements in text: the body of a function as one expression."""

from __future__ import annotations

import ast
from typing import Final

import attrs

from plica.core import Task
from plica.ir.graph import expression as ex
from plica.ir.graph.expression import Attrs
from plica.ir.loop.scalar import ScalarVar
from plica.ir.text.script.expression import HOLE, ExpressionReader
from plica.ir.text.script.origin import Node, is_docstring
from plica.ir.text.script.scope import DeferredRegion, Word
from plica.ir.text.word import is_reserved
from plica.ir.type import Type

INSTEAD: Final[dict[type[ast.stmt], str]] = {
    ast.For: "Use recursion, or an operator on whole tensors.",
    ast.While: "Use recursion.",
    ast.Assert: "Types say what must hold.",
    ast.Import: "Import at the top of the file.",
    ast.ImportFrom: "Import at the top of the file.",
    ast.ClassDef: "Define data types at the top of the file.",
}

Lets = list[tuple[ex.Var | ScalarVar, ex.Expr]]


@attrs.frozen
class Options:
    """The arguments of a function's decorator."""

    forall: tuple[str, ...] = ()
    dims: tuple[str, ...] | None = None
    attrs: Attrs = ()


class OptionReader(ExpressionReader):
    """Reads decorators."""

    def options(self, decorators: list[ast.expr]) -> Options:
        """What `@plica.function(...)` says; other decorators are refused."""
        found = Options()
        for decorator in decorators:
            match decorator:
                case ast.Call(callee, [], keywords) if self.is_decorator(callee):
                    found = self._keywords(keywords)
                case ast.Name() | ast.Attribute() if self.is_decorator(decorator):
                    pass
                case _:
                    message = "A function has no other decorator than plica.function."
                    self.bad(decorator, "@plica.function", message)
        return found

    def is_decorator(self, node: ast.expr, name: str = "function") -> bool:
        """Whether an expression is `plica.function`, or another word of plica."""
        return self.meaning(node) == Word(f"plica.{name}")

    def _keywords(self, keywords: list[ast.keyword]) -> Options:
        forall: list[str] = []
        dims: list[str] | None = None
        given: Attrs = ()
        for each in keywords:
            match each.arg:
                case "forall":
                    forall = self.names(each.value)
                case "dims":
                    dims = self.names(each.value)
                case "attrs":
                    given = self._attrs(each.value)
                case _:
                    message = f"plica.function has no option {each.arg!r}."
                    self.error(each, "unknown-attribute", message, expected="forall, dims, attrs")
        return Options(tuple(forall), None if dims is None else tuple(dims), given)

    def _attrs(self, node: ast.expr) -> Attrs:
        if isinstance(node, ast.Dict) and all(
            isinstance(key, ast.Constant) and isinstance(key.value, str) for key in node.keys
        ):
            keys = [key.value for key in node.keys if isinstance(key, ast.Constant)]
            return tuple(sorted(zip(map(str, keys), map(self.value, node.values), strict=True)))
        message = "The attributes of a function are a dict with strings for keys."
        self.unsupported(node, message, expected='attrs={"inline": True}')
        return ()


class BodyReader(OptionReader):
    """Reads functions."""

    def function(self, node: ast.FunctionDef, options: Options) -> Task[ex.Function]:
        """The function of a `def`."""
        mark = self.scope.mark()
        types = self.bind_types(list(options.forall))
        dims = self.bind_dims(list(options.dims or ()))
        args = self.parameters(node.args)
        self.open = [] if options.dims is None else None
        annotated = [None if a.annotation is None else self.read(a.annotation) for a in args]
        dims = tuple([met for _, met in self.open]) if self.open is not None else dims
        self.open = None
        params = tuple([self.parameter(*each) for each in zip(args, annotated, strict=True)])
        ret = None if node.returns is None else self.read(node.returns)
        statements = node.body[1:] if is_docstring(node.body[0]) else node.body
        body = yield self.block(node, statements, None)
        self.scope.leave(mark)
        function = ex.Function(dims, types, params, ret, body, options.attrs)
        self.places.note(function, self.origin, node)
        return function

    def region(self, region: DeferredRegion, node: Node) -> Task[ex.Expr]:
        """Read a region where it is used; it is read once, and means the same everywhere."""
        name = region.node.name
        if region.active:
            self.error(node, "cyclic-data", f"The region {name} is part of itself.")
            return HOLE
        if region.value is not None:
            if not self.scope.still_fits(region):
                message = f"The names in the region {name} mean something else here."
                self.error(node, "unbound-name", message)
            return region.value
        self.scope.enter(region)
        value = yield self.block(region.node, region.node.body, None)
        self.scope.finish(region, value)
        return value  # type: ignore[no-any-return]  # a block's value

    def block(self, owner: Node, body: list[ast.stmt], target: str | None) -> Task[ex.Expr]:
        """The value of a block: what it returns, or what it gives to `target` at its end."""
        lets: Lets = []
        value: ex.Expr = HOLE
        declared: dict[str, Type] = {}
        last = len(body) - 1
        for i, node in enumerate(body):
            if isinstance(node, ast.AugAssign):
                node = _plain(node)
            match node:
                case ast.Return(result) if target is None:
                    if i < last:
                        self.unsupported(body[i + 1], "Nothing can follow a return.")
                    if result is None:
                        self.unsupported(node, "A function returns a value.")
                    else:
                        value = yield self.expression(result)
                    break
                case ast.If() | ast.Match() if i == last:
                    value = yield self.branches(node, target)
                    break
                case ast.If(condition, then, []) if target is None and _returns(then):
                    # What follows an early return is the other branch.
                    value = yield self._if(node, condition, then, body[i + 1 :], None)
                    break
                case ast.If() | ast.Match():
                    if (name := _assigned(node)) is None:
                        self._no_choice(node)
                        continue
                    chosen = yield self.branches(node, name)
                    self._bind(lets, node, name, declared.pop(name, None), chosen)
                case ast.Assign([ast.Name(name)], result) | ast.AnnAssign(
                    ast.Name(name), _, result, _
                ):
                    if isinstance(node, ast.AnnAssign):
                        declared[name] = self.read(node.annotation)
                    if result is None:
                        continue
                    if i == last and name == target:
                        value = yield self.expression(result)
                        break
                    yield self._assign(lets, node, name, declared.pop(name, None), result)
                case ast.Assign([ast.Tuple(parts)], result):
                    yield self._unpack(lets, node, parts, result)
                case ast.Expr(ast.Call(word, [ast.Constant(str(name)), number], [])) if (
                    self.meaning(word) == Word("measure")
                ):
                    yield self._measure(lets, node, name, number)
                case ast.FunctionDef():
                    yield self._def(lets, node, declared)
                case _:
                    self._unsupported_statement(node)
        else:
            self._no_end(owner, body, target)
        for variable, bound in reversed(lets):
            if isinstance(variable, ex.Var):
                value = ex.Let(variable, bound, value)
            else:
                value = ex.LetDim(variable, bound, value)
            self.places.note(value, self.origin, owner)
        return value

    def _bind(self, lets: Lets, node: Node, name: str, of: Type | None, value: ex.Expr) -> None:
        """`name = value`: a reserved name is an alias, any other a let."""
        if is_reserved(name):
            self.scope.bind(name, value)
        else:
            variable = ex.Var(self.scope.fresh(name), of)
            self.scope.bind(name, variable)
            self.places.note(variable, self.origin, node)
            lets.append((variable, value))

    def _measure(self, lets: Lets, node: Node, name: str, number: ast.expr) -> Task[None]:
        """`measure("n", e)`: a dim that the function binds is known from here on."""
        value = yield self.expression(number)
        dim = self.scope.find(f"dim {name}")
        if not isinstance(dim, ScalarVar):
            message = f"The function binds no dim {name!r}."
            hint = f'Say so: @plica.function(dims="{name}").'
            self.error(node, "unbound-name", message, suggestion=hint)
        else:
            lets.append((dim, value))

    def _assign(
        self, lets: Lets, node: Node, name: str, of: Type | None, result: ast.expr
    ) -> Task[None]:
        late = isinstance(result, ast.Name) and isinstance(
            self.scope.find(result.id), DeferredRegion
        )
        if not is_reserved(name) and (late or isinstance(result, ast.Lambda)):
            # As in Python, a function may mention the name it is being given.
            variable = ex.Var(self.scope.fresh(name), of)
            self.scope.bind(name, variable)
            self.places.note(variable, self.origin, node)
            value = yield self.expression(result)
            lets.append((variable, value))
            return
        value = yield self.expression(result)
        self._bind(lets, node, name, of, value)

    def _unpack(
        self, lets: Lets, node: Node, parts: list[ast.expr], result: ast.expr
    ) -> Task[None]:
        """`a, b = e`: a let of the whole, then one of each item."""
        value = yield self.expression(result)
        whole = ex.Var(self.scope.fresh("t"), None)
        self.places.note(whole, self.origin, node)
        lets.append((whole, value))
        for i, part in enumerate(parts):
            if not isinstance(part, ast.Name):
                self.unsupported(part, "Only names can be assigned to.")
            elif part.id != "_":
                item = ex.Project(whole, i)
                self.places.note(item, self.origin, part)
                self._bind(lets, part, part.id, None, item)

    def _def(self, lets: Lets, node: ast.FunctionDef, declared: dict[str, Type]) -> Task[None]:
        name = node.name
        bare = not node.args.args and node.returns is None and not node.decorator_list
        if is_reserved(name) and bare:
            self.scope.bind(name, DeferredRegion(node))
            return
        options = self.options(node.decorator_list)
        if is_reserved(name):
            value = yield self.function(node, options)
            self.scope.bind(name, value)
            return
        variable = ex.Var(self.scope.fresh(name), declared.pop(name, None))
        self.scope.bind(name, variable)  # a function may call itself
        self.places.note(variable, self.origin, node)
        value = yield self.function(node, options)
        lets.append((variable, value))

    def branches(self, node: ast.If | ast.Match, target: str | None) -> Task[ex.Expr]:
        """The value an `if` or a `match` chooses."""
        if isinstance(node, ast.If):
            if not node.orelse:
                self.unsupported(node, "An if has an else: every expression has a value.")
                return HOLE
            value = yield self._if(node, node.test, node.body, node.orelse, target)
            return value  # type: ignore[no-any-return]  # an expression
        subject, total = self.subject(node.subject)
        scrutinee = yield self.expression(subject)
        clauses: list[ex.Clause] = []
        for case in node.cases:
            if case.guard is not None:
                message = "A clause has no guard."
                self.unsupported(case.guard, message, suggestion="Use an if inside.")
            mark = self.scope.mark()
            pattern = self._pattern(case.pattern, {})
            body = yield self.block(case.body[0], case.body, target)
            self.scope.leave(mark)
            clauses.append(ex.Clause(pattern, body))
            self.places.note(clauses[-1], self.origin, case.pattern)
        match = ex.Match(scrutinee, tuple(clauses), total)
        self.places.note(match, self.origin, node)
        return match

    def _if(
        self,
        node: ast.If,
        test: ast.expr,
        then: list[ast.stmt],
        orelse: list[ast.stmt],
        target: str | None,
    ) -> Task[ex.Expr]:
        condition = yield self.expression(test)
        mark = self.scope.mark()
        first = yield self.block(node, then, target)
        self.scope.leave(mark)
        second = yield self.block(node, orelse, target)
        self.scope.leave(mark)
        value = ex.If(condition, first, second)
        self.places.note(value, self.origin, node)
        return value

    def _pattern(self, node: ast.pattern, names: dict[str, None]) -> ex.Pattern:
        match node:
            case ast.MatchAs(None, None):
                return ex.PAny()
            case ast.MatchAs(None, str() as name):
                if self.scope.outer.constructors(name):
                    message = f"{name} is a constructor, and here would be a new name."
                    self.error(node, "bad-pattern", message, suggestion=f"Write {name}().")
                if name in names:
                    self.error(node, "duplicate-name", f"The pattern binds {name!r} twice.")
                names[name] = None
                variable = ex.Var(self.scope.fresh(name), None)
                self.scope.bind(name, variable)
                self.places.note(variable, self.origin, node)
                return ex.PVar(variable)
            case ast.MatchSequence(items):
                return ex.PTuple(tuple([self._pattern(item, names) for item in items]))
            case ast.MatchClass(cls, items, [], []):
                inside = tuple([self._pattern(item, names) for item in items])
                if (constructor := self.constructor(cls)) is None:
                    self._no_constructor(cls)
                    return ex.PAny()
                pattern = ex.PConstructor(constructor, inside)
                self.places.note(pattern, self.origin, node)
                return pattern
            case _:
                message = "A pattern is a name, _, a constructor or a tuple."
                expected = "case Node(l, r), case (a, b), case x, case _"
                found = self.origin.excerpt(node)
                self.error(node, "bad-pattern", message, expected=expected, found=found)
                return ex.PAny()

    def _no_constructor(self, node: ast.expr) -> None:
        name = node.id if isinstance(node, ast.Name) else self.origin.excerpt(node)
        self.unbound(node, name)

    def _unsupported_statement(self, node: ast.stmt) -> None:
        what = type(node).__name__
        hint = INSTEAD.get(type(node))
        message = f"Python's {what} statement is not part of the language here."
        self.unsupported(node, message, found=self.origin.excerpt(node), suggestion=hint)

    def _no_choice(self, node: ast.stmt) -> None:
        message = "This has no value: every branch ends by assigning the same name, or returns."
        self.unsupported(node, message)

    def _no_end(self, owner: Node, body: list[ast.stmt], target: str | None) -> None:
        if target is None:
            message = "The block does not end with a return."
        else:
            message = f"The branch does not end by assigning {target!r}, as another branch does."
        self.unsupported(body[-1] if body else owner, message)


def _plain(node: ast.AugAssign) -> ast.Assign:
    """`x += e` as `x = x + e`."""
    old: ast.expr = node.target  # what cannot be read there cannot be assigned either
    if isinstance(old, ast.Name):
        old = ast.copy_location(ast.Name(old.id, ast.Load()), old)
    whole = ast.copy_location(ast.BinOp(old, node.op, node.value), node)
    return ast.copy_location(ast.Assign([node.target], whole), node)


def _returns(body: list[ast.stmt]) -> bool:
    """Whether a block ends by returning."""
    while body:
        if isinstance(end := body[-1], ast.Return):
            return True
        body = (
            end.body
            if isinstance(end, ast.If)
            else end.cases[0].body
            if isinstance(end, ast.Match)
            else []
        )
    return False


def _assigned(node: ast.stmt) -> str | None:
    """The name that a statement at the end of a branch assigns."""
    while True:
        match node:
            case ast.If(_, [*_, end], _) | ast.Match(_, [ast.match_case(_, _, [*_, end]), *_]):
                node = end
            case ast.Assign([ast.Name(name)], _) | ast.AnnAssign(ast.Name(name), _, ast.expr(), _):
                return name
            case ast.AugAssign(ast.Name(name), _, _):
                return name
            case _:
                return None
