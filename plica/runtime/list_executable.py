"""Executables over lists and options: code over the arrays that stand for them.

A caller gives a list of arrays, or an array or None; the program inside takes and gives arrays
alone (`plica.runtime.ragged`), so that it is compiled, saved and run as any other.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from plica.runtime.artefact import LISTS, Artefact
from plica.runtime.elf import damaged
from plica.runtime.error import Diagnostic, InputError
from plica.runtime.executable import Executable
from plica.runtime.interface import Interface
from plica.runtime.ragged import ListPort, from_data, packed, to_data, values_of
from plica.runtime.stats import Stats


class ListExecutable(Executable):
    """A compiled program some of whose inputs or outputs are lists or options."""

    def __init__(
        self, inside: Executable, inputs: Sequence[ListPort], outputs: Sequence[ListPort]
    ) -> None:
        params = tuple([(port.name, at) for at, port in enumerate(inputs)])
        face = Interface(params, tuple(inputs), tuple(outputs), len(outputs) == 1)
        super().__init__(0, face, target=inside.target)
        self.inside = inside
        """The executable over arrays."""
        self._ports = tuple(inputs), tuple(outputs)

    def __call__(self, *args: object, **named: object) -> Any:  # Any: arrays, lists of them, None
        """Run the program; inputs by position or by name."""
        found = self.inside(*self._flat(args, named))
        values = values_of(self._ports[1], found if isinstance(found, tuple) else (found,))
        return values[0] if self._interface.single else tuple(values)

    def at(self, *args: object, **named: object) -> Executable:
        """The executable for inputs like these, over lists as well."""
        inside = self.inside.at(*self._flat(args, named))
        return self if inside is self.inside else ListExecutable(inside, *self._ports)

    def _flat(self, args: Sequence[object], named: Mapping[str, object]) -> list[Any]:
        wrong: list[Diagnostic] = []
        values = self._in_order(args, named, wrong)
        if wrong:
            raise InputError(wrong[0], *wrong[1:])
        pairs = zip(self._ports[0], values, strict=True)
        arrays = [each for port, value in pairs for each in packed(port, value, wrong)]
        if wrong:
            raise InputError(wrong[0], *wrong[1:])
        return arrays

    @property
    def stats(self) -> Stats:
        """What the executable over arrays did and holds."""
        return self.inside.stats

    def source(self, kind: str | None = None) -> str:
        """The code at one stage."""
        return self.inside.source(kind)

    @property
    def artefact(self) -> Artefact:
        """All that the executable over arrays is made of."""
        return self.inside.artefact

    def members(self) -> dict[str, bytes]:
        """The members of the archive that this is written as."""
        inputs, outputs = map(to_data, self._ports)
        told = json.dumps({"inputs": inputs, "outputs": outputs}).encode()
        return {**self.inside.members(), LISTS: told}

    def __repr__(self) -> str:
        return super().__repr__().replace("<Executable", "<ListExecutable", 1)


def over_lists(inside: Executable, told: bytes) -> ListExecutable:
    """The executable that an archive with lists holds."""
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
    return ListExecutable(inside, takes, gives)
