"""Elaboration: the inferred term, made from the instances that inference has found the types of.

Numbers become constants of their dtype, variables carry their types, functions what they return,
and calls of polymorphic functions their type arguments.  Every node of the result knows its type.

Law: what needs none of this is kept: a term that was inferred before comes back as the same object.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from plica.core import Name, Term
from plica.ir.graph import expression as ex
from plica.ir.type.refresh import is_untyped, untyped_binders
from plica.ir.type.term import TensorType, Type
from plica.ir.type.typing_state import Instance, TypingState


class Elaborator:
    """The terms of a finished judgement; `names` are the final variables of definitions."""

    def __init__(self, state: TypingState, names: Mapping[ex.Var, ex.Var] | None = None) -> None:
        self.state = state
        self.names = {} if names is None else names
        self.finals: dict[ex.Var, ex.Var] = {}
        self._taken: dict[Term, Term] = {}
        self._types: dict[Type, Type] = {}

    def terms(self) -> list[ex.Expr]:
        """The term of every instance, in the order of the instances."""
        state = self.state
        self._keep()
        made: list[ex.Expr] = []
        for instance, node in enumerate(state.nodes):
            if getattr(node, "_settled", 0):
                made.append(node)
                continue
            of = state.types[instance]
            assert of is not None
            found = self.type(of)
            kids = [made[kid] for kid in state.kids[instance]]
            if node.__class__ is ex.Apply:  # the usual case, without a call
                args = tuple(kids)
                new: ex.Expr = node if args == node.args else ex.Apply(node.op, args, node.attrs)
            else:
                new = self._made(node, instance, kids, found)
            level = 1 if isinstance(new, ex.Match) else 2
            for kid in kids:
                if kid._settled < level:
                    level = 1
                    break
            ex.remember_type(new, found, level)
            made.append(new)
        return made

    def type(self, of: Type) -> Type:
        """A type with all that was found out."""
        if (found := self._types.get(of)) is None:
            found = self._types[of] = self.state.solver.resolve(of)
        return found

    def variable(self, var: ex.Var) -> ex.Var:
        """A variable with its type.  Two variables of the program never become one."""
        final = self.finals.get(var) or self.names.get(var)
        if final is not None:
            return final
        if not is_untyped(var):
            return var
        original = self.state.original(var)
        assert isinstance(original, ex.Var)
        of = self.type(self.state.slots[var])
        name = original.name
        # Two copies of one binder may become one again, two binders with one name may not.
        made = ex.Var(name, of)
        while self._taken.setdefault(made, original) is not original:
            name = Name(name.hint, name.index + 1)
            made = ex.Var(name, of)
        self.finals[var] = made
        return made

    def _keep(self) -> None:
        """Variables that have a type already keep their names."""
        for final in self.names.values():
            self._taken[final] = final
        for each in self.state.refresher.typed:
            self._taken.setdefault(each, each)

    def _made(self, node: ex.Expr, instance: Instance, kids: list[ex.Expr], found: Type) -> ex.Expr:
        match node:
            case ex.Var():
                return self.variable(node)
            case ex.Literal(value):
                assert isinstance(found, TensorType)
                return number(value, found)
            case ex.Let(var, _, _):
                return ex.Let(self.variable(var), *kids)
            case ex.LetDim(dim, _, _):
                return ex.LetDim(dim, *kids)
            case ex.Call(_, _, types):
                given = self.state.arguments.get(instance)
                filled = types if given is None else tuple([self.type(each) for each in given])
                return ex.Call(kids[0], tuple(kids[1:]), filled)
            case ex.Tuple():
                return ex.Tuple(tuple(kids))
            case ex.Project(_, index):
                return ex.Project(kids[0], index)
            case ex.If():
                return ex.If(*kids)
            case ex.Function():
                params = tuple([self.variable(each) for each in node.params])
                ret = node.ret
                if ret is None or not self.state.solver.is_known(ret):
                    ret = found.ret  # type: ignore[union-attr]  # a function has a function type
                return attrs.evolve(node, params=params, ret=ret, body=kids[0])
            case ex.Match(_, clauses, total):
                bodies = zip(clauses, kids[1:], strict=True)
                cases = [ex.Clause(self._pattern(each.pattern), body) for each, body in bodies]
                return ex.Match(kids[0], tuple(cases), total)
            case _:
                return node

    def _pattern(self, pattern: ex.Pattern) -> ex.Pattern:
        match pattern:
            case ex.PVar(var):
                return ex.PVar(self.variable(var))
            case ex.PConstructor(constructor, items):
                return ex.PConstructor(constructor, tuple([self._pattern(each) for each in items]))
            case ex.PTuple(items):
                return ex.PTuple(tuple([self._pattern(each) for each in items]))
            case _:
                return pattern


def is_explicit(state: TypingState, instance: Instance) -> bool:
    """Whether a node itself, apart from its parts, leaves nothing to be inferred."""
    node = state.nodes[instance]
    match node:
        case ex.Literal():
            return False
        case ex.Var():
            return not is_untyped(node)
        case ex.Call(_, _, types):
            return bool(types) or not state.arguments.get(instance)
        case ex.Function(_, _, _, ret, _, _):
            return ret is not None and state.solver.is_known(ret) and not untyped_binders(node)
        case ex.Let() | ex.Match():
            return not untyped_binders(node)
        case _:
            return True


def number(value: bool | int | float, of: TensorType) -> ex.Const:
    """A number as a constant of rank 0."""
    return ex.const(float(value) if of.dtype.is_float else value, of.dtype)
