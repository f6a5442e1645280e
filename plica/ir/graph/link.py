"""Linking: one module from several, names resolved across them.

A name that several modules define must mean the same in all of them: importing a library twice
changes nothing, and a clash is an error that lists every name it concerns.

>>> from plica.core.name import Name
>>> from plica.ir.graph.expression import Function, Var, const
>>> from plica.ir.graph.module import module
>>> one = module({Var(Name("one"), None): Function((), (), (), None, const(1, "i32"))})
>>> merge(one, one) is one
True

Laws: `merge(m, m) is m`; `merge(merge(a, b), b) is merge(a, b)`; up to `main`, `merge(a, b)` and
`merge(b, a)` are one module.
"""

from __future__ import annotations

from plica.core import Malformed, Name, Term, alpha_equal, free_vars, substitute
from plica.ir.graph.expression import Var
from plica.ir.graph.module import Defined, Definition, Module
from plica.runtime.error import Diagnostic, Place


def merge(*modules: Module) -> Module:
    """The definitions of all the modules; `main` is that of the first that has one.

    A variable that is free in one module and defined in another under the same name is linked to
    it; inference then decides whether their types agree.
    """
    found: dict[Name, tuple[Defined, Definition]] = {}
    same: dict[Term, Term] = {}  # variables of one name that stand for one definition
    wrong: list[Diagnostic] = []
    for module in modules:
        for name, value in module.items():
            known = found.setdefault(name.name, (name, value))
            if known[0] is not name and isinstance(name, Var) and isinstance(known[0], Var):
                same[name] = known[0]
            if known[1] is not value and not alpha_equal(known[1], value):
                wrong.append(_clash(name.name))
    if wrong:
        raise Malformed(*wrong)
    for module in modules:
        for variable in free_vars(module):
            if isinstance(variable, Var) and variable.name in found:
                same[variable] = found[variable.name][0]
    main = next((module.main for module in modules if module.main is not None), None)
    names, values = zip(*found.values(), strict=True) if found else ((), ())
    if same:
        values = tuple([substitute(value, same) for value in values])
        main = None if main is None else same.get(main, main)  # type: ignore[assignment]  # a Var
    return Module(tuple(names), tuple(values), main)


def _clash(name: Name) -> Diagnostic:
    message = f"Two modules define {str(name)!r}, and differently."
    hint = "Rename one of them."
    return Diagnostic("duplicate-name", message, Place(node=str(name)), suggestion=hint)
