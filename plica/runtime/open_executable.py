"""Open executables: one code for all sizes of a model's dims.

void plica_sizes(i64 *dims, i64 *out)
i64 plica_main(void **table)      inputs, outputs, constants, the workspace, the dims
"""

from __future__ import annotations

import ctypes
import re
from array import array
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from plica.runtime.artefact import aligned_array
from plica.runtime.error import Diagnostic, EvaluationError, InputError, Place, UnsupportedError
from plica.runtime.executable import Executable, address_of
from plica.runtime.interface import Interface, dims_of
from plica.runtime.late import lazy_imports
from plica.runtime.port import Array, Port, Workspace, out_of_range
from plica.runtime.stats import Stats

with lazy_imports(__name__):  # asked for what is wrong, or by devices
    from plica.runtime.size_text import number_or_none

_SIZES: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)

Shapes: TypeAlias = tuple[tuple[int, ...], ...]

MAX_KNOWN_SIZES: Final = 256  # for this many different sizes it is remembered what they lead to
MAX_SPECIAL_CODES: Final = 16  # the number of sizes with specialised code
MAX_BYTES: Final = 1 << 46  # bytes that no machine has
MAX_NEEDS_SHOWN: Final = 4  # the number of unmet size requirements shown in an error
TOO_LARGE: Final = -1
NEGATIVE: Final = -2
"""Said in place of the bytes of a workspace: some number does not fit; a size is too small."""


def holds(need: str, sizes: Mapping[str, int]) -> bool | None:
    """Whether a requirement on sizes holds, or None if the text cannot be evaluated.

    >>> holds("n >= k + 1", {"n": 3, "k": 3}), holds("n == k or n == 1", {"n": 1, "k": 3})
    (False, True)
    """
    found = number_or_none(need, sizes)
    return None if found is None else bool(found)


@dataclass(frozen=True, slots=True)
class Sized:
    """What some sizes lead to: the dims and where they lie, the ports of the outputs and what makes
    arrays for them, and the workspace."""

    dims: array[int]
    where: int
    outputs: tuple[Port, ...]
    placing: tuple[Callable[[], tuple[Array, int]], ...]
    workspace: int


class OpenExecutable(Executable):
    """A compiled model that serves every size of its dims."""

    def __init__(
        self,
        address: int,
        interface: Interface,
        *,
        sizes: int = 0,
        **rest: Any,  # Any: what every executable is made of
    ) -> None:
        super().__init__(address, interface, **rest)
        self._sizes: Callable[[int, int], None] = _SIZES(sizes)  # 0 where `_asked` knows more
        self._dims = dims_of(interface)
        self._ranges = {name: (least, most) for name, least, most in interface.ranges}
        self._known: OrderedDict[Shapes, Sized] = OrderedDict()
        self._others: Callable[[], Executable] | None = None
        self._eager = False
        self._late = 0  # how often a call waited for the compiler
        self._special: OrderedDict[Shapes, Executable] = OrderedDict()

    def beside(self, others: Callable[[], Executable], eager: bool = False) -> OpenExecutable:
        """This executable, which asks another for code that is made for one size only.

        Where it is `eager`, it does so at the first call with each size, for the first few of them.
        """
        self._others, self._eager = others, eager
        return self

    @property
    def stats(self) -> Stats:
        """The number of calls; for specialised code, its memory and number of compilations."""
        own, special = super().stats, [each.stats for each in tuple(self._special.values())]
        held = sum(each.bytes for each in special)
        made = own.compilations + sum(each.compilations for each in special)
        return Stats(own.calls, made, own.bytes + held, self._late)

    def at(self, /, *args: object, **named: object) -> Executable:
        """The executable for inputs of these sizes; calls with such are left to it from now on.

        It can be saved by itself, and it may be faster: whatever can be known of sizes is.
        """
        arrays = self._arrays(args, named)
        shapes = tuple([each.shape for each in arrays])
        executable = self.others().at(*args, **named)
        self._special[shapes] = executable
        while len(self._special) > MAX_SPECIAL_CODES:
            self._special.popitem(last=False)
        return executable

    def others(self) -> Executable:
        """What makes code for one size only."""
        if self._others is None:
            message = "The compiler is not at hand to make code for these sizes."
            hint = "Compile the model again: plica.load brings no compiler."
            raise UnsupportedError(Diagnostic("unsupported", message, suggestion=hint))
        return self._others()

    @property
    def dims(self) -> tuple[str, ...]:
        """The names of the open sizes."""
        return tuple([dim.name for dim in self._dims])

    def __call__(self, /, *args: object, **named: object) -> Array | tuple[Array, ...]:
        """Run the model; inputs by position or by name."""
        self._calls.add()
        arrays = self._arrays(args, named)
        shapes = tuple([each.shape for each in arrays])
        if self._special or self._eager:
            special = self._special.get(shapes)
            if special is None and self._eager and len(self._special) < MAX_SPECIAL_CODES:
                special = self.at(*args, **named)
                self._late += 1
            if special is not None:
                return special(*args, **named)
        try:
            sized = self.sized(shapes)
        except InputError as error:
            return self._run_separated(error, arrays)
        addresses = [address_of(each) for each in arrays]
        try:
            outputs = self._outputs_for(sized.placing, arrays, addresses, args, named)
        except EvaluationError as error:
            if error.code != "no-memory":
                raise
            wrong = replace(error.diagnostics[0], found=self._said(sized.dims))
            raise EvaluationError(wrong) from None
        self.run_sized(sized, addresses)
        return outputs[0] if self._interface.single else tuple(outputs)

    @property
    def specialises(self) -> bool:
        """Whether calls are, or may be, left to code for one size."""
        return self._eager or bool(self._special)

    def sized(self, shapes: Shapes) -> Sized:
        """The sizes derived from input shapes, cached."""
        if (sized := self._known.get(shapes)) is None:
            sized = self._sized(shapes)
            self._known[shapes] = sized
            while len(self._known) > MAX_KNOWN_SIZES:
                self._known.popitem(last=False)
        return sized

    def run_sized(self, sized: Sized, addresses: Sequence[int]) -> None:
        """Run the code on memory for the inputs, then the outputs, of sizes that lead to `sized`.

        Nothing else is checked, as by `run`.
        """
        workspace = self._workspace_of(sized)
        table = workspace.table
        try:
            self._enter(table, 0, *addresses)
            table[-1] = sized.where
            code = self._main(workspace.address)
        finally:
            self._free.append(workspace)
        if code:
            raise self.failure(code)

    def _sized(self, shapes: Shapes) -> Sized:
        """The sizes derived from input shapes; refuses contradictions."""
        dims = array("q", [shapes[dim.port][dim.axis] for dim in self._dims])
        self._check_ranges(dims)
        interface, found = self._interface, self._asked(dims)
        workspace, at = found[0], 1
        wrong: list[Diagnostic] = []
        for port, shape in zip(interface.inputs, shapes, strict=True):
            wanted = tuple(found[at : at + len(shape)])
            at += len(shape)
            if wanted != shape and workspace != TOO_LARGE:
                message = f"Input {port.name!r} has the wrong shape."
                expected = f"{wanted}, since {self._said(dims)}" if dims else str(wanted)
                place = Place(node=port.name)
                wrong.append(Diagnostic("input-shape", message, place, expected, str(shape)))
        outputs = []
        for port in interface.outputs:
            shape = tuple(found[at : at + len(port.shape)])
            at += len(shape)
            outputs.append(Port(port.name, shape, port.dtype, port.numpy))
            if workspace != TOO_LARGE and any(size < 0 for size in shape):
                message = f"The output {port.name!r} would have a negative size."
                place = Place(node=port.name)
                wrong.append(Diagnostic("input-shape", message, place, port.type, self._said(dims)))
        if workspace == NEGATIVE and not wrong:
            wrong.append(self._without_value(dims))
        if wrong:
            raise InputError(wrong[0], *wrong[1:])
        if not 0 <= workspace < MAX_BYTES:
            raise self._no_memory("less than 2**46 bytes", dims)
        placing = tuple([port.placing() for port in outputs])
        return Sized(dims, dims.buffer_info()[0], tuple(outputs), placing, workspace)

    def _asked(self, dims: array[int]) -> array[int]:
        """The bytes of the workspace, then the sizes of all inputs and outputs."""
        interface = self._interface
        found = array(
            "q", [0] * (1 + sum(len(p.shape) for p in (*interface.inputs, *interface.outputs)))
        )
        self._sizes(dims.buffer_info()[0], found.buffer_info()[0])
        return found

    def _without_value(self, dims: Sequence[int]) -> Diagnostic:
        """The diagnostic of an operator that is undefined at some sizes, with its requirements."""
        message, sizes = (
            "Some operator has no value at these sizes.",
            dict(zip(self.dims, dims, strict=True)),
        )
        needs = self._interface.needs
        broken = [need for need in needs if holds(need, sizes) is False] or [*needs]
        expected = ", ".join([*broken[:MAX_NEEDS_SHOWN], *["…"] * (len(broken) > MAX_NEEDS_SHOWN)])
        words = {word for each in broken for word in re.findall(r"\w+", each)}
        named = [dim for dim in self.dims if dim in words] or [*self.dims]
        hint = f"Give other sizes for {', '.join(named)}."
        return Diagnostic(
            "input-shape", message, None,
            expected or "sizes at which every operator has a value",
            self._said(dims, named), hint,
        )  # fmt: skip

    def _check_ranges(self, dims: array[int]) -> None:
        wrong = []
        for dim, size in zip(self._dims, dims, strict=True):
            reason = out_of_range(dim.name, size, *self._ranges.get(dim.name, (0, None)))
            wrong += [] if reason is None else [reason]
        if wrong:
            raise InputError(wrong[0], *wrong[1:])

    def _said(self, dims: Sequence[int], named: Collection[str] | None = None) -> str:
        """The values of dims, all or some, and the inputs that determine them."""
        inputs = self._interface.inputs
        return ", ".join(
            f"{dim.name} is {size} (axis {dim.axis} of {inputs[dim.port].name!r})"
            for dim, size in zip(self._dims, dims, strict=True)
            if named is None or dim.name in named
        )

    def _no_memory(self, expected: str, dims: Sequence[int]) -> EvaluationError:
        message = "The sizes are too large to compute with."
        hint = f"Give smaller sizes for {', '.join(self.dims)}."
        return EvaluationError(
            Diagnostic("no-memory", message, None, expected, self._said(dims), hint)
        )

    def _workspace_of(self, of: Sized) -> Workspace:
        """A workspace of this call; one that is too small is dropped."""
        try:
            found = self._free.pop()
        except IndexError:
            pass
        else:
            if found.memory.size >= of.workspace:
                return found
        try:
            made = aligned_array(of.workspace)
            return self._with_table(made, address_of(made), of.where)
        except MemoryError:
            raise self._no_memory(f"{of.workspace} bytes of memory", of.dims) from None

    @property
    def workspace(self) -> int:
        """The bytes a call needs besides inputs, outputs and constants: the maximum so far."""
        return max([each.workspace for each in self._known.values()], default=0)

    def __repr__(self) -> str:
        return super().__repr__().replace("<Executable", f"<Open {', '.join(self.dims)}", 1)
