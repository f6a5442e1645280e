"""The prelude: the standard library of the graph language, written in its Python syntax.

It defines lists, options, rose trees and natural numbers, and the usual functions over them.
`plica.ir.prelude.prelude` parses this file into a module, which texts are linked with. Scripts
import it as ordinary Python (`from plica.ir.prelude.library import List, foldl`): the decorators
replace each class or function by its definition, so names such as `A` or `i64` are never looked up.
"""

from __future__ import annotations

from plica.ir.text.script import data, function

# --- data types ------------------------------------------------------------------------------


@data(forall="A")
class List:
    Nil: ()
    Cons: (A, List[A])


@data(forall="A")
class Option:
    Nothing: ()
    Some: (A,)


@data(forall="A")
class Tree:
    Rose: (A, List[Tree[A]])


@data
class Nat:
    Zero: ()
    Succ: (Nat,)


# --- functions -------------------------------------------------------------------------------


@function(forall="A")
def id(x: A) -> A:
    return x


@function(forall="A B C")
def compose(f: Fn[(B,), C], g: Fn[(A,), B]) -> Fn[(A,), C]:
    def both(x: A) -> C:
        return f(g(x))

    return both


@function(forall="A B C")
def flip(f: Fn[(A, B), C]) -> Fn[(B, A), C]:
    def flipped(b: B, a: A) -> C:
        return f(a, b)

    return flipped


# `f` applied n times.
@function(forall="A")
def iterate(f: Fn[(A,), A], n: i64) -> Fn[(A,), A]:
    def step(x: A, left: i64) -> A:
        if left <= 0:
            return x
        else:
            return step(f(x), left - 1)

    def iterated(x: A) -> A:
        return step(x, n)

    return iterated


# --- lists -----------------------------------------------------------------------------------


@function(forall="A")
def hd(xs: List[A]) -> A:
    match partial(xs):
        case Cons(x, _):
            return x


@function(forall="A")
def tl(xs: List[A]) -> List[A]:
    match partial(xs):
        case Cons(_, rest):
            return rest


@function(forall="A")
def nth(xs: List[A], n: i64) -> A:
    if n == 0:
        return hd(xs)
    else:
        return nth(tl(xs), n - 1)


@function(forall="A")
def length(xs: List[A]) -> i64:
    def count(n: i64, x: A) -> i64:
        return n + 1

    return foldl(count, 0, xs)


@function(forall="A")
def update(xs: List[A], n: i64, value: A) -> List[A]:
    if n == 0:
        return Cons(value, tl(xs))
    else:
        return Cons(hd(xs), update(tl(xs), n - 1, value))


@function(forall="A B")
def map(f: Fn[(A,), B], xs: List[A]) -> List[B]:
    match xs:
        case Nil():
            return Nil()
        case Cons(x, rest):
            return Cons(f(x), map(f, rest))


@function(forall="A B")
def foldl(f: Fn[(A, B), A], start: A, xs: List[B]) -> A:
    match xs:
        case Nil():
            return start
        case Cons(x, rest):
            return foldl(f, f(start, x), rest)


@function(forall="A B")
def foldr(f: Fn[(A, B), B], end: B, xs: List[A]) -> B:
    match xs:
        case Nil():
            return end
        case Cons(x, rest):
            return f(x, foldr(f, end, rest))


@function(forall="A")
def foldr1(f: Fn[(A, A), A], xs: List[A]) -> A:
    match partial(xs):
        case Cons(x, Nil()):
            return x
        case Cons(x, rest):
            return f(x, foldr1(f, rest))


@function
def sum(xs: List[i64]) -> i64:
    def plus(a: i64, b: i64) -> i64:
        return a + b

    return foldl(plus, 0, xs)


@function(forall="A")
def concat(xs: List[A], ys: List[A]) -> List[A]:
    match xs:
        case Nil():
            return ys
        case Cons(x, rest):
            return Cons(x, concat(rest, ys))


@function(forall="A")
def filter(keep: Fn[(A,), bool], xs: List[A]) -> List[A]:
    match xs:
        case Nil():
            return Nil()
        case Cons(x, rest):
            if keep(x):
                return Cons(x, filter(keep, rest))
            else:
                return filter(keep, rest)


@function(forall="A B")
def zip(xs: List[A], ys: List[B]) -> List[tuple[A, B]]:
    match (xs, ys):
        case (Cons(x, more), Cons(y, rest)):
            return Cons((x, y), zip(more, rest))
        case _:
            return Nil()


@function(forall="A")
def rev(xs: List[A]) -> List[A]:
    def before(done: List[A], x: A) -> List[A]:
        return Cons(x, done)

    return foldl(before, Nil(), xs)


# From the right: the state passes from the last element to the first.
@function(forall="A B C")
def map_accumr(f: Fn[(A, B), tuple[A, C]], start: A, xs: List[B]) -> tuple[A, List[C]]:
    match xs:
        case Nil():
            return (start, Nil())
        case Cons(x, rest):
            done = map_accumr(f, start, rest)
            here = f(done[0], x)
            return (here[0], Cons(here[1], done[1]))


# From the left: the state passes from the first element to the last.
@function(forall="A B C")
def map_accuml(f: Fn[(A, B), tuple[A, C]], start: A, xs: List[B]) -> tuple[A, List[C]]:
    def step(state: tuple[A, List[C]], x: B) -> tuple[A, List[C]]:
        here = f(state[0], x)
        return (here[0], Cons(here[1], state[1]))

    done = foldl(step, (start, Nil()), xs)
    return (done[0], rev(done[1]))


# The elements that `f` gives until it gives nothing, first to last.
@function(forall="A B")
def unfoldr(f: Fn[(B,), Option[tuple[B, A]]], seed: B) -> List[A]:
    match f(seed):
        case Nothing():
            return Nil()
        case Some((next, x)):
            return Cons(x, unfoldr(f, next))


# The same elements, last to first.
@function(forall="A B")
def unfoldl(f: Fn[(B,), Option[tuple[B, A]]], seed: B) -> List[A]:
    def step(seed: B, done: List[A]) -> List[A]:
        match f(seed):
            case Nothing():
                return done
            case Some((next, x)):
                return step(next, Cons(x, done))

    return step(seed, Nil())


# --- options ---------------------------------------------------------------------------------


@function(forall="A B")
def option_map(f: Fn[(A,), B], x: Option[A]) -> Option[B]:
    match x:
        case Nothing():
            return Nothing()
        case Some(value):
            return Some(f(value))


@function(forall="A")
def get_or(x: Option[A], default: A) -> A:
    match x:
        case Nothing():
            return default
        case Some(value):
            return value


# --- rose trees ------------------------------------------------------------------------------


@function(forall="A B")
def tmap(f: Fn[(A,), B], t: Tree[A]) -> Tree[B]:
    def inside(child: Tree[A]) -> Tree[B]:
        return tmap(f, child)

    match t:
        case Rose(value, children):
            return Rose(f(value), map(inside, children))


@function(forall="A B")
def tfold(f: Fn[(A, List[B]), B], t: Tree[A]) -> B:
    def inside(child: Tree[A]) -> B:
        return tfold(f, child)

    match t:
        case Rose(value, children):
            return f(value, map(inside, children))


@function(forall="A")
def size(t: Tree[A]) -> i64:
    def count(value: A, inside: List[i64]) -> i64:
        return sum(inside) + 1

    return tfold(count, t)


# --- natural numbers -------------------------------------------------------------------------


@function
def nat(n: i64) -> Nat:
    def count(done: Nat, left: i64) -> Nat:
        if left <= 0:
            return done
        else:
            return count(Succ(done), left - 1)

    return count(Zero(), n)


@function
def from_nat(n: Nat) -> i64:
    def count(n: Nat, done: i64) -> i64:
        match n:
            case Zero():
                return done
            case Succ(less):
                return count(less, done + 1)

    return count(n, 0)


@function
def nat_add(a: Nat, b: Nat) -> Nat:
    match a:
        case Zero():
            return b
        case Succ(less):
            return Succ(nat_add(less, b))


@function
def nat_double(n: Nat) -> Nat:
    match n:
        case Zero():
            return Zero()
        case Succ(less):
            return Succ(Succ(nat_double(less)))


__main__ = None
