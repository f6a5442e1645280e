"""Blocks in text.

    with block("C", vi=spatial(m, i0 * 4 + i1), vk=reduce(k, l), where=i0 * 4 + i1 < m):
        reads(A[vi, vk])
        writes(C[vi])
        with init():
            C[vi] = 0.0
        C[vi] += A[vi, vk]

Each variable has a kind, an extent and a binding.  In the short form `spatial=(i,), reduce=(l,)` it
is a loop around the block: the loop's name means the block's variable inside.
"""

from __future__ import annotations

import ast
from typing import Any, Final

import attrs

from plica.core import Name, Task
from plica.ir.loop.scalar import Scalar, ScalarVar
from plica.ir.loop.statement import ITER_KINDS, TRUE, Annotations, Block, IterKind, Region, Stmt
from plica.ir.text.script.kernel_scope import Bound
from plica.ir.text.script.kernel_statement import StatementReader, joined
from plica.ir.text.word import is_reserved
from plica.ir.type import i64

KINDS: Final[dict[str, IterKind]] = {kind: kind for kind in ITER_KINDS.values()}


@attrs.define
class _Header:
    """The contents of the parentheses after `block`, before binding."""

    names: list[str] = attrs.Factory(list)
    hints: list[str] = attrs.Factory(list)
    kinds: list[IterKind] = attrs.Factory(list)
    extents: list[Scalar] = attrs.Factory(list)
    bindings: list[Scalar] = attrs.Factory(list)
    predicate: Scalar = TRUE
    annotations: Annotations = ()
    wrong: bool = False


class BlockReader(StatementReader):
    """Reads blocks, and all other statements."""

    def scoped(
        self, node: ast.With, call: ast.Call, target: ast.expr | None, body: list[ast.stmt]
    ) -> Task[Stmt | None]:
        """A `with` statement: a block, or another one."""
        if self.word(call.func) != "block" or target is not None:
            found = yield super().scoped(node, call, target, body)
            return found  # type: ignore[no-any-return]  # a statement
        match call.args:
            case [ast.Constant(str() as label)]:
                pass
            case _:
                self.bad(call, 'block("C", spatial=(i, j))', "A block has a label.")
                return None
        header = self._header(call)
        mark = self.scope.mark()
        variables: list[ScalarVar] = []
        for name, hint in zip(header.names, header.hints, strict=True):
            variables.append(self.scope.variable(name, "block variable", i64, hint))
        self.scope.extents |= dict(zip(variables, header.extents, strict=False))
        cut, parts = yield self._leading(body)
        inside = yield self.statements(body[cut:])
        self.scope.leave(mark)
        if header.wrong:
            return None
        return Block(
            Name(label),
            tuple(variables),
            tuple(header.extents),
            tuple(header.kinds),
            tuple(header.bindings),
            header.predicate,
            parts.get("init"),
            joined(inside),
            parts.get("reads", ()),
            parts.get("writes", ()),
            header.annotations,
        )

    def _header(self, call: ast.Call) -> _Header:
        header = _Header()
        for keyword in call.keywords:
            if keyword.arg == "where":
                condition = self.condition(keyword.value)
                header.wrong |= condition is None
                header.predicate = condition or TRUE
            elif keyword.arg == "annotations":
                header.annotations = tuple(sorted(self.notes(keyword.value).items()))
            elif keyword.arg in KINDS:
                self._loops(keyword.value, KINDS[keyword.arg], header)
            elif keyword.arg is None:
                self.bad(keyword, "vi=spatial(n, i)")
                header.wrong = True
            else:
                self._variable(keyword, keyword.arg, header)
        return header

    def _loops(self, node: ast.expr, kind: IterKind, header: _Header) -> None:
        """`spatial=(i, j)`: loops whose names are the block's variables inside."""
        for each in node.elts if isinstance(node, ast.Tuple) else [node]:
            bound = self.scope.find(each.id) if isinstance(each, ast.Name) else None
            term = None if bound is None else bound.term
            extent = self.scope.extents.get(term) if isinstance(term, ScalarVar) else None
            if not isinstance(each, ast.Name) or not isinstance(term, ScalarVar) or extent is None:
                shown = self.origin.excerpt(each)
                message = f"{shown} is not the variable of a loop around the block."
                hint = f"Write v={kind}(extent, {shown})."
                code = "unbound-name" if isinstance(each, ast.Name) else "unsupported-syntax"
                self.error(each, code, message, expected="a loop", found=shown, suggestion=hint)
                header.wrong = True
                continue
            self._add(each, each.id, header, f"v{each.id}", kind)
            header.extents.append(extent)
            header.bindings.append(term)

    def _variable(self, node: ast.keyword, name: str, header: _Header) -> None:
        """`vi=spatial(n, i)`: a variable with its kind, extent and binding."""
        match node.value:
            case ast.Call(callee, [extent, binding], []) if (kind := self.word(callee)) in KINDS:
                size, value = self.index(extent), self.index(binding)
                self._add(node, name, header, name, KINDS[kind or ""])
                if size is None or value is None:
                    header.wrong = True
                else:
                    header.extents.append(size)
                    header.bindings.append(value)
            case _:
                hint = self.problems.suggest(name, (*KINDS, "where", "annotations"))
                message = f"A block has no option {name!r}."
                expected = f"{name}=spatial(extent, binding), or where, annotations, spatial …"
                self.error(node, "unknown-attribute", message, expected=expected, suggestion=hint)
                header.wrong = True

    def _add(
        self, node: ast.expr | ast.keyword, name: str, header: _Header, hint: str, kind: IterKind
    ) -> None:
        if name in header.names:
            self.error(node, "duplicate-name", f"The block has two variables {name!r}.")
            header.wrong = True
        header.names.append(name)
        header.hints.append(hint)
        header.kinds.append(kind)

    def _leading(self, body: list[ast.stmt]) -> Task[tuple[int, dict[str, Any]]]:
        """The regions and the init that a block begins with; how many statements they are."""
        parts: dict[str, Any] = {}  # Any: regions under "reads" and "writes", a statement
        cut = 0
        for cut, node in enumerate(body):
            match node:
                case ast.Assign([ast.Name(name)], value) if is_reserved(name):
                    self.scope.bind(name, Bound("alias", self.scalar(value)))
                case ast.FunctionDef(name) if is_reserved(name):
                    self.scope.bind(name, Bound("region", None, node))
                case ast.Expr(ast.Call(callee, args, [])) if (
                    (kind := self.word(callee)) in ("reads", "writes")
                    and kind not in parts
                    and "init" not in parts
                ):
                    parts[kind or ""] = self._regions(args)
                case ast.With([ast.withitem(ast.Call(callee, [], []), None)], inside) if (
                    self.word(callee) == "init" and "init" not in parts
                ):
                    parts["init"] = yield self.body(inside)
                case _:
                    return cut, parts
        return len(body), parts

    def _regions(self, nodes: list[ast.expr]) -> tuple[Region, ...]:
        regions = [self.region(node) for node in nodes]
        return tuple([region for region in regions if region is not None])
