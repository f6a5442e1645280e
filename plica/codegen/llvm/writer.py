"""Writer: LLVM text under construction, with fresh names and what it refers to.

>>> w = LlvmWriter()
>>> w.let("add i64 1, 2")
'%1'
>>> w.call("tanf", "float", [("float", "%x")])
'%2'
>>> print(*w.lines, *declarations(w.functions), sep="\\n")
  %1 = add i64 1, 2
  %2 = call float @tanf(float %x)
declare float @tanf(float) nounwind willreturn memory(none)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence


class LlvmWriter:
    """Lines of one function; `block` is the label the next line stands under.

    Where it is `signless`, the sign of a zero does not matter.
    """

    def __init__(self, block: str = "entry", *, signless: bool = False) -> None:
        self.signless = signless
        self.lines: list[str] = []
        self.block = block
        self.helpers: set[tuple[str, int]] = set()
        self.functions: dict[str, tuple[str, tuple[str, ...]]] = {}
        self._count = 0

    def fresh(self) -> str:
        """A new name for a value."""
        self._count += 1
        return f"%{self._count}"

    def let(self, text: str) -> str:
        """A line that gives a value; the name of the value."""
        self._count += 1
        name = f"%{self._count}"
        self.lines.append(f"  {name} = {text}")
        return name

    def do(self, text: str) -> None:
        """A line that gives none."""
        self.lines.append(f"  {text}")

    def labels(self, *stems: str) -> list[str]:
        """New labels that belong together."""
        self._count += 1
        return [f"{stem}.{self._count}" for stem in stems]

    def start(self, label: str) -> None:
        """Begin a block."""
        self.lines.append(f"{label}:")
        self.block = label

    def call(self, name: str, result: str, args: Sequence[tuple[str, str]]) -> str:
        """Call a pure function of the machine or of its library; the latter must be declared."""
        if not name.startswith("llvm."):
            self.functions[name] = (result, tuple([kind for kind, _ in args]))
        return self.let(f"call {result} @{name}({', '.join(f'{k} {v}' for k, v in args)})")

    def help(  # as `call`, and which helper it is
        self, helper: str, name: str, result: str, args: Sequence[tuple[str, str]], lanes: int = 0
    ) -> str:
        """Call a helper, and remember that it is needed for so many lanes."""
        self.helpers.add((helper, lanes))
        end = f".v{lanes}" if lanes else ""
        return self.let(f"call {result} @{name}{end}({', '.join(f'{k} {v}' for k, v in args)})")


def declarations(functions: Mapping[str, tuple[str, tuple[str, ...]]]) -> list[str]:
    """Declarations of functions, sorted by name; one that gives something is pure."""
    return [
        f"declare {result} @{name}({', '.join(params)}) nounwind"
        + (" willreturn memory(none)" if result != "void" else "")
        for name, (result, params) in sorted(functions.items())
    ]
