"""Executables over lists and options: code over the arrays that stand for them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, TypeAlias

from plica.runtime.artefact import LISTS
from plica.runtime.error import Diagnostic, InputError, damaged
from plica.runtime.executable import Executable
from plica.runtime.interface import Interface
from plica.runtime.ragged import ListPort, from_data, packed, to_data, values_of
from plica.runtime.selecting_executable import Args, Named, Selected, SelectingExecutable, Selector
from plica.runtime.stats import Stats


class ListPorts(Selector):
    """Selects an executable over arrays, for the arrays that stand for lists and options."""

    def __init__(
        self, inside: Executable, inputs: Sequence[ListPort], outputs: Sequence[ListPort]
    ) -> None:
        params = tuple([(port.name, at) for at, port in enumerate(inputs)])
        self.interface = Interface(params, tuple(inputs), tuple(outputs), len(outputs) == 1)
        self._inside = inside
        self._ports = tuple(inputs), tuple(outputs)

    def select(self, of: Executable, args: Args, named: Named) -> Selected:
        """The executable over arrays, and those that stand for the values of a call."""
        wrong: list[Diagnostic] = []
        values = of._in_order(args, named, wrong)
        if wrong:
            raise InputError(wrong[0], *wrong[1:])
        pairs = zip(self._ports[0], values, strict=True)
        arrays = [each for port, value in pairs for each in packed(port, value, wrong)]
        if wrong:
            raise InputError(wrong[0], *wrong[1:])
        return self._inside, arrays, {}

    def call(self, of: Executable, args: Args, named: Named) -> Any:
        """The results as lists and options (Any: arrays, lists of them, None)."""
        found = super().call(of, args, named)
        values = values_of(self._ports[1], found if isinstance(found, tuple) else (found,))
        return values[0] if self.interface.single else tuple(values)

    def at(self, of: Executable, args: Args, named: Named) -> Executable:
        """The executable for inputs like these, over lists as well."""
        inside = self._inside.at(*self.select(of, args, named)[1])
        return of if inside is self._inside else list_executable(inside, *self._ports)

    @property
    def code(self) -> Executable:
        """The executable over arrays."""
        return self._inside

    def stats(self, calls: int) -> Stats:
        """The statistics of the executable over arrays."""
        return self._inside.stats

    def members(self) -> dict[str, bytes]:
        """The members of the code over arrays, and the list types."""
        inputs, outputs = map(to_data, self._ports)
        lists = json.dumps({"inputs": inputs, "outputs": outputs}).encode()
        return {**self._inside.members(), LISTS: lists}

    def show(self, of: Executable) -> str:
        """Inputs and outputs."""
        return Executable.__repr__(of).replace("<Executable", "<ListExecutable", 1)


ListExecutable: TypeAlias = SelectingExecutable[ListPorts]


def list_executable(
    inside: Executable, inputs: Sequence[ListPort], outputs: Sequence[ListPort]
) -> ListExecutable:
    """A compiled program some of whose inputs or outputs are lists or options."""
    return SelectingExecutable(ListPorts(inside, inputs, outputs))


def over_lists(inside: Executable, told: bytes) -> ListExecutable:
    """The executable of an archive with lists."""
    try:
        given = json.loads(told)
    except ValueError:
        given = None
    match given:
        case {"inputs": inputs, "outputs": outputs}:
            takes, gives = from_data(inputs), from_data(outputs)
        case _:
            raise damaged("The lists of the artefact are damaged.")
    sides = ((takes, inside.inputs), (gives, inside.outputs))
    if any(sum(len(port.parts) for port in ports) != len(arrays) for ports, arrays in sides):
        raise damaged("The lists of the artefact do not fit its arrays.")
    return list_executable(inside, takes, gives)
