"""An independent meaning for every operator, and cases to hold it against ours.

`REFERENCE` says what each operator computes in terms of numpy and scipy alone; `CASES` draws
arguments and attributes for each; `run` computes what our record means, and `close` compares.
"""

from tests.ir.reference import (
    adjoint,
    arrange,
    case_laid,
    case_neural,
    case_shape,
    collective,
    layer,
    neural,
    order,
    put,
    quantised,
)
from tests.ir.reference.case import CASES, ELEMENTWISE, Case, array
from tests.ir.reference.compare import close
from tests.ir.reference.meaning import REFERENCE
from tests.ir.reference.run import apply, attributes, run, types_of

__all__ = [
    "CASES", "ELEMENTWISE", "REFERENCE", "Case", "adjoint", "apply", "arrange", "array",
    "attributes", "case_laid", "case_neural", "case_shape", "close", "collective", "layer",
    "neural", "order", "put", "quantised", "run", "types_of",
]  # fmt: skip
