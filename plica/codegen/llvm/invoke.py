"""Invocations: a tensor intrinsic that LLVM has a function for, on the regions it is given."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from plica.codegen.llvm.buffer_address import Size
from plica.codegen.llvm.loop_context import RegionOutside
from plica.codegen.llvm.tile_product import name_of
from plica.codegen.llvm.value import LlvmValues
from plica.codegen.lower.extern_call import PREFIX, symbol_of
from plica.core import CompilerBug
from plica.ir.loop.intrinsic import find_intrinsic
from plica.ir.loop.scalar import Buffer
from plica.ir.loop.statement import Invoke, Region
from plica.ir.type import known
from plica.schedule.default.machine import BYTE, QUAD, TILE_QUADS, WINDOW_LANES


def numbers(buffer: Buffer, dims: Sequence[Size]) -> tuple[int, ...]:
    """Sizes of a buffer, all of which must be known."""
    found = [dim for dim in dims if isinstance(dim, int)]
    if len(found) < len(dims):
        raise CompilerBug(f"The buffer {buffer.name} has a symbolic dim.")
    return tuple(found)


def invoke(call: Invoke, values: LlvmValues) -> None:
    """Call LLVM's function for an intrinsic, or an extern by its symbol."""
    if (symbol := symbol_of(call)) is not None:
        _call_symbol(symbol, call, values)
        return
    intrinsic = find_intrinsic(call.name)
    hints = {} if intrinsic is None else dict(intrinsic.hints)
    if "tiles" in hints:
        _multiply_tiles(call, values)
        return
    if "llvm" not in hints:
        raise CompilerBug(f"Lowering left an invocation of {call.name}, which LLVM does not have.")
    regions = [operand for operand in call.operands if isinstance(operand, Region)]
    if "lanes" in hints:
        _add_window(regions, hints, values)
        return
    if "bits" in hints:
        _add_words(regions, hints, values)
        return
    if "pairs" in hints:
        _add_pairs(regions, hints, values)
        return
    shared, own, result = [_address(region, values) for region in regions]
    w = values.w
    lanes = _elements(regions[2])
    each = _elements(regions[1]) // lanes
    total = f"<{lanes} x i32>"
    beside = _quads_beside(regions[0], values, lanes) if hints["operand"] == "i8" else None
    if beside is None:
        # Loaded as a float it is in a vector register: the instruction uses one lane of it.
        one = "float" if hints["operand"] == "i8" else "i32"
        read = w.let(f"load {one}, ptr {shared}, align {regions[0].buffer.dtype.bytes}")
        first = w.let(f"insertelement <{lanes} x {one}> poison, {one} {read}, i64 0")
        if one == "float":
            first = w.let(f"bitcast <{lanes} x float> {first} to {total}")
        mask = f"<{lanes} x i32> zeroinitializer"
    else:
        place, number = beside
        first = w.let(f"load {total}, ptr {place}, align {regions[0].buffer.dtype.bytes}")
        mask = f"<{lanes} x i32> splat (i32 {number})"
    left = w.let(f"shufflevector {total} {first}, {total} poison, {mask}")
    kind = total if hints["operand"] == "i32" else f"<{lanes * each} x {hints['operand']}>"
    if kind != total:
        left = w.let(f"bitcast {total} {left} to {kind}")
    right = w.let(f"load {kind}, ptr {own}, align 1")
    before = w.let(f"load {total}, ptr {result}, align 4")
    name, args = str(hints["llvm"]), [(total, before), (kind, left), (kind, right)]
    if hints["operand"] == "i8":  # of two of one dtype the last may be one lane for all
        args = [(total, before), (kind, right), (kind, left)]
    if hints["operand"] == "i16":
        w.functions[name] = (total, (kind, kind))
        after = w.let(f"add {total} {before}, {w.call(name, total, args[1:])}")
    else:
        # The declaration uses 32-bit operands for the 8-bit ones of later LLVM versions.
        w.functions[name] = (total, (total, kind, kind))
        after = w.call(name, total, args)
    w.do(f"store {total} {after}, ptr {result}, align 4")


def _quads_beside(of: Region, values: LlvmValues, lanes: int) -> tuple[str, int] | None:
    """The base of the vector that contains a quad, and the quad's lane in it: several quads are
    loaded at once, and products broadcast one lane. None if some may be out of bounds.

    Vectors begin at steps of an unrolled loop that are multiples of the lanes; its steps lie by
    one another, along the axis that has a stride of one quad.
    """
    place = values.access.places[of.buffer]
    sizes = zip(place.strides, place.shape, strict=True)
    axis = next(
        (at for at, (stride, size) in enumerate(sizes) if stride == QUAD and size != 1), None
    )
    at = values.access.linear(of.buffer, values.evaluate(of.starts))
    number, left = divmod(at.plus, QUAD)
    if axis is None or left or known(of.extents[axis]) != 1:
        return None
    number %= lanes
    first, size = of.starts[axis] - number, of.buffer.shape[axis]
    count = size if (whole := known(size)) is None else whole
    if not all(values.around.is_inside(scalar, count) for scalar in (first, first + (lanes - 1))):
        return None
    start = at._replace(plus=at.plus - number * QUAD)
    return values.access.address(of.buffer, start, False), number


def _add_pairs(regions: Sequence[Region], hints: Mapping[str, object], values: LlvmValues) -> None:
    """Dot products with separate bytes per lane in both operands: one per digit, with higher ones
    shifted."""
    left, result = (_address(region, values) for region in (regions[0], regions[2]))
    w, lanes, name = values.w, _elements(regions[2]), str(hints["llvm"])
    total, operand = f"<{lanes} x i32>", str(hints["operand"])
    kind = total if operand == "i32" else f"<{QUAD * lanes} x {operand}>"
    w.functions[name] = (total, (total, kind, kind))
    before = w.let(f"load {total}, ptr {result}, align 4")
    first, after = w.let(f"load {kind}, ptr {left}, align 1"), "zeroinitializer"
    for digit, row in enumerate(rows := _rows(regions[1], values)):
        if digit:
            after = w.let(f"shl {total} {after}, splat (i32 {BYTE})")
        if digit + 1 == len(rows):
            after = w.let(f"add {total} {after}, {before}")
        second = w.let(f"load {kind}, ptr {row}, align 1")
        after = w.call(name, total, [(total, after), (kind, first), (kind, second)])
    w.do(f"store {total} {after}, ptr {result}, align 4")


def _add_words(regions: Sequence[Region], hints: Mapping[str, object], values: LlvmValues) -> None:
    """A dot product of numbers of few bits: those in one place of all bytes of words at a time."""
    (shared, own, result), w = [_address(region, values) for region in regions], values.w
    lanes, bits, parts = _elements(regions[2]), int(str(hints["bits"])), _elements(regions[0]) // 4
    total, kind, name = f"<{lanes} x i32>", f"<{QUAD * lanes} x i8>", str(hints["llvm"])
    w.functions[name] = (total, (total, kind, kind))
    quads = w.let(f"load <{parts} x i32>, ptr {shared}, align 1")
    words = w.let(f"load {kind}, ptr {own}, align 1")
    after = w.let(f"load {total}, ptr {result}, align 4")
    for part in range(parts):
        lane = f"<{lanes} x i32> splat (i32 {part})"
        quad = w.let(f"shufflevector <{parts} x i32> {quads}, <{parts} x i32> poison, {lane}")
        left = w.let(f"bitcast {total} {quad} to {kind}")
        right = words
        if part:
            right = w.let(f"lshr {kind} {right}, splat (i8 {bits * part})")
        if part + 1 < parts:
            right = w.let(f"and {kind} {right}, splat (i8 {2**bits - 1})")
        after = w.call(name, total, [(total, after), (kind, right), (kind, left)])
    w.do(f"store {total} {after}, ptr {result}, align 4")


def _add_window(regions: Sequence[Region], hints: Mapping[str, object], values: LlvmValues) -> None:
    """A dot product with separate data per lane: the terms of a lane lie in rows, and are
    interleaved in registers, as many lanes at a time as the instruction has."""
    data, (own, result), w = regions[0], [_address(each, values) for each in regions[1:]], values.w
    lanes, some, one = _elements(regions[2]), int(str(hints["lanes"])), "<{} x i8>".format
    rows = [w.let(f"load {one(lanes)}, ptr {place}, align 1") for place in _rows(data, values)]
    total, kind = f"<{some} x i32>", one(QUAD * some)
    name = str(hints["llvm"])
    operand = total if hints["operand"] == "i32" else kind
    w.functions[name] = (total, (total, operand, operand))
    turned = _side_by_side if QUAD * some == lanes else _in_words
    for number, quad in enumerate(turned(rows, some, values)):
        left = w.let(f"bitcast {total} {quad} to {operand}") if operand != total else quad
        by = w.let(f"getelementptr inbounds i8, ptr {own}, i64 {QUAD * some * number}")
        right = w.let(f"load {operand}, ptr {by}, align 1")
        place = w.let(f"getelementptr inbounds i32, ptr {result}, i64 {some * number}")
        before = w.let(f"load {total}, ptr {place}, align 4")
        after = w.call(name, total, [(total, before), (operand, left), (operand, right)])
        w.do(f"store {total} {after}, ptr {place}, align 4")


def _in_words(rows: Sequence[str], some: int, values: LlvmValues) -> list[str]:
    """Four rows of bytes as words of four, this many at a time: long vectors are made of parts that
    no instruction brings side by side, but each byte is widened and moved to its place."""
    w, kind, lanes, found = values.w, f"<{some} x i32>", WINDOW_LANES, []
    for start in range(0, lanes, some):
        taken, whole = range(start, start + some), ""
        for number, row in enumerate(rows):
            part = row if some == lanes else _shuffled((row, row), "i8", lanes, taken, values)
            word = w.let(f"zext <{some} x i8> {part} to {kind}")
            if number:
                word = w.let(f"shl {kind} {word}, splat (i32 {8 * number})")
            whole = w.let(f"or {kind} {whole}, {word}") if whole else word
        found.append(whole)
    return found


def _side_by_side(rows: Sequence[str], some: int, values: LlvmValues) -> list[str]:
    """Four rows of 16 bytes interleaved to four vectors of words: bytes first, then pairs.

    Pairs are numbers of 16 bits meanwhile, so that each step is one instruction and not part of
    a permutation of all bytes.
    """
    w, count = values.w, WINDOW_LANES
    halves = range(0, count, count // 2)
    pairs = [
        w.let(f"bitcast <{count} x i8> {zipped} to <{count // 2} x i16>")
        for start in halves
        for both in (rows[:2], rows[2:])
        for zipped in (_shuffled(both, "i8", count, _in_turn(start, count), values),)
    ]
    quarters = range(0, count // 2, count // 4)
    quads = [
        _shuffled(both, "i16", count // 2, _in_turn(start, count // 2), values)
        for both in (pairs[:2], pairs[2:])
        for start in quarters
    ]
    return [w.let(f"bitcast <{count // 2} x i16> {quad} to <{some} x i32>") for quad in quads]


def _in_turn(start: int, count: int) -> list[int]:
    """The interleaved halves of two vectors with this many lanes."""
    return [at + number for at in range(start, start + count // 2) for number in (0, count)]


def _shuffled(
    both: Sequence[str], kind: str, lanes: int, taken: Iterable[int], values: LlvmValues
) -> str:
    """Lanes of two vectors, those of the second behind those of the first."""
    order = [f"i32 {each}" for each in taken]
    of, mask = f"<{lanes} x {kind}>", f"<{len(order)} x i32> <{', '.join(order)}>"
    return values.w.let(f"shufflevector {of} {both[0]}, {of} {both[1]}, {mask}")


def _rows(of: Region, values: LlvmValues) -> list[str]:
    """The base addresses of a region's rows, or of its only row, each contiguous."""
    place = values.access.places[of.buffer]
    shape, strides = numbers(of.buffer, place.shape), numbers(of.buffer, place.strides)
    *some, _ = [at for at, extent in enumerate(of.extents) if known(extent) != 1]
    if not some:
        return [_address(of, values)]
    if len(some) != 1 or known(of.extents[-1]) == 1 or strides[-1] != 1:
        raise CompilerBug(f"A region of {of.buffer.name} has no rows.")
    for start, size, extent in zip(of.starts, shape, of.extents, strict=True):
        if not values.around.is_inside(start, size - (known(extent) or 0) + 1):
            raise RegionOutside(of.buffer.name)
    first = values.access.linear(of.buffer, values.evaluate(of.starts))
    apart = [number * strides[some[0]] for number in range(known(of.extents[some[0]]) or 0)]
    return [
        values.access.address(of.buffer, first._replace(plus=first.plus + each), False)
        for each in apart
    ]


def _multiply_tiles(call: Invoke, values: LlvmValues) -> None:
    """A product of tiles, by a function for its shape (`plica.codegen.llvm.tile_product`)."""
    x, w, y = [operand for operand in call.operands if isinstance(operand, Region)]
    sizes = [known(operand) or 0 for operand in call.operands if not isinstance(operand, Region)]
    rows, vectors, quads = sizes
    name = name_of(str(x.buffer.dtype), rows, vectors)
    values.w.helpers.add((f"tiles.{name}", 0))
    values.w.functions["syscall"] = ("i64", ("i64", "..."))  # it asks for the registers once
    places = [_first(region, values) for region in (x, w)]
    apart = [_strides(region, values) for region in (x, w)]
    result = _address(y, values)
    args = (
        f"ptr {places[0]}, i64 {apart[0][-2]}, ptr {places[1]}, i64 {apart[1][-4]}, "
        f"ptr {result}, i64 {quads // TILE_QUADS}"
    )
    values.w.do(f"call void @plica.tiles.{name}({args})")


def _strides(of: Region, values: LlvmValues) -> tuple[int, ...]:
    """How many bytes apart neighbours along each dim of a buffer are."""
    steps = numbers(of.buffer, values.access.places[of.buffer].strides)
    return tuple([step * of.buffer.dtype.bytes for step in steps])


def _call_symbol(symbol: str, call: Invoke, values: LlvmValues) -> None:
    """A function of the C ABI: it is given addresses, then numbers."""
    places = values.access.places
    is_whole = call.name.startswith(PREFIX)
    args = []
    for each in call.operands:
        if isinstance(each, Region):
            args.append(("ptr", places[each.buffer].pointer if is_whole else _first(each, values)))
        else:
            (size,) = values.evaluate([each])
            args.append(("i64", values.lanes.scalar(size)))
    values.w.functions[symbol] = ("void", tuple([kind for kind, _ in args]))
    given = ", ".join(f"{kind} {text}" for kind, text in args)
    values.w.do(f"call void @{symbol}({given})")


def _elements(of: Region) -> int:
    count = 1
    for extent in of.extents:
        if (size := known(extent)) is None:
            raise CompilerBug(f"A region of {of.buffer.name} has no known size.")
        count *= size
    return count


def _address(of: Region, values: LlvmValues) -> str:
    """Where a region begins; its elements must lie one behind another."""
    place = values.access.places[of.buffer]
    step = 1
    for extent, stride in reversed([*zip(of.extents, place.strides, strict=True)]):
        count = known(extent)
        if count != 1:
            if stride != step:
                raise CompilerBug(f"A region of {of.buffer.name} is not one piece of memory.")
            step *= count or 0
    return _first(of, values)


def _first(of: Region, values: LlvmValues) -> str:
    """Where the first element of a region is, all of which is inside of its buffer."""
    for start, size, extent in zip(of.starts, of.buffer.shape, of.extents, strict=True):
        whole, taken = known(size), known(extent) or 0
        last = size - (taken - 1) if whole is None else whole - taken + 1
        if not values.around.is_inside(start, last):
            raise RegionOutside(of.buffer.name)
    at = values.access.linear(of.buffer, values.evaluate(of.starts))
    return values.access.address(of.buffer, at, False)
