"""Impact: the effect of a rule, a pass or a schedule primitive on a model, down to its assembly.

impact(model, "fold-bn")      the steps it took, and each kernel that it had a part in
where(model, "conv_3")        the kernels of a node, each with its loops, stores and assembly
why(model, "k0")              the origin of every loop and store of a kernel
without_rule(model, "fold-bn")    the model without it, for `compared` (plica.report.future)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from attrs import frozen

from plica.codegen.backend import backend_of
from plica.codegen.given_trace import kernel_meant
from plica.codegen.kernel_history import StatementOrigin, statement_origins
from plica.codegen.llvm.line_map import AssemblyLine, assembly_lines
from plica.codegen.program import kernel_name, launches
from plica.core import did_you_mean
from plica.ir.loop import For
from plica.pipeline import pipeline_of
from plica.report.origin import LaunchOrigin, origins
from plica.report.study import StudiedModel
from plica.runtime.error import Diagnostic, InputError


@frozen(eq=False)
class KernelImpact:
    """A kernel that something had a part in: its nodes, rules, and the loops and stores of it."""

    kernel: str
    number: int
    nodes: tuple[str, ...]
    rules: tuple[str, ...]
    statements: tuple[StatementOrigin, ...]

    @property
    def loops(self) -> int:
        """The number of loops."""
        return sum(isinstance(statement.statement, For) for statement in self.statements)

    @property
    def stores(self) -> int:
        """The number of stores."""
        return len(self.statements) - self.loops


@frozen(eq=False)
class Impact:
    """The effect of a rule, a pass or a primitive: its graph steps, from 1, and the kernels."""

    name: str
    steps: tuple[int, ...]
    kernels: tuple[KernelImpact, ...]


def impact(of: StudiedModel, name: str) -> Impact:
    """The places where a rule, a pass or a schedule primitive was used; refused if nowhere."""
    taken = of.lowered.derivation.steps
    steps = tuple([n for n, step in enumerate(taken, 1) if step.rule.name == name])
    if steps:
        return Impact(name, steps, tuple(_kernels(of, lambda origin: name in origin.rules)))
    every = tuple(_kernels(of, lambda origin: True))
    kernels = [
        KernelImpact(each.kernel, each.number, each.nodes, each.rules, chosen)
        for each in every
        if (chosen := tuple([it for it in each.statements if name in map(_word, it.steps)]))
    ]
    if not kernels:
        known = {step.rule.name for step in taken}
        known |= {_word(step) for each in every for it in each.statements for step in it.steps}
        message, hint = f"Nothing of the name {name!r} was used.", did_you_mean(name, known)
        expected = "a rule, a pass or a primitive that was used"
        raise InputError(Diagnostic("input-unknown", message, None, expected, name, hint))
    return Impact(name, (), tuple(kernels))


def where(of: StudiedModel, node: str) -> tuple[KernelImpact, ...]:
    """The kernels that compute a node of the model."""
    return tuple(_kernels(of, lambda origin: node in origin.nodes))


def why(of: StudiedModel, kernel: str) -> KernelImpact:
    """The origin of every loop and store of a kernel."""
    number = kernel_meant(of.lowered.program, kernel)
    return next(_kernels(of, lambda origin: True, number))


def assembly_of(of: StudiedModel, kernel: KernelImpact) -> tuple[AssemblyLine, ...]:
    """The assembly of a kernel, each line with the statement that it was written for."""
    lowered = of.lowered
    code = lowered.program.kernels[kernel.number]
    return assembly_lines(code, of.target, lowered.fused, lowered.signless)


def _kernels(
    of: StudiedModel, holds: Callable[[LaunchOrigin], bool], only: int | None = None
) -> Iterator[KernelImpact]:
    """The kernels that are launched for something, each once, with all that it is launched for."""
    program = of.lowered.program
    seen = backend_of(of.target).with_threads(of.target, of.threads)
    lowering = pipeline_of(seen).of("lower")
    launched: dict[int, list[LaunchOrigin]] = {}
    for launch, origin in zip(
        launches(program), origins(of.lowered, of.nodes, whole=True), strict=True
    ):
        if holds(origin) and only in (None, launch.kernel):
            launched.setdefault(launch.kernel, []).append(origin)
    for number, found in launched.items():
        begun = program.origins[number]
        statements = () if begun is None else statement_origins(begun, lowering)
        nodes = dict.fromkeys([node for each in found for node in each.nodes])
        rules = dict.fromkeys([rule for each in found for rule in each.rules])
        name = kernel_name(number, program)
        yield KernelImpact(name, number, tuple(nodes), tuple(rules), statements)


def _word(step: str) -> str:
    """The primitive of a step of a schedule, the name of a pass."""
    return step.partition(" ")[0]
