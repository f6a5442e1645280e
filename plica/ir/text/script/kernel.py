"""Kernels in text: a function of buffers, under `@plica.kernel`.

>>> from plica.ir.text.script.scope import Nowhere
>>> text = '''
... @plica.kernel
... def double(x: Buffer[("n",), f32], y: Buffer[("n",), f32]):
...     for i in range(n):
...         y[i] = x[i] * 2.0
... '''
>>> node = ast.parse(text).body[0]
>>> kernel = read_kernel(node, Nowhere(), Origin("f.py", text), Problems())
>>> kernel.inputs, [str(each.name) for each in kernel.dims]
(1, ['n'])

The buffers it stores to are its outputs, and come last. Quoted names in its parameter shapes are
its dims, in order of occurrence.
"""

from __future__ import annotations

import ast

from plica.core.task import run
from plica.ir.loop.scalar import Buffer
from plica.ir.loop.statement import Annotations, Kernel, Stmt, written
from plica.ir.text.script.kernel_block import BlockReader
from plica.ir.text.script.kernel_scope import Bound, KernelScope
from plica.ir.text.script.origin import Origin, Problems, is_docstring
from plica.ir.text.script.scope import Outer
from plica.ir.text.word import DTYPE_WORDS, TAKEN_IN_KERNELS
from plica.ir.type import i64


def read_kernel(
    node: ast.FunctionDef, outer: Outer, origin: Origin, problems: Problems
) -> Kernel | None:
    """The kernel of a `def`, or None if there are errors, which are recorded."""
    return KernelReader(KernelScope(outer), origin, problems).kernel(node)


class KernelReader(BlockReader):
    """Reads one kernel."""

    def kernel(self, node: ast.FunctionDef) -> Kernel | None:
        """The kernel of a `def`."""
        before = len(self.problems.found)
        self.open_regions = []
        names, inputs, notes = self._options(node.decorator_list, len(node.args.args))
        args = self._parameters(node)
        names = self._dims(args) if names is None else names
        dims = tuple([self.scope.variable(name, "dim", i64) for name in names])
        params = [self._parameter(arg) for arg in args]
        statements = node.body[1:] if is_docstring(node.body[0]) else node.body
        body: Stmt = run(self.body(statements))
        if len(self.problems.found) > before:
            return None
        buffers = tuple([param for param in params if param is not None])
        count = self._inputs(args, buffers, body, inputs)
        return None if count is None else Kernel(dims, buffers, count, body, notes)

    def _options(
        self, decorators: list[ast.expr], count: int
    ) -> tuple[list[str] | None, int | None, Annotations]:
        dims: list[str] | None = None
        inputs: int | None = None
        notes: Annotations = ()
        keywords = [
            each for call in decorators if isinstance(call, ast.Call) for each in call.keywords
        ]
        for keyword in keywords:
            match keyword.arg, keyword.value:
                case "dims", ast.Constant(str() as text):
                    dims = text.split()
                case "inputs", ast.Constant(int() as inputs) if 0 <= inputs <= count:
                    pass
                case "annotations", value:
                    notes = tuple(sorted(self.notes(value).items()))
                case _:
                    message = f"plica.kernel has no such option {keyword.arg!r}."
                    expected = 'dims="n m", inputs=1, annotations={...}'
                    self.error(keyword, "unknown-attribute", message, expected=expected)
        return dims, inputs, notes

    def _parameters(self, node: ast.FunctionDef) -> list[ast.arg]:
        message, expected = "A kernel has plain parameters only.", "f(A: Buffer[...])"
        plain = self.plain_parameters(node.args, message, expected)
        if node.returns is not None:
            message = "A kernel returns nothing: it writes to its last buffers."
            self.unsupported(node.returns, message)
        return plain

    def _dims(self, args: list[ast.arg]) -> list[str]:
        """The names in quotes in the types of parameters, in the order of the text."""
        found: dict[str, None] = {}
        for arg in args:
            match arg.annotation:
                case ast.Subscript(_, ast.Tuple([ast.Tuple(sizes), _, *rest])):
                    steps = [each.args for each in rest if isinstance(each, ast.Call)]
                    for size in (*sizes, *[step for inside in steps for step in inside]):
                        if isinstance(size, ast.Constant) and isinstance(size.value, str):
                            found |= dict.fromkeys(_names(size.value))
        return [name for name in found if name not in TAKEN_IN_KERNELS and name not in DTYPE_WORDS]

    def _parameter(self, arg: ast.arg) -> Buffer | None:
        buffer: Buffer | None = None
        if (old := self.scope.find(arg.arg)) is not None:
            self.error(arg, "duplicate-name", f"{arg.arg!r} is {old} already.")
        if arg.annotation is None:
            message = f"The parameter {arg.arg!r} is a buffer, and says of what."
            self.unsupported(arg, message, expected=f'{arg.arg}: Buffer[("n",), f32]')
        else:
            buffer = self.buffer_type(arg.annotation, arg.arg)
        self.scope.bind(arg.arg, Bound("buffer", buffer), None if buffer is None else buffer.name)
        return buffer

    def _inputs(
        self, args: list[ast.arg], buffers: tuple[Buffer, ...], body: Stmt, given: int | None
    ) -> int | None:
        """The number of buffers that are only read; those that are written come last."""
        stored = set(written(body, buffers))
        if given is not None:
            for arg, buffer in zip(args[:given], buffers, strict=False):
                if buffer in stored:
                    message = f"The kernel writes its input {arg.arg!r}."
                    hint = f"Put {arg.arg} behind the inputs, or write to another buffer."
                    self.error(arg, "kernel-output", message, suggestion=hint)
            return given
        flags = [buffer in stored for buffer in buffers]
        count = flags.index(True) if True in flags else len(flags)
        late = [arg for arg, out in zip(args[count:], flags[count:], strict=True) if not out]
        if not late:
            return count
        first, read = args[count].arg, late[0].arg
        message = f"The kernel writes {first!r}, but not {read!r}, which comes after it."
        hint = f"Put {read} before {first}: the buffers a kernel writes are its last ones."
        self.error(late[0], "kernel-output", message, suggestion=hint)
        return None


def _names(text: str) -> list[str]:
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # said where it is read
        return []
    names = [each for each in ast.walk(tree) if isinstance(each, ast.Name)]
    return [name.id for name in sorted(names, key=lambda each: each.col_offset)]
