"""The fold: a program and its memory plan become one LLVM module.

    i64 plica_main(void **table)      inputs, outputs, constants, and the workspace last

Kernels in LLVM's text: one internal function each, over the addresses of its buffers.

>>> from plica.ir.loop.scalar import Buffer, ScalarVar, index
>>> from plica.ir.loop.statement import For, Kernel, Seq, Store
>>> from plica.core.name import Name
>>> from plica.ir.type.dtype import f32, i64
>>> n, i, j, k = [ScalarVar(Name(each), i64) for each in "nijk"]
>>> x = Buffer(Name("x"), (n, n), f32)
>>> lanes = st.For(k, index(8), "vectorized", st.Store(x, (i, j * 8 + k), x[i, j]))
>>> rows = st.For(i, n, "serial", st.For(j, n // 8, "serial", lanes))
>>> edge = st.For(i, n, "serial", st.Store(x, (i, index(0)), x[i, i]))
>>> plain_share(st.Kernel((n,), (x,), 0, st.Seq((rows, edge)))) < 0.1
True
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from attrs import evolve, frozen

from plica.analysis.constant_bound import Interval, open_range
from plica.codegen.llvm import pool, profile
from plica.codegen.llvm.buffer_address import parameter_facts, place_of
from plica.codegen.llvm.lane import LaneValue
from plica.codegen.llvm.region import Callee, Regions, Variant
from plica.codegen.llvm.statement import StatementEmitter
from plica.codegen.llvm.value import LlvmValues
from plica.codegen.llvm.writer import ANYWHERE, CodeTraits, LlvmWriter, declarations
from plica.codegen.memory_plan import WorkspacePlan
from plica.codegen.program import Chunks, Program, kernel_name, launches
from plica.codegen.target import Target
from plica.core import Term, free_vars, post_order, substitute
from plica.ir.loop import Intrinsic, scalar as sc, statement as st
from plica.ir.loop.statement import Kernel
from plica.ir.type import i64, known, normal_dim
from plica.runtime.late import lazy_imports

with lazy_imports(__name__):
    from plica.analysis.constant_bound import Interval
    from plica.codegen.llvm.common_nest import NestCall
    from plica.codegen.llvm.helper import text as helper_text
    from plica.codegen.llvm.rounded_quotient import by_inverse
    from plica.codegen.open_memory_plan import AnyPlan


WORTH: Final = 0.1
"""The part of an open kernel's steps that plain loops do, from which on LLVM's passes over loops
are worth their time."""


@frozen
class Text:
    """A function: its lines, whether it can fail, and what it refers to."""

    lines: tuple[str, ...]
    can_fail: bool
    helpers: frozenset[tuple[str, int]]
    functions: tuple[tuple[str, tuple[str, tuple[str, ...]]], ...]
    shares: bool = False  # whether it calls the pool
    calls: tuple[str, ...] = ()  # declarations of nests that it calls


def emit(  # noqa: PLR0917  # a kernel, and what is known of where it stands
    kernel: Kernel,
    name: str,
    over: int | None = None,
    traits: CodeTraits = ANYWHERE,
    bounds: Sequence[Interval] = (),
    nests: Sequence[NestCall] = (),
) -> Text:
    """The function of a kernel: it takes its open dims, then its buffers.

    `over` is the input over whose memory the result is written: parameters are declared disjoint,
    so the body may use only one of the two. Dims are within `bounds`, if given; `nests` are
    separate functions.
    """
    if traits.corrects and _rounds(kernel):
        kernel = by_inverse(kernel)
    w = LlvmWriter(traits=traits)
    values = LlvmValues(w)
    places = values.access.places
    params = []
    sizes = [size for buffer in kernel.params for size in buffer.shape]
    for number, dim in enumerate(kernel.dims):
        params.append(f"i64 %d{number}")
        within = bounds[number] if bounds else open_range(dim, sizes)
        values.around.bind(dim, LaneValue(f"%d{number}"), within)
    for number, buffer in enumerate(kernel.params):
        pointer = f"%b{number}"
        read_only = number < kernel.inputs
        places[buffer] = evolve(place_of(buffer, pointer), is_constant=read_only)
        size = buffer.dtype.bytes * places[buffer].span
        params.append(f"{parameter_facts(buffer, size, read_only)} {pointer}")
    if over is not None:
        last = places[kernel.params[-1]].pointer
        places[kernel.params[over]] = place_of(kernel.params[over], last)
    values.begin()
    gains = not kernel.dims or plain_share(kernel) >= WORTH
    statements = StatementEmitter(values, name if traits.shared else None, nests, gains)
    statements.write(kernel.body)
    if values.fails is not None:
        w.do(f"ret i1 {w.let(f'load i1, ptr {values.fails}')}")
    else:
        w.do("ret void")
    result = "void" if values.fails is None else "i1"
    facts = statements.told()
    statements.stores.close()
    values.close()
    return Text(
        lines=(
            *statements.bodies,
            f"define internal {result} @{name}({', '.join(params)}) {facts} {{",
            "entry:",
            *values.registers,
            *w.lines,
            "}",
        ),
        can_fail=values.fails is not None,
        helpers=frozenset(w.helpers),
        functions=tuple(sorted(w.functions.items())),
        shares=bool(statements.bodies),
        calls=tuple([nest.declaration for nest in nests]),
    )


def _rounds(kernel: Kernel) -> bool:
    """Whether something is made whole: no other kernel has quotients that are rounded."""
    nodes = post_order(kernel.body)
    return any(isinstance(node, Intrinsic) and node.name == "round" for node in nodes)


def fold(
    program: Program, plan: AnyPlan, target: Target, contract: bool = False, signless: bool = False
) -> str:
    """The LLVM text of a program.

    `contract` allows `a * b + c` to be rounded once, `signless` a zero to have another sign.
    """
    used = variants(program, plan)
    names = {each: _variant(*each, program) for each in used}
    texts = {
        (number, over): kernel_text(
            program.kernels[number], over, names[number, over], target, contract, signless
        )
        for number, over in used
    }
    callees = {each: Callee(names[each], texts[each].can_fail) for each in used}
    launching = [*regions(program, plan, callees).functions(), profile.clock(target.triple)]
    return module_text([*texts.values()], launching, target, contract)


def module_text(
    texts: Sequence[Text], more: Sequence[str], target: Target, contract: bool = False
) -> str:
    """A module of kernels and more functions, with all that they call."""
    functions = {name: signature for each in texts for name, signature in each.functions}
    helpers = {helper for text in texts for helper in text.helpers}
    shared = pool.text(target.triple) if any(each.shares for each in texts) else ""
    parts = [
        f'target triple = "{target.triple}"',
        *declarations(functions),
        *([helper_text(helpers, target, contract)] if helpers else []),
        *("\n".join(each.lines) for each in texts),
        *more,
        *([shared.replace(pool.SYSCALL, "") if "syscall" in functions else shared] * bool(shared)),
    ]
    return "\n".join(parts) + "\n"


def variants(program: Program, plan: AnyPlan) -> list[Variant]:
    """The kernels that are launched, each with the input it writes over, in order."""
    found: set[Variant] = set()
    for launch in launches(program):
        if isinstance(launch, Chunks):
            found |= {(piece.kernel, None) for piece in launch.pieces}
        else:
            found.add((launch.kernel, plan.over(launch, program)))
    return sorted(found, key=lambda pair: (pair[0], -1 if pair[1] is None else pair[1]))


def kernel_text(  # noqa: PLR0917  # what is known of where it will run
    kernel: Kernel,
    over: int | None,
    name: str,
    target: Target,
    contract: bool = False,
    signless: bool = False,
    bounds: Sequence[Interval] = (),
    nests: Sequence[NestCall] = (),
) -> Text:
    """The function of a kernel that writes over one of its inputs, or over none; its dims are open
    where they have no bounds."""
    traits = evolve(traits_of(target, contract, signless), open=bool(kernel.dims) and not bounds)
    return emit(kernel, name, over, traits, bounds, nests)


def traits_of(target: Target, contract: bool = False, signless: bool = False) -> CodeTraits:
    """The permitted floating-point transformations, and the machine's features."""
    return CodeTraits(
        fused=contract and target.has_multiply_add,
        signless=signless,
        width=target.vector_bits,
        shared=pool.has_pool(target.triple),
        masks=target.has_masks,
        whole=not target.reads_parts,
        far=target.has_far_offsets,
        near=target.offset_steps,
        saturates=target.saturates,
        corrects=target.has_fma,
        registers=target.vector_registers,
        picks=target.vector_registers if target.picks_lanes else 0,
    )


def alone(text: Text, name: str, target: Target, contract: bool = False) -> str:
    """A module of one kernel, which others can call."""
    lines = [
        line.replace("define internal", "define hidden", 1) if f" @{name}(" in line else line
        for line in text.lines
        if line
    ]
    return "\n".join(
        [
            f'target triple = "{target.triple}"',
            *declarations(dict(text.functions)),
            *([helper_text(text.helpers, target, contract)] if text.helpers else []),
            *([pool.DECLARATION] if text.shares else []),
            *text.calls,
            *lines,
            "",
        ]
    )


def regions_text(
    program: Program, plan: AnyPlan, target: Target, callees: Mapping[Variant, Callee]
) -> str:
    """A module of everything but the kernels, which are in modules of their own."""
    declared = {
        callee.name: callee.declared(program.kernels[at]) for (at, _), callee in callees.items()
    }
    parts = [
        f'target triple = "{target.triple}"',
        *declared.values(),
        *regions(program, plan, callees).functions(),
        profile.clock(target.triple),
    ]
    return "\n".join(parts) + "\n"


def regions(program: Program, plan: AnyPlan, callees: Mapping[Variant, Callee]) -> Regions:
    """What launches the kernels of a program."""
    if isinstance(plan, WorkspacePlan):
        return Regions(program, plan, callees)
    from plica.codegen.llvm.open import OpenRegions  # for those with dims alone

    return OpenRegions(program, plan, callees)


def _variant(number: int, over: int | None, program: Program) -> str:
    """The name of a kernel's function that writes over one of its inputs, or over none."""
    return kernel_name(number, program) + ("" if over is None else f".over{over}")


ASSUMED_SIZE: Final = 67
"""The assumed value of an open size or number; odd, so that remainders of rows are not empty."""

LANES: Final = 4  # elements of a vector, at least


def plain_share(of: st.Kernel) -> float:
    """The part of a kernel's steps, at a usual size, that loops of single elements do."""
    sizes: dict[Term, int] = dict.fromkeys(of.dims, ASSUMED_SIZE)
    plain = total = 0.0
    stack: list[tuple[st.Stmt, float, bool]] = [(of.body, 1.0, True)]
    while stack:
        stmt, times, single = stack.pop()
        match stmt:
            case st.Seq(stmts):
                stack += [(statement, times, single) for statement in stmts]
            case st.Alloc(_, body):
                stack.append((body, times, single))
            case st.Bind(var, value, body):
                if (number := _number(value, sizes)) is not None:
                    sizes[var] = number
                stack.append((body, times, single))
            case st.Branch(condition, then, orelse):
                taken = _truth(condition, sizes)
                stack += [(then, times, single)] if taken is not False else []
                stack += [(orelse, times, single)] if taken is not True else []
            case st.For(var, extent, kind, body):
                count = _number(extent, sizes)
                turns = ASSUMED_SIZE if count is None else max(count, 0)
                sizes[var] = turns // 2
                if kind == "vectorized":
                    stack.append((body, times * -(-turns // LANES), False))
                else:
                    alone = kind != "unrolled" and not _holds_loops(body)
                    stack.append((body, times * turns, alone if kind != "unrolled" else single))
            case st.Store():
                total += times
                plain += times if single else 0.0
            case _:
                return 1.0
    return plain / total if total else 0.0


def _holds_loops(of: st.Stmt) -> bool:
    """Whether a statement has loops of more than one turn."""
    return any(isinstance(each, st.For) and known(each.extent) != 1 for each in st.statements(of))


def _number(of: sc.Scalar, sizes: dict[Term, int]) -> int | None:
    """An index where sizes and loops are known."""
    if isinstance(of, sc.Lit):
        return known(of)
    there: dict[Term, Term] = {
        var: sc.Lit(sizes[var], i64) for var in free_vars(of) if var in sizes
    }
    return known(normal_dim(substitute(of, there)))


def _truth(of: sc.Scalar, sizes: dict[Term, int]) -> bool | None:
    """Whether a condition holds at these sizes, or None if unknown."""
    match of:
        case sc.And(left, right):
            both = _truth(left, sizes), _truth(right, sizes)
            return False if False in both else None if None in both else True
        case sc.Lt(left, right) | sc.Le(left, right) if sc.dtype_of(left) is i64:
            low, high = _number(left, sizes), _number(right, sizes)
            if low is None or high is None:
                return None
            return low < high if isinstance(of, sc.Lt) else low <= high
        case _:
            return None
