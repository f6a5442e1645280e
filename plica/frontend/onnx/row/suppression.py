"""Suppression: sequential loops for non-maximum suppression per class.

    candidates = the boxes whose score is above the least, as a heap with the best on top
    while there are candidates, and fewer are kept than may be:
        take the best;  keep it unless it lies over one that is kept

>>> kernel = suppression((1, 2, 100), 5)
>>> [str(buffer.name) for buffer in kernel.params]
['boxes', 'scores', 'most', 'overlap', 'least', 'rows', 'count', 'heap', 'kept']
>>> kernel.inputs
5
"""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import indent
from typing import Final

from plica.ir.loop.statement import Kernel
from plica.ir.text.script import from_text

LANES: Final = 8  # kept boxes compared at once


def suppression(
    sizes: Sequence[int], most: int, *, centred: bool = False, has_least: bool = True
) -> Kernel:
    """The kernel for a number of batches, classes and boxes, of which each class keeps at most
    `most`.

    Its inputs are boxes (as corners, or centre and extent), their scores, the maximum number, the
    overlap threshold, and the score threshold, if any; it returns rows of batch, class and box,
    their number, and its scratch buffers.
    """
    (batch, classes, count), groups = sizes, -(-most // LANES)
    rows, height = batch * classes * most, max(1, count.bit_length() - 1)
    # No branch on a score: nobody can guess which are above.
    above = "1 if least[()] < scores[b, c, box] else 0" if has_least else "1"
    corners = [f"boxes[b, {_clamped('box', count)}, {n}]" for n in range(4)]
    if centred:
        y, x, *extents = corners
        half_y, half_x = (f"{extent} * 0.5" for extent in extents)
        corners = [f"{y} - {half_y}", f"{x} - {half_x}", f"{y} + {half_y}", f"{x} + {half_x}"]
    y0, x0, y1, x1 = corners
    lane = f"{_clamped('group', groups)} * {LANES} + lane"
    kept, row = _clamped("number[0]", most), _clamped("count[()]", rows)
    text = f"""
@plica.kernel(inputs={4 + has_least})
def suppression(
    boxes: Buffer[({batch}, {count}, 4), f32],
    scores: Buffer[({batch}, {classes}, {count}), f32],
    most: Buffer[(), i64],
    overlap: Buffer[(), f32],
    {"least: Buffer[(), f32]," if has_least else ""}
    rows: Buffer[({rows}, 3), i64],
    count: Buffer[(), i64],
    heap: Buffer[({count},), i32],
    kept: Buffer[(4, {groups * LANES}), f32],
):
    hits = alloc(Buffer[({LANES},), i32, "local"])
    covered = alloc(Buffer[(1,), i64, "local"])
    first = alloc(Buffer[(1,), i64, "local"])
    at = alloc(Buffer[(1,), i64, "local"])
    number = alloc(Buffer[(1,), i64, "local"])
    size = alloc(Buffer[(1,), i64, "local"])
    count[()] = 0
    for i, n in grid({rows}, 3):
        rows[i, n] = -1
    for i in range({count}):
        heap[i] = 0
    for n, i in grid(4, {groups * LANES}):
        kept[n, i] = 0.0
    for b, c in grid({batch}, {classes}):
        size[0] = 0
        for box in range({count}):
            heap[{_clamped("size[0]", count)}] = i32(box)
            size[0] += {above}
        # Heapify: from the lowest parents to the root, each sinks as far as its subtree reaches.
        first[0] = {(1 << (height - 1)) - 1}  # 2 ** n - 1, and as many places less one behind it
        for below in range({height}):
            places = min({_clamped("size[0] // 2 - first[0]", count + 1)}, first[0] + 1)
            for place in range(places):
                at[0] = first[0] + place
                levels = below + 1
{indent(_sink("levels", count), " " * 16)}
            first[0] = first[0] // 2
        number[0] = 0
        candidates = {_clamped("size[0]", count + 1)}
        for turn in range(candidates):
            if number[0] < min(most[()], {most}):
                box = {_box("0", count)}
                heap[0] = heap[{_clamped("size[0] - 1", count)}]
                size[0] = size[0] - 1
                at[0] = 0
{indent(_sink(str(height), count), " " * 16)}
                y0 = min({y0}, {y1})
                x0 = min({x0}, {x1})
                y1 = max({y0}, {y1})
                x1 = max({x0}, {x1})
                covered[0] = 0
                groups = ({_clamped("number[0]", most + 1)} + {LANES - 1}) // {LANES}
                for group in range(groups):
                    if covered[0] == 0:
                        for lane in vectorized({LANES}):
                            _0 = max(min(kept[2, {lane}], y1) - max(kept[0, {lane}], y0), 0.0)
                            _1 = max(min(kept[3, {lane}], x1) - max(kept[1, {lane}], x0), 0.0)
                            _2 = kept[2, {lane}] - kept[0, {lane}]
                            _3 = kept[3, {lane}] - kept[1, {lane}]
                            _4 = _2 * _3 + (y1 - y0) * (x1 - x0) - _0 * _1
                            _5 = 0.0 < _4 and overlap[()] < _0 * _1 / (_4 if 0.0 < _4 else 1.0)
                            hits[lane] = i32(1) if _5 and {lane} < number[0] else i32(0)
                        covered[0] = i64({" + ".join([f"hits[{n}]" for n in range(LANES)])})
                if covered[0] == 0:
                    kept[0, {kept}] = y0
                    kept[1, {kept}] = x0
                    kept[2, {kept}] = y1
                    kept[3, {kept}] = x1
                    rows[{row}, 0] = b
                    rows[{row}, 1] = c
                    rows[{row}, 2] = box
                    number[0] += 1
                    count[()] += 1
"""
    (kernel,) = from_text(text).values
    assert isinstance(kernel, Kernel)
    return kernel


def _clamped(index: str, size: int) -> str:
    """An index inside of an axis, so that bounds are provable."""
    return f"max(0, min({index}, {size - 1}))"


def _box(place: str, count: int) -> str:
    """The box at a place of the heap."""
    return _clamped(f"i64(heap[{_clamped(place, count)}])", count)


def _sink(levels: str, count: int) -> str:
    """Sinks the element at `at` through a number of levels, while a child precedes it."""

    def precedes(one: str, other: str) -> str:
        """NaN is the greatest score; ties go by number."""
        a, b = (_box(place, count) for place in (one, other))
        mine, yours = f"scores[b, c, {a}]", f"scores[b, c, {b}]"
        above = f"not {mine} <= {yours} and {yours} == {yours}"
        below = f"not {yours} <= {mine} and {mine} == {mine}"
        return f"({above} or not ({below}) and {a} < {b})"

    here, child = _clamped("here", count), _clamped("child", count)
    return f"""
for step in range({levels}):
    if {_clamped("at[0]", count)} * 2 + 1 < size[0]:
        here = {_clamped("at[0]", count)}
        left = here * 2 + 1
        right = min(left + 1, size[0] - 1)
        child = right if {precedes("right", "left")} else left
        if {precedes("child", "here")}:
            parent = heap[{here}]
            heap[{here}] = heap[{child}]
            heap[{child}] = parent
            at[0] = child
        else:
            at[0] = {count}
"""
