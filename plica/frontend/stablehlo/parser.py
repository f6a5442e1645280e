"""Parsing: MLIR's text, in StableHLO's own syntax and in the generic one, as a module.

Operations are parsed by one loose grammar: operands, flags, named values, lists and literals
between the name and the types. The rows interpret them.

>>> source = "func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> { return %x : tensor<2xf32> }"
>>> parse(source).functions["main"].region.operations[0].operands
('%x',)
"""

from __future__ import annotations

from typing import Any, Final

from plica.frontend.stablehlo.literal import array, mlir_type
from plica.frontend.stablehlo.syntax import (
    MlirFunction,
    MlirModule,
    MlirOp,
    MlirRegion,
    MlirToken,
    MlirType,
    malformed,
    tokens,
)

DEEPEST: Final = 100  # regions and lists are nested no deeper
RETURNS: Final = ("return", "func.return", "stablehlo.return")
_WORDS: Final = {"true": True, "false": False, "unit": True}


def parse(text: str) -> MlirModule:
    """The functions of a module."""
    return Parser(tokens(text)).module()


class Parser:
    """Reads tokens one after the other."""

    def __init__(self, given: list[MlirToken]) -> None:
        self._tokens, self._at, self._depth = given, 0, 0
        self.aliases: dict[str, Any] = {}

    # --- tokens ----------------------------------------------------------------------------------

    @property
    def token(self) -> MlirToken:
        """The next token."""
        return self._tokens[self._at]

    def take(self, text: str | None = None, kind: str | None = None) -> str:
        """The next token, which must be that."""
        token = self.token
        if (text is not None and token.text != text) or (kind is not None and token.kind != kind):
            malformed("The text is no MLIR.", token.line, text or kind, token.text or "its end")
        self._at += 1
        return token.text

    def skip(self, *texts: str) -> bool:
        """Consumes the next token if it is one of some; returns whether it was."""
        if self.token.kind != "string" and self.token.text in texts:
            self._at += 1
            return True
        return False

    def _deeper(self, by: int) -> None:
        self._depth += by
        if self._depth > DEEPEST:
            malformed("The text is nested too deeply.", self.token.line, f"{DEEPEST} levels")

    # --- modules and functions -------------------------------------------------------------------

    def module(self) -> MlirModule:
        """All functions; `#alias = …` and locations are read along."""
        functions: dict[str, MlirFunction] = {}
        attributes: dict[str, Any] = {}
        for at, token in enumerate(self._tokens[:-1]):  # an alias may stand behind its users
            if token.text.startswith("#") and self._tokens[at + 1].text == "=":
                self._at = at + 2
                self.aliases[token.text] = None if token.text.startswith("#loc") else self.value()
        self._at = 0
        while self.token.kind != "end":
            if self.skip("module", "builtin.module"):
                if self.token.kind == "symbol":
                    self.take()
                if self.skip("attributes"):
                    attributes = self.mapping()
                self.take("{")
            elif self.skip("func.func"):
                function = self._function()
                functions[function.name] = function
            elif self.token.text.startswith("#"):
                self.take()
                self.take("=")
                if not self._location():
                    self.value()
            elif self.token.kind == "string":  # the generic syntax
                whole = self.operation()
                attributes = dict(whole.attributes)
                inside = whole.regions[0].operations if whole.regions else ()
                for each in inside if whole.name == "builtin.module" else (whole,):
                    if each.name != "func.func" or len(each.regions) != 1:
                        malformed("A module holds functions.", each.line, "func.func", each.name)
                    name = str(each.attributes.get("sym_name"))
                    results = each.attributes.get("function_type") or ()
                    functions[name] = MlirFunction(name, each.regions[0], results)
            elif not self.skip("}") and not self._location():
                malformed(
                    "A module holds functions.", self.token.line, "func.func", self.token.text
                )
        return MlirModule(functions, attributes)

    def _location(self) -> bool:
        if not self.skip("loc"):
            return False
        self.take("(")
        depth = 1
        while depth:
            if self.token.kind == "end":
                malformed("A location is not closed.", self.token.line, ")")
            depth += {"(": 1, ")": -1}.get(self.take(), 0)
        return True

    def _function(self) -> MlirFunction:
        while self.token.kind == "word":
            self.take()  # public, private
        name = self.take(kind="symbol").strip('@"')
        arguments = self._arguments()
        results: tuple[MlirType, ...] = ()
        if self.skip("->"):
            results = self.types()
        if self.skip("attributes"):
            self.mapping()
        return MlirFunction(name, self._block(arguments), results)

    def _arguments(self) -> tuple[tuple[str, MlirType], ...]:
        """`(%a: T {…}, %b: U)`."""
        found: list[tuple[str, MlirType]] = []
        self.take("(")
        while not self.skip(")"):
            name = self.take(kind="value")
            self.take(":")
            found.append((name, self.type()))
            if self.token.text == "{":
                self.mapping()
            self._location()
            self.skip(",")
        return tuple(found)

    def region(self) -> MlirRegion:
        """`{ ^bb0(…): operations }`."""
        return self._block(())

    def _block(self, arguments: tuple[tuple[str, MlirType], ...]) -> MlirRegion:
        self.take("{")
        self._deeper(1)
        operations: list[MlirOp] = []
        while not self.skip("}"):
            if self.token.kind == "block":
                if operations or arguments:
                    malformed("A region has one block.", self.token.line, "one block")
                self.take()
                if self.token.text == "(":
                    arguments = self._arguments()
                self.take(":")
                continue
            operations.append(self.operation())
        self._deeper(-1)
        last = operations[-1].name if operations else ""
        if last not in RETURNS and last != "func.func":
            malformed("A region ends with a return.", self.token.line, "stablehlo.return")
        return MlirRegion(arguments, tuple(operations))

    # --- operations ------------------------------------------------------------------------------

    def operation(self) -> MlirOp:
        """One operation, in either syntax."""
        line = self.token.line
        results = self._results()
        kind, name = self.token.kind, self.take().strip('"')
        if kind not in ("word", "string"):
            malformed("An operation has a name.", line, "stablehlo.add", name or "the end")
        reading = _Operation(self)
        reading.items()
        regions = reading.regions
        if name == "stablehlo.while" and kind == "word":
            self.take(":")
            given = self._listed_types()
            if self.skip("attributes"):
                reading.attributes.update(self.mapping())
            self.take("cond")
            arguments = tuple(zip(reading.bound, given, strict=True))
            regions.append(self._block(arguments))
            self.take("do")
            regions.append(self._block(arguments))
            types = given
        else:
            types = self._signature(len(results))
            if self.skip("reducer"):
                left: list[tuple[str, MlirType]] = []
                right: list[tuple[str, MlirType]] = []
                while self.token.text == "(":
                    first, second = self._arguments()
                    left.append(first)
                    right.append(second)
                regions.append(self._block((*left, *right)))
        self._location()
        flags = reading.attributes["flags"]
        if "applies" in flags:
            regions.append(_applied(flags[flags.index("applies") + 1], types, line))
        return MlirOp(
            name, tuple(reading.operands), results, reading.attributes, tuple(regions), types, line
        )

    def _results(self) -> tuple[str, ...]:
        """`%a, %b:2 =`."""
        found: list[str] = []
        while self.token.kind == "value":
            name = self.take()
            if self.skip(":"):
                found += [f"{name}#{at}" for at in range(int(self.take(kind="number")))]
            else:
                found.append(name)
            self.skip(",")
        if found:
            self.take("=")
        return tuple(found)

    def _signature(self, results: int) -> tuple[MlirType, ...]:
        """The types of the results, from `: T`, `: T, U` or `: (T) -> U`."""
        if not self.skip(":"):
            return ()
        listed = self._listed_types()
        if self.skip("->"):
            return self.types()
        return listed if len(listed) == results else listed[-1:]

    def _listed_types(self) -> tuple[MlirType, ...]:
        if self.token.text == "(":
            return self.types()
        mlir_types = [self.type()]
        while self.skip(","):
            mlir_types.append(self.type())
        return tuple(mlir_types)

    def types(self) -> tuple[MlirType, ...]:
        """`T`, or `(T {…}, U)`."""
        if not self.skip("("):
            return (self.type(),)
        mlir_types: list[MlirType] = []
        while not self.skip(")"):
            mlir_types.append(self.type())
            if self.token.text == "{":
                self.mapping()
            self.skip(",")
        return tuple(mlir_types)

    def type(self) -> MlirType:
        """One type."""
        if self.token.kind not in ("type", "word"):
            malformed("A type is missing.", self.token.line, "tensor<2xf32>", self.token.text)
        return mlir_type(self.take())

    # --- attributes ------------------------------------------------------------------------------

    def mapping(self) -> dict[str, Any]:
        """`{key = value, flag}`."""
        self.take("{")
        return self._pairs("}")

    def _pairs(self, end: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while not self.skip(end):
            key = self.take().strip('"')
            found[key] = self.value() if self.skip("=") else True
            self.skip(",")
        return found

    def value(self, typed: bool = True) -> Any:
        """The value of an attribute; its type, where one may stand behind it, is left out."""
        self._deeper(1)
        found = self._value()
        self._deeper(-1)
        if typed and self.token.text == ":" and self._tokens[self._at + 1].kind in ("word", "type"):
            self.take()
            of = self.type()
            if isinstance(found, MlirToken):  # a dense constant has the shape of its type
                return array(found.text, of, found.line)
        return found

    def _value(self) -> Any:
        token = self.token
        text = self.take()
        if token.kind == "number":
            return int(text, 0) if _is_whole(text) else float(text)
        if token.kind == "string":
            return text[1:-1]
        if token.kind == "dense":
            return token
        if token.kind == "type":
            return mlir_type(text)
        if text == "[":
            return self._list("]")
        if text == "{":
            return self._pairs("}")
        if text == "<":
            return self._angles()
        if text == "(":  # the type of a function: its results
            self._at -= 1
            self.types()
            self.take("->")
            return self.types()
        if text == "array":
            self.take("<")
            self.take(kind="word")
            return self._list(">") if self.skip(":") else (self.take(">"), [])[1]
        if text in self.aliases:
            return self.aliases[text]
        if token.text.startswith("#") and self.skip("<"):
            return self._angles()
        return _WORDS.get(text, text)

    def _angles(self) -> Any:
        """`<key = value, …>` as a mapping, other words as a list."""
        if self._tokens[self._at + 1].text == "=":
            return self._pairs(">")
        return self._list(">")

    def _list(self, end: str) -> list[Any]:
        found: list[Any] = []
        while not self.skip(end):
            if self.token.kind == "end":
                malformed("A list is not closed.", self.token.line, end)
            if self.token.text in ("->", "*", "x", ":", "?", "=", "-"):
                self.take()
                continue
            found.append(self.value())
            self.skip(",")
        return found


class _Operation:
    """The part of an operation between its name and types."""

    def __init__(self, parser: Parser) -> None:
        self.parser = parser
        self.operands: list[str] = []
        self.bound: list[str] = []
        self.attributes: dict[str, Any] = {}
        self.regions: list[MlirRegion] = []

    def items(self, end: str = ":") -> None:
        """Everything up to the types."""
        p, flags = self.parser, self.attributes.setdefault("flags", [])
        while True:
            token = p.token
            following = p._tokens[p._at + 1] if token.kind != "end" else token
            if token.text == end and token.kind == "mark":
                return
            if token.kind == "value":
                p.take()
                if p.skip("="):  # an argument of a loop and its first value
                    self.bound.append(token.text)
                    self.operands.append(p.take(kind="value"))
                else:
                    self.operands.append(token.text)
            elif token.kind in ("word", "string") and following.text == "=":
                p.take()
                p.take()
                self.attributes[token.text] = self._named(token.text)
            elif token.kind == "word" and token.text in ("init", "across", "dimensions"):
                if p.take() == "init":
                    self.attributes["interleaved"] = True
                p.skip(":")
            elif token.text == "(":
                p.take()
                if p.token.text == "{":
                    while not p.skip(")"):
                        self.regions.append(p.region())
                        p.skip(",")
                else:
                    self.items(")")
                    p.take(")")
            elif token.text == "<" and following.text == "{":
                p.take()
                self.attributes.update(p.mapping())
                p.take(">")
            elif token.text == "{":
                self.attributes.update(p.mapping())
            elif token.text == "[":
                self.attributes["ranges"] = _ranges(p)
            elif token.kind == "dense":
                self.attributes["value"] = token
                p.take()
            elif token.text == ",":
                p.take()
            elif token.kind in ("word", "symbol", "string", "number"):
                flags.append(p.take().strip('"'))
            else:
                return

    def _named(self, name: str) -> Any:
        """The value of `name = …`; pairs of lists are written `[0] x [1]`."""
        p = self.parser
        if name == "dim_numbers":
            return [_labels(p), _labels(p), _labels(p)]
        if name == "window":
            return p.mapping()
        first = p.value(typed=False)
        if isinstance(first, list) and p.skip("x"):
            return [first, p.value(typed=False)]
        return first


def _applied(name: str, types: tuple[MlirType, ...], line: int) -> MlirRegion:
    """The body of a reduction that is one operation."""
    if len(types) != 1:
        malformed("An operation reduces one tensor.", line, "one result", str(len(types)))
    (of,) = types
    scalar = mlir_type(f"tensor<{of.element}>")
    operation = MlirOp(name, ("%x", "%y"), ("%z",), {}, (), (scalar,), line)
    end = MlirOp("stablehlo.return", ("%z",), (), {}, (), (), line)
    return MlirRegion((("%x", scalar), ("%y", scalar)), (operation, end))


def _labels(p: Parser) -> list[str]:
    """`[b, 0, 1, f]` of a convolution."""
    p.skip("x", "->")
    p.take("[")
    found: list[str] = []
    while not p.skip("]"):
        found.append(p.take())
        p.skip(",")
    return found


def _ranges(p: Parser) -> list[tuple[int, ...]]:
    """`[0:4, 1:3:2]` of a slice, or `[0]` of a tuple."""
    p.take("[")
    found: list[tuple[int, ...]] = []
    while not p.skip("]"):
        numbers = [int(p.take(kind="number"))]
        while p.skip(":"):
            numbers.append(int(p.take(kind="number")))
        found.append(tuple(numbers))
        p.skip(",")
    return found


def _is_whole(text: str) -> bool:
    return text.startswith(("0x", "-0x")) or not any(c in text for c in ".eE")
