"""Statements of kernels in text: loops, blocks, stores, and allocations.

`t = alloc(...)`, `t = view(...)` and `t = value` scope over the statements that follow them in the
same list; `with alloc(...) as t:` and `with let(value) as t:` say where the scope ends.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Final, TypeAlias

from plica.core import Task
from plica.ir.loop import statement as st
from plica.ir.loop.scalar import Buffer, Load, Scalar, dtype_of, index
from plica.ir.text.script.kernel_region import RegionReader
from plica.ir.text.script.kernel_scalar import SIGNS
from plica.ir.text.script.kernel_scope import Bound
from plica.ir.text.word import BITS, is_reserved
from plica.ir.type import DType, i32, i64
from plica.runtime.late import lazy_imports

with lazy_imports(__name__):  # few kernels have one
    from plica.ir.text.script.kernel_view import view_problem

LOOPS: Final[dict[str, st.LoopKind]] = {
    "range": "serial",
    "parallel": "parallel",
    "vectorized": "vectorized",
    "unrolled": "unrolled",
    "virtual": "virtual",
}

WIDTHS: Final[dict[object, DType]] = {32: i32, 64: i64}
"""What variables of loops can be, by their bits."""

INSTEAD: Final[dict[type[ast.stmt], str]] = {
    ast.Return: "A kernel writes its results to its last buffers.",
    ast.Break: "Use while with a condition.",
    ast.Continue: "Use if.",
    ast.FunctionDef: "Write the statements where they are needed.",
    ast.Assert: "The shapes of buffers say what must hold.",
}

Wrap: TypeAlias = Callable[[st.Stmt], st.Stmt]


class StatementReader(RegionReader):
    """Reads the statements of a kernel."""

    def statements(self, nodes: list[ast.stmt]) -> Task[list[st.Stmt]]:
        """The statements of a list, up to the end of its scope."""
        mark = self.scope.mark()
        lists: list[list[st.Stmt]] = [[]]
        wraps: list[Wrap] = []
        for node in nodes:
            match node:
                case ast.Assign([ast.Name(name)], value) if is_reserved(name):
                    self.scope.bind(name, Bound("alias", self.scalar(value)))
                case ast.FunctionDef(name) if is_reserved(name):
                    self.scope.bind(name, Bound("region", None, node))
                case ast.Assign([ast.Name()], value):
                    if (wrap := self._named(node, node.targets[0], value)) is not None:
                        wraps.append(wrap)
                        lists.append([])
                case _:
                    made = yield self.statement(node)
                    if made is not None:
                        lists[-1].append(made)
        self.scope.leave(mark)
        while wraps:
            inner = lists.pop()
            lists[-1].append(wraps.pop()(joined(inner)))
        return lists[0]

    def body(self, nodes: list[ast.stmt]) -> Task[st.Stmt]:
        """The statement that a list of statements is."""
        found = yield self.statements(nodes)
        return joined(found)

    def statement(self, node: ast.stmt) -> Task[st.Stmt | None]:
        """One statement, or None if it is wrong."""
        match node:
            case ast.Pass():
                return st.NOTHING
            case ast.Assign([ast.Subscript() as target], value):
                return self._store(target, value)
            case ast.AugAssign(ast.Subscript() as target, sign, value) if type(sign) in SIGNS:
                return self._update(node, target, value)
            case ast.AugAssign(ast.Name(name)):
                self._no_change(node, name)
                return None
            case ast.For(target, over, body, []):
                found = yield self._for(node, target, over, body)
                return found  # type: ignore[no-any-return]  # a statement
            case ast.If(test, then, orelse):
                condition = self.condition(test)
                first = yield self.body(then)
                second = yield self.body(orelse)
                return None if condition is None else st.Branch(condition, first, second)
            case ast.While(test, body, []):
                condition = self.condition(test)
                inside = yield self.body(body)
                return None if condition is None else st.While(condition, inside)
            case ast.With([ast.withitem(ast.Call() as call, target)], body):
                found = yield self.scoped(node, call, target, body)
                return found  # type: ignore[no-any-return]  # a statement
            case ast.Expr(ast.Call() as call):
                found = yield self._called(call)
                return found  # type: ignore[no-any-return]  # a statement
            case _:
                self._unsupported_statement(node)
                return None

    def scoped(
        self, node: ast.With, call: ast.Call, target: ast.expr | None, body: list[ast.stmt]
    ) -> Task[st.Stmt | None]:
        """A `with` statement."""
        name = self.word(call.func)
        if name == "group" and target is None and not call.args and not call.keywords:
            found = yield self.statements(body)
            return st.Seq(tuple(found))
        if name in ("alloc", "let") and isinstance(target, ast.Name):
            value: ast.expr = call
            if name == "let":
                if len(call.args) != 1 or call.keywords:
                    self.bad(call, "with let(value) as t:")
                    return None
                value = call.args[0]
            mark = self.scope.mark()
            wrap = self._named(node, target, value)
            inside = yield self.body(body)
            self.scope.leave(mark)
            return None if wrap is None else wrap(inside)
        if name == "init":
            self.unsupported(node, "The init of a block comes first in it, and once.")
            return None
        self.bad(call, 'with block("C", ...), init(), group(), alloc(...) as t or let(...) as t')
        return None

    # Names.

    def _named(self, node: ast.stmt, target: ast.expr, value: ast.expr) -> Wrap | None:
        """`t = alloc(...)` or `t = value`: what it makes of the statements in its scope."""
        assert isinstance(target, ast.Name)
        name = target.id
        if (old := self.scope.find(name)) is not None:
            message = f"{name} is {old} here, and names are given once."
            if old.what == "loop":
                message = f"{name} is the variable of a loop, which cannot be assigned to."
            hint = f"Use another name, or {name}[...] = ... of a buffer for what changes."
            self.error(target, "duplicate-name", message, suggestion=hint)
            return None
        if isinstance(value, ast.Call) and self.word(value.func) == "alloc":
            buffer = self._alloc(value, name)
            self.scope.bind(name, Bound("buffer", buffer), None if buffer is None else buffer.name)
            return None if buffer is None else lambda body: st.Alloc(buffer, body)
        if isinstance(value, ast.Call) and self.word(value.func) == "view":
            self._view(value, name)
            return None
        scalar = self.scalar(value)
        if scalar is None:
            self.scope.bind(name, Bound("let", None))
            return None
        variable = self.scope.variable(name, "let", dtype_of(scalar))
        return lambda body: st.Bind(variable, scalar, body)

    def _alloc(self, node: ast.Call, name: str) -> Buffer | None:
        match node:
            case ast.Call(_, [kind], []):
                return self.buffer_type(kind, name)
        self.bad(node, 'alloc(Buffer[(4, n), f32, "shared"])')
        return None

    def _view(self, node: ast.Call, name: str) -> None:
        """From here on a name is a view of a buffer."""
        begins: Scalar | None = None
        of = own = None
        match node:
            case ast.Call(_, [ast.Name() as base, kind], []):
                of, own, begins = self.buffer(base), self.buffer_type(kind, name), index(0)
            case ast.Call(_, [ast.Name() as base, kind], [ast.keyword("offset", value)]):
                of, own = self.buffer(base), self.buffer_type(kind, name)
                begins = self.index(value)
            case _:
                example = "v = view(x, Buffer[(3, 2), f32, strides(4, 1)], offset=5)"
                self.bad(node, example, "This is no view of a buffer.")
        self.scope.bind(name, Bound("buffer", own), None if own is None else own.name)
        if of is None or own is None or begins is None:
            return
        wrong = view_problem(of, own, begins)
        if wrong is not None:
            self.error(node, "shape-conflict", wrong)
        self.scope.views[own] = of, begins

    # Stores.

    def _store(self, target: ast.Subscript, value: ast.expr) -> st.Stmt | None:
        place = self._place(target)
        dtype = None if place is None else place[0].dtype
        scalar = self._fitting(value, self.scalar(value, dtype), dtype)
        return None if place is None or scalar is None else st.Store(*place, scalar)

    def _update(
        self, node: ast.AugAssign, target: ast.Subscript, value: ast.expr
    ) -> st.Stmt | None:
        """`C[i] += e` as `C[i] = C[i] + e`."""
        if (place := self._place(target)) is None:
            self.scalar(value)
            return None
        scalar = self._fitting(value, self.scalar(value, place[0].dtype), place[0].dtype)
        if scalar is None:
            return None
        kind = SIGNS[type(node.op)]
        whole = self.pair(value, kind, Load(*place), scalar)
        return None if whole is None else st.Store(*place, whole)

    def _fitting(self, node: ast.expr, found: Scalar | None, dtype: DType | None) -> Scalar | None:
        if found is None or dtype is None or dtype_of(found) is dtype:
            return found
        message, shown = "The value is not of the buffer's dtype.", str(dtype_of(found))
        hint = f"Write {dtype}({self.origin.excerpt(node)})."
        self.error(
            node, "dtype-conflict", message, expected=str(dtype), found=shown, suggestion=hint
        )
        return None

    def _place(self, node: ast.Subscript) -> tuple[Buffer, tuple[Scalar, ...]] | None:
        buffer = self.buffer(node.value)
        items = None if buffer is None else self.indices(buffer, node)
        if buffer is None or items is None:
            return None
        sliced = next((item for item in items if isinstance(item, ast.Slice)), None)
        if sliced is not None:
            self.unsupported(sliced, "A store writes one element.", suggestion="Write a loop.")
            return None
        scalars = [self.index(item) for item in items]
        fixed = tuple([scalar for scalar in scalars if scalar is not None])
        return self.placed(buffer, fixed) if len(fixed) == len(scalars) else None

    # Loops.

    def _for(
        self, node: ast.For, target: ast.expr, over: ast.expr, body: list[ast.stmt]
    ) -> Task[st.Stmt | None]:
        names = target.elts if isinstance(target, ast.Tuple) else [target]
        header = self._range(over, len(names))
        plain = [each.id for each in names if isinstance(each, ast.Name)]
        if len(plain) != len(names) or len(set(plain)) != len(plain):
            message = "A loop gives names to its variables, each its own."
            self.unsupported(target, message, expected="for i, j in grid(n, m):")
            header = None
        kind, extents, notes = header or ("serial", [], ())
        mark = self.scope.mark()
        dtypes = [self._counted_in(over, scalar) for scalar in extents] or [i64] * len(plain)
        variables = [
            self.scope.variable(name, "loop", dtype)
            for name, dtype in zip(plain, dtypes, strict=False)
        ]
        self.scope.extents |= dict(zip(variables, extents, strict=False))
        inside = yield self.body(body)
        self.scope.leave(mark)
        if header is None:
            return None
        for variable, extent in reversed(list(zip(variables, extents, strict=True))):
            inside = st.For(variable, extent, kind, inside, notes)
        return inside  # type: ignore[no-any-return]  # a statement

    @staticmethod
    def _counted_in(node: ast.expr, extent: Scalar) -> DType:
        """The dtype of the variable of a loop: `bits` says it, or its extent."""
        for each in node.keywords if isinstance(node, ast.Call) else ():
            if each.arg == BITS and isinstance(each.value, ast.Constant):
                return WIDTHS[each.value.value]
        return st.counted_in(extent)

    def _range(
        self, node: ast.expr, count: int
    ) -> tuple[st.LoopKind, list[Scalar], st.Annotations] | None:
        name = self.word(node.func) if isinstance(node, ast.Call) else None
        if not isinstance(node, ast.Call) or name not in (*LOOPS, "grid", "thread"):
            self.bad(node, "range(n), grid(n, m), parallel(n), thread(...)", "This is no loop.")
            return None
        args = node.args
        kind: st.LoopKind = LOOPS.get(name, "serial")
        if name == "thread":
            first = args[0] if args else None
            if not isinstance(first, ast.Constant) or first.value not in st.THREADS:
                self.bad(first or node, f'thread("{st.THREADS[0]}", n)', "This is no thread.")
                return None
            kind, args = first.value, args[1:]  # type: ignore[assignment]  # one of THREADS
        wanted = count if name == "grid" else 1
        if len(args) != wanted or count != wanted:
            hint = None
            if name == "range" and len(args) > 1:
                hint = "Loops begin at 0 and go by 1: add the start where the variable is used."
            message = "A loop has one extent for each variable."
            self.error(
                node, "wrong-arity", message, expected=f"{count} extents", found=str(len(args)),
                suggestion=hint,
            )  # fmt: skip
            return None
        said = [keyword for keyword in node.keywords if keyword.arg == BITS]
        for keyword in said:
            if not isinstance(keyword.value, ast.Constant) or keyword.value.value not in WIDTHS:
                self.bad(keyword.value, f"{BITS}=32 or {BITS}=64", "Loops do not count so.")
                return None
        notes = self.annotations([keyword for keyword in node.keywords if keyword.arg != BITS])
        scalars = [self.index(arg) for arg in args]
        extents = [scalar for scalar in scalars if scalar is not None]
        return (kind, extents, notes) if len(extents) == len(scalars) else None

    # Regions, and statements that are calls.

    def _called(self, node: ast.Call) -> Task[st.Stmt | None]:
        bound = self.scope.find(node.func.id) if isinstance(node.func, ast.Name) else None
        if bound is not None and bound.region is not None and not node.args:
            if bound.region in self.open_regions:
                message = f"The region {bound.region.name} is part of itself."
                self.error(node, "cyclic-data", message)
                return None
            self.open_regions.append(bound.region)
            found = yield self.body(bound.region.body)
            self.open_regions.pop()
            return found  # type: ignore[no-any-return]  # a statement
        match self.word(node.func), node.args, node.keywords:
            case "barrier", [ast.Constant(str() as scope)], []:
                return st.Barrier(scope)
            case "invoke", [ast.Constant(str() as name), *rest], []:
                operands = [self.operand(each) for each in rest]
                fixed = tuple([operand for operand in operands if operand is not None])
                return st.Invoke(name, fixed) if len(fixed) == len(operands) else None
            case "reads" | "writes", _, _:
                self.unsupported(node, "The regions of a block come first in it, and once.")
                return None
        self.bad(node, 'barrier("shared") or invoke("name", A[0:4])', "This does nothing.")
        return None

    open_regions: list[ast.FunctionDef]

    def _no_change(self, node: ast.stmt, name: str) -> None:
        message = f"{name} is given a value once; it cannot change."
        hint = f"Use a buffer: {name} = alloc(Buffer[(), f32]), then {name}[()] += ..."
        self.error(node, "duplicate-name", message, suggestion=hint)

    def _unsupported_statement(self, node: ast.stmt) -> None:
        what = type(node).__name__
        message = f"Python's {what} statement is not part of the language of kernels."
        hint, found = INSTEAD.get(type(node)), self.origin.excerpt(node)
        self.unsupported(node, message, found=found, suggestion=hint)


def joined(stmts: list[st.Stmt]) -> st.Stmt:
    """A list of statements as one."""
    return stmts[0] if len(stmts) == 1 else st.Seq(tuple(stmts))
