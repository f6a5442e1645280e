"""BLAS as a code generator: products of f32 matrices by the `cblas_sgemm` that numpy brings along.

Constants come along as tables of the library; what else a model computes is compiled as ever.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from plica.extending.external import SourceGenerator
from plica.ir.graph.expression import Apply, Const, Expr
from plica.ir.type.dtype import f32
from plica.ir.type.infer import type_of
from plica.ir.type.term import TensorType, static_shape
from plica.rewrite.code_region import CodeRegion
from plica.rewrite.graph.walk import expressions
from plica.rewrite.pattern import holes

x, y = holes("x y")


def find_blas() -> Path | None:
    """The BLAS that numpy's wheel holds, None where it holds none."""
    beside = Path(np.__file__).parent.parent / "numpy.libs"
    return next(iter(sorted(beside.glob("libscipy_openblas64_*.so"))), None)


def matrix(of: Expr) -> tuple[int, ...] | None:
    """The sizes of a matrix of f32 that is not empty, None for anything else."""
    kind = type_of(of)
    sizes = static_shape(kind) if isinstance(kind, TensorType) and kind.dtype is f32 else None
    return sizes if sizes is not None and len(sizes) == 2 and all(sizes) else None


class Blas(SourceGenerator):
    """Chains of products of matrices."""

    name = "blas"
    patterns = (("product", x @ y),)

    def source(self, region: CodeRegion) -> str | None:
        """A call of `cblas_sgemm` for each product; what is no matrix of f32 stays."""
        library = find_blas()
        nodes = expressions(region.function.body)
        if library is None or any(matrix(each) is None for each in nodes):
            return None
        self.flags = (*SourceGenerator.flags, str(library), f"-Wl,-rpath,{library.parent}")
        words: dict[Expr, str] = {each: f"x{at}" for at, each in enumerate(region.function.params)}
        lines: list[str] = []
        tables: list[str] = []
        for node in nodes:
            if node in words:
                continue
            rows, columns = matrix(node) or (0, 0)
            if isinstance(node, Const):
                words[node] = f"c{len(tables)}"
                numbers = ", ".join(float(each).hex() for each in node.numpy().ravel())
                tables.append(f"static const float c{len(tables)}[] = {{{numbers}}};")
                continue
            words[node] = "out0" if node is region.function.body else f"t{len(lines)}"
            if node is not region.function.body:
                tables.append(f"static _Thread_local float {words[node]}[{rows * columns}];")
            assert isinstance(node, Apply)
            left, right = node.args
            depth = (matrix(left) or (0, 0))[1]
            lines.append(
                f"  scipy_cblas_sgemm64_(101, 111, 111, {rows}, {columns}, {depth}, 1, "
                f"{words[left]}, {depth}, {words[right]}, {columns}, 0, {words[node]}, {columns});"
            )
        params = [f"const float *x{at}" for at in range(len(region.function.params))]
        return "\n".join([
            "extern void scipy_cblas_sgemm64_(int, int, int, long, long, long, float,",
            "    const float *, long, const float *, long, float, float *, long);",
            *tables,
            f"void {region.symbol}({', '.join([*params, 'float *out0'])}) {{",
            *lines,
            "}",
            "",
        ])  # fmt: skip
