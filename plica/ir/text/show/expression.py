"""Expressions in print: the text of every node of one body, operands first."""

from __future__ import annotations

from typing import Final

from plica.core import Term, all_of
from plica.ir.graph import expression as ex
from plica.ir.graph.operator import Operator
from plica.ir.op import find
from plica.ir.text.show.attribute import float_text, keyword_texts, string_text
from plica.ir.text.show.constant import constant_key, constant_text, is_archived, number_text
from plica.ir.text.show.layout import HELD, TAIL, PrintLayout
from plica.ir.text.show.type import TypePrinter, parenthesised
from plica.ir.type import DataType, DType, FuncType, TensorType, TupleType, Type, TypeVar, type_of
from plica.runtime.error import PlicaError

DEPTH: Final = 40  # expressions nested deeper are split: Python's parser stops at 200 parentheses

CHOICE, COMPARISON, SUM, PRODUCT, UNARY, POWER, PRIMARY, ATOM = range(1, 9)
INFIX: Final[dict[str, tuple[str, int, int, int]]] = {  # sign, own level, least level left, right
    "less": ("<", COMPARISON, SUM, SUM),
    "less_equal": ("<=", COMPARISON, SUM, SUM),
    "greater": (">", COMPARISON, SUM, SUM),
    "greater_equal": (">=", COMPARISON, SUM, SUM),
    "equal": ("==", COMPARISON, SUM, SUM),
    "not_equal": ("!=", COMPARISON, SUM, SUM),
    "add": ("+", SUM, SUM, PRODUCT),
    "subtract": ("-", SUM, SUM, PRODUCT),
    "multiply": ("*", PRODUCT, PRODUCT, UNARY),
    "divide": ("/", PRODUCT, PRODUCT, UNARY),
    "floor_divide": ("//", PRODUCT, PRODUCT, UNARY),
    "mod": ("%", PRODUCT, PRODUCT, UNARY),
    "matmul": ("@", PRODUCT, PRODUCT, UNARY),
    "power": ("**", POWER, PRIMARY, UNARY),
}

Text = tuple[str, int, int]  # the text, its level of binding, the depth of its nesting


class Body:
    """The texts of the nodes of one body, under the names its variables have."""

    def __init__(self, layout: PrintLayout, types: TypePrinter, inferred: bool) -> None:
        self.layout = layout
        self.types = types
        self.inferred = inferred
        self.names: dict[Term, str] = types.names
        self.constants: dict[str, ex.Const] = {}
        self.done: dict[ex.Expr, Text] = {}
        self.alias: dict[ex.Expr, str] = {}
        self.alias_text: dict[ex.Expr, str] = {}
        self.count = 0
        self._keywords: dict[ex.Apply, list[str]] = {}

    def reserve(self) -> str:
        """The next reserved name."""
        self.count += 1
        return f"_{self.count - 1}"

    def render(self) -> None:
        """Give every node its text, or a name, or leave it to its block."""
        shared, done = self.layout.shared, self.done
        for node in self.layout.order:
            match node:
                case ex.Apply():
                    text = self._apply(node)
                case ex.Call():
                    text = self._call(node)
                case ex.Tuple():
                    items = [self.text(item) for item in node.items]
                    inside = parenthesised([item for item, _, _ in items])
                    text = inside, ATOM, 1 + max([depth for _, _, depth in items], default=0)
                case ex.Project():
                    value, level, depth = self.text(node.value)
                    value = value if level >= PRIMARY else f"({value})"
                    text = f"{value}[{node.index}]", PRIMARY, depth + 1
                case ex.Const():
                    text = self._constant(node)
                case ex.If():
                    if (choice := self._choice(node)) is None:
                        continue
                    text = choice
                case _:
                    self._block(node)
                    continue
            if node in shared or text[2] > DEPTH:
                self._name(node)
                self.alias_text[node] = text[0]
            else:
                done[node] = text

    def text(self, node: ex.Expr) -> Text:
        """The text of a node that has one, or the name of one that has been named."""
        if (known := self.done.get(node)) is not None:
            return known
        match node:
            case ex.Var():
                return self.name(node), ATOM, 0
            case ex.Constructor():
                return self.types.constructor(node), ATOM, 0
            case ex.Literal(value):
                word = float_text(value) if isinstance(value, float) else repr(value)
                return word, UNARY if word.startswith("-") else ATOM, 0
            case _:
                raise KeyError(node)

    def name(self, variable: ex.Var) -> str:
        """The name of a variable; one that nothing binds shows its own."""
        known = self.names.get(variable)
        return str(variable.name) if known is None else known

    def type_of(self, node: ex.Expr) -> Type | None:
        """The type inference gives the node, where it is known."""
        if isinstance(node, ex.Var):
            return node.type
        if not self.inferred:
            return None
        try:
            return type_of(node)
        except PlicaError:  # an ill-typed module can be printed as well
            return None

    def _name(self, node: ex.Expr) -> None:
        self.alias[node] = word = self.reserve()
        self.layout.where[node].aliases.append(node)
        self.done[node] = word, ATOM, 0

    def _block(self, node: ex.Expr) -> None:
        """A node that needs statements: it is written in a block, or named before its use."""
        home = {ex.Let: (TAIL,), ex.LetDim: (TAIL,), ex.Match: (TAIL, HELD), ex.Function: (HELD,)}[
            type(node)
        ]
        if self.layout.role.get(node) not in home:
            self._name(node)

    def _choice(self, node: ex.If) -> Text | None:
        """`a if c else b` if both branches are expressions; None if they need statements."""
        role = self.layout.role.get(node)
        simple = role != TAIL and not any(spot.aliases for spot in self.layout.inside[node])
        if not simple or not (self.has_text(node.then) and self.has_text(node.orelse)):
            if role is None:
                self._name(node)
            return None
        parts = [self.text(expr) for expr in (node.then, node.condition, node.orelse)]
        then, condition = [t if level > CHOICE else f"({t})" for t, level, _ in parts[:2]]
        depth = 1 + max(depth for _, _, depth in parts)
        return f"{then} if {condition} else {parts[2][0]}", CHOICE, depth

    def has_text(self, node: ex.Expr) -> bool:
        """Whether a node is written inline as an expression."""
        return node in self.done or isinstance(node, ex.Var | ex.Constructor | ex.Literal)

    def _constant(self, node: ex.Const) -> Text:
        if is_archived(node):
            self.constants[constant_key(node)] = node
        word = constant_text(node)
        self.types.words.update((node.dtype.name, word.partition("(")[0]))
        return word, PRIMARY, 0

    def _apply(self, node: ex.Apply) -> Text:
        args = node.args
        texts = [self.text(arg) for arg in args]
        for arg in args:
            if isinstance(arg, ex.Const) and not arg.shape:
                self._bare(node, texts)
                break
        depth = 0
        for _, _, inner in texts:
            depth = max(depth, inner)
        infix = INFIX.get(node.op)
        if infix is not None and len(texts) == 2 and not node.attrs:
            sign, level, before, after = infix
            (left, a, _), (right, b, _) = texts
            left = left if a >= before else f"({left})"
            right = right if b >= after else f"({right})"
            return f"{left} {sign} {right}", level, depth + 1
        if node.op == "negative" and len(args) == 1 and not node.attrs:
            value, level, _ = texts[0]
            if args[0].__class__ is not ex.Literal:  # `-1` is a number, not a negation
                return f"-{value}" if level >= UNARY else f"-({value})", UNARY, depth + 1
        record = find(node.op)
        inside = [value for value, _, _ in texts]
        if record is not None and record.variadic:
            inside = [parenthesised(inside)]
        if node.attrs:
            inside += self._attributes(node, record)
        return f"{self._operator(node.op)}({', '.join(inside)})", PRIMARY, depth + 1

    def _attributes(self, node: ex.Apply, record: Operator | None) -> list[str]:
        bare = ex.Apply(node.op, (), node.attrs)  # the same attributes print the same
        if (known := self._keywords.get(bare)) is None:
            known = self._keywords[bare] = keyword_texts(node, record, self.types)
        return known

    def _operator(self, name: str) -> str:
        head, _, rest = name.partition(".")
        if head == "nn" and rest.isidentifier():
            self.types.words.add("nn")
            return name
        self.types.words.add("op")
        if all(part.isidentifier() and part not in _KEYWORDS for part in name.split(".")):
            return f"op.{name}"
        return f"op[{string_text(name)}]"

    def _bare(self, node: ex.Apply, texts: list[Text]) -> None:
        """Write scalars as plain numbers where a neighbour gives them their dtype back."""
        if (record := find(node.op)) is None:
            return
        args = node.args
        group = range(len(args)) if record.like is None else record.like
        strong = next((args[i] for i in group if i < len(args) and not _is_scalar(args[i])), None)
        dtype = None if strong is None else self._dtype(strong)
        for i in group:
            arg = args[i] if i < len(args) else None
            if isinstance(arg, ex.Const) and not arg.shape and arg.dtype is dtype:
                word = number_text(arg)
                if word is not None:
                    texts[i] = word, UNARY if word.startswith("-") else ATOM, 0

    def _dtype(self, node: ex.Expr) -> DType | None:
        if isinstance(node, ex.Const):
            return node.dtype
        of = self.type_of(node)
        return of.dtype if isinstance(of, TensorType) else None

    def _call(self, node: ex.Call) -> Text:
        callee, level, depth = self.text(node.callee)
        callee = callee if level >= PRIMARY else f"({callee})"
        texts = [self.text(arg) for arg in node.args]
        depth = 1 + max([depth, *[inner for _, _, inner in texts]])
        if node.types and not self._implied(node):
            callee += f"[{', '.join([self.types.show(type_) for type_ in node.types])}]"
        return f"{callee}({', '.join([value for value, _, _ in texts])})", PRIMARY, depth

    def _implied(self, node: ex.Call) -> bool:
        """Whether the types of the arguments alone give every type argument, and just this."""
        signature = (
            node.callee.type
            if isinstance(node.callee, ex.Constructor)
            else self.type_of(node.callee)
        )
        if not isinstance(signature, FuncType) or len(signature.types) != len(node.types):
            return False
        if len(signature.params) != len(node.args):
            return False
        found: dict[TypeVar, Type] = {}
        for param, arg in zip(signature.params, node.args, strict=True):
            of = self.type_of(arg)
            if of is None or not _matches(param, of, set(signature.types), found):
                return False
        # Inference finds no polymorphic type by itself.
        plain = not any(_is_polymorphic(type_) for type_ in node.types)
        return plain and tuple([found.get(type_var) for type_var in signature.types]) == node.types


_KEYWORDS: Final = frozenset({"and", "or", "not", "is", "in", "if", "lambda", "None"})


def _is_scalar(node: ex.Expr) -> bool:
    return isinstance(node, ex.Literal) or (isinstance(node, ex.Const) and not node.shape)


def _is_polymorphic(of: Type) -> bool:
    return any(n.dims or n.types for n in all_of(FuncType, of))


def _matches(of: Type, given: Type, holes: set[TypeVar], found: dict[TypeVar, Type]) -> bool:
    """One-way matching, stricter than unification: equal parts must be the same term."""
    if isinstance(of, TypeVar) and of in holes:
        return found.setdefault(of, given) is given
    match of, given:
        case TupleType(a), TupleType(b):
            pass
        case DataType(x, a), DataType(y, b) if x is y:
            pass
        case FuncType((), (), p, r), FuncType((), (), q, s):
            a, b = (*p, r), (*q, s)
        case TensorType(), TensorType():
            return True  # dims are for inference; they are no type arguments
        case _:
            return of is given
    return len(a) == len(b) and all(_matches(x, y, holes, found) for x, y in zip(a, b, strict=True))
