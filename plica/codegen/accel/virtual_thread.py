"""Virtual threads: several threads in one stream, turn by turn.

    threads t < 2:                     loop k < 8:
      loop k < 8:              -->       loop t < 2:
        load a                             load a[t]
        multiply a                       loop t < 2:
                                           multiply a[t]

>>> from plica.codegen.accel.flow import ZERO, Memory
>>> from plica.codegen.accel.vta import vta
>>> from plica.ir.loop.scalar import index
>>> from plica.ir.loop.tensor import axis
>>> t, x, a = axis("t"), Memory("x", "inp", 8), Tile("a", "inp", 4)
>>> load = Transfer("load.inp", a, ZERO, x, t * 4, index(1), index(4), index(4))
>>> lower(vta(), Flow((x,), (a,), Threads(t, 2, load))).tiles[0].elements
8
"""

from __future__ import annotations

from attrs import evolve

from plica.codegen.accel.declaration import Accelerator
from plica.codegen.accel.flow import Flow, Loop, Steps, Stmt, Threads, Tile, Touch, Transfer, Work
from plica.core import Term, fold, map_bottom_up, post_order
from plica.ir.loop.scalar import ScalarVar


def lower(machine: Accelerator, flow: Flow) -> Flow:
    """The flow without `Threads`."""
    body = flow.body
    sizes: dict[Term, int] = {tile: tile.elements for tile in flow.tiles}

    def one(node: Term) -> Term:
        if not isinstance(node, Threads):
            return node
        used = {each for each in post_order(node.body) if isinstance(each, Tile) and each.private}
        apart = _apart(node.body, node.var, {tile: sizes[tile] for tile in used})
        for tile in used:
            sizes[tile] *= node.extent
        return _distribute(machine, node.var, node.extent, apart)

    lowered = map_bottom_up(one, body)
    grown = {tile: evolve(tile, elements=sizes[tile], private=False) for tile in flow.tiles}
    renamed = map_bottom_up(lambda node: grown.get(node, node), lowered)  # type: ignore[call-overload]  # only tiles are keys
    return evolve(flow, tiles=tuple(grown[tile] for tile in flow.tiles), body=renamed)


def _apart(body: Stmt, thread: ScalarVar, sizes: dict[Tile, int]) -> Stmt:
    """Let each thread touch its own part of the private tiles."""

    def one(node: Term) -> Term:
        if isinstance(node, Transfer) and node.tile in sizes:
            return evolve(node, sram=node.sram + thread * sizes[node.tile])
        if isinstance(node, Touch) and node.tile in sizes:
            return evolve(node, base=node.base + thread * sizes[node.tile])
        return node

    return map_bottom_up(one, body)


def _distribute(machine: Accelerator, thread: ScalarVar, count: int, body: Stmt) -> Stmt:
    """The loop over the threads, moved inwards to the regions."""

    def algebra(
        node: Term, kids: tuple[tuple[Term, Term, frozenset[str]], ...]
    ) -> tuple[Term, Term, frozenset[str]]:
        """The statement itself, with the threads in it, and the units it needs."""
        match node:
            case Transfer(operation) | Work(operation):
                unit = machine.operation(operation).unit
                return node, Loop(thread, count, node), frozenset({unit})
            case Loop(var, extent, inside):
                _, spread, units = kids[node._children.index(inside)]
                assert isinstance(spread, Stmt)
                if len(units) == 1:
                    return node, Loop(thread, count, node), units
                return node, Loop(var, extent, spread), units
            case Steps(stmts):
                regions: list[Stmt] = []
                together: list[Stmt] = []
                of: frozenset[str] = frozenset()
                every: frozenset[str] = frozenset()
                for each, spread, units in kids:
                    assert isinstance(each, Stmt)
                    assert isinstance(spread, Stmt)
                    every |= units
                    if together and units != of:
                        regions.append(Loop(thread, count, Steps(tuple(together))))
                        together = []
                    if len(units) == 1:
                        together.append(each)
                        of = units
                    else:
                        regions.append(spread)
                if together:
                    regions.append(Loop(thread, count, Steps(tuple(together))))
                if len(every) == 1:
                    return node, Loop(thread, count, node), every
                del stmts
                return node, Steps(tuple(regions)), every
            case _:
                return node, node, frozenset()

    _, spread, _ = fold(algebra, body)
    assert isinstance(spread, Stmt)
    return spread
