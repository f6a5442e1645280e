"""Reading: operations of StableHLO, one after the other, become terms.

The text declares the type of every value. A row's result is checked against it: a difference is a
bug of the row. Functions are read where they are called.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator, MutableMapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from plica.core.diagnostic import CompilerBug, EvaluationError, IllTyped
from plica.core.name import Name
from plica.frontend.complex_pair import Complex
from plica.frontend.recurrence import repeated
from plica.frontend.stablehlo.literal import COMPLEX
from plica.frontend.stablehlo.node import HloNode, dtype_of
from plica.frontend.stablehlo.parser import RETURNS
from plica.frontend.stablehlo.row.complex_number import COMPLEX_ROWS, PARTWISE, is_complex, on_parts
from plica.frontend.stablehlo.syntax import MlirModule, MlirOp, MlirRegion, MlirType, malformed
from plica.frontend.stablehlo.table import CONTROL, REFUSED, TABLE, check_arity
from plica.ir.graph.expression import Expr, If, Project, Tuple, const
from plica.ir.loop.scalar import index
from plica.ir.op.namespace import op as operators
from plica.ir.type import DType, TensorType, i32, type_of
from plica.runtime.error import Diagnostic, Place, UnsupportedError

Values: TypeAlias = "MutableMapping[str, Any]"

MAX_OPERATIONS: Final = 1_000_000
"""Functions are read where they are called; no more operations than this are."""

MAX_CALLS: Final = 60  # calls inside of calls

TRANSPARENT: Final = ("Sharding", "annotate_device_placement", "SPMDFullToShardShape",
                      "SPMDShardToFullShape", "xla.sdy.FuncResultSharding")  # fmt: skip
"""Custom calls that are the identity on one device."""


class HloReader:
    """Reads the functions of a module."""

    def __init__(self, module: MlirModule) -> None:
        self.module = module
        self._operations = self._loops = self._calls = 0

    def function(self, name: str, given: Sequence[Any], line: int = 1) -> list[Any]:
        """The results of a function on values of its arguments."""
        if (of := self.module.functions.get(name)) is None:
            malformed(f"There is no function @{name}.", line, ", ".join(self.module.functions))
        self._calls += 1
        if self._calls > MAX_CALLS:
            malformed("Functions call one another too deeply.", line, f"{MAX_CALLS} calls")
        found = self.region(of.region, given, {})
        self._calls -= 1
        return found

    def region(self, of: MlirRegion, given: Sequence[Any], around: Values) -> list[Any]:
        """The results of a region; it sees the values around it."""
        if len(given) != len(of.arguments):
            line = of.operations[0].line
            malformed("A region is given another number of values.", line, str(len(of.arguments)))
        names = [name for name, _ in of.arguments]
        values: Values = ChainMap(dict(zip(names, given, strict=True)), around)
        for operation in of.operations:
            operands = tuple([self._value(values, name, operation) for name in operation.operands])
            if operation.name in RETURNS:
                return list(operands)
            found = self.operation(operation, operands, values)
            values.update(zip(operation.results, found, strict=True))
        raise CompilerBug("A region has no return.")

    @staticmethod
    def _value(values: Values, name: str, of: MlirOp) -> Any:
        if name not in values:
            malformed(f"Nothing is called {name} here.", of.line)
        return values[name]

    def operation(self, of: MlirOp, operands: tuple[Any, ...], values: Values) -> list[Any]:
        """The results of one operation, of the types that the text says."""
        self._operations += 1
        if self._operations > MAX_OPERATIONS:
            of.refused("The module is too large.", f"{MAX_OPERATIONS} operations", None)
        self._loops += 1
        name = short(of.name)
        check_arity(of, name)
        node = HloNode(
            of, operands, lambda region, given: self.region(region, given, values), self._loops
        )
        found: Any
        try:
            if name in CONTROL:
                found = self._control(name, node, values)
            elif is_complex(node):
                found = _of_complex(name, node)
            else:
                found = TABLE[name](node)
        except (IllTyped, EvaluationError) as error:
            first = error.diagnostics[0]
            of.refused(f"{of.name}: {first.message}", first.expected, first.found)
        results = found if isinstance(found, list) else [found]
        if len(results) != len(of.results):
            malformed("An operation has another number of results.", of.line, str(len(results)))
        for value, said in zip(results, of.types, strict=False):
            _check(of, value, said)
        return results

    # --- what the reader does itself -------------------------------------------------------------

    def _control(self, name: str, node: HloNode, values: Values) -> list[Any]:
        match name:
            case "while":
                return self._while(node)
            case "if" | "case":
                return self._choice(node, name == "if")
            case "call" | "composite":
                callee = str(node.attribute("callee", "decomposition", default=""))
                flags = node.attribute("flags", default=[])
                named = callee or next((flag for flag in flags if flag.startswith("@")), "")
                return self.function(named.lstrip("@"), node.operands, node.op.line)
            case "tuple":
                return [node.operands]
            case "get_tuple_element":
                ranges = node.attribute("ranges")
                at = ranges[0][0] if ranges else node.number("index")
                (whole,) = node.operands
                if not isinstance(whole, tuple) or not 0 <= at < len(whole):
                    node.unsupported("The tuple has no such element.", None, str(at))
                return [whole[at]]
            case "optimization_barrier":
                return list(node.operands)
            case "after_all" | "create_token":
                return [()]
            case "replica_id" | "partition_id":
                self._alone(node)
                return [const(0, DType("u32"))]
            case "custom_call":
                return self._custom(node)
            case _:
                return self._collective(name, node)

    def _custom(self, node: HloNode) -> list[Any]:
        flags = node.attribute("flags", default=[])
        target = str(node.attribute("call_target_name", default=(flags or [""])[0])).lstrip("@")
        if target not in TRANSPARENT:
            node.unsupported("The target is not known.", ", ".join(TRANSPARENT), target)
        return list(node.operands)

    def _alone(self, node: HloNode) -> None:
        """Refuse modules of several devices."""
        for name in ("mhlo.num_replicas", "mhlo.num_partitions"):
            if (count := self.module.attributes.get(name, 1)) != 1:
                node.unsupported(
                    "A program of Plica runs on one device.", f"{name} = 1", str(count)
                )

    def _collective(self, name: str, node: HloNode) -> list[Any]:
        """Groups of one device, which exchange nothing."""
        self._alone(node)
        pairs = name == "collective_permute"
        groups = node.attribute("source_target_pairs" if pairs else "replica_groups")
        listed = groups.tolist() if isinstance(groups, np.ndarray) else groups
        if listed != ([[0, 0]] if pairs else [[0]]):
            node.unsupported("Devices exchange values.", "groups of one device", str(listed))
        return list(node.operands)

    def _choice(self, node: HloNode, is_if: bool) -> list[Any]:
        """Branches over the same values; an index out of range takes the last."""
        condition, regions = node.operands[0], node.op.regions
        branches = [node.inside(region, ()) for region in regions]
        shapes = _spread_out(branches[0])[1]
        leaves = [_spread_out(branch)[0] for branch in branches]
        if not leaves[0]:
            return branches[0]
        if is_if:
            whole: Expr = If(condition, Tuple(tuple(leaves[0])), Tuple(tuple(leaves[1])))
        else:
            whole = Tuple(tuple(leaves[-1]))
            for at in reversed(range(len(leaves) - 1)):
                chosen = operators.equal(condition, const(at, i32))
                whole = If(chosen, Tuple(tuple(leaves[at])), whole)
        if not isinstance(whole, If):
            return branches[0]
        return _gathered([Project(whole, at) for at in range(len(leaves[0]))], shapes)

    def _while(self, node: HloNode) -> list[Any]:
        """A function that calls itself while its test holds."""
        begin, shapes = _spread_out(list(node.operands))
        test, body = node.op.regions
        ends = repeated(
            lambda hint: Name(hint, node.serial),
            begin,
            lambda *carried: node.inside(test, _gathered(carried, shapes))[0],
            lambda *carried: _spread_out(node.inside(body, _gathered(carried, shapes)))[0],
        )
        return _gathered(ends, shapes)


def short(name: str) -> str:
    """The name of an operation without that of StableHLO, as the table has it."""
    dialect, _, rest = name.rpartition(".")
    return rest if dialect in ("", "stablehlo", "mhlo", "func") else name


def unknown_operations(module: MlirModule) -> Iterator[Diagnostic]:
    """A diagnostic for each operation without a row."""
    seen: set[str] = set()
    stack = [function.region for function in module.functions.values()]
    while stack:
        for operation in stack.pop().operations:
            stack += operation.regions
            name = short(operation.name)
            if name in TABLE or name in CONTROL or name in seen:
                continue
            seen.add(name)
            message = f"The operation {operation.name} is not supported."
            place, why = Place(line=operation.line, node=operation.name), REFUSED.get(name)
            yield Diagnostic("unsupported", message, place, None, why)


def refuse_unknown(module: MlirModule) -> None:
    """Refuse a module for all operations that have no row."""
    if wrong := list(unknown_operations(module)):
        raise UnsupportedError(wrong[0], *wrong[1:])


def _of_complex(name: str, node: HloNode) -> Any:
    if (row := COMPLEX_ROWS.get(name)) is not None:
        return row(node)
    if name in PARTWISE:
        return on_parts(node, TABLE[name])
    return node.unsupported("The operation is not for complex numbers.", ", ".join(COMPLEX_ROWS))


def _spread_out(values: Sequence[Any]) -> tuple[list[Expr], list[int]]:
    """Values as terms, and how many terms each is; tokens are none."""
    leaves: list[Expr] = []
    counts: list[int] = []
    for value in values:
        pair = isinstance(value, Complex)
        parts = () if value == () else value.both() if pair else (value,)
        leaves += parts
        counts.append(len(parts))
    return leaves, counts


def _gathered(leaves: Sequence[Expr], counts: Sequence[int]) -> list[Any]:
    """The values that terms are."""
    rest = iter(leaves)
    found: list[Any] = []
    for count in counts:
        parts = [next(rest) for _ in range(count)]
        found.append(() if not parts else parts[0] if count == 1 else Complex(*parts))
    return found


def _check(of: MlirOp, value: Any, said: MlirType) -> None:
    """A value has the type that the text says."""
    if isinstance(value, Complex):
        of_part = {"complex<f32>": "f32", "complex<f64>": "f64"}.get(said.element, "")
        said, value = MlirType(said.text, said.shape, of_part), value.real
    if not isinstance(value, Expr):
        return
    if said.element in COMPLEX or None in said.shape:
        return
    wanted = TensorType(tuple([index(size or 0) for size in said.shape]), dtype_of(of, said))
    if (type_ := type_of(value)) is not wanted:
        message = f"The type of {of.name} does not follow from its operands."
        malformed(message, of.line, str(type_), said.text)
