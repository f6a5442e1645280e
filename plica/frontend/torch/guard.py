"""Guards: what torch took for granted of open sizes when it exported a program.

    if x.shape[0] % 2 == 0: …            the branch of the example is in the graph: n % 2 == 0
    torch.diagonal(x, x.shape[0] // 2)   the offset is the number that the example gave: n // 2 == 6

Torch asserts its guards when the exported program is called.  Here every equality is asserted, and
every decision of the model's own code.  Inequalities from torch's shape functions (how slices are
clamped, whether memory is contiguous) are left out: shapes are inferred anew, for all sizes.
A program that `torch.export.load` gives has its guards as text only, which is not read: none is
asserted.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from plica.frontend.torch.symbol import Symbols, Sympy
from plica.ir.loop.scalar import Scalar, ScalarVar
from plica.ir.type.dim import known
from plica.runtime.error import Diagnostic, InputError, UnsupportedError

if TYPE_CHECKING:
    from torch.export import ExportedProgram

Guard = Any  # torch's own: a relation in sympy, and the line that asked for it


def guards_of(program: ExportedProgram) -> tuple[Guard, ...]:
    """The guards that torch has kept with a program so far."""
    for node in program.graph.nodes:
        mode = getattr(node.meta.get("val"), "fake_mode", None)
        if mode is not None and mode.shape_env is not None:
            return tuple(mode.shape_env.guards)
    return ()


def guarded_terms(guards: tuple[Guard, ...], symbols: Symbols) -> tuple[Scalar, ...]:
    """Terms that are not negative exactly where the guards hold."""
    terms: dict[Scalar, None] = {}
    for guard in guards:
        relation = guard.expr
        if not _is_decision(guard) or _is_range(relation):
            continue
        if not relation.free_symbols <= symbols.names.keys():
            continue  # sizes that depend on elements: torch asserts these in the graph
        if (least := symbols.least(relation)) is None:
            message = (
                "Torch exported the program for sizes of which Plica cannot check a condition."
            )
            hint = "Give numbers for these dims: from_torch(program, dims={…})."
            said = Diagnostic(
                "unsupported", message, None, "sums and quotients", str(relation), hint
            )
            raise UnsupportedError(said)
        for term in least:
            number = known(term)
            if number is not None and number < 0:
                message = "The program was exported for other sizes than `dims` gives."
                raise InputError(Diagnostic("input-shape", message, None, str(relation), "no"))
            if number is None and not isinstance(term, ScalarVar):
                terms[term] = None
    return tuple(terms)


def _is_decision(guard: Guard) -> bool:
    """Whether a guard is an equality, or comes from code outside of torch's shape functions."""
    import torch

    if type(guard.expr).__name__ == "Equality":
        return True
    file = getattr(guard.sloc.framework_loc, "filename", None)
    if file is None:
        return False
    library = Path(torch.__file__).parent
    return not Path(file).is_relative_to(library) or Path(file).is_relative_to(library / "nn")


def _is_range(relation: Sympy) -> bool:
    """Whether a relation bounds one size alone: torch has that in its ranges."""
    if len(relation.free_symbols) != 1 or type(relation).__name__ in ("Equality", "Unequality"):
        return False
    (symbol,) = relation.free_symbols
    difference = relation.args[0] - relation.args[1]
    return bool(difference.is_polynomial(symbol)) and difference.as_poly(symbol).degree() == 1
