"""A code generator of one class: sums, differences and products of elements as a loop in C.

It says what it can do by patterns, and writes the text for whatever region it is given.
"""

from __future__ import annotations

from plica.extending.external import SourceGenerator
from plica.ir.graph.expression import Apply, Const, Expr, Tuple
from plica.ir.type.dtype import f32
from plica.ir.type.infer import type_of
from plica.ir.type.term import TensorType, static_shape
from plica.rewrite.code_region import CodeRegion
from plica.rewrite.graph.walk import expressions
from plica.rewrite.pattern import holes

x, y = holes("x y")
SIGNS = {"add": "+", "subtract": "-", "multiply": "*"}


def shape(of: Expr) -> tuple[int, ...] | None:
    """The sizes of a tensor of f32, None for anything else."""
    kind = type_of(of)
    return static_shape(kind) if isinstance(kind, TensorType) and kind.dtype is f32 else None


class Elements(SourceGenerator):
    """Elementwise arithmetic of f32 tensors that are all of one shape."""

    name = "elements"
    patterns = (("sum", x + y), ("difference", x - y), ("product", x * y))

    def source(self, region: CodeRegion) -> str | None:
        """One loop over all elements; what has another shape stays where it was."""
        nodes = expressions(region.function.body)
        shapes = {shape(each) for each in nodes if not isinstance(each, Tuple)}
        if len(shapes) != 1 or None in shapes:
            return None
        (sizes,) = shapes
        count = 1
        for size in sizes or ():
            count *= size
        words: dict[Expr, str] = {
            each: f"x{at}[i]" for at, each in enumerate(region.function.params)
        }
        lines: list[str] = []
        tables: list[str] = []
        for node in nodes:
            if isinstance(node, Const):
                numbers = ", ".join(float(each).hex() for each in node.numpy().ravel())
                tables.append(f"static const float c{len(tables)}[] = {{{numbers}}};")
                words[node] = f"c{len(tables) - 1}[i]"
            elif isinstance(node, Apply):
                left, right = (words[each] for each in node.args)
                words[node] = f"t{len(lines)}"
                lines.append(f"const float t{len(lines)} = {left} {SIGNS[node.op]} {right};")
        body = region.function.body
        results = body.items if isinstance(body, Tuple) else (body,)
        lines += [f"out{at}[i] = {words[each]};" for at, each in enumerate(results)]
        params = [f"const float *x{at}" for at in range(len(region.function.params))]
        params += [f"float *out{at}" for at in range(len(results))]
        return "\n".join([
            *tables,
            f"void {region.symbol}({', '.join(params)}) {{",
            f"  for (long i = 0; i < {count}; i++) {{",
            *[f"    {line}" for line in lines],
            "  }",
            "}",
            "",
        ])  # fmt: skip
