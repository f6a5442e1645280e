"""One block of a program forwards and backwards.

    v = exp(x)                                 d_v = d * w
    w = v * y        backwards, from d:        d_x = d_v * v
    return w                                   d_y = d * v

A branch, a clause and a call hand on through a closure, their pullback, which they give together
with their value.  A block of operators alone has none of that: its derivative is plain dataflow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from plica.core import CompilerBug, Task, post_order
from plica.ir.graph import expression as ex
from plica.ir.graph.operator import Flat, Through
from plica.ir.loop.scalar import ScalarVar
from plica.ir.op import find
from plica.ir.op.mark import after
from plica.ir.type import DataType, FuncType, TensorType, TupleType, Type, type_of
from plica.rewrite.gradient.branch import BranchSweep, variables
from plica.rewrite.gradient.swept_program import SweptProgram
from plica.rewrite.gradient.tangent import Part, is_zero, projected
from plica.rewrite.graph.walk import is_atom

Back: TypeAlias = Callable[[Part], None]  # hands the cotangent of a value on


class BlockSweep:
    """One block: the code emitted forwards and backwards, and the cotangents so far."""

    def __init__(self, program: SweptProgram, varying: set[ex.Var]) -> None:
        self.program = program
        self.tangents = program.tangents
        self.varying = varying
        self.lets: list[tuple[ex.Var, ex.Expr]] = []
        self.back: list[tuple[ex.Var, ex.Expr]] = []
        self.steps: list[tuple[ex.Var, Back]] = []
        self.cotangents: dict[ex.Var, Part] = {}
        self.calls = False  # whether a value comes with a pullback, or is computed again

    # --- forwards ----------------------------------------------------------------------------

    def forward(self, body: ex.Expr) -> Task[ex.Expr]:
        """Write a block down; its result, which is an atom."""
        while isinstance(body, ex.Let):
            yield from self._bind(body.var, body.value)
            body = body.body
        if is_atom(body):
            return body
        var = self.program.fresh("v", type_of(body))
        yield from self._bind(var, body)
        return var

    def _bind(self, var: ex.Var, value: ex.Expr) -> Task[None]:
        if isinstance(value, ex.Function):
            return (yield from self._thunk(var, value))
        if isinstance(value, ex.If | ex.Match):
            return (yield from self._choice(var, value))
        if not self.program.is_active(var):
            self.lets.append((var, value))
            return None
        match value:
            case ex.Apply():
                self._apply(var, value)
            case ex.Var():
                self._note(var, value, (value,), lambda d: self.add(value, d))
            case ex.Tuple(items):
                self._note(var, value, items, lambda d: self._hand_out(items, d))
            case ex.Project(whole, index):
                self._note(var, value, (whole,), lambda d: self._hand_back(whole, index, d))
            case ex.Call(ex.Constructor() as made, args, _):
                self._note(var, value, args, lambda d: self._take_apart(made, args, d))
            case ex.Call():
                self._call(var, value)
            case ex.LetDim():
                why = "A size is measured inside of a branch or a function."
                self.program.miss("measure", why)
                self.lets.append((var, value))
            case _:
                self.lets.append((var, value))
        return None

    def _note(self, var: ex.Var, value: ex.Expr, parts: Iterable[ex.Expr], back: Back) -> None:
        """Write a value down, and how its cotangent is handed on if some part of it varies."""
        self.lets.append((var, value))
        if any(part in self.varying for part in parts):
            self.varying.add(var)
            self.steps.append((var, back))

    def _apply(self, var: ex.Var, value: ex.Apply) -> None:
        record = find(value.op)
        assert record is not None  # the module was inferred
        rule = record.gradient
        if isinstance(rule, Flat) or not any(arg in self.varying for arg in value.args):
            self.lets.append((var, value))
            return
        if rule is None or isinstance(rule, Through):
            self.program.miss(value.op)
            self._note(var, value, value.args, ignore)  # so that all that is missing is found
            return
        pullback = rule

        def hand_on(d: Part) -> None:
            cotangent = self._whole(var, d)
            exprs = pullback(dict(value.attrs), cotangent, var, *value.args)
            for arg, part in zip(value.args, exprs, strict=True):
                if part is not None and arg in self.varying:
                    self.add(arg, part)

        self._note(var, value, value.args, hand_on)

    def _call(self, var: ex.Var, value: ex.Call) -> None:
        callee, args = value.callee, value.args
        if not isinstance(callee, ex.Var):
            raise CompilerBug("A function is called that has no name.")
        if (local := self.program.thunks.get(callee)) is not None:
            self._pulled(var, ex.Call(local[0], ()), local[1])
            return
        if not any(arg in self.varying for arg in args):
            self.lets.append((var, value))
            return
        if (gradient := self.program.extern_gradient(callee)) is not None:
            self._note(var, value, args, lambda d: self._extern(gradient, var, args, d))
            return
        if self.program.is_checkpoint(callee):
            self._again(var, callee, args)
            return
        if (derived := self.program.derivative(callee)) is None:
            self._note(var, value, args, ignore)
            return
        self._pulled(var, ex.Call(derived, args), args)

    def _extern(self, gradient: ex.Var, var: ex.Var, args: Sequence[ex.Expr], d: Part) -> None:
        """The cotangents of the float arguments of an extern, which another one computes."""
        whole, of = self._whole(var, d), type_of(var)
        count = len(of.items) if isinstance(of, TupleType) else None
        given = [whole] if count is None else [projected(whole, at) for at in range(count)]
        floats = [expr for expr in given if type_of(expr) != TupleType(())]
        takers = [arg for arg in args if self.tangents.is_active(type_of(arg))]
        types = tuple([type_of(expr) for expr in takers])
        found = self.program.fresh("parts", types[0] if len(types) == 1 else TupleType(types))
        self.back.append((found, ex.Call(gradient, (*args, *floats))))
        parts = [found] if len(takers) == 1 else [projected(found, at) for at in range(len(takers))]
        for taker, part in zip(takers, parts, strict=True):
            self.add(taker, part)

    def _pulled(self, var: ex.Var, call: ex.Expr, takers: Sequence[ex.Expr]) -> None:
        """A value with its pullback: a pair, destructured."""
        self.calls = True
        of = self._pullback_type(var, takers)
        pair = self.program.fresh("pair", TupleType((type_of(var), of)))
        pull = self.program.fresh("pull", of)
        self.lets += [(pair, call), (var, ex.Project(pair, 0)), (pull, ex.Project(pair, 1))]
        self.varying.add(var)
        self.steps.append((var, lambda d: self._pull(pull, takers, self._whole(var, d))))

    def _pull(self, pull: ex.Var, takers: Sequence[ex.Expr], cotangent: ex.Expr) -> None:
        assert isinstance(pull.type, FuncType)
        var = self.program.fresh("parts", pull.type.ret)
        self.back.append((var, ex.Call(pull, (cotangent,))))
        self._hand_out(takers, self.tangents.opened(pull.type.ret, var))

    def _pullback_type(self, var: ex.Var, takers: Sequence[ex.Expr]) -> FuncType:
        every = TupleType(tuple([self.tangents.of(type_of(taker)) for taker in takers]))
        return FuncType((), (), (self.tangents.of(type_of(var)),), every)

    def _again(self, var: ex.Var, callee: ex.Var, args: tuple[ex.Expr, ...]) -> None:
        """A call whose intermediates are not kept: recomputed once its cotangent is available.

        Its first active argument is delayed until then; what depends only on others is shared with
        the forward pass.
        """
        self.calls = True
        derived = self.program.derivative(callee)
        assert derived is not None  # only functions of the module are marked

        def hand_on(d: Part) -> None:
            cotangent = self._whole(var, d)
            first = self._first_tensor(cotangent)
            at = next((n for n, arg in enumerate(args) if self._can_wait(arg)), None)
            held = list(args)
            if at is not None and first is not None:
                held[at] = self._held(args[at], first)
            of = self._pullback_type(var, args)
            pair = self.program.fresh("pair", TupleType((type_of(var), of)))
            pull = self.program.fresh("pull", of)
            self.back += [(pair, ex.Call(derived, tuple(held))), (pull, ex.Project(pair, 1))]
            found = self.program.fresh("parts", of.ret)
            self.back.append((found, ex.Call(pull, (cotangent,))))
            parts = [projected(found, n) for n in range(len(args))]
            if at is not None:  # what is handed on from here waits for all that was made here
                for n, arg in enumerate(args):
                    if n != at and self._can_wait(arg):
                        parts[at] = self._held(parts[at], parts[n])
            every = zip(args, parts, strict=True)
            self._hand_out(
                args,
                tuple([self.tangents.opened(self.tangents.of(type_of(a)), p) for a, p in every]),
            )

        self._note(var, ex.Call(callee, args), args, hand_on)

    def _first_tensor(self, cotangent: ex.Expr) -> ex.Expr | None:
        stack = [cotangent]
        while stack:
            if isinstance(node := stack.pop(), ex.Tuple):
                stack.extend(reversed(node.items))
            elif isinstance(type_of(node), TensorType):
                return node
        return None

    def _can_wait(self, arg: ex.Expr) -> bool:
        """Whether an argument is an active tensor, which can be delayed."""
        return arg in self.varying and isinstance(type_of(arg), TensorType)

    def _held(self, value: ex.Expr, until: ex.Expr) -> ex.Expr:
        """A value that depends on the availability of another."""
        var = self.program.fresh("again", type_of(value))
        self.back.append((var, after(value, until)))
        return var

    # --- blocks inside -----------------------------------------------------------------------

    def _thunk(self, var: ex.Var, value: ex.Function) -> Task[None]:
        """A function without parameters, which the normal form introduces for code that may
        fail."""
        if value.params or not self.tangents.is_active(type_of(value.body)):
            self.lets.append((var, value))
            return
        inner = yield branch_sweep(self.program, value.body, self.varying, ())
        takers = inner.left()
        self.lets.append((var, value))
        if takers:
            ret = TupleType((type_of(value.body), inner.pullback(takers)))
            new = self.program.fresh(var.name.hint, FuncType((), (), (), ret))
            self.lets.append((new, ex.Function((), (), (), ret, inner.written(takers))))
            self.program.thunks[var] = new, takers

    def _choice(self, var: ex.Var, value: ex.If | ex.Match) -> Task[None]:
        """The branches, each with its own pullback to the same free variables."""
        if not self.program.is_active(var):
            self.lets.append((var, value))
            return
        scrutinee: ex.Var | None = None
        patterns: list[ex.Pattern] = []
        if isinstance(value, ex.If):
            bodies = [value.then, value.orelse]
        else:
            bodies = [clause.body for clause in value.clauses]
            if value.value in self.varying:
                assert isinstance(value.value, ex.Var)
                scrutinee = value.value
            for clause in value.clauses:
                pattern = clause.pattern
                if scrutinee is not None:
                    pattern = self.program.named(pattern, type_of(scrutinee))
                patterns.append(pattern)
        branches = []
        for at, body in enumerate(bodies):
            bound = variables(patterns[at]) if patterns else []
            if scrutinee is not None:
                self.varying.update(each for each in bound if self.program.is_active(each))
            branches.append((yield branch_sweep(self.program, body, self.varying, bound)))
        takers = list(dict.fromkeys(each for branch in branches for each in branch.left()))
        if scrutinee is not None and any(branch.reaches_bound() for branch in branches):
            takers = [scrutinee, *[taker for taker in takers if taker is not scrutinee]]
        else:
            scrutinee = None
        if not takers:
            self.lets.append((var, value))
            return
        plainly = not any(branch.calls for branch in branches) and any(
            isinstance(part, ScalarVar) for each in (var, *takers) for part in post_order(each)
        )
        made = []
        for at, branch in enumerate(branches):
            own = None
            if scrutinee is not None:
                of = self.tangents.of(type_of(scrutinee))
                own = branch.of_pattern(patterns[at], of)
                if scrutinee in branch.cotangents:  # the branch uses it as a whole too
                    mine = self.tangents.opened(of, own)
                    both = self.tangents.plus(of, mine, branch.cotangents[scrutinee])
                    own = self.tangents.whole(of, both, scrutinee)
            made.append(branch.pulled(takers, own) if plainly else branch.written(takers, own))
        if isinstance(value, ex.If):
            choice: ex.Expr = ex.If(value.condition, made[0], made[1])
        else:
            pairs = zip(patterns, made, strict=True)
            choice = ex.Match(value.value, tuple([ex.Clause(*pair) for pair in pairs]), value.total)
        if not plainly:
            self._pulled(var, choice, takers)
            return
        # Note [Open sizes]: a closure over tensors of open sizes cannot become data, so it could
        # not be differentiated again.  A branch of operators alone is chosen again instead, with
        # the cotangent in scope, and computes again what it needs.
        self.lets.append((var, value))
        self.varying.add(var)
        self.calls = True

        def hand_on(d: Part) -> None:
            whole = self._whole(var, d)
            self.back += [(branch.cotangent, whole) for branch in branches]
            found = self.program.fresh("parts", self._pullback_type(var, takers).ret)
            self.back.append((found, choice))
            self._hand_out(takers, self.tangents.opened(type_of(found), found))

        self.steps.append((var, hand_on))

    # --- backwards ---------------------------------------------------------------------------

    def backward(self, result: ex.Expr, cotangent: Part) -> None:
        """Hand the cotangent of the result on to whatever it came from."""
        if not isinstance(result, ex.Var) or result not in self.varying:
            return
        self.cotangents[result] = cotangent
        for var, back in reversed(self.steps):
            part = self.cotangents.pop(var, None)
            if not is_zero(part):
                back(self._bound(self.tangents.of(type_of(var)), part))

    def add(self, taker: ex.Expr, part: Part) -> None:
        """One more contribution to the cotangent of a variable."""
        if isinstance(taker, ex.Var) and taker in self.varying and not is_zero(part):
            of = self.tangents.of(type_of(taker))
            self.cotangents[taker] = self.tangents.plus(of, self.cotangents.get(taker), part)

    def _bound(self, of: Type, part: Part) -> Part:
        """The same cotangent, with computed parts named."""
        if isinstance(part, tuple):
            assert isinstance(of, TupleType)
            return tuple([self._bound(*pair) for pair in zip(of.items, part, strict=True)])
        if part is None or is_atom(part):
            return part
        var = self.program.fresh("d", of)
        self.back.append((var, part))
        return var

    def _whole(self, var: ex.Var, d: Part) -> ex.Expr:
        return self.tangents.whole(self.tangents.of(type_of(var)), d, var)

    def _hand_out(self, items: Sequence[ex.Expr], d: Part) -> None:
        assert isinstance(d, tuple)
        for item, part in zip(items, d, strict=True):
            self.add(item, part)

    def _hand_back(self, whole: ex.Expr, index: int, d: Part) -> None:
        of = type_of(whole)
        assert isinstance(of, TupleType)
        self.add(whole, tuple([d if at == index else None for at in range(len(of.items))]))

    def _take_apart(self, made: ex.Constructor, args: tuple[ex.Expr, ...], d: Part) -> None:
        """The cotangents of a constructor's fields; zeros if that of the whole is zero."""
        assert isinstance(d, ex.Expr)
        of = type_of(d)
        assert isinstance(of, DataType)
        way, fields = self.tangents.constructor(of, made.index + 1)
        names = [self.program.fresh("x", field) for field in fields]
        nothing = [self.tangents.zero(f, arg) for f, arg in zip(fields, args, strict=True)]
        var = self.program.fresh("fields", TupleType(fields))
        there = ex.Clause(
            ex.PConstructor(way, tuple([ex.PVar(name) for name in names])), ex.Tuple(tuple(names))
        )
        self.back.append(
            (var, ex.Match(d, (there, ex.Clause(ex.PAny(), ex.Tuple(tuple(nothing))))))
        )
        for at, (field, arg) in enumerate(zip(fields, args, strict=True)):
            if self.tangents.is_active(type_of(arg)):
                self.add(arg, self.tangents.opened(field, projected(var, at)))


def ignore(_: Part) -> None:
    """Hand nothing on."""


def branch_sweep(
    program: SweptProgram, body: ex.Expr, varying: set[ex.Var], bound: Sequence[ex.Var]
) -> Task[BranchSweep]:
    """A block inside another, swept forwards and backwards."""
    sweep = BlockSweep(program, varying)
    result = yield sweep.forward(body)
    cotangent = program.fresh("d", program.tangents.of(type_of(body)))
    sweep.backward(result, program.tangents.opened(type_of(cotangent), cotangent))
    return BranchSweep(
        sweep.lets, sweep.back, sweep.cotangents, sweep.calls, program.tangents, result, cotangent,
        bound,
    )  # fmt: skip
