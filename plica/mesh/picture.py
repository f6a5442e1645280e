"""Pictures of plans: who holds what, and the bytes that move, as text and as data.

value       whole            each device      data  model
tokens      (8, 512) i64     (4, 512)         0     .
layer*_q    (4096, 4096) f32 (4096, 1024)     .     1      32 of them
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from plica.ir.type import TensorType, type_of
from plica.mesh.exchange import bytes_of
from plica.mesh.execute import CollectiveStep, steps_of
from plica.mesh.mesh import Layout, Mesh, sizes_of
from plica.mesh.sharded import ShardedProgram, cost_of

MAX_DRAWN_DEVICES = 16


def plan_data(sharded: ShardedProgram) -> dict[str, Any]:
    """The picture as JSON holds it."""
    mesh, cost = sharded.mesh, sharded.cost
    alone = cost_of(sharded.program, mesh, tuple([{} for _ in mesh.axes]))
    return {
        "mesh": dict(mesh.axes),
        "devices": mesh.devices,
        "held": [
            {"values": name, "count": count, "type": str(of), "layout": list(map(str, layout)),
             "local": list(mesh.local_shape(sizes_of(of), layout)),
             "blocks": [_block(mesh, of, layout, device)
                        for device in range(min(mesh.devices, MAX_DRAWN_DEVICES))]}
            for name, count, of, layout in _held(sharded)
        ],
        "exchanges": [
            {"collective": op, "axis": mesh.names[axis], "count": count, "type": str(of),
             "bytes": sent}
            for (op, axis, of, sent), count in _exchanged(sharded)
        ],
        "sent": dict(zip(mesh.names, cost.sent, strict=True)),
        "bytes_held": {"device": cost.held, "whole": alone.held},
        "steps": {"device": cost.steps, "whole": alone.steps},
    }  # fmt: skip


def _held(sharded: ShardedProgram) -> Iterator[tuple[str, int, TensorType, Layout]]:
    """The values that devices hold, equal ones of a pattern of names together."""
    groups: dict[tuple[str, TensorType, Layout], list[str]] = defaultdict(list)
    for held in sharded.held:
        name, of = sharded.program.names[held.value], sharded.program.types[held.value]
        groups[re.sub(r"\d+", "*", name), of, held.layout].append(name)
    for (pattern, of, layout), names in groups.items():
        yield names[0] if len(names) == 1 else pattern, len(names), of, layout


def _exchanged(sharded: ShardedProgram) -> list[tuple[tuple[str, int, TensorType, float], int]]:
    """The collectives with the bytes that each device sends, equal ones counted."""
    counts: Counter[tuple[str, int, TensorType, float]] = Counter()
    for step in steps_of(sharded):
        if isinstance(step, CollectiveStep):
            of, exchange = type_of(step.value), step.collective
            assert isinstance(of, TensorType)
            sent = exchange.bytes(bytes_of(of), sharded.mesh.sizes[exchange.axis])
            if sent:
                counts[exchange.op, exchange.axis, of, sent] += 1
    return sorted(counts.items(), key=lambda item: -item[0][3] * item[1])


def _block(mesh: Mesh, of: TensorType, layout: Layout, device: int) -> str:
    """The block of a device as slices, `:` where it has all of a dim."""
    where = zip(mesh.block(sizes_of(of), layout, device), sizes_of(of), strict=True)
    cut = [":" if (it.start, it.stop) == (0, n) else f"{it.start}:{it.stop}" for it, n in where]
    return f"[{', '.join(cut)}]"


def _type_text(of: str) -> str:
    return of.removeprefix("Tensor[").removesuffix("]")


def size_text(count: float) -> str:
    """A number of bytes in its unit.

    >>> size_text(1536), size_text(3 << 30)
    ('1.5 KiB', '3 GiB')
    """
    for power, unit in ((40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")):
        if count >= 1 << power:
            return f"{count / (1 << power):.3g} {unit}"
    return f"{count:.0f} B"


def picture(sharded: ShardedProgram) -> str:
    """The picture as text."""
    data, mesh = plan_data(sharded), sharded.mesh
    parts = [f"mesh {mesh}: {mesh.devices} devices"]
    rows = [["value", "whole", "each device", *mesh.names, ""]]
    for each in data["held"]:
        dims = ["." if word == "replicated" else word.removeprefix("split ")
                for word in each["layout"]]  # fmt: skip
        local = f"({', '.join(map(str, each['local']))})"
        many = f"{each['count']} of them" if each["count"] > 1 else ""
        rows.append([each["values"], _type_text(each["type"]), local, *dims, many])
    parts.append("what each device holds (the dim that an axis splits, . for none)")
    parts += _table(rows)
    drawn = [each for each in data["held"] if any(w != "replicated" for w in each["layout"])]
    if drawn:
        devices = range(min(mesh.devices, MAX_DRAWN_DEVICES))
        head = [" ".join(f"{n}={at}" for n, at in zip(mesh.names, mesh.coordinates(d), strict=True))
                for d in devices]  # fmt: skip
        parts.append("who holds which block")
        parts += _table([["device", *[each["values"] for each in drawn]],
                         *[[f"{d}: {head[d]}", *[each["blocks"][d] for each in drawn]]
                           for d in devices]])  # fmt: skip
    parts.append("what is sent in a call, by each device")
    sent = [[f"{each['count']} x", each["collective"], f"on {each['axis']}",
             _type_text(each["type"]), size_text(each["bytes"] * each["count"])]
            for each in data["exchanges"]]  # fmt: skip
    parts += _table(sent) if sent else ["  nothing"]
    held, steps = data["bytes_held"], data["steps"]
    parts.append(
        f"each device holds {size_text(held['device'])} of {size_text(held['whole'])}, does "
        f"{steps['device'] / max(steps['whole'], 1):.1%} of the work, and sends "
        f"{size_text(sum(data['sent'].values()))}"
    )
    return "\n".join(parts)


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    return [
        ("  " + "  ".join([cell.ljust(width) for cell, width in zip(row, widths, strict=True)]))
        .rstrip()
        for row in rows
    ]  # fmt: skip
