"""Random arguments for steps, by context.

>>> argument("split", "loop") is argument("unroll", "loop")
True
>>> argument("split", "no such field") is None
True
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from random import Random
from typing import Any, Final, TypeAlias, TypeVar

import attrs
from attrs import frozen

from plica.analysis.site import Map, map_of
from plica.core.name import Name
from plica.ir.loop import Block, For, Scalar, ScalarVar, Stmt, axis, statements
from plica.ir.loop.index_map import IndexMap
from plica.ir.loop.statement import THREADS, substatements
from plica.schedule.generate.kernel import NAMES
from plica.schedule.handle import Handle
from plica.schedule.instruction import Instruction
from plica.schedule.primitive.look_up import role_of
from plica.schedule.primitive.tensorize import tensorize
from plica.schedule.replay import ReplayState

C = TypeVar("C")


class NoArgument(Exception):
    """There is no argument of a kind in the current state."""


@frozen(eq=False)
class Here:
    """A place in a walk: the kernel with its handles, and what chance says."""

    state: ReplayState
    random: Random

    @property
    def map(self) -> Map:
        return map_of(self.state.kernel)

    def pick(self, options: Sequence[C]) -> C:
        """One of several."""
        if not options:
            raise NoArgument
        return self.random.choice(options)

    def loops(self) -> list[Handle]:
        """The handles of existing loops, one per loop."""
        mine = {var: handle for handle, var in self._alive("loop")}
        return [mine[var] for var in self.map.loops if var in mine]

    def blocks(self) -> list[Handle]:
        """The handles of existing blocks."""
        mine = {label: handle for handle, label in self._alive("block")}
        return [mine[label] for label in self.map.blocks if label in mine]

    def _alive(self, sort: str) -> Iterable[tuple[Handle, Any]]:
        where: Mapping[Any, Any] = self.map.loops if sort == "loop" else self.map.blocks
        found = [item for item in self.state.outputs.items() if item[0].sort == sort]
        return sorted((each for each in found if each[1] in where), key=_age)

    def number(self, options: Sequence[int]) -> int | Handle:
        """A number, at times one that an earlier step decided."""
        decided = [output for output in self.state.outputs if output.sort == "number"]
        if decided and self.random.random() < 0.3:
            return self.pick(sorted(decided, key=lambda each: (each.step, each.output)))
        return self.pick(options)

    def nest(self) -> list[Handle]:
        """Loops around one block, outermost first, those that have a handle."""
        mine = {self.state.outputs[handle]: handle for handle in self.loops()}
        around = self.map.blocks[self.pick(list(self.map.blocks))].loops
        return [mine[loop.var] for loop in around if loop.var in mine]

    def site(self, handle: Handle) -> For | Block:
        if isinstance(found := self.state.outputs[handle], Name):
            return self.map.blocks[found].node
        assert isinstance(found, ScalarVar)
        return self.map.loops[found].node


def _age(alive: tuple[Handle, Any]) -> tuple[int, int]:
    return alive[0].step, alive[0].output


Given: TypeAlias = dict[str, Any]  # Any: the arguments so far, of whatever type they are
Argument: TypeAlias = Callable[[Here, Given], Any]


def _loop(here: Here, given: Given) -> Handle:
    return here.pick(here.loops())


def _block(here: Here, given: Given) -> Handle:
    return here.pick(here.blocks())


def _target(here: Here, given: Given) -> Handle:
    return here.pick([*here.loops(), *here.blocks()])


def _factors(here: Here, given: Given) -> tuple[Any, ...]:
    """Two or three factors, mostly an open one first; now and then such as do not fit."""
    count = here.pick((2, 2, 2, 3))
    factors: list[Any] = [here.number((1, 2, 2, 3, 4, 5)) for _ in range(count)]
    if here.random.random() < 0.85:
        factors[here.pick((0, 0, 0, count - 1))] = None
    return tuple(factors)


def _chain(here: Here, given: Given) -> tuple[Handle, ...]:
    """Loops directly inside one another; at times any."""
    if here.random.random() < 0.1:
        return (_loop(here, given), _loop(here, given))
    mine = {here.state.outputs[handle]: handle for handle in here.loops()}
    chain = [here.pick(here.loops())]
    loop = here.site(chain[0])
    while isinstance(loop.body, For) and loop.body.var in mine and len(chain) < 3:
        loop = loop.body
        chain.append(mine[loop.var])
    if len(chain) > 2 and here.random.random() < 0.5:
        chain.pop()
    return tuple(chain)


def _shuffled(here: Here, given: Given) -> tuple[Handle, ...]:
    """Some loops of one nest in any order."""
    nest = here.nest()
    here.random.shuffle(nest)
    return tuple(nest[: here.pick((2, 2, 3, 4))])


def _neighbour(here: Here, given: Given) -> Handle:
    """A loop around another block than the one given, or any loop."""
    loops = here.loops()
    if here.random.random() < 0.85 and "block" in given:
        label = here.state.outputs[given["block"]]
        inside = {loop for loop in loops if label in _labels(here.site(loop).body)}
        others = [loop for loop in loops if loop not in inside]
        return here.pick(others or loops)
    return here.pick(loops)


def _around(here: Here, given: Given) -> Handle:
    """A loop around the block given, mostly."""
    loops = here.loops()
    label = here.state.outputs[given["block"]]
    own = [loop for loop in loops if label in _labels(here.site(loop).body)]
    return here.pick(own if own and here.random.random() < 0.9 else loops)


def _inner(here: Here, given: Given, outwards: int) -> Handle:
    """The loop around the block given a given number of loops outwards, mostly."""
    mine = {here.state.outputs[loop]: loop for loop in here.loops()}
    label = here.state.outputs[given["block"]]
    assert isinstance(label, Name)
    around = here.map.blocks[label].loops
    if len(around) > outwards and here.random.random() < 0.9:
        return mine.get(around[-1 - outwards].var, _loop(here, given))
    return _loop(here, given)


def _labels(root: Stmt) -> set[Name]:
    return {stmt.label for stmt in statements(root) if isinstance(stmt, Block)}


def _any_block_number(here: Here, given: Given) -> int:
    return here.pick(range(len(here.map.blocks)))


def _role(here: Here, given: Given) -> str:
    return role_of(list(here.map.blocks.values())[given["number"]].node)


def _odds(here: Here, given: Given) -> tuple[float, ...]:
    return (1.0,) * len(given["candidates"])


def _vars(here: Here, given: Given) -> tuple[ScalarVar, ...]:
    block = here.site(given["block"])
    assert isinstance(block, Block)
    return block.vars


def _order(here: Here, given: Given) -> tuple[int, ...]:
    order = list(range(len(_vars(here, given))))
    here.random.shuffle(order)
    return tuple(order)


def _fitting(here: Here) -> list[str]:
    """The intrinsics of the dtype that the kernel computes in."""
    dtype = here.state.kernel.params[-1].dtype
    return [name for name in NAMES if name.endswith(str(dtype))]


def _intrinsic(here: Here, given: Given) -> str:
    """A matching intrinsic, if there is one; sometimes any."""
    fitting = _fitting(here) if here.random.random() < 0.9 else []
    names = fitting or list(NAMES)  # a kernel may have dtypes that no intrinsic is of
    here.random.shuffle(names)
    if here.random.random() < 0.8:
        for name in names:
            if tensorize(given["target"], name).check(here.state.scene) is None:
                return name
    return names[0]


def _tensorizable(here: Here, given: Given) -> Handle:
    """A loop or a block that matches an intrinsic, if there is one; sometimes any."""
    targets = [*here.loops(), *here.blocks()]
    if here.random.random() < 0.7:
        here.random.shuffle(targets)
        for target in targets:
            for name in _fitting(here):
                if tensorize(target, name).check(here.state.scene) is None:
                    return target
    return here.pick(targets)


def _siblings(here: Here, given: Given) -> tuple[Handle, ...]:
    """Two loops that stand after one another, mostly."""
    mine = {here.state.outputs[loop]: loop for loop in here.loops()}
    pairs = []
    for stmt in statements(here.state.kernel.body):
        loops = [each for each in substatements(stmt) if isinstance(each, For)]
        for one, two in pairwise(loops):
            if one.var in mine and two.var in mine:
                pairs.append((mine[one.var], mine[two.var]))
    if not pairs or here.random.random() < 0.1:
        return (_loop(here, given), _loop(here, given))
    return here.pick(pairs)


def _map(here: Here, given: Given) -> IndexMap:
    """A permutation of indices, sometimes with a split into digits."""
    ranks = [1, 2, 3] if here.random.random() < 0.2 else [len(_vars(here, given))]
    ranks += [len(buffer.shape) for buffer in here.map.buffers if buffer.shape]
    own = [axis("abcdef"[at % 6], at // 6) for at in range(here.pick(ranks[:2]))]
    results: list[Scalar] = list(own)
    if here.random.random() < 0.6:
        here.random.shuffle(results)
    if results and here.random.random() < 0.6:
        at, factor = here.pick(range(len(results))), here.pick((2, 3, 4))
        results[at : at + 1] = [results[at] // factor, results[at] % factor]
    if results and here.random.random() < 0.1:
        results.pop()
    return IndexMap(tuple(own), tuple(results))


def _map_or_none(here: Here, given: Given) -> IndexMap | None:
    return None if here.random.random() < 0.5 else _map(here, given)


def _padding(here: Here, given: Given) -> tuple[int, ...]:
    return tuple(here.pick((1, 2, 4)) for _ in _vars(here, given))


NOTES: Final = (
    ("pragma", "fast"), ("role", "a"), ("unroll_explicit", True), ("double_buffer", True),
    ("pragma", 3), ("no such", 1),
)  # fmt: skip


def _note(here: Here, given: Given) -> object:
    return dict(NOTES).get(given["key"], 1)


# What a row gives may be refused: that is part of what is tried.
# fmt: off
ARGUMENTS: Final[dict[str, Argument]] = {
    "loop":               _loop,
    "block":              _block,
    "target":             _target,
    "parent":             _block,
    "loops":              _shuffled,
    "number":             _any_block_number,
    "role":               _role,
    "factors":            _factors,
    "parts":              lambda here, given: here.pick((1, 2, 2, 3)),
    "at":                 lambda here, given: here.pick((0, 0, 1, 2)),
    "max_inner":          lambda here, given: here.pick((1, 2, 4, 16)),
    "candidates":         lambda here, given: (1, 2, 3, 4),
    "probabilities":      _odds,
    "tuples":             lambda here, given: ((1, 2), (2, 2), (3, 1)),
    "key":                lambda here, given: here.pick(NOTES)[0],
    "value":              _note,
    "thread":             lambda here, given: here.pick(THREADS),
    "scope":              lambda here, given: here.pick(("global", "shared", "local")),
    "fuse.loops":         _chain,
    "merge_loops.loops":  _siblings,
    "tensorize.target":   _tensorizable,
    "compute_at.loop":    _neighbour,
    "reverse_compute_at.loop": _neighbour,
    "decompose_reduction.loop": _around,
    "decompose_padding.loop":   _around,
    "index":              lambda here, given: here.pick((0, 0, 0, 1, 2)),
    "compute_at.index":   lambda here, given: here.pick((-1, -1, -2, 0, 1)),
    "reverse_compute_at.index": lambda here, given: here.pick((-1, -1, -2, 0, 1)),
    "set_scope.number":   lambda here, given: here.pick((0, 0, 1)),
    "storage_align.number": lambda here, given: here.pick((0, 0, 1)),
    "consumers":          lambda here, given: (),
    "axis":               lambda here, given: here.pick((0, 0, 1, -1)),
    "factor":             lambda here, given: here.pick((1, 4, 8)),
    "offset":             lambda here, given: here.pick((0, 1, 3)),
    "lengths":            _factors,
    "length":             lambda here, given: here.number((1, 2, 3, 4, 8)),
    "order":              _order,
    "padding":            _padding,
    "multiple":           lambda here, given: here.number((1, 2, 3, 4, 8)),
    "intrinsic":          _intrinsic,
    "map":                _map,
    "reindex.map":        _map_or_none,
    "rows":               lambda here, given: _inner(here, given, 1),
    "lanes":              lambda here, given: _inner(here, given, 0),
    "side":               lambda here, given: here.pick(("read", "write")),
    "pad":                lambda here, given: here.pick((None, None, 0)),
    "assume_injective":   lambda here, given: False,  # nobody vouches for a random map
}
# fmt: on


def argument(kind: str, field: str) -> Argument | None:
    """What finds the argument of a kind for a field."""
    return ARGUMENTS.get(f"{kind}.{field}", ARGUMENTS.get(field))


def fields_of(cls: type[Instruction]) -> tuple[str, ...]:
    """The names of an instruction's arguments, in order."""
    return tuple(each.name for each in attrs.fields(cls))  # type: ignore[arg-type]  # every class here is attrs
