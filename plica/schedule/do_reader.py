"""The reader of printed do-blocks: Python's syntax tree, read; nothing is run.

    text      ::= import* "@do" "def" name "():" statement+
    statement ::= [targets "="] "yield" step          targets ::= name ("," name)* ["," "*_"]
    step      ::= call | "decided(" call "," int* ")"
    call      ::= kind "(" value* ")" | "spell(" string "," (field "=" value)* ")"
    value     ::= None | number | string | "(" value* ")" | name | "term(" string ")" | Name(…)
                | "index_map(" lambda ")"

A do-block with loops, branches or sampling words is a program: record it with `trace_of`.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from typing import Any, Final, NoReturn, TypeAlias

from plica.core import Name, encode
from plica.ir.text.script.text import parse
from plica.runtime.error import Place
from plica.schedule.handle import Handle, Sort
from plica.schedule.instruction import Decision, Instruction, kind_of
from plica.schedule.map_text import map_of
from plica.schedule.primitive.look_up import GetBlock
from plica.schedule.spelling import read, refuse, trace_from
from plica.schedule.trace import Trace

Form: TypeAlias = Callable[[type[Instruction]], "tuple[tuple[str, str, bool], ...] | None"]

SORTS: Final[dict[str, Sort]] = {"block": "block", "loop": "loop", "number": "number"}
FLOATS: Final = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}
DEEPEST: Final = 100  # tuples in tuples
RECORDED: Final = "trace_of(schedule, program).to_python()"


def read_do(text: str, file: str, form_of: Form) -> Trace:
    """The trace that a printed do-block makes."""
    tree = parse(text, file)
    reader = _Reader(file, form_of)
    blocks = []
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            blocks.append(node)
        elif not isinstance(node, ast.Import | ast.ImportFrom):
            reader.refuse(node, "Only imports and one do-block stand in the text of a trace.")
    if len(blocks) != 1:
        refuse("unsupported-syntax", "The text of a trace is one do-block.", Place(file, 1, 1))
    return reader.block(blocks[0])


class _Reader:
    """Reads one do-block; knows the values of names so far."""

    def __init__(self, file: str, form_of: Form) -> None:
        self.file = file
        self.form_of = form_of
        self.names: dict[str, Handle] = {}

    def refuse(self, node: ast.AST, message: str, hint: str | None = None) -> NoReturn:
        refuse("unsupported-syntax", message, self.place(node), None, None, hint)

    def place(self, node: ast.AST) -> Place:
        column = getattr(node, "col_offset", 0)
        return Place(self.file, getattr(node, "lineno", 1), column + 1)

    def block(self, node: ast.FunctionDef) -> Trace:
        marks = [each.id for each in node.decorator_list if isinstance(each, ast.Name)]
        if marks != ["do"] or len(node.decorator_list) != 1 or ast.unparse(node.args):
            self.refuse(node, "A trace is a function without parameters, under @do.")
        body = node.body
        if len(body) > 1 and isinstance(body[0], ast.Expr) and _string(body[0].value) is not None:
            body = body[1:]
        if len(body) == 1 and ast.unparse(body[0]) == "yield from ()":
            return Trace(())
        return trace_from([self.step(statement, number) for number, statement in enumerate(body)])

    def step(self, node: ast.stmt, number: int) -> tuple[Instruction, Decision | None, Place]:
        targets: list[ast.expr] = []
        value: ast.expr | None = None
        match node:
            case ast.Expr(value=ast.Yield(value=value)):
                pass
            case ast.Assign(targets=targets, value=ast.Yield(value=value)):
                pass
            case _:
                hint = "Record do-blocks that compute with trace_of."
                self.refuse(node, "A step is `yield` of an instruction.", hint)
        if value is None or len(targets) > 1:
            self.refuse(node, "A step is `yield` of an instruction.")
        decision: Decision | None = None
        word, arguments, named = self.call(value)
        if word == "decided":
            if not arguments or named:
                self.refuse(value, "decided takes an instruction and its numbers.")
            decision = tuple(self.integer(argument) for argument in arguments[1:])
            word, arguments, named = self.call(arguments[0])
        instruction = self.instruction(value, word, arguments, named)
        for target in targets:
            self.bind(target, number)
        return instruction, decision, self.place(node)

    def call(self, node: ast.expr) -> tuple[str, list[ast.expr], dict[str, ast.expr]]:
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            self.refuse(node, "An instruction is the call of a word.")
        named: dict[str, ast.expr] = {}
        for keyword in node.keywords:
            if keyword.arg is None or keyword.arg in named:
                self.refuse(node, "Arguments are given one by one, each once.")
            named[keyword.arg] = keyword.value
        return node.func.id, list(node.args), named

    def instruction(
        self, node: ast.expr, word: str, arguments: list[ast.expr], named: dict[str, ast.expr]
    ) -> Instruction:
        place = self.place(node)
        if word == "spell":
            if len(arguments) != 1:
                self.refuse(node, "spell takes a kind, then fields by name.")
            fields = {name: self.value(value) for name, value in named.items()}
            return read(self.value(arguments[0]), fields, place)
        if (cls := kind_of(word)) is None:
            return read(word, {}, place)  # refuses it, with the kind that was meant
        if cls is GetBlock and arguments and _string(arguments[0]) is not None:
            message = "A trace knows a block by its number and role; the name is a program's."
            hint = f"{RECORDED} gives the trace of a do-block on a program."
            self.refuse(node, message, hint)
        form = self.form_of(cls)
        if form is None:
            self.refuse(node, f"{word} is written `spell({word!r}, …)`.")
        return read(word, self.fields(node, form, arguments, named), place)

    def fields(
        self,
        node: ast.expr,
        form: tuple[tuple[str, str, bool], ...],
        arguments: list[ast.expr],
        named: dict[str, ast.expr],
    ) -> dict[str, Any]:
        found: dict[str, Any] = {}
        values = [self.value(argument) for argument in arguments]
        for at, (_, field, starred) in enumerate(form):
            if starred:
                found[field], values = tuple(values[at:]), values[:at]
            elif at < len(values):
                found[field] = values[at]
        if len(values) > len(form):
            self.refuse(node, f"The instruction takes {len(form)} arguments, not {len(values)}.")
        known = {param: field for param, field, starred in form if not starred}
        for name, value in named.items():
            field = known.get(name, name)
            if field in found:
                self.refuse(node, f"The argument {name} is given twice.")
            found[field] = self.value(value)
        return found

    def bind(self, target: ast.expr, number: int) -> None:
        parts = target.elts if isinstance(target, ast.Tuple) else [target]
        for output, part in enumerate(parts):
            if isinstance(part, ast.Starred) and output == len(parts) - 1:
                part = part.value
                if isinstance(part, ast.Name) and part.id == "_":
                    continue
            if not isinstance(part, ast.Name):
                self.refuse(target, "What a step gives is assigned to names.")
            if part.id == "_":
                continue
            if (sort := SORTS.get(part.id.partition("_")[0])) is None:
                hint = "Begin it with block_, loop_ or number_."
                self.refuse(part, f"The name {part.id} does not say what it stands for.", hint)
            self.names[part.id] = Handle(number, output, sort)

    def integer(self, node: ast.expr) -> int:
        value = self.value(node)
        if type(value) is not int:
            self.refuse(node, "A decision is made of integers.")
        return value

    def value(self, node: ast.expr, depth: int = 0) -> Any:
        if depth > DEEPEST:
            self.refuse(node, f"Tuples are nested deeper than {DEEPEST}.")
        match node:
            case ast.Constant(value=value) if isinstance(
                value, bool | int | float | str | bytes | None
            ):
                return value
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
                if type(number) is bool:
                    self.refuse(node, "A truth value has no sign.")
                return -number
            case ast.Tuple(elts=parts):
                return tuple([self.value(part, depth + 1) for part in parts])
            case ast.Name(id=name):
                if name not in self.names:
                    expected = f"one of {', '.join(self.names)}" if self.names else None
                    place = self.place(node)
                    message = "No earlier step gives what this name stands for."
                    refuse("unbound-name", message, place, expected, name)
                return self.names[name]
            case ast.Call(func=ast.Name(id="index_map"), args=[ast.Lambda() as of]):
                if (index_map := map_of(of)) is not None:
                    return index_map
            case ast.Call(func=ast.Name(id="term"), args=[ast.Constant(value=str(text))]):
                return encode.from_json(text)
            case ast.Call(func=ast.Name(id="float"), args=[ast.Constant(value=str(text))]):
                if text in FLOATS:
                    return FLOATS[text]
            case ast.Call(
                func=ast.Name(id="Name"),
                args=[ast.Constant(value=str(hint)), ast.Constant(value=int(index))],
            ):
                return Name(hint, index)
            case _:
                pass
        self.refuse(node, "This is no value of an instruction.")


def _string(node: ast.expr) -> str | None:
    is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return node.value if is_text else None  # type: ignore[attr-defined]  # as just seen
