"""Parallel loops: the body becomes a function over a range, which the pool runs in chunks.

    void body(buffers …, scalars …, i64 begin, i64 end)     what the loop does
    void chunk(ptr env, i64 begin, i64 end)                 takes those from memory, and calls it

The body is called, not inlined into the chunk, because only function parameters can be declared
disjoint to LLVM.
"""

from __future__ import annotations

from collections.abc import Callable

from attrs import evolve

from plica.analysis.constant_bound import Interval
from plica.codegen.llvm.buffer_address import parameter_facts
from plica.codegen.llvm.dialect import LLVM, register
from plica.codegen.llvm.lane import TRUE, LaneValue
from plica.codegen.llvm.pool import PARALLEL
from plica.codegen.llvm.value import LlvmValues
from plica.codegen.llvm.writer import LlvmWriter
from plica.core import free_vars
from plica.ir.loop import Buffer, For, ScalarVar, dtype_of


def can_share(values: LlvmValues, count: int | None) -> bool:
    """Whether the iterations of a loop may be distributed by the pool at this place."""
    around = values.around
    return count != 1 and around.lane is None and around.mask == TRUE


def share(
    loop: For,
    many: tuple[LaneValue, Interval],
    name: str,
    outer: LlvmValues,
    fill: Callable[[LlvmValues], str],
) -> list[str]:
    """Call the pool for a loop; the lines of the functions it needs.

    `many` is the trip count with its minimum and maximum; `fill` emits the body into a given
    function, and returns its attributes.
    """
    pointers, scalars = _captured(loop, outer)
    inner = LlvmValues(LlvmWriter(traits=outer.w.traits))
    w = inner.w
    params: list[tuple[str, str, str]] = []  # type in the environment, with facts, text outside
    for number, (pointer, buffers) in enumerate(pointers.items()):
        for buffer in buffers:
            place = outer.access.places[buffer]
            inner.access.places[buffer] = evolve(place, pointer=f"%p{number}")
        size = max(b.dtype.bytes * outer.access.places[b].span for b in buffers)
        params.append(("ptr", parameter_facts(buffers[0], size), pointer))
    for var in scalars:
        value = outer.around.vars[var]
        bounds = outer.around.interval(var) if dtype_of(var).is_integer else (0, 0)
        if value.number is not None and dtype_of(var).is_integer:
            inner.around.bind(var, value, bounds)
            continue
        kind = register(dtype_of(var))
        inner.around.bind(var, LaneValue(f"%p{len(params)}"), bounds)
        params.append((kind, kind, outer.lanes.scalar(value)))
    inner.around.facts = list(outer.around.facts)
    inner.begin()
    count, bounds = many
    opened = inner.around.begin(loop.var, "%begin", "%end", bounds)
    attributes = fill(inner)
    inner.around.close(opened)
    if inner.fails is not None:
        _report(inner, f"%p{len(params)}")
        params.append(("ptr", "ptr nonnull", _flag(outer)))
    w.do("ret void")
    inner.close()
    outer.w.helpers.update(w.helpers)
    outer.w.functions.update(w.functions)
    _call(outer, f"{name}.chunk", [(kind, text) for kind, _, text in params], count)
    told = [f"{full} %p{number}" for number, (_, full, _) in enumerate(params)]
    head = f"define internal void @{name}({', '.join([*told, 'i64 %begin', 'i64 %end'])})"
    chunk = _chunk(name, [kind for kind, _, _ in params])
    lines = [f"{head} {attributes} {{", "entry:", *inner.registers, *w.lines, "}"]
    return [*lines, *chunk]


def _captured(loop: For, outer: LlvmValues) -> tuple[dict[str, list[Buffer]], list[ScalarVar]]:
    """The free buffers and variables of a loop."""
    free = free_vars(loop.body)
    pointers: dict[str, list[Buffer]] = {}
    for buffer, place in outer.access.places.items():
        if buffer in free:
            pointers.setdefault(place.pointer, []).append(buffer)
    return pointers, list(outer.around.vars)


def _flag(outer: LlvmValues) -> str:
    """Where the function around notes that a check failed."""
    if outer.fails is None:
        outer.fails = outer.reserve("i1")
        outer.registers.append(f"  store i1 false, ptr {outer.fails}")
    return outer.fails


def _report(inner: LlvmValues, flag: str) -> None:
    """Tell the function around that a check failed; several chunks may, and all say the same."""
    w = inner.w
    failed = w.let(f"load i1, ptr {inner.fails}")
    tell, done = w.labels("tell", "told")
    w.do(f"br i1 {failed}, label %{tell}, label %{done}")
    w.start(tell)
    w.do(LLVM.failure.format(flag=flag))
    w.do(f"br label %{done}")
    w.start(done)


def _call(outer: LlvmValues, chunk: str, values: list[tuple[str, str]], count: LaneValue) -> None:
    """Stores the captured values, and runs the chunks in the pool."""
    w = outer.w
    env = outer.reserve("i64", max(2, len(values)))
    for number, (kind, text) in enumerate(values):
        at = w.let(f"getelementptr inbounds i64, ptr {env}, i64 {number}")
        w.do(f"store {kind} {text}, ptr {at}, align 8")
    w.do(f"call void @{PARALLEL}(ptr @{chunk}, ptr {env}, i64 {outer.lanes.scalar(count)})")


def _chunk(name: str, kinds: list[str]) -> list[str]:
    w = LlvmWriter()
    args = []
    for number, kind in enumerate(kinds):
        at = w.let(f"getelementptr inbounds i64, ptr %env, i64 {number}")
        args.append(f"{kind} {w.let(f'load {kind}, ptr {at}, align 8')}")
    w.do(f"call void @{name}({', '.join([*args, 'i64 %begin', 'i64 %end'])})")
    w.do("ret void")
    head = f"define internal void @{name}.chunk(ptr %env, i64 %begin, i64 %end) nounwind {{"
    return [head, "entry:", *w.lines, "}"]
