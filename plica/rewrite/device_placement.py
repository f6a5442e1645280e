"""Placement: on which device every value is computed, and where it has to be copied.

    before:  def f(x): return nn.relu(op.on_device(x @ w, "gpu"))
    after:   def f(x):
                 y = op.device_copy(x, "cpu", "gpu")
                 return op.device_copy(nn.relu(op.on_device(y @ w, "gpu")), "gpu", "cpu")

`on_device(v, d)` binds a value to a device, `device_copy(v, s, t)` its argument to one and its
result to another. Parameters, results, and everything touched by control flow are on the default
device unless those of the main function are marked. All other values are free and placed so that as
few values as possible are copied (a value is copied to a device once, for all its uses): for two
devices this is a minimum hypergraph cut and exact, for more devices at most twice the minimum.
Constants are on every device.

>>> from plica.ir.text.script import from_text
>>> module = from_text(
...     "from __future__ import annotations\\n"
...     "import plica\\nfrom plica import op\\nfrom plica.script import Tensor, f32\\n"
...     "@plica.function\\n"
...     "def f(a: Tensor[(2,), f32]) -> Tensor[(2,), f32]:\\n"
...     "    return op.exp(op.on_device(op.exp(a), 'gpu')) + 1.0\\n"
... )
>>> [(copy.source, copy.target) for copy in plan_devices(module, "cpu").copies]
[('cpu', 'gpu'), ('gpu', 'cpu')]

Laws: the meaning is preserved; every value has one device; `place` is idempotent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from attrs import frozen

from plica.core import IllTyped
from plica.ir.graph import Apply, Const, Expr, Function, Module, Project, Var, attr
from plica.ir.graph.expression import Constructor, Literal
from plica.ir.op.mark import device_copy
from plica.ir.passes import exact_pass
from plica.ir.type import TensorType, type_of
from plica.rewrite.graph.dataflow import to_dataflow
from plica.rewrite.graph.walk import expressions, map_functions, operands, with_operands
from plica.rewrite.min_cut import cheapest
from plica.runtime.error import Diagnostic

MARK: Final = "on_device"
COPY: Final = "device_copy"


@frozen
class DeviceTransfer:
    """A value that is brought from one device to another."""

    value: Expr
    source: str
    target: str


@frozen
class DevicePlacement:
    """A plan: the module it is of, the device of each value in the order of a walk, the copies."""

    module: Module
    default: str
    devices: tuple[tuple[Expr, str], ...]
    ends: tuple[Expr, ...]  # the main function and those of its parameters that marks may move
    copies: tuple[DeviceTransfer, ...]

    def device(self, value: Expr) -> str:
        """The device of a value; the default device if the plan does not name it."""
        return dict(self.devices).get(value, self.default)


def place(module: Module, default: str = "cpu") -> Module:
    """The module with copies where a value is used on another device than it is on."""
    plan = plan_devices(module, default)
    return apply_placement(plan)


def apply_placement(plan: DevicePlacement) -> Module:
    """The module of a plan with its copies written in."""
    device = dict(plan.devices)
    default = plan.default
    memo: dict[Expr, Expr] = {}

    def there(part: Expr, target: str) -> Expr:
        source = device.get(part, default)
        if source == target or part not in device:
            return memo[part]
        return device_copy(memo[part], source, target)

    def rewrite(_: Var, function: Function) -> Function:
        for node in expressions(function):
            if node not in memo:
                parts = operands(node)
                needed = [_needed(node, part, device, plan.ends, default) for part in parts]
                memo[node] = with_operands(node, tuple(map(there, parts, needed)))
        made = memo[function]
        assert isinstance(made, Function)
        return made

    return map_functions(plan.module, rewrite)


def plan_devices(module: Module, default: str = "cpu") -> DevicePlacement:
    """Where each value of a module is computed so that few are copied.

    Raises `IllTyped` where a value is bound to two devices.
    """
    known = to_dataflow(module)
    functions = [function for _, function in known.functions()]
    everything = expressions(*functions)
    ends = _ends(known, everything)
    carrier = {node: _carrier(node) for node in everything if _has_device(node)}
    pinned = _pinned(carrier, ends, default)
    nets: dict[Expr, dict[Expr | str, None]] = {}
    for node in everything:
        for part in operands(node):
            if part not in carrier or _leaves(node, part, ends):
                continue
            whole = carrier[part]
            user = carrier.get(node, default)
            if user is not whole:
                nets.setdefault(whole, {whole: None})[user] = None
    chosen = cheapest([tuple(net) for net in nets.values()], pinned, default)
    devices = tuple((node, chosen.get(whole, default)) for node, whole in carrier.items())
    copies = _copies(everything, dict(devices), ends, default)
    return DevicePlacement(known, default, devices, ends, tuple(copies))


def _ends(module: Module, everything: list[Expr]) -> tuple[Expr, ...]:
    """The main function and its parameters, whose devices are part of the interface: marks move
    them."""
    if module.main is None:
        return ()
    main = module.main_function()
    others = {
        p
        for node in everything
        if isinstance(node, Function)
        for p in node.params
        if node is not main
    }
    return (main, *[param for param in main.params if param not in others])


def _copies(
    everything: list[Expr], device: Mapping[Expr, str], ends: tuple[Expr, ...], default: str
) -> Iterator[DeviceTransfer]:
    """Every value that is used somewhere else, once for each device."""
    seen: set[tuple[Expr, str]] = set()
    for node in everything:
        for part in operands(node):
            source = device.get(part, default)
            target = _needed(node, part, device, ends, default)
            if part in device and source != target and (part, target) not in seen:
                seen.add((part, target))
                yield DeviceTransfer(part, source, target)


def _has_device(node: Expr) -> bool:
    """Whether an expression is a value on a device: constants are everywhere."""
    if isinstance(node, Const | Literal | Constructor):
        return False
    return isinstance(node, Apply) or isinstance(type_of(node), TensorType)


def _carrier(node: Expr) -> Expr:
    """The expression whose device a value is on: one of several results is where all are."""
    return node.value if isinstance(node, Project) and isinstance(node.value, Apply) else node


def _leaves(node: Expr, part: Expr, ends: tuple[Expr, ...]) -> bool:
    """Whether a part may be anywhere: it is copied on purpose, or it is a marked result."""
    if isinstance(node, Apply):
        return node.op == COPY
    return node in ends and isinstance(part, Apply) and part.op in (MARK, COPY)


def _needed(
    node: Expr, part: Expr, device: Mapping[Expr, str], ends: tuple[Expr, ...], default: str
) -> str:
    """On which device an expression needs a part of it."""
    if isinstance(node, Apply) and node.op == COPY:
        return str(attr(node, "source"))
    if isinstance(node, Project) or _leaves(node, part, ends):
        return device.get(part, default)
    return device.get(node, default)


def _pinned(carrier: Mapping[Expr, Expr], ends: tuple[Expr, ...], default: str) -> dict[Expr, str]:
    """The devices that are not free to choose."""
    found: dict[Expr, str] = {}
    wrong: list[Diagnostic] = []

    def pin(node: Expr, device: str) -> None:
        whole = carrier.get(node)
        if whole is None or not (isinstance(whole, Apply) or whole in ends):
            return  # control flow leaves its values on the default device: they are copied
        other = found.setdefault(whole, device)
        if other != device:
            wrong.append(_conflict(whole, other, device))

    for node in carrier:
        if not isinstance(node, Apply):
            continue
        if node.op == MARK:
            pin(node, str(attr(node, "device")))
            pin(node.args[0], str(attr(node, "device")))
        elif node.op == COPY:
            pin(node, str(attr(node, "target")))
            pin(node.args[0], str(attr(node, "source")))
    if wrong:
        raise IllTyped(*wrong)
    for whole in carrier.values():
        if not isinstance(whole, Apply):
            found.setdefault(whole, default)
    return found


def _conflict(value: Expr, one: str, other: str) -> Diagnostic:
    name = str(value.name) if isinstance(value, Var) else "a value"
    if isinstance(value, Apply):
        name = f"the result of {value.op}"
    return Diagnostic(
        "device-conflict",
        f"Two marks bind {name} to two devices, {one} and {other}.",
        expected=one,
        found=other,
        suggestion=f"Copy it: op.device_copy(x, {one!r}, {other!r}).",
    )


PLACE_DEVICES: Final = exact_pass(
    "place-devices", "Values are copied where they are used on another device than made.", place
)
"""As a pass: device marks become copies; on one device they vanish."""
