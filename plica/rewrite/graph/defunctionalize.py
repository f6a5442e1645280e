"""Defunctionalisation: functions as values become data, and calling one becomes a match.

    before:  def main(c, x):
                 f = exp if c else (lambda v: v * x)
                 return f(x)
    after:   class Function:
                 C0: ()
                 C1: (x's type,)
             def apply(f, v):
                 match f:
                     case C0(): return exp(v)
                     case C1(x): return v * x
             def main(c, x): return apply(C0() if c else C1(x), x)

Each type of function becomes a data type with a constructor for every function of that type the
program makes, holding what it captures, and a definition that applies its values.  The module is
first made monomorphic, and its local functions are lifted.

Refused, since a data type cannot say it: functions in the interface of main, functions that capture
or take tensors with dims of the function around them, and externs that take functions.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from plica.core import Term, free_vars, post_order, substitute
from plica.ir.graph import Defined, Definition, Module, expression as ex, module as module_of
from plica.ir.graph.module import DataDef, Extern, constructors
from plica.ir.type import DataType, FuncType, TupleType, Type, infer, type_of
from plica.ir.type.term import holds_function
from plica.rewrite.graph.alpha_rename import alpha_renamed, is_recursive
from plica.rewrite.graph.dead import remove_dead
from plica.rewrite.graph.family import Representation, Way, refusal
from plica.rewrite.graph.lift import lift
from plica.rewrite.graph.monomorphic import monomorphise
from plica.rewrite.graph.walk import NameSupply, expressions, operands, with_operands


def defunctionalize(module: Module) -> Module:
    """The module without functions as values."""
    known = monomorphise(module)
    if is_first_order(known):
        return known
    lifted = lift(known)
    _check_interface(lifted)
    return remove_dead(_Translation(lifted).module())


def is_first_order(module: Module) -> bool:
    """Whether no value of a module is or contains a function."""
    names = frozenset(module.names)
    for value in module.values:
        if isinstance(value, DataDef):
            inside = [field for constructor in value.constructors for field in constructor.fields]
        elif isinstance(value, Extern):
            inside = list(value.type.params)
        elif isinstance(value, ex.Function):
            inside = [type_of(expr) for expr in (*value.params, value.body)]
            for node in expressions(value.body):
                parts = operands(node)
                if isinstance(node, ex.Call):
                    if not isinstance(node.callee, ex.Constructor) and node.callee not in names:
                        return False
                    parts = parts[1:]
                inside.extend([type_of(part) for part in parts])
        else:
            continue
        if any(holds_function(type_) for type_ in dict.fromkeys(inside)):
            return False
    return True


def _check_interface(module: Module) -> None:
    """Refuses functions in the interface, where callers would see data instead."""
    main = module.main_function()
    wrong = [str(param.name) for param in main.params if holds_function(param.type)]
    if holds_function(main.ret):
        wrong.append("the result")
    if wrong:
        raise refusal(f"The interface of main holds functions: {', '.join(wrong)}.")
    for name, value in module.items():
        if isinstance(value, Extern) and any(map(holds_function, value.type.params)):
            raise refusal(f"The extern {name.name} takes a function.")


class _Translation:
    """One module: its data types, the families of its functions, and its definitions."""

    def __init__(self, module: Module) -> None:
        self.source = module
        self.table = module.definitions()
        self.supply = NameSupply(*module.values, *module.names)
        self.types = Representation(module, self.supply)
        self.bodies: list[tuple[Way, ex.Function]] = []  # ways whose body is still to be translated
        self.place = ""

    def module(self) -> Module:
        """The translated module."""
        made: dict[Defined, Definition] = {}
        for name, value in self.source.items():
            self.place = str(name.name)
            if isinstance(name, ex.Var):
                made[self._definition(name)] = (
                    self._function(value) if isinstance(value, ex.Function) else value
                )
        while self.bodies:
            way, function = self.bodies.pop()
            way.body = self._body(way, function)
        made.update(self.types.definitions())
        main = self.source.main
        assert main is not None
        return infer(module_of(made, self._definition(main)))

    def _definition(self, name: ex.Var) -> ex.Var:
        """The name of a definition, which stays a function of translated types."""
        of = name.type
        assert isinstance(of, FuncType)
        return ex.Var(name.name, self.types.signature(of))

    def _function(self, value: ex.Function) -> ex.Function:
        apart = alpha_renamed(value, self.table)
        assert apart.ret is not None
        params = tuple([self._variable(param) for param in apart.params])
        body = self._expression(apart.body)
        return attrs.evolve(apart, params=params, ret=self.types.of(apart.ret), body=body)

    def _body(self, way: Way, function: ex.Function) -> ex.Expr:
        """The body of a function over the parameters of the definition that applies it."""
        family = way.family
        mapping: dict[Term, Term] = dict(zip(function.dims, family.of.dims, strict=True))
        own = [self._variable(param) for param in function.params]
        mapping.update(zip(own, family.params, strict=True))
        return substitute(self._expression(function.body), mapping)

    def _expression(self, root: ex.Expr) -> ex.Expr:
        memo: dict[ex.Expr, ex.Expr] = {}
        stack: list[tuple[ex.Expr, bool]] = [(root, False)]
        while stack:
            node, leaving = stack.pop()
            if leaving:
                memo[node] = self._translated(node, memo)
            elif node not in memo:
                stack.append((node, True))
                parts = () if isinstance(node, ex.Function) else operands(node)
                if isinstance(node, ex.Call) and self._is_known(node.callee):
                    parts = parts[1:]  # it is called, and no value
                stack.extend([(part, False) for part in parts])
        return memo[root]

    def _is_known(self, callee: ex.Expr) -> bool:
        return isinstance(callee, ex.Constructor) or callee in self.table

    def _translated(self, node: ex.Expr, memo: Mapping[ex.Expr, ex.Expr]) -> ex.Expr:
        match node:
            case ex.Var():
                return self._closure(node, ()) if node in self.table else self._variable(node)
            case ex.Constructor():
                return self._closure(node, ())
            case ex.Function():
                free = free_vars(node)
                inside = [term for term in post_order(node) if term in free]
                captured = [v for v in inside if isinstance(v, ex.Var) and v not in self.table]
                return self._closure(node, tuple(captured))
            case ex.Let(var, value, body):
                if is_recursive(node):
                    message = f"The function {var.name} cannot be lifted out of {self.place}."
                    raise refusal(message)
                return ex.Let(self._variable(var), memo[value], memo[body])
            case ex.Match(value, clauses, total):
                of = self.types.of(type_of(value))
                cases = [
                    ex.Clause(self._pattern(each.pattern, of), memo[each.body]) for each in clauses
                ]
                return ex.Match(memo[value], tuple(cases), total)
            case ex.Call(callee, args, types):
                new = tuple([memo[arg] for arg in args])
                at = tuple([self.types.of(type_) for type_ in types])
                if isinstance(callee, ex.Constructor):
                    way, rest = self.types.constructor(callee, at)
                    return ex.Call(way, new, rest)
                if isinstance(callee, ex.Var) and callee in self.table:
                    return ex.Call(self._definition(callee), new, at)
                of = type_of(callee)
                assert isinstance(of, FuncType)
                return ex.Call(self.types.family(of).apply, (memo[callee], *new))
            case _:
                return with_operands(node, tuple([memo[part] for part in operands(node)]))

    def _closure(self, value: ex.Expr, captured: tuple[ex.Var, ...]) -> ex.Expr:
        """The data that represents a function used as a value."""
        of = type_of(value)
        assert isinstance(of, FuncType)
        inside = tuple([self._variable(var) for var in captured])
        way, new = self.types.way(value, of, inside)
        if new and isinstance(value, ex.Function):
            self.bodies.append((way, value))
        elif new and isinstance(value, ex.Constructor):
            way.body = ex.Call(self.types.constructor(value, ())[0], way.family.params)
        elif new and isinstance(value, ex.Var):
            way.body = ex.Call(self._definition(value), way.family.params)
        return ex.Call(way.constructor, inside)

    def _variable(self, var: ex.Var) -> ex.Var:
        assert var.type is not None
        return ex.Var(var.name, self.types.of(var.type))

    def _pattern(self, pattern: ex.Pattern, of: Type) -> ex.Pattern:
        match pattern, of:
            case ex.PVar(var), _:
                return ex.PVar(self._variable(var))
            case ex.PTuple(items), TupleType(types):
                pairs = zip(items, types, strict=True)
                return ex.PTuple(tuple([self._pattern(item, type) for item, type in pairs]))
            case ex.PConstructor(constructor, items), DataType():
                way = constructors(of.data, self.types.made[of.data])[constructor.index]
                pairs = zip(items, self.types.fields(of, constructor.index), strict=True)
                return ex.PConstructor(way, tuple([self._pattern(item, t) for item, t in pairs]))
        return pattern
