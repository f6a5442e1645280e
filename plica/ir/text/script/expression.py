"""Expressions in text: Python's expressions as expressions of the graph language."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Final

from plica.core import Task
from plica.ir.graph import expression as ex
from plica.ir.op import find, names
from plica.ir.text.script.call import OperatorReader
from plica.ir.text.script.origin import Node, Origin, PlaceTable, Problems
from plica.ir.text.script.scope import Data, DeferredRegion, NameScope, Word
from plica.ir.type import Type

HOLE: Final[ex.Expr] = ex.Tuple(())
"""A placeholder for an unreadable part; the problem is recorded and no module is produced."""

SIGNS: Final[dict[type[ast.AST], str]] = {
    ast.Add: "add", ast.Sub: "subtract", ast.Mult: "multiply", ast.Div: "divide",
    ast.FloorDiv: "floor_divide", ast.Mod: "mod", ast.Pow: "power", ast.MatMult: "matmul",
    ast.Lt: "less", ast.LtE: "less_equal", ast.Gt: "greater", ast.GtE: "greater_equal",
    ast.Eq: "equal", ast.NotEq: "not_equal", ast.USub: "negative",
}  # fmt: skip

INSTEAD: Final[dict[type[ast.AST], str]] = {
    ast.BoolOp: "Use op.logical_and and op.logical_or, or a conditional expression.",
    ast.BitAnd: "Use op.bitwise_and, or op.logical_and for bools.",
    ast.BitOr: "Use op.bitwise_or, or op.logical_or for bools.",
    ast.BitXor: "Use op.bitwise_xor.",
    ast.LShift: "Use op.left_shift.",
    ast.RShift: "Use op.right_shift.",
    ast.Not: "Use op.logical_not.",
    ast.Invert: "Use op.bitwise_not.",
    ast.Slice: "Use op.slice.",
    ast.List: "Use a tuple, or const([...], f32) for a constant.",
    ast.ListComp: "Write the items out; a script has no loops but recursion.",
}
"""What to write in place of something that is not part of the language."""

PYTHONIC: Final = {
    "T": "transpose", "mT": "transpose", "permute": "transpose", "shape": "shape_of",
    "len": "shape_of", "astype": "cast", "dot": "matmul", "view": "reshape", "pow": "power",
}  # fmt: skip
"""What arrays and Python call an operator that has another name here."""

Build = Callable[[list[ex.Expr]], ex.Expr]
Work = ast.expr | tuple[Build, int, Node]


class ExpressionReader(OperatorReader):
    """Reads expressions in a scope."""

    def __init__(
        self, scope: NameScope, origin: Origin, problems: Problems, places: PlaceTable
    ) -> None:
        super().__init__(scope, origin, problems)
        self.places = places

    def region(self, region: DeferredRegion, node: Node) -> Task[ex.Expr]:
        """Read a region where it is used."""
        raise TypeError(f"{region} stands where there are no statements.")
        yield

    def expression(self, root: ast.expr) -> Task[ex.Expr]:
        """The term of an expression."""
        done: list[ex.Expr] = []
        work: list[Work] = [root]
        note, origin = self.places.note, self.origin
        while work:
            if isinstance(item := work.pop(), tuple):
                build, count, node = item
                cut = len(done) - count
                value = build(done[cut:])
                del done[cut:]
                note(value, origin, node)
                done.append(value)
                continue
            match item:
                case ast.Name(name):
                    if isinstance(local := self.scope.find(name), DeferredRegion):
                        local = yield self.region(local, item)
                    done.append(local if isinstance(local, ex.Expr) else self._global(item))
                case ast.Constant(bool() | int() | float() as number):
                    done.append(ex.Literal(number))
                    note(done[-1], origin, item)
                case ast.BinOp(left, sign, right) if type(sign) in SIGNS:
                    work += [(_apply(SIGNS[type(sign)]), 2, item), right, left]
                case ast.UnaryOp(ast.USub(), ast.Constant(int() | float() as number)) if (
                    not isinstance(number, bool)
                ):
                    done.append(ex.Literal(-number))
                    note(done[-1], origin, item)
                case ast.UnaryOp(ast.USub(), operand):
                    work += [(_apply("negative"), 1, item), operand]
                case ast.Compare(left, [sign], [right]) if type(sign) in SIGNS:
                    work += [(_apply(SIGNS[type(sign)]), 2, item), right, left]
                case ast.Call():
                    self._call(item, work, done)
                case ast.Tuple(items):
                    work += [(_tuple, len(items), item), *reversed(items)]
                case ast.Subscript(whole, index):
                    self._item(item, whole, index, work, done)
                case ast.IfExp(condition, then, orelse):
                    work += [(_if, 3, item), orelse, then, condition]
                case ast.Lambda():
                    self._lambda(item, work)
                case ast.Attribute():
                    done.append(self._global(item))
                case _:
                    done.append(self.unknown_form(item))
        return done[0]

    def unknown_form(self, node: ast.expr | ast.stmt) -> ex.Expr:
        """Say that a construct is not part of the language."""
        shape: ast.AST = node
        match node:
            case ast.BinOp() | ast.UnaryOp():
                shape = node.op
            case ast.Subscript(_, index):
                shape = index
            case ast.Compare(_, [_, _, *_]):
                message = "A chain of comparisons is not part of the language."
                self.unsupported(node, message, suggestion="Compare twice and use op.logical_and.")
                return HOLE
        what = type(shape).__name__
        found = self.origin.excerpt(node)
        message = f"Python's {what} is not part of the language."
        self.unsupported(node, message, found=found, suggestion=INSTEAD.get(type(shape)))
        return HOLE

    def unbound(self, node: Node, name: str) -> ex.Expr:
        """Say that nothing has this name."""
        meant = operator_meant(name)
        hint = None if meant is None else f"Write {meant}."
        hint = hint or self.problems.suggest(name, self.scope.known())
        self.error(node, "unbound-name", f"Nothing here is called {name!r}.", suggestion=hint)
        return HOLE

    def constructor(self, node: ast.expr) -> ex.Constructor | None:
        """The constructor denoted by a name or `Data.Name`."""
        if isinstance(node, ast.Name):
            constructors = self.scope.outer.constructors(node.id)
            if len(constructors) > 1:
                owners = [str(each.data.name) for each in constructors]
                message = f"{node.id} is a constructor of {' and of '.join(owners)}."
                hint = f"Write {owners[0]}.{node.id}."
                self.error(node, "duplicate-name", message, suggestion=hint)
            return constructors[0] if constructors else None
        if isinstance(node, ast.Attribute) and isinstance(data := self.meaning(node.value), Data):
            for each in data.constructors():
                if str(each.name) == node.attr:
                    return each
        return None

    def _global(self, node: ast.Name | ast.Attribute) -> ex.Expr:
        """The meaning of a name that the function itself does not bind."""
        found = self.meaning(node)
        value: ex.Expr | None = found if isinstance(found, ex.Expr) else self.constructor(node)
        if value is not None:
            self.places.note(value, self.origin, node)
            return value
        if isinstance(node, ast.Attribute):
            self._no_attribute(node, found)
        elif found is None:
            self.unbound(node, node.id)
        else:
            self.unsupported(node, f"{node.id} is a word of the language, not a value.")
        return HOLE

    def _no_attribute(self, node: ast.Attribute, found: object) -> None:
        if isinstance(owner := self.meaning(node.value), Data):
            made = [str(constructor.name) for constructor in owner.constructors()]
            message = f"{owner.name.name} has no constructor {node.attr!r}."
            hint = self.problems.suggest(node.attr, made)
            self.error(node, "unbound-name", message, expected=", ".join(made), suggestion=hint)
        elif (
            owner is None
            and isinstance(node.value, ast.Name)
            and not self.scope.find(node.value.id)
        ):
            self.unbound(node.value, node.value.id)
        elif isinstance(found, Word) and found.path.startswith("op."):
            message = "An operator is not a value: it can only be called."
            self.unsupported(node, message, suggestion="Wrap it in a lambda.")
        else:
            message = "A value has no attributes."
            meant = operator_meant(node.attr)
            outside = isinstance(owner, Word)  # np.exp: what stands before the dot is no argument
            if outside:
                message = "Only Plica's operators can be called here."
            if meant is None:
                hint = self.problems.suggest(node.attr, names())
            else:
                rest = "" if node.attr in ("T", "mT", "shape") else ", ..."
                args = "..." if outside else f"{self.origin.excerpt(node.value)}{rest}"
                hint = f"Operators are functions: {meant}({args})."
            self.unsupported(node, message, found=self.origin.excerpt(node), suggestion=hint)

    def _call(self, node: ast.Call, work: list[Work], done: list[ex.Expr]) -> None:
        callee, types = node.func, ()
        given: tuple[Type, ...] = types
        if isinstance(callee, ast.Subscript) and not _is_index(callee.slice):
            index = callee.slice
            parts = index.elts if isinstance(index, ast.Tuple) and index.elts else [index]
            if self.meaning(callee.value) == Word("op"):
                parts = []
            given = tuple([self.read(part) for part in parts])
            callee = callee.value if parts else callee
        if (found := self.operator_name(callee)) is not None:
            if (operands := self.operands(node, found)) is None:
                done.append(HOLE)
                return
            name, args, attrs = operands
            work.append((lambda kids: ex.Apply(name, tuple(kids), attrs), len(args), node))
            work.extend(reversed(args))
            return
        if isinstance(meaning := self.meaning(callee), Word):
            self._word_call(node, meaning, work, done)
            return
        for each in (*node.args, *node.keywords):
            if isinstance(each, ast.keyword | ast.Starred):
                message = "Functions are called with their arguments in order."
                self.unsupported(each, message, expected="f(x, y)")
                done.append(HOLE)
                return
        work.append(
            (lambda kids: ex.Call(kids[0], tuple(kids[1:]), given), len(node.args) + 1, node)
        )
        work.extend(reversed(node.args))
        work.append(callee)

    def _word_call(self, node: ast.Call, word: Word, work: list[Work], done: list[ex.Expr]) -> None:
        if self.is_constant(word.path):
            value = self.constant(node, word.path)
            done.append(HOLE if value is None else value)
            self.places.note(done[-1], self.origin, node)
        elif word.path == "absurd" and len(node.args) == 1 and not node.keywords:
            inner, total = self.subject(node.args[0])
            work += [(lambda kids: ex.Match(kids[0], (), total), 1, node), inner]
        else:
            self.unsupported(node, f"{word.path} cannot be called here.")
            done.append(HOLE)

    def subject(self, node: ast.expr) -> tuple[ast.expr, bool]:
        """The scrutinee of a match, and whether the match must be total."""
        match node:
            case ast.Call(callee, [inner], []) if self.meaning(callee) == Word("partial"):
                return inner, False
        return node, True

    def _item(
        self,
        node: ast.Subscript,
        value: ast.expr,
        index: ast.expr,
        work: list[Work],
        done: list[ex.Expr],
    ) -> None:
        if isinstance(index, ast.Constant) and type(index.value) is int:
            number = index.value
            work += [(lambda kids: ex.Project(kids[0], number), 1, node), value]
        elif _is_slice(index):
            message = "A tensor is not sliced by brackets."
            hint, found = INSTEAD[ast.Slice], self.origin.excerpt(node)
            self.unsupported(node, message, found=found, suggestion=hint)
            done.append(HOLE)
        else:
            message = "Only a tuple's items can be selected, by a number."
            hint = "Use op.take or op.gather for tensors; type arguments stand before a call."
            found = self.origin.excerpt(node)
            self.unsupported(node, message, expected="t[0]", found=found, suggestion=hint)
            done.append(HOLE)

    def _lambda(self, node: ast.Lambda, work: list[Work]) -> None:
        mark = self.scope.mark()
        params = tuple([self.parameter(arg, None) for arg in self.parameters(node.args)])

        def close(kids: list[ex.Expr]) -> ex.Expr:
            self.scope.leave(mark)
            return ex.Function((), (), params, None, kids[0], ())

        work += [(close, 1, node), node.body]  # the body is next: the parameters are in scope

    def parameter(self, arg: ast.arg, of: Type | None) -> ex.Var:
        """A new variable for a parameter."""
        variable = ex.Var(self.scope.fresh(arg.arg), of)
        self.scope.bind(arg.arg, variable)
        self.places.note(variable, self.origin, arg)
        return variable

    def parameters(self, args: ast.arguments) -> list[ast.arg]:
        """The parameters of a function, whose names differ."""
        plain = self.plain_parameters(args, "A function has plain parameters only.", "f(x, y)")
        names: set[str] = set()
        for arg in plain:
            if arg.arg in names:
                self.error(arg, "duplicate-name", f"Two parameters are called {arg.arg!r}.")
            names.add(arg.arg)
        return plain


def operator_meant(name: str) -> str | None:
    """How a script writes the operator that Python calls by this name; None for no operator."""
    for each in (name, f"nn.{name}", PYTHONIC.get(name, "")):
        if (record := find(each)) is not None:
            return record.name if record.name.startswith("nn.") else f"op.{record.name}"
    return None


def _is_slice(index: ast.expr) -> bool:
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    return any(isinstance(part, ast.Slice) for part in parts)


def _is_index(node: ast.expr) -> bool:
    """Whether the bracket content selects an item; otherwise it lists types."""
    return isinstance(node, ast.Slice) or (
        isinstance(node, ast.Constant) and isinstance(node.value, int)
    )


def _apply(name: str) -> Build:
    return lambda kids: ex.Apply(name, tuple(kids), ())


def _tuple(kids: list[ex.Expr]) -> ex.Expr:
    return ex.Tuple(tuple(kids))


def _if(kids: list[ex.Expr]) -> ex.Expr:
    return ex.If(kids[0], kids[1], kids[2])
