"""Index maps: how the indices of one layout follow from those of another.

    IndexMap ::= IndexMap(vars, results)            results are scalars over vars and dims

>>> tiles = index_map(lambda i, j: (i // 4, j // 8, i % 4, j % 8))
>>> tiles.rank, len(tiles.results)
(2, 4)
>>> from plica.ir.loop.scalar import index
>>> from plica.ir.type.dim import evaluate
>>> [evaluate(each, {}) for each in tiles.apply((index(6), index(17)))]
[1, 2, 2, 1]

Not here: inverses and the shapes that maps make, which need proofs (`plica.analysis.index`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from inspect import Parameter, signature
from typing import Any

from attrs import frozen

from plica.core import Name, Term, free_vars, fresh, ill_formed, substitute
from plica.ir.loop.scalar import Buffer, Like, Scalar, ScalarVar, dtype_of, index
from plica.ir.type.dtype import i64

WRITTEN = "ir.index_map"  # the path that its terms are written down under


@frozen(eq=False)
class IndexMap(Term):
    """The map from `vars` to `results`."""

    binds = (("vars", ("results",)),)
    vars: tuple[ScalarVar, ...]
    results: tuple[Scalar, ...]

    @staticmethod
    def normal(variables: tuple[ScalarVar, ...], results: tuple[Scalar, ...]) -> tuple[Any, ...]:
        if len(set(variables)) != len(variables):
            raise ill_formed("An index map has each of its variables once.")
        for each in results:
            if dtype_of(each) is not i64:
                raise ill_formed(f"The results of an index map are indices, not {dtype_of(each)}.")
            if any(isinstance(var, Buffer) for var in free_vars(each)):
                raise ill_formed("An index map does not depend on what a buffer holds.")
        return variables, results

    @property
    def rank(self) -> int:
        """The number of indices it takes."""
        return len(self.vars)

    def apply(self, indices: Sequence[Scalar]) -> tuple[Scalar, ...]:
        """The results at some indices."""
        if len(indices) != len(self.vars):
            raise ill_formed(f"An index map of {self.rank} indices is given {len(indices)}.")
        values = dict(zip(self.vars, indices, strict=True))
        return tuple([substitute(result, values) for result in self.results])

    def after(self, first: IndexMap) -> IndexMap:
        """This map of the results of another one."""
        return IndexMap(first.vars, self.apply(first.results))


def index_map(of: Callable[..., Iterable[Like] | Like], rank: int | None = None) -> IndexMap:
    """The map that a Python function of indices computes.

    The rank is the number of parameters; `*rest` takes as many as `rank` requires.
    """
    names: list[str] = []
    rest: str | None = None
    for parameter in signature(of).parameters.values():
        if parameter.kind is Parameter.VAR_POSITIONAL:
            rest = parameter.name
        elif parameter.kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD):
            names.append(parameter.name)
        else:
            raise ill_formed(f"The indices of an index map have places, unlike {parameter.name!r}.")
    if rest is not None and rank is not None:
        names += [rest] * (rank - len(names))
    if rank is not None and rank != len(names):
        raise ill_formed(f"An index map of {len(names)} indices cannot take {rank}.")
    variables: list[ScalarVar] = []
    used: set[Name] = set()
    for hint in names:
        name = fresh(Name(hint), used)
        used.add(name)
        variables.append(ScalarVar(name, i64))
    results = of(*variables)
    several = (results,) if isinstance(results, Scalar | int | float) else tuple(results)
    return IndexMap(tuple(variables), tuple([index(each) for each in several]))


def identity(rank: int) -> IndexMap:
    """The map of each index to itself."""
    return index_map(lambda *i: i, rank)
