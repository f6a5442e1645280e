"""Reverse mode: a program whose functions give their value and a pullback.

    f  : (a, b) -> c
    f' : (a, b) -> (c, (c's cotangent) -> (a's cotangent, b's cotangent))

Functions are differentiated where something that varies is passed to them; main is not one of
them: its reverse sweep stands in it directly, so a main of operators alone stays plain dataflow.

The result is an ordinary module: pure, typed, and to be differentiated again.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from plica.core.binding import substitute
from plica.core.task import Task, run
from plica.ir.graph import expression as ex
from plica.ir.graph.module import DataDef, Defined, Definition, Module
from plica.ir.type.infer import type_of
from plica.ir.type.term import DataType, FuncType, TupleType, Type
from plica.rewrite.gradient.form import is_kept, unmarked
from plica.rewrite.gradient.sweep import BlockSweep
from plica.rewrite.gradient.tangent import Tangents, is_zero
from plica.rewrite.graph.unfold import wrapped
from plica.rewrite.graph.walk import NameSupply
from plica.runtime.error import Diagnostic, Place, UnsupportedError


@attrs.define(eq=False)
class BranchSweep:
    """A block inside another, swept both ways."""

    sweep: BlockSweep
    result: ex.Expr
    cotangent: ex.Var
    bound: Sequence[ex.Var]

    def left(self) -> list[ex.Var]:
        """The variables outside that cotangents flow to."""
        own = set(self.bound)
        found = self.sweep.cotangents.items()
        return [var for var, part in found if var not in own and not is_zero(part)]

    def reaches_bound(self) -> bool:
        """Whether a cotangent flows to what the pattern of the block binds."""
        return any(not is_zero(self.sweep.cotangents.get(each)) for each in self.bound)

    def pullback(self, takers: Sequence[ex.Var]) -> FuncType:
        """The type of the pullback to some variables."""
        of = self.sweep.tangents.of
        assert self.cotangent.type is not None
        every = TupleType(tuple([of(type_of(each)) for each in takers]))
        return FuncType((), (), (self.cotangent.type,), every)

    def written(self, takers: Sequence[ex.Var], first: ex.Expr | None = None) -> ex.Expr:
        """The block: its value, and the pullback to some variables, of which `first` is known."""
        body = wrapped(self.sweep.back, self._parts(takers, first))
        pull = ex.Function((), (), (self.cotangent,), self.pullback(takers).ret, body)
        return wrapped(self.sweep.lets, ex.Tuple((self.result, pull)))

    def pulled(self, takers: Sequence[ex.Var], first: ex.Expr | None = None) -> ex.Expr:
        """What the pullback gives, where its cotangent has a value: the block is in it again."""
        return wrapped([*self.sweep.lets, *self.sweep.back], self._parts(takers, first))

    def _parts(self, takers: Sequence[ex.Var], first: ex.Expr | None) -> ex.Expr:
        tangents, found = self.sweep.tangents, self.sweep.cotangents
        parts = [
            tangents.whole(tangents.of(type_of(each)), found.get(each), each) for each in takers
        ]
        return ex.Tuple((*([] if first is None else [first]), *parts[0 if first is None else 1 :]))

    def of_pattern(self, pattern: ex.Pattern, of: Type) -> ex.Expr:
        """The cotangent of what a pattern matched, from those of its variables."""
        tangents, found = self.sweep.tangents, self.sweep.cotangents
        match pattern, of:
            case ex.PVar(var), _:
                return tangents.whole(of, found.get(var), var)
            case ex.PTuple(items), TupleType(types) if types:
                pairs = zip(items, types, strict=True)
                return ex.Tuple(tuple([self.of_pattern(item, type) for item, type in pairs]))
            case ex.PConstructor(constructor, items), DataType():
                way, fields = tangents.constructor(of, constructor.index + 1)
                pairs = zip(items, fields, strict=True)
                every = tuple([self.of_pattern(item, field) for item, field in pairs])
                return ex.Call(way, every, of.args)
        return tangents.whole(of, None, ex.Tuple(()))


class Reverse:
    """One module in first-order A-normal form, and what its derivatives need."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.table = module.definitions()
        self.supply = NameSupply(*module.values, *module.names)
        self.tangents = Tangents(module, self.supply)
        self.thunks: dict[ex.Var, tuple[ex.Var, list[ex.Var]]] = {}
        self.derived: dict[ex.Var, ex.Var] = {}
        self.todo: list[ex.Var] = []
        self.made: dict[Defined, Definition] = {}
        self.place = ""
        self.missing: dict[tuple[str, str], Diagnostic] = {}

    # --- what sweeps ask ---------------------------------------------------------------------

    def fresh(self, hint: str, of: Type) -> ex.Var:
        """A new variable."""
        return ex.Var(self.supply.name(hint), of)

    def is_active(self, var: ex.Var) -> bool:
        """Whether a variable can have a cotangent."""
        of = type_of(var)
        return not isinstance(of, FuncType) and self.tangents.is_active(of)

    def fields(self, of: DataType, constructor: ex.Constructor) -> list[Type]:
        """The types of what a constructor holds."""
        data = self.table[of.data]
        assert isinstance(data, DataDef)
        mapping = dict(zip(data.types, of.args, strict=True))
        fields = data.constructors[constructor.index].fields
        # A substitution keeps types what they are.
        return [substitute(each, mapping) for each in fields]

    def inner(
        self, body: ex.Expr, varying: set[ex.Var], bound: Sequence[ex.Var]
    ) -> Task[BranchSweep]:
        """A block inside another, swept forwards and backwards."""
        sweep = BlockSweep(self, varying)
        result = yield sweep.forward(body)
        cotangent = self.fresh("d", self.tangents.of(type_of(body)))
        sweep.backward(result, self.tangents.opened(type_of(cotangent), cotangent))
        return BranchSweep(sweep, result, cotangent, bound)

    def is_checkpoint(self, callee: ex.Var) -> bool:
        """Whether calls of a function are computed again when derivatives are."""
        value = self.table.get(callee)
        return isinstance(value, ex.Function) and is_kept(value)

    def derivative(self, callee: ex.Var) -> ex.Var | None:
        """The function that gives the value and the pullback; None where there is none."""
        value = self.table.get(callee)
        if not isinstance(value, ex.Function):
            self.miss(str(callee.name), "It is defined outside of the graph language.")
            return None
        if callee not in self.derived:
            assert value.ret is not None
            params = tuple([type_of(each) for each in value.params])
            every = TupleType(tuple(map(self.tangents.of, params)))
            pull = FuncType((), (), (self.tangents.of(value.ret),), every)
            of = FuncType(value.dims, (), params, TupleType((value.ret, pull)))
            self.derived[callee] = self.fresh(f"{callee.name.hint}_pull", of)
            self.todo.append(callee)
        return self.derived[callee]

    def miss(self, op: str, why: str = "Its record has no gradient.") -> None:
        """Note that something has no gradient; all of that is reported together."""
        place = Place(node=self.place)
        message = f"{op} cannot be differentiated, in {self.place}."
        hint = "Mark what needs no derivative with stop_gradient."
        self.missing[op, self.place] = Diagnostic("no-gradient", message, place, None, why, hint)

    # --- the program -------------------------------------------------------------------------

    def main(self, varying: Sequence[ex.Var]) -> tuple[BlockSweep, ex.Expr, ex.Function]:
        """The main function swept forwards, its result, and itself."""
        function = self.module.main_function()
        assert self.module.main is not None
        self.place = str(self.module.main.name)
        sweep = BlockSweep(self, set(varying))
        return sweep, run(sweep.forward(function.body)), function

    def definitions(self) -> dict[Defined, Definition]:
        """All other definitions: those there were, and those of derivatives."""
        for callee in self.todo:  # grows while it is gone through
            self.place = str(callee.name)
            value = self.table[callee]
            assert isinstance(value, ex.Function)
            self.made[self.derived[callee]] = self._pulling(value, self.derived[callee])
        if self.missing:
            raise UnsupportedError(*self.missing.values())
        old = {
            name: unmarked(value) if isinstance(value, ex.Function) else value
            for name, value in self.module.items()
            if name is not self.module.main
        }
        return {**old, **self.tangents.definitions, **self.made}

    def _pulling(self, value: ex.Function, name: ex.Var) -> ex.Function:
        active = {each for each in value.params if self.is_active(each)}
        branch = run(self.inner(value.body, active, ()))
        assert isinstance(name.type, FuncType)
        return ex.Function(
            value.dims, (), value.params, name.type.ret, branch.written(value.params)
        )
