"""Blocks: writing out the values of a function as lets, each in its scope."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import attrs

from plica.ir.graph import Call, Expr, Function, Let, Module, Var
from plica.ir.type import FuncType, infer, type_of
from plica.rewrite.graph.alpha_rename import alpha_renamed, with_selves
from plica.rewrite.graph.dead import without_unused
from plica.rewrite.graph.scope_placement import (
    ScopePlacement,
    ValuePlace,
    is_forcing,
    regions,
    strict,
)
from plica.rewrite.graph.total import Totality
from plica.rewrite.graph.walk import NameSupply, is_atom, map_functions, with_operands

Binding: TypeAlias = tuple[Var, Expr]
Naming: TypeAlias = Callable[[Expr, ValuePlace], bool]


def in_blocks(module: Module, named: Naming) -> Module:
    """The module with every value placed, and a let for each that `named` chooses."""
    known = infer(module)
    total = Totality(known)
    outer = frozenset(known.names)
    taken = frozenset(name.name for name in known.names)

    def write(_: Var, function: Function) -> Function:
        while True:
            needed = without_unused(alpha_renamed(function, outer))
            apart, selves = with_selves(needed, outer)
            supply = NameSupply(apart, outer=taken)
            writer = _Writer(ScopePlacement(apart.body, total), selves, supply, named)
            function = attrs.evolve(apart, body=writer.body(apart.body))
            if not writer.merged:
                return function

    return map_functions(known, write)


class _Writer:
    """The terms of one function, parts before wholes."""

    def __init__(
        self, placement: ScopePlacement, selves: dict[Var, Var], supply: NameSupply, named: Naming
    ) -> None:
        self.placement = placement
        self.supply = supply
        self.values: dict[Expr, Expr] = {}  # what stands for a value: its name, or itself
        self.bindings: dict[int, list[Binding]] = {}
        self.forced: dict[tuple[Expr, int], Var] = {}
        self.merged = False  # whether two values were written alike: their place may be another
        recursive = {placement.lets[var].value for var in selves.values() if var in placement.lets}
        for node in reversed(placement.order):  # so that names count up as one reads
            place = placement.places[node]
            if isinstance(node, Let):
                continue
            if place.thunk and is_forcing(node):
                continue
            if place.thunk:
                of = FuncType((), (), (), type_of(node))
                self.values[node] = Var(supply.name("later"), of)
            elif node in recursive or (named(node, place) and not place.tail):
                name = placement.named.get(node)
                self.values[node] = name or Var(supply.name("v"), type_of(node))
        for itself, var in selves.items():
            let = placement.lets.get(var)
            if let is not None and let.value in placement.places:  # it is used
                self.values[itself] = self.values[let.value]

    def body(self, root: Expr) -> Expr:
        """The written body; the values are visited in the order of need."""
        placement = self.placement
        alike: set[Expr] = set()
        for node in reversed(placement.order):
            if isinstance(node, Let):
                continue
            place = placement.places[node]
            new = self._written(node, place)
            self.merged = self.merged or new in alike
            alike.add(new)
            if (name := self.values.get(node)) is None:
                self.values[node] = new  # of a call of a thunk, the call
                continue
            if place.thunk:
                expr = self._wrapped(place.inside, new)
                new = Function((), (), (), type_of(node), expr)
            assert isinstance(name, Var)
            self.bindings.setdefault(place.scope, []).append((name, new))
        return self._wrapped(0, self._value(root, 0))

    def _written(self, node: Expr, place: ValuePlace) -> Expr:
        """A value over the names of its parts."""
        parts = [self._value(expr, place.inside) for expr in strict(node)]
        inner = [
            self._wrapped(scope, self._value(region, scope))
            for region, scope in zip(regions(node), place.regions, strict=True)
        ]
        return with_operands(node, (*parts, *inner))

    def _value(self, expr: Expr, scope: int) -> Expr:
        """The representation of an expression in a scope."""
        node, let = self.placement.target(expr)
        if is_atom(node):
            return self.values.get(node, node)
        if not self.placement.places[node].thunk:
            return self.values[node]
        scope = self.placement.climbed(scope, let)
        key = node, scope
        if key not in self.forced:
            name = self.forced[key] = Var(self.supply.name("v"), type_of(node))
            made = self.values[node]
            call = made if is_forcing(node) else Call(made, ())
            self.bindings.setdefault(scope, []).append((name, call))
        return self.forced[key]

    def _wrapped(self, scope: int, result: Expr) -> Expr:
        """A result behind the lets of its scope."""
        for name, value in reversed(self.bindings.pop(scope, [])):
            result = Let(name, value, result)
        return result
