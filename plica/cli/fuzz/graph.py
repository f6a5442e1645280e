"""`plica fuzz graph`: modules through the passes and rule packs of the graph language."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from plica.cli.fuzz.kind import FuzzKind, Say, by_template, option
from plica.cli.named_pack import named_contract, named_function, named_packs, named_pass
from plica.cli.option import natural

if TYPE_CHECKING:
    from plica.cli.fuzz.kind import Report
    from plica.ir.contract import Contract
    from plica.ir.graph.module import Module
    from plica.ir.type.term import Type
    from plica.rewrite.fuzz import Stage
    from plica.rewrite.pack import Pack
    from plica.runtime.error import PlicaError


def fuzz_graph(arguments: argparse.Namespace, first: int, examples: int, say: Say) -> Report:
    """Modules through the requested stages, by default all."""
    from plica.rewrite.fuzz import fuzz
    from plica.rewrite.fuzz.plant import with_wrong_pass

    contract, extra = named_contract(arguments.contract), _extra(arguments)
    passes = [named_pass(each) for each in arguments.passes]
    through = () if arguments.compiled else tuple(passes) or stages(contract, extra)
    if arguments.plant == "pass":
        through = with_wrong_pass(through)
    every = 1 if arguments.compiled else arguments.native
    run_native = compiled if arguments.compiled else native
    return fuzz(
        through,
        examples,
        arguments.seed,
        first=first,
        contract=contract,
        native=run_native if every > 0 else None,
        whole=arguments.compiled,
        every=every,
        focus=[rule for pack in extra for rule in pack.within(contract)],
        programs=named_function(arguments.programs) if arguments.programs else None,
        oracle=named_function(arguments.oracle) if arguments.oracle else None,
        say=say,
    )


def _extra(arguments: argparse.Namespace) -> list[Pack]:
    """The requested packs."""
    from plica.rewrite.fuzz.plant import wrong_rule

    packs = [pack for name in arguments.rules for pack in named_packs(name)]
    return [*packs, wrong_rule()] if arguments.plant == "rule" else packs


def asked(arguments: argparse.Namespace) -> Iterable[tuple[str, str]]:
    """The requested rules and passes, if they are allowed at all."""
    contract = named_contract(arguments.contract)
    for pack in _extra(arguments):
        yield from (("fired", rule.name) for rule in pack.within(contract))
    yield from (("fired", named_pass(each).name) for each in arguments.passes)


def every() -> Mapping[str, Iterable[str]]:
    """All passes, and all rules that speak of programs."""
    from plica.ir.contract import approx
    from plica.rewrite.fuzz.case import of_programs
    from plica.rewrite.pack import Pack

    through = stages(approx(1e-4), ())
    rules = [rule for each in through if isinstance(each, Pack) for rule in each]
    passes = [each.name for each in through if not isinstance(each, Pack)]
    return {"fired": [*passes, *(rule.name for rule in of_programs(rules))]}


def say_unused(arguments: argparse.Namespace) -> None:
    """Say on the error stream which rules were asked for and are not within the contract."""
    from rich.console import Console

    contract = named_contract(arguments.contract)
    console = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
    for pack in _extra(arguments):
        names = ", ".join(rule.name for rule in pack if not rule.contract <= contract)
        if names:
            hint = f"Try --contract '{pack.contract}'."
            console.print(f"Not within {contract}, so not used, of {pack.name}: {names}. {hint}")


def stages(contract: Contract, extra: Sequence[Pack]) -> tuple[Stage, ...]:
    """The stages of the pipeline, then every structural pass, then the packs it does not use."""
    from plica.ir.passes import Pass
    from plica.rewrite.graph import PASSES
    from plica.rewrite.optimise import OPTIMISE
    from plica.rewrite.packs import OWN, find_pack
    from plica.rewrite.rule_pass import Setting, packs_of

    setting = Setting(contract, tuple(extra))
    first: list[Stage] = []
    for pass_ in OPTIMISE:
        first += packs_of(pass_, setting) if pass_.kind == "rules" else [pass_]
    used = {each.name for each in first}
    others = [find_pack(name) for name in sorted(OWN) if name not in used]
    found = [*first, *(pass_ for pass_ in PASSES if pass_.name not in used), *others, *extra]
    kept = [each if isinstance(each, Pass) else each.within(contract) for each in found]
    return tuple(each for each in kept if isinstance(each, Pass) or len(each))


def native(module: Module, inputs: tuple[Any, ...]) -> Any:
    """The result of native code, or None if the module is unsupported.

    Modules and kernels are checked after every pass on the way.
    """
    from plica.codegen.compilation_check import StateChecks
    from plica.codegen.program_kind import static_form
    from plica.pipeline import compile, lower, target_of
    from plica.runtime.error import UnsupportedError

    try:
        executable = compile(module, cache=False)
        static = static_form(module)
        lower(module if static is None else static, target=target_of("cpu"),
              objects=static is None, checks=StateChecks())  # fmt: skip
    except UnsupportedError:
        return None
    return shaped(executable(*inputs), module)


def compiled(module: Module, inputs: tuple[Any, ...]) -> Any:
    """What native code over objects gives for a module at the sizes of its inputs, and for one
    whose sizes become known while it runs what its segments give.

    None if there is none: a function among the outputs, or a polymorphic one as a value. A
    meaningful program must also be typed and have a value while it is compiled.
    """
    from plica.codegen.program_kind import is_staged
    from plica.core.diagnostic import CompilerBug, EvaluationError, IllTyped
    from plica.ir.contract import exact
    from plica.ir.graph.shape_specialisation import sized, sizes_of
    from plica.pipeline import build, compile, lower, target_of
    from plica.runtime.error import UnsupportedError

    try:
        if is_staged(module):
            executable = compile(module, threads=1, cache=False, contract=exact, effort="fast")
            found = shaped(executable(*inputs), module)
            if executable.stats.at_call:
                raise CompilerBug("It is compiled when it is called.")
            return found
        if module.main_function().dims:
            module = sized(module, sizes_of(module, [array.shape for array in _arrays(inputs)]))
        here = target_of("cpu")
        executable = build(lower(module, exact, (), here, objects=True), here, objects=True)
    except UnsupportedError as error:
        if is_staged(module) and _is_plain(module, error):
            raise CompilerBug(f"It is refused: {error}") from error
        return None
    except (IllTyped, EvaluationError) as error:
        raise CompilerBug(f"It has a meaning, and fails to compile: {error}") from error
    return shaped(executable(*inputs), module)


def _is_plain(module: Module, refusal: PlicaError) -> bool:
    """Whether a program of measured sizes is one that compiles: of tensors, with loops alone."""
    from plica.ir.type.term import TensorType, TupleType

    main = module.main_function()
    results = main.ret.items if isinstance(main.ret, TupleType) else (main.ret,)
    every = (*results, *[param.type for param in main.params])
    recursive = any(diagnostic.found == "recursion" for diagnostic in refusal.diagnostics)
    return not recursive and all(isinstance(each, TensorType) for each in every)


def shaped(found: Any, module: Module) -> Any:
    """An executable's results, nested in tuples according to its type."""
    from plica.ir.type.term import TupleType

    of = module.main_function().ret
    return _nested(iter(found if isinstance(of, TupleType) else (found,)), of)


def _arrays(inputs: tuple[Any, ...]) -> Iterator[Any]:
    """The arrays in some inputs, from left to right."""
    for each in inputs:
        if isinstance(each, tuple):
            yield from _arrays(each)
        else:
            yield each


def _nested(flat: Iterator[Any], of: Type | None) -> Any:
    """The tensors of a flat result in the tuples their type says."""
    from plica.ir.type.term import TupleType

    if isinstance(of, TupleType):
        return tuple(_nested(flat, item) for item in of.items)
    return next(flat)


def idle(arguments: argparse.Namespace, report: Report) -> list[str]:
    """The passes that were asked for and changed nothing."""
    names = [named_pass(each).name for each in arguments.passes]
    return [
        f"NOT TESTED: none of {report.examples} modules was changed by {name}. "
        "Give its Pass patterns to look for: looks_for=(op.exp(x),)."
        for name in names if not report["fired"].get(name)
    ]  # fmt: skip


KIND: Final = FuzzKind(
    "graph",
    "modules",
    "modules through the passes and rule packs of the graph language",
    ("--examples 2000",
     "--rules my_rules.py --seed 7",
     "--pass my_pass.py:PASS",
     "--programs mine.py:programs --oracle mine.py:no_slower",
     "--seconds 600 --jobs 8 --corpus found/ --keep-going",
     "--plant              plant a wrong rule, which must be found",
     "--plant pass         plant a mistake in a pass",
     "--compiled           compare native code with the interpreter"),
    fuzz_graph,
    by_template(
        "{examples} modules under the contract {contract}, seed {seed}: {fired:kinds} rules used "
        "{fired:times} times, {undefined} without a value, {rounded} differ by rounding alone, "
        "{compiled} compiled, {refused} times a pass refused."
    ),
    "All mean afterwards what they meant before.",
    goal=50_000,
    together=50,
    options=(
        option("--rules", action="append", default=[], metavar="PACK|FILE.py",
               help="add a pack, by name or in a Python file; repeatable"),
        option("--pass", action="append", default=[], dest="passes", metavar="NAME|FILE.py:NAME",
               help="test this pass alone, by name or in a file; repeatable"),
        option("--programs", metavar="FILE.py:NAME",
               help="a generator, from a random.Random to modules"),
        option("--oracle", metavar="FILE.py:NAME",
               help="an oracle, (before, after, inputs) to the reason why after is wrong, or None"),
        option("--contract", default="exact",
               help="use only rules within this float contract (exact)"),
        option("--native", type=natural, default=0, metavar="K",
               help="compile and run every K-th module too (0: none)"),
        option("--compiled", action="store_true",
               help="only compile and run modules, with closures, data, recursion, loops "
                    "and data-dependent sizes"),
        option("--plant", nargs="?", choices=("rule", "pass"), const="rule",
               help="plant a wrong rule, or a mistake in a pass; it must be found (rule)"),
    ),
    check=say_unused,
    asked=asked,
    idle=idle,
    every=every,
    ways=((), ("--contract", "approx(1e-4)"), (), ("--native", "10")),
)  # fmt: skip
