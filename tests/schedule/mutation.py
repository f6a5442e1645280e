"""Planted bugs: primitives that do something wrong, each of which fuzzing must find.

A mutation is planted by a `pytest.MonkeyPatch`; `kind` is the instruction that is to be blamed.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Final, TypeAlias

import pytest
from attrs import evolve, frozen

from plica.analysis.site import map_of, replace, with_body, with_parts
from plica.core.binding import substitute
from plica.core.fold import map_bottom_up
from plica.core.name import Name
from plica.core.term import Term
from plica.ir.loop.scalar import FloorDiv, Mul, Not, Scalar, ScalarVar, index, lit
from plica.ir.loop.statement import NOTHING, TRUE, Block, For, Kernel, Stmt, Store
from plica.ir.type.dim import known
from plica.ir.type.dtype import i64
from plica.schedule.instruction import Edited, Instruction, Scene, kinds
from plica.schedule.problem import Problem

Plant: TypeAlias = Callable[[pytest.MonkeyPatch, str], None]


@frozen
class Mutation:
    """A bug: its name, the kind that has it, how it gets there, what brings it to light."""

    name: str
    kind: str
    plant: Plant
    beside: tuple[str, ...] = ()


def unchecked(patch: pytest.MonkeyPatch, kind: str) -> None:
    """No precondition is looked at."""
    patch.setattr(kinds()[kind], "check", lambda self, scene: None)


def without(method: str) -> Plant:
    """One of the checks finds nothing."""

    def plant(patch: pytest.MonkeyPatch, kind: str) -> None:
        patch.setattr(kinds()[kind], method, lambda *arguments: None)

    return plant


def spoiled(change: Callable[[Kernel, Edited], Kernel]) -> Plant:
    """The edit is followed by a wrong one."""

    def plant(patch: pytest.MonkeyPatch, kind: str) -> None:
        cls = kinds()[kind]
        right = cls.edit

        def wrong(self: Instruction, scene: Scene) -> Edited:
            made = right(self, scene)
            return evolve(made, kernel=change(scene.kernel, made))

        patch.setattr(cls, "edit", wrong)

    return plant


def put(name: str, value: Any) -> Plant:
    """Something else under a name of the primitive's module."""

    def plant(patch: pytest.MonkeyPatch, kind: str) -> None:
        patch.setattr(import_module(kinds()[kind].__module__), name, value)

    return plant


def new_blocks(before: Kernel, after: Kernel) -> list[Block]:
    old = map_of(before).blocks
    return [site.node for label, site in map_of(after).blocks.items() if label not in old]


def everywhere(change: Callable[[Term], Term]) -> Callable[[Kernel, Edited], Kernel]:
    """A change of every node of the kernel that an edit makes."""

    def changed(before: Kernel, made: Edited) -> Kernel:
        body: Any = map_bottom_up(change, made.kernel.body)
        return with_body(made.kernel, body)

    return changed


def in_new_blocks(change: Callable[[Block], Block]) -> Callable[[Kernel, Edited], Kernel]:
    """A change of the first block that an edit adds."""

    def changed(before: Kernel, made: Edited) -> Kernel:
        kernel = made.kernel
        for block in new_blocks(before, kernel)[:1]:
            kernel = replace(kernel, map_of(kernel).blocks[block.label], change(block))
        return kernel

    return changed


def in_given_loops(change: Callable[[For], Stmt]) -> Callable[[Kernel, Edited], Kernel]:
    """A change of the last loop that an edit gives."""

    def changed(before: Kernel, made: Edited) -> Kernel:
        found = [each for each in made.outputs if isinstance(each, ScalarVar)]
        site = map_of(made.kernel).loops[found[-1]]
        return replace(made.kernel, site, change(site.node))

    return changed


def no_predicate(node: Term) -> Term:
    return with_parts(node, predicate=TRUE) if isinstance(node, Block) else node


def idle(block: Block) -> Block:
    return with_parts(block, body=NOTHING)


def no_init(block: Block) -> Block:
    return with_parts(block, init=None)


def shorter(loop: For) -> For:
    size = known(loop.extent)
    extent = index(size - 1) if size else loop.extent - 1
    return For(loop.var, extent, loop.kind, loop.body, loop.annotations)


def last_unrolled_lost(node: Term) -> Term:
    return shorter(node) if isinstance(node, For) and node.kind == "unrolled" else node


def strides_lost(body: Any, values: dict[Any, Any]) -> Any:
    """Outer iterations count as much as inner ones."""

    def flat(node: Term) -> Term:
        return node.left if isinstance(node, Mul) else node

    return substitute(body, {var: map_bottom_up(flat, value) for var, value in values.items()})


def digits_swapped(body: Any, values: dict[Any, Any]) -> Any:
    """Fused loops get each other's values."""
    return substitute(body, dict(zip(values, reversed(list(values.values())), strict=True)))


def outer_extent_only(term: Any) -> Any:
    return term.left if isinstance(term, Mul) else term


def floor_instead(term: Any, *context: Any) -> Any:
    """`n // k` turns where `(n + k - 1) // k` are needed."""
    from plica.analysis.enclosing import simple  # only here

    if isinstance(term, FloorDiv) and hasattr(term.left, "left"):
        return simple(FloorDiv(term.left.left, term.right), *context)
    return simple(term, *context)


def other_constant(block: Block) -> Block:
    body = block.body
    assert isinstance(body, Store)
    return with_parts(block, body=Store(body.buffer, body.indices, lit(5, body.buffer.dtype)))


def negated_padding(node: Term) -> Term:
    if isinstance(node, Block) and node.predicate is not TRUE:
        return with_parts(node, predicate=Not(node.predicate))
    return node


def shifted(block: Block) -> Block:
    """A copy reads from one place on, where there is more than one element."""
    body = block.body
    if not isinstance(body, Store) or not body.indices or known(block.extents[0]) == 1:
        return block
    moved = substitute(body.value, {block.vars[0]: (block.vars[0] + 1) % block.extents[0]})
    return with_parts(block, body=Store(body.buffer, body.indices, moved))


def same_name(before: Kernel, made: Edited) -> Kernel:
    """A new loop has the name of another."""
    (var,) = made.outputs
    assert isinstance(var, ScalarVar)
    other = next((each for each in map_of(before).loops), None)
    site = map_of(made.kernel).loops[var]
    name = other or ScalarVar(Name("twice"), i64)
    loop = For(name, site.node.extent, "serial", site.node.body)
    return replace(made.kernel, site, loop)


def broken(before: Kernel, made: Edited) -> Kernel:
    raise KeyError("planted")


def silent(patch: pytest.MonkeyPatch, kind: str) -> None:
    """A refusal that says nothing."""
    patch.setattr(kinds()[kind], "check", lambda self, scene: Problem("", "", "", ""))


def any_region(patch: pytest.MonkeyPatch, kind: str) -> None:
    """An intrinsic is given the first elements of every buffer."""
    module = import_module("plica.schedule.primitive.tensorize")
    right = module._invocation

    def wrong(*arguments: Any) -> Any:
        call = right(*arguments)
        regions = [
            each if not hasattr(each, "starts")
            else type(each)(each.buffer, tuple(index(0) for _ in each.starts), each.extents)
            for each in call.operands
        ]  # fmt: skip
        return type(call)(call.name, tuple(regions))

    patch.setattr(module, "_invocation", wrong)
    forget()


def any_operation(patch: pytest.MonkeyPatch, kind: str) -> None:
    """A sum is taken for a maximum."""

    def pairs(a: Scalar, b: Scalar) -> tuple[tuple[Scalar, Scalar], ...] | None:
        if not hasattr(a, "left") or not hasattr(b, "left"):
            return None
        return ((a.left, b.left), (a.right, b.right))  # type: ignore[attr-defined]

    patch.setattr("plica.schedule.match._operands", pairs)
    forget()


def any_predicate(patch: pytest.MonkeyPatch, kind: str) -> None:
    """A predicate inside does not keep an intrinsic away."""
    patch.setattr("plica.schedule.nest.can_prove", lambda *arguments: True)
    put("can_prove", lambda *arguments: True)(patch, kind)
    forget()


def forget() -> None:
    """Matches that were found before a bug was planted, or after."""
    import_module("plica.schedule.nest").nests_of.cache_clear()
    import_module("plica.schedule.primitive.tensorize")._tensorized.cache_clear()


# fmt: off
# ruff: noqa: E501  # a table
MUTATIONS: Final = (
    Mutation("split without guards",               "split",                  put("guarded", lambda body, condition: body)),
    Mutation("split without strides",              "split",                  put("substitute", strides_lost)),
    Mutation("split rounds down",                  "split",                  put("simple", floor_instead)),
    Mutation("split loses a turn",                 "split",                  spoiled(in_given_loops(shorter))),
    Mutation("split refuses in silence",           "split",                  silent),
    Mutation("fuse swaps the loops",               "fuse",                   put("substitute", digits_swapped)),
    Mutation("fuse forgets an extent",             "fuse",                   put("simple", outer_extent_only)),
    Mutation("fuse takes any loops",               "fuse",                   unchecked),
    Mutation("fuse breaks",                        "fuse",                   spoiled(broken)),
    Mutation("add_unit_loop takes a used name",    "add_unit_loop",          spoiled(same_name)),
    Mutation("unroll loses the last turn",         "unroll",                 spoiled(everywhere(last_unrolled_lost))),
    Mutation("reorder ignores dependences",        "reorder",                without("meets")),
    Mutation("parallel without a check",           "parallel",               unchecked),
    Mutation("vectorize without a check",          "vectorize",              unchecked),
    Mutation("bind without a check",               "bind",                   unchecked),
    Mutation("decompose_reduction drops the init", "decompose_reduction",    spoiled(in_new_blocks(idle))),
    Mutation("decompose_reduction anywhere",       "decompose_reduction",    unchecked),
    Mutation("rfactor begins with nothing",        "rfactor",                spoiled(in_new_blocks(no_init))),
    Mutation("rfactor without a check",            "rfactor",                unchecked),
    Mutation("cache_read copies something else",   "cache_read",             spoiled(in_new_blocks(shifted))),
    Mutation("cache_read copies nothing",          "cache_read",             spoiled(in_new_blocks(idle))),
    Mutation("cache_write copies nothing back",    "cache_write",            spoiled(in_new_blocks(idle))),
    Mutation("cache_write without a check",        "cache_write",            unchecked),
    Mutation("compute_inline without a check",     "compute_inline",         unchecked),
    Mutation("reverse_compute_inline unchecked",   "reverse_compute_inline", unchecked),
    Mutation("compute_at loses a predicate",       "compute_at",             spoiled(everywhere(no_predicate))),
    Mutation("compute_at without a check",         "compute_at",             unchecked),
    Mutation("loop_partition loses a predicate",   "loop_partition",         spoiled(in_given_loops(shorter))),
    Mutation("merge_loops ignores dependences",    "merge_loops",            without("meets")),
    Mutation("blockize loses a predicate",         "blockize",               spoiled(everywhere(no_predicate))),
    Mutation("blockize loses the init",            "blockize",               spoiled(in_new_blocks(no_init))),
    Mutation("tensorize on the first elements",    "tensorize",              any_region),
    Mutation("tensorize by any operation",         "tensorize",              any_operation),
    Mutation("tensorize under a predicate",        "tensorize",              any_predicate, ("split",)),
    Mutation("decompose_padding with a 5",         "decompose_padding",      spoiled(in_new_blocks(other_constant))),
    Mutation("decompose_padding copies outside",   "decompose_padding",      spoiled(everywhere(negated_padding))),
    Mutation("pad_einsum copies nothing back",     "pad_einsum",             spoiled(in_new_blocks(idle))),
    Mutation("overlap_split without a check",      "overlap_split",          unchecked),
    Mutation("pad_fold without a check",           "pad_fold",               unchecked),
    Mutation("peel_init drops the first term",     "peel_init",              spoiled(in_new_blocks(idle))),
    Mutation("peel_init without a check",          "peel_init",              unchecked),
)
# fmt: on
