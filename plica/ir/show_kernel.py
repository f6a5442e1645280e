"""Kernels as text: loops over buffers in Python's clothes.

>>> from plica.ir.dtype import f32
>>> from plica.ir.tensor import axis, buffer
>>> x, out, i = buffer("x", (3,), f32), buffer("out", (3,), f32), axis("i")
>>> kernel = Kernel((), (x, out), 1, For(i, x.shape[0], "serial", Store(out, (i,), x[i] * 2 + 1)))
>>> print(show_kernel(kernel, "affine"))
def affine(x: Buffer[(3,), f32], out: Buffer[(3,), f32]):
    for i in range(3):
        out[i] = x[i] * 2.0 + 1.0

A term that is used twice, or is deep, is shown once under a name `t0, t1, …`; such a name stands
for the term, it does not say when the term is evaluated.  The text is linear in the kernel.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from plica.core.name import Name, fresh
from plica.core.term import Term
from plica.ir.dtype import bool_, f32, i64
from plica.ir.loop import Alloc, Branch, For, Kernel, Seq, Stmt, Store
from plica.ir.scalar import (
    Add,
    And,
    BitAnd,
    BitOr,
    BitXor,
    Buffer,
    Cast,
    Div,
    Eq,
    FloorDiv,
    FloorMod,
    Intrinsic,
    Le,
    Lit,
    Load,
    Lt,
    Max,
    Min,
    Mul,
    Ne,
    Not,
    Or,
    Pow,
    Reduce,
    Scalar,
    ScalarVar,
    Select,
    ShiftLeft,
    ShiftRight,
    Sub,
)

__all__ = ["show_kernel"]

DEPTH: Final = 16
"""How deep an expression may be before a part of it is named."""

_INFIX: Final[dict[type, tuple[str, int]]] = {
    Or: ("or", 1),
    And: ("and", 2),
    Lt: ("<", 4),
    Le: ("<=", 4),
    Eq: ("==", 4),
    Ne: ("!=", 4),
    BitOr: ("|", 5),
    BitXor: ("^", 6),
    BitAnd: ("&", 7),
    ShiftLeft: ("<<", 8),
    ShiftRight: (">>", 8),
    Add: ("+", 9),
    Sub: ("-", 9),
    Mul: ("*", 10),
    Div: ("/", 10),
    FloorDiv: ("//", 10),
    FloorMod: ("%", 10),
}
_PREFIX: Final[dict[type, str]] = {Min: "min", Max: "max", Pow: "pow"}
_ATOM: Final = 12


def show_kernel(kernel: Kernel, name: str = "kernel") -> str:
    """The text of a kernel; equal kernels with equal names give equal text."""
    printer = _Printer()
    params = [f"{printer.name(b)}: {printer.type(b)}" for b in kernel.params]
    lines = [f"def {name}({', '.join(params)}):", *printer.body(kernel.body)]
    return "\n".join(lines if len(lines) > 1 else [*lines, "    pass"])


class _Printer:
    def __init__(self) -> None:
        self.names: dict[Term, str] = {}
        self.used: set[Name] = set()
        self.temporaries = 0

    def name(self, term: Buffer | ScalarVar) -> str:
        """A name of its own for each buffer and variable."""
        if term not in self.names:
            free = fresh(term.name, self.used)
            self.used.add(free)
            self.names[term] = str(free)
        return self.names[term]

    def temporary(self) -> str:
        """A name for a part; nobody else gets it."""
        while (name := Name(f"t{self.temporaries}")) in self.used:
            self.temporaries += 1
        self.used.add(name)
        return str(name)

    def type(self, buffer: Buffer) -> str:
        dims = [self.expression(size) for size in buffer.shape]
        inside = f"{dims[0]}," if len(dims) == 1 else ", ".join(dims)
        return f"Buffer[({inside}), {buffer.dtype}]"

    def body(self, root: Stmt) -> Iterator[str]:
        stack: list[tuple[int, Stmt | str]] = [(1, root)]
        while stack:
            level, item = stack.pop()
            pad = "    " * level
            match item:
                case str():
                    yield pad + item
                case For(var, extent, kind, inside):
                    how = "range" if kind == "serial" else kind
                    yield f"{pad}for {self.name(var)} in {how}({self.expression(extent)}):"
                    stack.append((level + 1, inside))
                case Store(buffer, indices, value):
                    *before, shown, place = self.lines([value, Load(buffer, indices)])
                    yield from (pad + line for line in before)
                    yield f"{pad}{place} = {shown}"
                case Seq(stmts):
                    if not stmts:
                        yield f"{pad}pass"
                    stack.extend((level, each) for each in reversed(stmts))
                case Branch(condition, then, orelse):
                    *before, shown = self.lines([condition])
                    yield from (pad + line for line in before)
                    yield f"{pad}if {shown}:"
                    stack += [(level + 1, orelse), (level, "else:"), (level + 1, then)]
                case Alloc(buffer, inside):
                    yield f"{pad}{self.name(buffer)} = alloc({self.type(buffer)})"
                    stack.append((level, inside))

    def expression(self, root: Scalar) -> str:
        return self.lines([root])[-1]

    def lines(self, roots: list[Scalar]) -> list[str]:
        """Lines that name parts, then one text for each root."""
        order, uses = _order(roots)
        before: list[str] = []
        memo: dict[Scalar, tuple[str, int, int]] = {}  # text, how tightly it binds, depth
        for node in order:
            text, binds = self.text(node, memo)
            kids = _kids(node)
            depth = 1 + max((memo[kid][2] for kid in kids), default=0)
            if kids and (uses[node] > 1 or depth > DEPTH) and node not in roots:
                name = self.temporary()
                before.append(f"{name} = {text}")
                memo[node] = name, _ATOM, 0
            else:
                memo[node] = text, binds, depth
        return [*before, *(memo[root][0] for root in roots)]

    def text(self, node: Scalar, memo: dict[Scalar, tuple[str, int, int]]) -> tuple[str, int]:
        def part(kid: Scalar, least: int = 0) -> str:
            text, binds, _ = memo[kid]
            return text if binds >= least else f"({text})"

        infix = _INFIX.get(type(node))
        if infix is not None:
            word, binds = infix
            left, right = _kids(node)
            first = binds + 1 if binds == 4 else binds  # comparisons do not chain
            return f"{part(left, first)} {word} {part(right, binds + 1)}", binds
        match node:
            case Lit(value, of):
                plain = of in (i64, f32, bool_) and math.isfinite(value)
                text = repr(value)
                sign = 11 if text.startswith("-") else _ATOM
                return (text, sign) if plain else (f"{of}({text})", _ATOM)
            case ScalarVar():
                return self.name(node), _ATOM
            case Load(buffer, indices):
                inside = ", ".join(part(index) for index in indices) or "()"
                return f"{self.name(buffer)}[{inside}]", _ATOM
            case Not(value):
                return f"not {part(value, 3)}", 3
            case Select(condition, then, orelse):
                return f"{part(then, 1)} if {part(condition, 1)} else {part(orelse)}", 0
            case Cast(value, to):
                return f"{to}({part(value)})", _ATOM
            case Intrinsic(name, args):
                return f"{name}({', '.join(part(arg) for arg in args)})", _ATOM
            case Reduce(combiner, axes, extents, value):
                over = " ".join(
                    f"for {self.name(axis)} in range({part(extent)})"
                    for axis, extent in zip(axes, extents, strict=True)
                )
                return f"{combiner}({part(value)} {over})", _ATOM
            case _:
                both = ", ".join(part(kid) for kid in _kids(node))
                return f"{_PREFIX[type(node)]}({both})", _ATOM


def _kids(node: Scalar) -> tuple[Scalar, ...]:
    match node:
        case Lit() | ScalarVar():
            return ()
        case Load(_, indices):
            return indices
        case Reduce(_, _, extents, body):
            return (*extents, body)
        case _:
            return tuple([kid for kid in node._children if isinstance(kid, Scalar)])


def _order(roots: list[Scalar]) -> tuple[list[Scalar], dict[Scalar, int]]:
    """Every term inside the roots, parts first, and how often each is used."""
    order: list[Scalar] = []
    uses: dict[Scalar, int] = dict.fromkeys(roots, 0)
    done: set[Scalar] = set()
    stack: list[tuple[Scalar, bool]] = [(root, False) for root in reversed(roots)]
    while stack:
        node, leaving = stack.pop()
        if leaving:
            order.append(node)
        elif node not in done:
            done.add(node)
            stack.append((node, True))
            kids = _kids(node)
            for kid in kids:
                uses[kid] = uses.get(kid, 0) + 1
            stack.extend((kid, False) for kid in reversed(kids))
    return order, uses
