"""Axioms: what the prover takes for granted of library functions, and how a verdict calls it.

Each is a name and a formula in SMT-LIB, stated at every argument `x` of the function `f`; the name
is among the laws of a proof that could use it.

>>> AXIOMS["tanh"]
('{f} is odd', '(= ({f} (- {x})) (- ({f} {x})))')
"""

from __future__ import annotations

from typing import Final

TOTAL: Final = frozenset(
    ("exp", "exp2", "sin", "cos", "sinh", "cosh", "tanh", "asinh", "atan", "erf")
)
"""Library functions of reals that are defined everywhere."""

AXIOMS: Final[dict[str, tuple[str, str]]] = {
    **dict.fromkeys(("sin", "tan", "sinh", "tanh", "asin", "atan", "asinh", "atanh", "erf"),
                    ("{f} is odd", "(= ({f} (- {x})) (- ({f} {x})))")),
    **dict.fromkeys(("cos", "cosh"), ("{f} is even", "(= ({f} (- {x})) ({f} {x}))")),
    **dict.fromkeys(("exp", "exp2"), ("{f} is positive", "(> ({f} {x}) 0.0)")),
    "log": ("log of 1 and more is not negative", "(=> (>= {x} 1.0) (>= ({f} {x}) 0.0))"),
}  # fmt: skip
"""What is said of a library function of reals at each argument, and how it is called."""

EXPONENTIALS: Final = ("exp", "exp2")
PRODUCT_AXIOM: Final = (
    "{f} makes products of sums",
    "(= ({f} (+ {x} {y})) (* ({f} {x}) ({f} {y})))",
)

IEEE_AXIOMS: Final[dict[str, tuple[str, str]]] = {
    **dict.fromkeys(
        EXPONENTIALS,
        ("{f} has no sign", "(or (fp.isNaN ({f} {x})) (not (fp.isNegative ({f} {x}))))"),
    ),
    "log1p": (
        "{f} keeps the sign",
        "(=> (not (fp.isNegative {x})) (or (fp.isNaN ({f} {x})) (not (fp.isNegative ({f} {x})))))",
    ),
}
DOMAIN_AXIOM: Final = "(= (defined_{f} (- {x})) (defined_{f} {x}))"
