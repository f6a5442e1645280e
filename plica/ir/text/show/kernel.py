"""Kernels as text: loops and blocks over buffers as Python source that reads back.

>>> from plica.ir.type.dtype import f32
>>> from plica.ir.loop.tensor import axis, buffer
>>> x, out, i = buffer("x", (3,), f32), buffer("out", (3,), f32), axis("i")
>>> loop = st.For(i, x.shape[0], "serial", st.Store(out, (i,), x[i] * 2 + 1))
>>> kernel = st.Kernel((), (x, out), 1, loop)
>>> print(show_kernel(kernel, "affine"))
@plica.kernel
def affine(x: Buffer[(3,), f32], out: Buffer[(3,), f32]):
    for i in range(3):
        out[i] = x[i] * 2.0 + 1.0
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from plica.core import free_vars
from plica.ir.loop import statement as st
from plica.ir.loop.scalar import Add, Buffer, Lit, Load, Scalar, ScalarVar
from plica.ir.loop.statement import Annotations, Block, For, counted_in
from plica.ir.text.show.attribute import string_text, value_text
from plica.ir.text.show.name import IdentifierSupply
from plica.ir.text.show.scalar import Root, ScalarNames, ScalarPrinter
from plica.ir.text.show.type import TypePrinter, parenthesised
from plica.ir.text.word import BITS, DTYPE_WORDS, TAKEN_IN_KERNELS, WORDS
from plica.ir.type import i64

__all__ = ["kernel_lines", "located_kernel", "show_kernel"]

MAX_NESTING: Final = 40  # statements nested deeper than this become a region
MAX_COLUMNS: Final = 100
"""The width beyond which the header of a kernel or a block is split over lines."""

MAX_ELIF_LINKS: Final = 20  # the maximum number of conditions in one chain of `elif`
_IDENTIFIER: Final = re.compile(r"[^\W\d]\w*")
_NO_DIMS: Final = TAKEN_IN_KERNELS | DTYPE_WORDS.keys()

Lines: TypeAlias = "list[str]"


def show_kernel(kernel: st.Kernel, name: str = "kernel") -> str:
    """The text of a kernel; equal kernels with equal names give equal text."""
    supply = IdentifierSupply(WORDS | TAKEN_IN_KERNELS)
    return "\n".join(kernel_lines(kernel, name, supply)[0])


def located_kernel(kernel: st.Kernel, name: str) -> tuple[str, dict[st.Stmt, int]]:
    """The text of a kernel, and the line of each statement that has one, from 1 on."""
    printer = _Printer(IdentifierSupply(WORDS | TAKEN_IN_KERNELS))
    lines = _lines(kernel, name, printer)
    starts, start = {}, len(lines) - len(printer.main)
    starts[id(printer.main)] = start
    for region in reversed(printer.regions):
        start -= len(region)
        starts[id(region)] = start
    places: dict[st.Stmt, int] = {}
    for stmt, out, at in printer.places:
        places.setdefault(stmt, starts[id(out)] + at + 1)
    return "\n".join(lines), places


def kernel_lines(kernel: st.Kernel, name: str, supply: IdentifierSupply) -> tuple[Lines, set[str]]:
    """The lines of a kernel, and the words that they use."""
    printer = _Printer(supply)
    return _lines(kernel, name, printer), printer.scalars.words


def _lines(kernel: st.Kernel, name: str, printer: _Printer) -> Lines:
    for dim in kernel.dims:
        printer.names.bind(dim)
    types = [printer.buffer_type(param, quoted=True)[1] for param in kernel.params]
    params = [
        f"{printer.names.bind(param)}: {type}"
        for param, type in zip(kernel.params, types, strict=True)
    ]
    lines = [_decorator(kernel, printer), *_wrapped(f"def {name}(", params, "):")]
    return [*lines, *printer.body(kernel.body)]


def _decorator(kernel: st.Kernel, printer: _Printer) -> str:
    own = {printer.names.of(dim): None for dim in kernel.dims}
    met = dict.fromkeys(word for text in printer.quoted for word in _IDENTIFIER.findall(text))
    options = []
    if list(own) != [word for word in met if word not in _NO_DIMS]:
        options.append(f'dims="{" ".join(own)}"')
    if kernel.params[kernel.inputs :] != tuple(st.written(kernel.body, kernel.params)):
        options.append(f"inputs={kernel.inputs}")
    if kernel.annotations:
        options.append(f"annotations={_dict_text(kernel.annotations)}")
    return f"@plica.kernel({', '.join(options)})" if options else "@plica.kernel"


def _wrapped(head: str, items: list[str], tail: str) -> Lines:
    """Items in parentheses; one on a line where one line would be too long."""
    line = f"{head}{', '.join(items)}{tail}"
    if len(line) <= MAX_COLUMNS:
        return [line]
    pad = " " * (len(head) - len(head.lstrip()))
    return [head, *[f"{pad}    {item}," for item in items], f"{pad}{tail}"]


class _Printer:
    def __init__(self, supply: IdentifierSupply) -> None:
        self.names = ScalarNames(supply)
        self.scalars = ScalarPrinter(self.names)
        self.words = self.scalars.words
        self.extents: dict[ScalarVar, Scalar] = {}  # of loops and blocks around, for short forms
        self.quoted: list[str] = []  # sizes in quotes, in the order of the text
        self.regions: list[Lines] = []
        self.main: Lines = []
        self.places: list[tuple[st.Stmt, Lines, int]] = []  # where a statement was printed
        self.work: list[Any] = []  # statements to print, and things to do after one

    def body(self, root: st.Stmt) -> Lines:
        """The lines of a kernel's body: regions first."""
        self._inside(root, 1, self.main)
        while self.work:
            item = self.work.pop()
            if callable(item):
                item()
            else:
                self._statement(*item)
        return [line for region in self.regions for line in region] + self.main

    def buffer_type(self, of: Buffer, quoted: bool = False) -> tuple[Lines, str]:
        """Preceding lines, and the type; new symbolic sizes are quoted."""
        sizes = [*of.shape, *of.strides]
        before, texts = self.scalars.lines([(size, i64) for size in sizes], naming=not quoted)
        if quoted:
            plain = [isinstance(size, Lit) and size.dtype is i64 for size in sizes]
            pairs = list(zip(texts, plain, strict=True))
            self.quoted += [text for text, bare in pairs if not bare]
            texts = [text if bare else f'"{text}"' for text, bare in pairs]
        rank = len(of.shape)
        self.words.update(("Buffer", of.dtype.name))
        parts = [parenthesised(texts[:rank]), of.dtype.name]
        if of.scope != "global":
            parts.append(string_text(of.scope))
        if of.strides:
            self.words.add("strides")
            parts.append(f"strides({', '.join(texts[rank:])})")
        if of.align:
            self.words.add("align")
            parts.append(f"align({of.align})")
        return before, f"Buffer[{', '.join(parts)}]"

    def _inside(self, stmt: st.Stmt, level: int, out: Lines) -> None:
        """The statements inside a compound one, in a region where they are too deep."""
        level, out = self._shallow(level, out)
        self._list(stmt, level, out)

    def _shallow(self, level: int, out: Lines) -> tuple[int, Lines]:
        """Where the next statement goes: into a region if the nesting is too deep."""
        if level <= MAX_NESTING:
            return level, out
        name = self.scalars.temporary()
        out.append(f"{'    ' * level}{name}()")
        region = [f"    def {name}():"]
        self.regions.append(region)
        return 2, region

    def _list(self, stmt: st.Stmt, level: int, out: Lines) -> None:
        """A statement that ends a list; one after another where it is a sequence."""
        if isinstance(stmt, st.Seq) and len(stmt.stmts) > 1:
            self.work.append((stmt.stmts[-1], level, out, True))
            self.work.extend((each, level, out, False) for each in reversed(stmt.stmts[:-1]))
        else:
            self.work.append((stmt, level, out, True))

    def _scoped(self, stmt: st.Stmt, level: int, out: Lines, mark: int) -> None:
        """The inside of a binder: then its variables are forgotten."""
        self.work.append(lambda: self.names.leave(mark))
        self._inside(stmt, level, out)

    def _statement(self, stmt: st.Stmt, level: int, out: Lines, last: bool) -> None:
        pad = "    " * level

        def shown(*roots: Root) -> list[str]:
            before, texts = self.scalars.lines(roots)
            out.extend(f"{pad}{line}" for line in before)
            self.places.append((stmt, out, len(out)))
            return texts

        match stmt:
            case st.For():
                self._loops(stmt, level, out)
            case st.Block():
                self._block(stmt, level, out)
            case st.Store(buffer, indices, value):
                sign = "="
                if isinstance(value, Add) and value.left is Load(buffer, indices):
                    sign, value = "+=", value.right
                text, *at = shown((value, buffer.dtype), *[(index, i64) for index in indices])
                place = f"{self.names.of(buffer)}[{', '.join(at) or '()'}]"
                out.append(f"{pad}{place} {sign} {text}")
            case st.Seq(()):
                out.append(f"{pad}pass")
            case st.Seq(stmts):
                self.words.add("group")
                level, out = self._shallow(level, out)
                out.append(f"{'    ' * level}with group():")
                items = enumerate(reversed(stmts))
                self.work.extend((statement, level + 1, out, i == 0) for i, statement in items)
            case st.Branch(condition, then, orelse):
                (text,) = shown((condition, None))
                out.append(f"{pad}if {text}:")
                self._choice(then, orelse, level, out, 1)
            case st.Alloc(buffer, body):
                before, type = self.buffer_type(buffer)
                out.extend(f"{pad}{line}" for line in before)
                self.words.add("alloc")
                self._bound(buffer, f"alloc({type})", body, level, out, last)
            case st.Bind(var, value, body):
                (text,) = shown((value, None))
                if not last:
                    self.words.add("let")
                    text = f"let({text})"
                self._bound(var, text, body, level, out, last)
            case st.While(condition, body):
                (text,) = shown((condition, None))
                out.append(f"{pad}while {text}:")
                self._inside(body, level + 1, out)
            case st.Invoke(name, operands):
                texts = self._operands(operands, pad, out)
                self.places.append((stmt, out, len(out)))
                self.words.add("invoke")
                out.append(f"{pad}invoke({', '.join([string_text(name), *texts])})")
            case st.Barrier(scope):
                self.words.add("barrier")
                out.append(f"{pad}barrier({string_text(scope)})")

    def _bound(  # noqa: PLR0917  # where we are in the text
        self, var: Buffer | ScalarVar, text: str, body: st.Stmt, level: int, out: Lines, last: bool
    ) -> None:
        """`t = …`, or `with … as t:` where other statements follow its scope."""
        pad = "    " * level
        mark = self.names.mark()
        name = self.names.bind(var)
        if last:
            out.append(f"{pad}{name} = {text}")
            self.work.append(lambda: self.names.leave(mark))
            self._list(body, level, out)
        else:
            out.append(f"{pad}with {text} as {name}:")
            self._scoped(body, level + 1, out, mark)

    def _choice(  # where we are in the text
        self, then: st.Stmt, orelse: st.Stmt, level: int, out: Lines, links: int
    ) -> None:
        """The continuation of an `if` or `elif`; a long chain nests deeper, for Python's parser."""
        if orelse is not st.Seq(()):
            self.work.append(lambda: self._otherwise(orelse, level, out, links))
        self._inside(then, level + 1, out)

    def _otherwise(self, stmt: st.Stmt, level: int, out: Lines, links: int) -> None:
        pad = "    " * level
        if isinstance(stmt, st.Branch) and links < MAX_ELIF_LINKS:
            before, (text,) = self.scalars.lines([(stmt.condition, None)])
            if not before:
                out.append(f"{pad}elif {text}:")
                self._choice(stmt.then, stmt.orelse, level, out, links + 1)
                return
        out.append(f"{pad}else:")
        self._inside(stmt, level + 1, out)

    def _loops(self, stmt: st.For, level: int, out: Lines) -> None:
        """A loop, or several plain ones at once whose extents do not depend on one another."""
        chain = [stmt]
        outer = {stmt.var}
        while _is_plain(chain[-1]):
            inner = chain[-1].body
            if not (isinstance(inner, st.For) and _is_plain(inner)):
                break
            if not outer.isdisjoint(free_vars(inner.extent)):
                break
            chain.append(inner)
            outer.add(inner.var)
        pad = "    " * level
        before, texts = self.scalars.lines([(loop.extent, i64) for loop in chain])
        out.extend(f"{pad}{line}" for line in before)
        mark = self.names.mark()
        saved = {loop.var: self.extents.get(loop.var) for loop in chain}
        variables = ", ".join([self.names.bind(loop.var) for loop in chain])
        self.places += [(loop, out, len(out)) for loop in chain]
        self.extents |= {loop.var: loop.extent for loop in chain}
        out.append(f"{pad}for {variables} in {self._range(chain, texts)}:")
        self.work.append(lambda: _restore(self.extents, saved))
        self._scoped(chain[-1].body, level + 1, out, mark)

    def _range(self, chain: list[st.For], texts: list[str]) -> str:
        if len(chain) > 1:
            self.words.add("grid")
            return f"grid({', '.join(texts)})"
        loop = chain[0]
        notes = _keywords(loop.annotations)
        if loop.var.dtype is not st.counted_in(loop.extent):
            notes.insert(0, f"{BITS}={8 * loop.var.dtype.bytes}")
        if loop.kind in st.THREADS:
            self.words.add("thread")
            return f"thread({', '.join([string_text(loop.kind), texts[0], *notes])})"
        word = "range" if loop.kind == "serial" else loop.kind
        self.words.add(word)
        return f"{word}({', '.join([texts[0], *notes])})"

    def _block(self, stmt: st.Block, level: int, out: Lines) -> None:
        pad = "    " * level
        self.words.add("block")
        short = _is_short(stmt, self.extents)
        roots: list[Root] = []
        if not short:
            pairs = zip(stmt.extents, stmt.bindings, strict=True)
            roots = [(scalar, i64) for pair in pairs for scalar in pair]
        if stmt.predicate is not st.TRUE:
            roots.append((stmt.predicate, None))
        before, texts = self.scalars.lines(roots)
        out.extend(f"{pad}{line}" for line in before)
        mark = self.names.mark()
        saved = {each: self.extents.get(each) for each in stmt.vars}
        parts = [string_text(str(stmt.label))]
        if short:
            parts += self._kinds(stmt)
        else:
            self.words.update(stmt.kinds)
            for i, (var, kind) in enumerate(zip(stmt.vars, stmt.kinds, strict=True)):
                name = self.names.bind(var)
                parts.append(f"{name}={kind}({texts[2 * i]}, {texts[2 * i + 1]})")
        if stmt.predicate is not st.TRUE:
            parts.append(f"where={texts[-1]}")
        if stmt.annotations:
            parts.append(f"annotations={_dict_text(stmt.annotations)}")
        out.extend(_wrapped(f"{pad}with block(", parts, "):"))
        self.extents |= dict(zip(stmt.vars, stmt.extents, strict=True))
        self.work.append(lambda: _restore(self.extents, saved))
        self.work.append(lambda: self.names.leave(mark))
        pad += "    "
        for word, regions in (("reads", stmt.reads), ("writes", stmt.writes)):
            if regions:
                self.words.add(word)
                inside = self._operands(regions, pad, out, False)
                out.append(f"{pad}{word}({', '.join(inside)})")
        if stmt.init is None:
            self._inside(stmt.body, level + 1, out)
            return
        self.words.add("init")
        out.append(f"{pad}with init():")
        self.work.append(lambda: self._inside(stmt.body, level + 1, out))
        self._inside(stmt.init, level + 2, out)

    def _kinds(self, stmt: st.Block) -> list[str]:
        """`spatial=(i, j), reduce=(k,)`: the block's variables have the names of the loops."""
        groups: dict[str, list[str]] = {}
        loops = [self.names.of(each) for each in stmt.bindings if isinstance(each, ScalarVar)]
        for var, kind, loop in zip(stmt.vars, stmt.kinds, loops, strict=True):
            groups.setdefault(kind, []).append(loop)
            self.names.put(var, loop)
        return [f"{kind}={parenthesised(names)}" for kind, names in groups.items()]

    def _operands(
        self, operands: tuple[st.Region | Scalar, ...], pad: str, out: Lines, whole: bool = True
    ) -> list[str]:
        """Regions and scalars; with `whole`, single elements are written as slices, too."""
        roots: list[Root] = []
        for operand in operands:
            if isinstance(operand, st.Region):
                for start, extent in zip(operand.starts, operand.extents, strict=True):
                    roots += [(start, i64), (_stop(start, extent), i64)]
            else:
                roots.append((operand, None))
        before, texts = self.scalars.lines(roots)
        out.extend(f"{pad}{line}" for line in before)
        rest = iter(texts)
        shown = []
        for operand in operands:
            if isinstance(operand, st.Region):
                parts = [_slice_text(next(rest), next(rest), e, whole) for e in operand.extents]
                inside = ", ".join(parts) or "..."
                shown.append(f"{self.names.of(operand.buffer)}[{inside}]")
            else:
                shown.append(next(rest))
        return shown


def _restore(table: dict[ScalarVar, Scalar], saved: Mapping[ScalarVar, Scalar | None]) -> None:
    for var, before in saved.items():
        if before is None:
            del table[var]
        else:
            table[var] = before


# --- parts of statements: slices, annotations, and what a header leaves out ---


ONE: Final = Lit(1, i64)
ZERO: Final = Lit(0, i64)


def _is_plain(loop: For) -> bool:
    """Whether a loop is serial, with nothing said about it."""
    usual = loop.var.dtype is counted_in(loop.extent)
    return loop.kind == "serial" and not loop.annotations and usual


def _is_short(block: Block, extents: Mapping[ScalarVar, Scalar]) -> bool:
    """Whether each variable of a block is just a loop around it, and the text can say so."""
    loops = [binding for binding in block.bindings if isinstance(binding, ScalarVar)]
    if not loops or len(loops) != len(block.vars) or len(set(loops)) != len(loops):
        return False
    if any(extents.get(a) is not e for a, e in zip(loops, block.extents, strict=True)):
        return False
    runs = [kind for i, kind in enumerate(block.kinds) if i == 0 or block.kinds[i - 1] != kind]
    if len(set(runs)) != len(runs):
        return False
    inside = (block.init, block.body, *block.reads, *block.writes)
    mine = set(block.vars)
    return not any(
        var in loops and var not in mine
        for part in inside
        if part is not None
        for var in free_vars(part)
    )


def _stop(start: Scalar, extent: Scalar) -> Scalar:
    """The end of a slice; the reader recovers the extent from it."""
    if start is ZERO:
        return extent
    if isinstance(start, Lit) and isinstance(extent, Lit) and extent.dtype is start.dtype is i64:
        end = start.value + extent.value
        if end < 2**63 and end >= -(2**63):
            return Lit(end, i64)
    return Add(start, extent)


def _slice_text(start: str, end: str, extent: Scalar, whole: bool) -> str:
    """A slice; a single element is an index unless `whole` holds."""
    if extent is ONE and not whole:
        return start
    return f"{start} : {end}" if " " in start or " " in end else f"{start}:{end}"


def _keywords(annotations: Annotations) -> list[str]:
    """Annotations as keywords where all their keys can be, otherwise as a dict."""
    if all(key.isidentifier() and key.isascii() and _is_free(key) for key, _ in annotations):
        return [f"{key}={value_text(value, TypePrinter())}" for key, value in annotations]
    return [f"annotations={_dict_text(annotations)}"]


def _is_free(key: str) -> bool:
    return key not in ("annotations", BITS) and not keyword.iskeyword(key)


def _dict_text(annotations: Annotations) -> str:
    """Annotations as a dict."""
    inside = [
        f"{string_text(key)}: {value_text(value, TypePrinter())}" for key, value in annotations
    ]
    return f"{{{', '.join(inside)}}}"
