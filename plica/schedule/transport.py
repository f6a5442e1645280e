"""Transport: a trace of one program, brought to another shape, dtype, fusion or target.

    moved = transport(trace, other)
    moved.module, moved.trace              the other program, scheduled, and the trace that does it
    print(moved.report)                    what became of each instruction, and why

With the original program as `source`, splits that were exact there stay exact.

Laws: `replay(moved.trace, other)` is `moved.module`; on its own program a trace is unchanged.

Reports: what became of each instruction of a trace that was transported.

    same       it is there as it was
    adapted    it is there with other numbers, another place, or less to do
    dropped    what it is about does not exist in the new program
    refused    it would break a precondition there

>>> from plica.schedule.spelling import spell
>>> fate = Fate(2, Step(spell("enter_postproc")), "dropped", "there is no loop", None)
>>> print(TransportReport((fate,)))
2 enter_postproc: dropped, there is no loop
0 same, 0 adapted, 1 dropped, 0 refused
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Final, Literal, TypeAlias, get_args

from attrs import evolve, frozen
from pyrsistent import PMap, PVector, pmap, pvector

from plica.core.collector import paused
from plica.ir.graph.module import Module
from plica.ir.type import known
from plica.schedule.adapt import Candidate, Origin, candidates, fewer
from plica.schedule.align import best_pairs
from plica.schedule.diff import described
from plica.schedule.handle import Handle
from plica.schedule.instruction import Instruction, Scene
from plica.schedule.normalise import redirected
from plica.schedule.primitive.look_up import GetBlock, GetLoops, role_of
from plica.schedule.primitive.split import Split
from plica.schedule.problem import Problem
from plica.schedule.replay import ReplayState, begin, kernel_of, states, taken, with_kernel
from plica.schedule.trace import Program, Step, Trace, check_traces, handles


@frozen(eq=False)
class Transported:
    """A program scheduled by a trace of another one, the trace it took, and the report."""

    module: Module
    trace: Trace
    report: TransportReport


@frozen(eq=False)
class _Journey:
    """The progress of a transport: the new program, its trace, and the mapping of old handles."""

    state: ReplayState
    steps: PVector[Step]
    now: PMap[Handle, Handle]
    roles: PMap[Handle, str]  # old blocks, and the role they had


Sizes: TypeAlias = Callable[[int], tuple[int | None, ...]]
"""The factors of a split as a function of the extent of its loop (`plica.schedule.parametric`)."""

AS_THEY_ARE: Final[Mapping[int, Sizes]] = {}


def transport(
    trace: Trace,
    program: Program,
    kernel: str | None = None,
    *,
    source: Program | None = None,
    sizes: Mapping[int, Sizes] = AS_THEY_ARE,
) -> Transported:
    """The program scheduled as nearly as the trace says as it can be; never refused as a whole.

    Splits whose numbers are in `sizes` have the factors that these give for the extents here.
    """
    check_traces(trace)
    whole, name, found = kernel_of(program, kernel)
    scenes: list[Scene] = []
    if source is not None:
        root = kernel_of(source)[2]
        scenes = [replay_state.scene for replay_state in (begin(root), *states(trace, root))]
    with paused():
        state = begin(found)
        blocks = plan(trace, state.scene)
        here, fates = _Journey(state, pvector(), pmap(), pmap()), list[Fate]()
        for number, step in enumerate(trace.steps):
            origin = (step.instruction, scenes[number]) if scenes else None
            here, fate = _travelled(here, number, step, blocks, origin, sizes.get(number))
            fates.append(fate)
    module = with_kernel(whole, name, here.state.kernel)
    return Transported(module, Trace(tuple(here.steps)), TransportReport(tuple(fates)))


def _travelled(  # noqa: PLR0917  # a step, and all that is known of it
    here: _Journey, number: int, step: Step, blocks: Plan, origin: Origin, sizes: Sizes | None
) -> tuple[_Journey, Fate]:
    """The journey after one more step, and what became of the step."""
    missing = [handle for handle in handles(step.instruction) if handle not in here.now]
    cut = ""
    asked = step
    if missing:
        if (less := fewer(step.instruction, frozenset(missing))) is None:
            why = f"step {missing[0].step} gives no {missing[0].sort} here"
            return here, Fate(number, step, "dropped", why, None)
        asked, cut = Step(less, step.decision), f"without {len(missing)} that are not there"
    asked = redirected(asked, here.now)
    if sizes is not None and isinstance(split := asked.instruction, Split):
        sized = _sized(split, sizes, here.state.scene)
        if sized is not split:
            cut, asked = f"factors {sized.factors}", Step(sized)
    if (alone := _alone(asked.instruction)) is not None:
        onward = evolve(here, now=here.now.set(Handle(number, 0, alone.sort), alone))
        return onward, Fate(
            number, step, "adapted", "one loop is left: nothing is to be done", None
        )
    first: Problem | None = None
    for candidate, how in _options(here, number, asked, blocks, origin):
        if isinstance(after := taken(here.state, candidate), Problem):
            first = first or after
            continue
        said = "; ".join(each for each in (cut, how) if each)
        lead = _leads(here, number, step, after)
        roles = here.roles
        if isinstance(step.instruction, GetBlock):
            roles = roles.set(Handle(number, 0, "block"), step.instruction.role)
        onward = evolve(
            here, state=after, steps=here.steps.append(candidate), now=lead, roles=roles
        )
        verdict = "adapted" if said else "same"
        return onward, Fate(number, step, verdict, said, candidate)  # type: ignore[arg-type]  # one of the two words
    if first is None:
        wanted = getattr(step.instruction, "role", "")
        why = f"there is no block of a role like {wanted!r}"
        return here, Fate(number, step, "dropped", why, None)
    if first.precondition == "alive":
        return here, Fate(number, step, "dropped", f"{first.where} is gone here", None)
    why = f"{first.precondition}: {first.where}, expected {first.expected}, found {first.found}"
    return here, Fate(number, step, "refused", why, None, first)


def _sized(split: Split, sizes: Sizes, scene: Scene) -> Split:
    """A split with the factors for its extent, where that is known."""
    extent = None if scene.missing(split) else known(scene.loop(split.loop).node.extent)
    return split if extent is None else Split(split.loop, sizes(extent))


def _options(
    here: _Journey, number: int, asked: Step, blocks: Plan, origin: Origin
) -> Iterator[Candidate]:
    """What may be done instead of a step, the nearest first."""
    if not isinstance(asked.instruction, GetBlock):
        yield from candidates(asked, here.state.scene, origin)
        return
    if (get_block := counterpart(asked.instruction, number, here.state.scene, blocks)) is not None:
        same = get_block is asked.instruction
        how = "" if same else f"the block {get_block.number} of the role {get_block.role!r}"
        yield Step(get_block), how


def _alone(what: Instruction) -> Handle | None:
    """The loop that is left where all but one of those to be fused do not exist."""
    loops = handles(what)
    return loops[0] if what.kind == "fuse" and len(loops) == 1 else None


def _leads(here: _Journey, number: int, step: Step, after: ReplayState) -> PMap[Handle, Handle]:
    """The mapping of old handles after a step."""
    new = [each for each in after.outputs if each.step == here.state.steps]
    found = here.now
    moved: dict[int, int] | None = None
    if isinstance(step.instruction, GetLoops):
        moved = _loops_by_kind(here, step.instruction, len(new))
    given = {each.output: each for each in new}
    for output in range(max([*given, *(moved or {})], default=-1) + 1):
        there = output if moved is None else moved.get(output)
        if there is not None and there in given:
            handle = given[there]
            found = found.set(Handle(number, output, handle.sort), handle)
    return found


def _loops_by_kind(here: _Journey, what: GetLoops, count: int) -> dict[int, int] | None:
    """Which loop here is which there, where a block has another number of variables.

    The last spatial loops correspond (the first are batches), and the first that reduce.
    """
    old = here.roles.get(what.block)
    block = here.now.get(what.block)
    if old is None or block is None:
        return None
    new = "".join(kind[0] for kind in here.state.scene.block(block).node.kinds)
    letters = old.partition("+")[0]
    if letters == new or len(new) != count:
        return None
    pairs: dict[int, int] = {}
    spatial = [[i for i, letter in enumerate(each) if letter == "s"] for each in (letters, new)]
    rest = [[i for i, letter in enumerate(each) if letter != "s"] for each in (letters, new)]
    pairs |= dict(zip(reversed(spatial[0]), reversed(spatial[1]), strict=False))
    pairs |= dict(zip(rest[0], rest[1], strict=False))
    return pairs


Plan: TypeAlias = Mapping[int, int | None]
"""The block that each look-up at the beginning of a trace is to find."""

EQUAL: Final = 8
ALIKE: Final = 2


def plan(trace: Trace, scene: Scene) -> Plan:
    """The blocks for the look-ups before the first change of a program."""
    asked: dict[int, GetBlock] = {}
    for number, step in enumerate(trace.steps):
        if not step.instruction.pure:
            break
        if isinstance(step.instruction, GetBlock):
            asked[number] = step.instruction
    wanted = sorted({(get_block.number, get_block.role) for get_block in asked.values()})
    roles = roles_in(scene)
    found: dict[tuple[int, str], int | None] = dict.fromkeys(wanted)
    for place, at in best_pairs(
        len(roles), len(wanted), lambda j, i: _likeness(wanted[i], j, roles[j])
    ):
        found[wanted[at]] = place
    return {number: found[get_block.number, get_block.role] for number, get_block in asked.items()}


def counterpart(what: GetBlock, number: int, scene: Scene, blocks: Plan) -> GetBlock | None:
    """The look-up that corresponds to one in another program, or None."""
    roles = roles_in(scene)
    if number in blocks:
        place = blocks[number]
    else:
        near = sorted(range(len(roles)), key=lambda at: (abs(at - what.number), at))
        alike = [at for at in near if _likeness((what.number, what.role), at, roles[at])]
        equal = [at for at in alike if roles[at] == what.role]
        place = next(iter((*equal, *alike)), None)
    return None if place is None else GetBlock(place, roles[place])


def roles_in(scene: Scene) -> list[str]:
    """The roles of all blocks, in the order of the text."""
    return [role_of(site.node) for site in scene.map.blocks.values()]


def _likeness(wanted: tuple[int, str], number: int, role: str) -> int:
    own, text = wanted
    bonus = int(own == number)
    if text == role:
        return EQUAL + bonus
    same = all((mark in text) == (mark in role) for mark in ("+init", "r", "o", "q"))
    return ALIKE + bonus if same else 0


Verdict: TypeAlias = Literal["same", "adapted", "dropped", "refused"]

VERDICTS: Final[tuple[Verdict, ...]] = get_args(Verdict)
KEPT_VERDICTS: Final[frozenset[Verdict]] = frozenset({"same", "adapted"})


@frozen(eq=False)
class Fate:
    """What became of a step: the verdict, how or why, and the step in the new trace."""

    number: int
    step: Step
    verdict: Verdict
    how: str
    after: Step | None
    problem: Problem | None = None

    def __str__(self) -> str:
        detail = f", {self.how}" if self.how else ""
        return f"{self.number} {described(self.step)}: {self.verdict}{detail}"


@frozen(eq=False)
class TransportReport:
    """The fates of all steps, in order."""

    fates: tuple[Fate, ...]

    def count(self, verdict: Verdict) -> int:
        """How many steps had that fate."""
        return Counter(fate.verdict for fate in self.fates)[verdict]

    @property
    def kept(self) -> float:
        """The fraction of instructions that are unchanged or adapted; 1 if there are none."""
        kept = sum(fate.verdict in KEPT_VERDICTS for fate in self.fates)
        return kept / len(self.fates) if self.fates else 1.0

    def __str__(self) -> str:
        counts = ", ".join(f"{self.count(verdict)} {verdict}" for verdict in VERDICTS)
        return "\n".join((*map(str, self.fates), counts))
