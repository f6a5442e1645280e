"""Selecting executables: each call is answered by an executable that a `Selector` chooses."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, Generic, Self, TypeAlias, TypeVar

from plica.runtime.artefact import Artefact
from plica.runtime.error import Diagnostic, UnsupportedError
from plica.runtime.executable import Executable
from plica.runtime.interface import Interface

if TYPE_CHECKING:
    from plica.runtime.profile import Profile
    from plica.runtime.record import KernelTrace
    from plica.runtime.stats import Stats

Args: TypeAlias = tuple[object, ...]
Named: TypeAlias = Mapping[str, object]
Selected: TypeAlias = tuple[Executable, Sequence[Any], Mapping[str, Any]]
"""What answers a call, and the values it is given by position and by name (Any: arrays)."""


class Selector(ABC):
    """Chooses what answers the calls of an executable."""

    interface: Interface

    @abstractmethod
    def select(self, of: Executable, args: Args, named: Named) -> Selected:
        """What answers a call of an executable with these values."""

    @abstractmethod
    def stats(self, calls: int) -> Stats:
        """The statistics for a given number of calls, and the memory held."""

    @abstractmethod
    def show(self, of: Executable) -> str:
        """The executable as one line."""

    @property
    def code(self) -> Executable | None:
        """The executable that answers all calls now, if one does."""
        return None

    def refusal(self) -> UnsupportedError:
        """Why no one executable answers all calls."""
        return UnsupportedError(Diagnostic("unsupported", "There is no one code of this model."))

    def current(self) -> Executable:
        """The executable that answers all calls now, or the refusal."""
        if self.code is None:
            raise self.refusal()
        return self.code

    def best(self, timeout: float | None = None) -> Executable:
        """The executable that answers at last, which is waited for."""
        return self.current()

    def call(self, of: Executable, args: Args, named: Named) -> Any:
        """The results of a call (Any: arrays, or lists of them)."""
        exe, given, more = self.select(of, args, named)
        return exe(*given, **more)

    def at(self, of: Executable, args: Args, named: Named) -> Executable:
        """The executable for inputs like these."""
        return self.select(of, args, named)[0]

    def members(self) -> dict[str, bytes]:
        """The members of the archive that the best code is written as."""
        return self.best().members()


S_co = TypeVar("S_co", bound=Selector, covariant=True)


class SelectingExecutable(Executable, Generic[S_co]):
    """Answers each call by the executable that its selector chooses."""

    def __init__(self, selector: S_co) -> None:
        super().__init__(0, selector.interface)  # the code is that of others
        self.selector = selector

    def __call__(self, /, *args: object, **named: object) -> Any:  # Any: arrays, or lists of them
        """Run the model; inputs by position or by name."""
        self._calls.add()
        return self.selector.call(self, args, named)

    def at(self, /, *args: object, **named: object) -> Executable:
        """The executable for inputs like these: it can be saved, exported and looked into."""
        return self.selector.at(self, args, named)

    def wait(self, timeout: float | None = None) -> Self:
        """This executable, once its final code is active; raises its compilation errors, and
        `TimeoutError` after the given number of seconds."""
        self.selector.best(timeout)
        return self

    def run(self, addresses: Sequence[int]) -> None:
        """Run the code that answers now on memory of the types of its inputs and outputs."""
        self.selector.current().run(addresses)

    def profile(
        self,
        *args: object,
        runs: int = 10,
        peak: float | None = None,
        bandwidth: float | None = None,
        **named: object,
    ) -> Profile:
        """The time of a call with these inputs, by launch."""
        exe, given, more = self.selector.select(self, args, named)
        return exe.profile(*given, runs=runs, peak=peak, bandwidth=bandwidth, **more)

    @property
    def tier(self) -> str:
        """The effort that the code was made with which answers now."""
        return self._tier if (code := self.selector.code) is None else code.tier

    @property
    def target(self) -> str:
        """The target of the active code."""
        return self._target if (code := self.selector.code) is None else code.target

    @property
    def stats(self) -> Stats:
        """The calls of this executable, and the memory of the active code."""
        return self.selector.stats(self._calls.count)

    @property
    def derivation(self) -> object:
        """How the code that answers now came about."""
        return self.selector.current().derivation

    @property
    def tuning(self) -> str:
        """Which kernels have a tuned schedule and which the default, and why; a table."""
        return self.selector.current().tuning

    def source(self, kind: str | None = None) -> str:
        """The code that answers now, at one stage."""
        return self.selector.current().source(kind)

    def trace(self, kernel: str) -> KernelTrace:
        """How a kernel of the code that answers now was scheduled."""
        return self.selector.current().trace(kernel)

    @property
    def artefact(self) -> Artefact:
        """All that the best code is made of, as data."""
        return self.selector.best().artefact

    def members(self) -> dict[str, bytes]:
        """The members of the archive that this is written as."""
        return self.selector.members()

    def export(self, path: str | PathLike[str], name: str | None = None) -> None:
        """A shared library of the best code."""
        self.selector.best().export(path, name)

    def seconds(self, /, *args: object, **named: Any) -> Any:  # Any: what devices measure
        """How long a device works on a call with these inputs, without copies, run by run."""
        options = {name: named.pop(name) for name in ("runs", "before") if name in named}
        exe, given, more = self.selector.select(self, args, named)
        return exe.seconds(*given, **more, **options)

    def __repr__(self) -> str:
        return self.selector.show(self)
