"""Solvers of SMT-LIB scripts: z3 and cvc5, each where it is installed (`pip install plica[prove]`).

>>> MISSING["z3"]
'z3 is not installed (pip install plica[prove])'
"""

from __future__ import annotations

from functools import lru_cache
from importlib.util import find_spec
from typing import Final, Literal, TypeAlias

Answer: TypeAlias = Literal["unsat", "sat", "unknown"]

SOLVERS: Final = ("z3", "cvc5")  # which are the names of their modules, too
MISSING: Final = {name: f"{name} is not installed (pip install plica[prove])" for name in SOLVERS}
EFFORT: Final = 6_000_000
"""Steps of z3 (`rlimit`) for a script: the same answer on every machine, however busy it is."""
MAX_SECONDS: Final = 120  # the end of work that z3 does not count as steps
CVC5_EFFORT: Final = 2_000_000


def is_available(solver: str) -> bool:
    """Whether a solver is installed."""
    return find_spec(solver) is not None


@lru_cache(maxsize=4096)
def answer(script: str, solver: str = "z3") -> Answer:
    """What a solver says of a script; `unknown` where that takes more than its effort."""
    return _z3(script) if solver == "z3" else _cvc5(script)


def _z3(script: str) -> Answer:
    import z3

    context = z3.Context()
    solver = z3.Solver(ctx=context)
    solver.set("rlimit", EFFORT)
    solver.set("timeout", MAX_SECONDS * 1000)
    solver.set("random_seed", 0)
    solver.from_string(script.replace("(check-sat)\n", ""))
    return _answer(str(solver.check()))


def _cvc5(script: str) -> Answer:
    import cvc5

    manager = cvc5.TermManager()
    solver = cvc5.Solver(manager)
    solver.setOption("rlimit-per", str(CVC5_EFFORT))
    solver.setOption("fp-exp", "true")  # formats that are not those of C
    parser = cvc5.InputParser(solver)
    parser.setStringInput(cvc5.InputLanguage.SMT_LIB_2_6, script, "certificate")
    said = ""
    while not (command := parser.nextCommand()).isNull():
        said += command.invoke(solver, parser.getSymbolManager())
    return _answer(said.strip())


def _answer(word: str) -> Answer:
    return "unsat" if word == "unsat" else "sat" if word == "sat" else "unknown"
