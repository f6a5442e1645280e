"""loop: the tensor language: scalars, tensor expressions, loops and blocks over buffers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plica.runtime.late import lazily

__all__ = [
    "MEANING", "NOTHING", "Alloc", "Block", "Branch", "Buffer", "Compute", "Each", "ExternStage",
    "For", "Intrinsic", "Kernel", "Le", "Lit", "Load", "Lt", "Names", "Reduce", "Region", "Scalar",
    "ScalarVar", "Scan", "Select", "Seq", "Stage", "Stages", "Stmt", "Store", "allocated", "axis",
    "buffer", "dtype_of", "index", "kernel_of", "loads", "reductions", "seq", "statements",
]  # fmt: skip

if TYPE_CHECKING:
    from plica.ir.loop.combiner import MEANING
    from plica.ir.loop.scalar import (
        Buffer,
        Intrinsic,
        Le,
        Lit,
        Load,
        Lt,
        Reduce,
        Scalar,
        ScalarVar,
        Select,
        dtype_of,
        index,
    )
    from plica.ir.loop.stage import Each, ExternStage, Scan, Stage
    from plica.ir.loop.stages import Names, Stages, kernel_of, loads, reductions
    from plica.ir.loop.statement import (
        NOTHING,
        Alloc,
        Block,
        Branch,
        For,
        Kernel,
        Region,
        Seq,
        Stmt,
        Store,
        allocated,
        seq,
        statements,
    )
    from plica.ir.loop.tensor import Compute, axis, buffer
else:
    lazily(__name__)
