"""The step-time table of an engine, from timed runs (handbook 14.2).

The difference of two output lengths at one batch is so many decode steps and nothing else: prompts
and start-up cancel. Through these and the prompt runs an affine step is fitted.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from scipy.special import stdtrit

from advisor.errors import InvalidInput
from advisor.estimate import Estimate, Source
from advisor.measurement.noise import TPOT_PRIOR, NoiseFit, fit_noise
from advisor.measurement.step_fit import StepFit, TimedSteps, fit_steps
from advisor.measurement.step_plan import RunKind, StepRun
from advisor.roofline.calibration.stretches import Stretch
from advisor.roofline.step.batch import Prefill


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTiming:
    """One timing of one run, first send to last end."""

    run: StepRun
    seconds: float

    def __post_init__(self) -> None:
        if not 0 < self.seconds < math.inf:
            raise InvalidInput("timing.seconds", f"{self.seconds} is not a positive number")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCell:
    """Seconds of one step; of a prompt run (`kind` prefill) all its steps with what is around them.

    `context_tokens` is the mean context of a request in it, `repeats` how often each of the runs
    behind it was timed, the fewer.
    """

    kind: RunKind
    batch: int
    context_tokens: float
    draft_tokens: int
    seconds: Estimate
    repeats: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VerificationCost:
    """A step that verifies drafts of `draft_tokens` (drafting included) over a plain one.

    A method gains at that batch where a step yields more tokens than `ratio`.
    """

    batch: int
    draft_tokens: int
    ratio: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTable:
    """Measured steps; `fit` is None with `not_fitted` saying why.

    `noise` is the relative deviation between repeats of one run.
    """

    cells: tuple[StepCell, ...]
    verification: tuple[VerificationCost, ...]
    noise: Estimate
    fit: StepFit | None
    not_fitted: str | None = None

    def cell(self, batch: int, *, draft_tokens: int = 0) -> StepCell | None:
        """The decode or verification step at a batch and short contexts."""
        kind = RunKind.VERIFY if draft_tokens else RunKind.DECODE
        wanted = (kind, batch, draft_tokens)
        return next((c for c in self.cells if (c.kind, c.batch, c.draft_tokens) == wanted), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Timed:
    """All timings of one run: their mean and the relative error of it, squared, per noise."""

    run: StepRun
    seconds: float
    repeats: int


def step_table(
    timings: Sequence[StepTiming], *, max_num_batched_tokens: int, seed: int = 0
) -> StepTable:
    """The table; `max_num_batched_tokens` says how prompts were cut into steps.

    A run without its pair gives no cell. A pair whose longer run took no longer is a step that the
    noise hides; it gives none either. No timing at all raises `InvalidInput`.
    """
    if not timings:
        raise InvalidInput("timings", "there are none")
    groups: dict[StepRun, list[float]] = {}
    for timing in timings:
        groups.setdefault(timing.run, []).append(timing.seconds)
    noise = fit_noise(groups.values(), TPOT_PRIOR)
    timed = [
        _Timed(
            run=run,
            seconds=math.exp(sum(map(math.log, seconds)) / len(seconds)),
            repeats=len(seconds),
        )
        for run, seconds in groups.items()
    ]
    pairs = tuple(_pairs(timed))
    prompts = [item for item in timed if item.run.kind is RunKind.PREFILL]
    cells = (*(_step_cell(*pair, noise) for pair in pairs), *(_prompt(p, noise) for p in prompts))
    rows = [
        *(_decode_row(*pair) for pair in pairs if not pair[0].run.draft_tokens),
        *(_prompt_row(item, max_num_batched_tokens) for item in prompts),
    ]
    fit = fit_steps(rows, noise, seed=seed)
    return StepTable(
        cells=cells,
        verification=tuple(_verification(cells)),
        noise=noise.relative_sd(),
        fit=fit if isinstance(fit, StepFit) else None,
        not_fitted=None if isinstance(fit, StepFit) else fit,
    )


def prompt_steps(count: int, prompt_tokens: int, budget: int) -> tuple[Stretch, ...]:
    """Steps that compute prompts which arrive together, one after the other in chunks."""
    if budget < 1:
        raise InvalidInput("max_num_batched_tokens", f"{budget} is below 1")
    found: list[Stretch] = []
    chunks: list[Prefill] = []
    room = budget
    for _ in range(count):
        done = 0
        while done < prompt_tokens:
            taken = min(room, prompt_tokens - done)
            chunks.append(Prefill(new_tokens=taken, cached_tokens=done))
            done, room = done + taken, room - taken
            if room == 0:
                found.append(Stretch(prefills=tuple(chunks)))
                chunks, room = [], budget
    return (*found, Stretch(prefills=tuple(chunks))) if chunks else tuple(found)


def _pairs(timed: Sequence[_Timed]) -> Iterator[tuple[_Timed, _Timed]]:
    """Shortest and longest output of each load, where the longer took longer."""
    loads: dict[tuple[RunKind, int, int, int], list[_Timed]] = {}
    for item in timed:
        run = item.run
        if run.kind is not RunKind.PREFILL:
            key = (run.kind, run.batch, run.prompt_tokens, run.draft_tokens)
            loads.setdefault(key, []).append(item)
    for members in loads.values():
        members.sort(key=lambda item: item.run.output_tokens)
        short, long = members[0], members[-1]
        if long.run.output_tokens > short.run.output_tokens and long.seconds > short.seconds:
            yield short, long


def _variance(short: _Timed, long: _Timed) -> float:
    """Squared relative error of the difference, in squared relative errors of one timing."""
    error = long.seconds**2 / long.repeats + short.seconds**2 / short.repeats
    return error / (long.seconds - short.seconds) ** 2


def _step_cell(short: _Timed, long: _Timed, noise: NoiseFit) -> StepCell:
    steps = long.run.output_tokens - short.run.output_tokens
    repeats = min(short.repeats, long.repeats)
    return StepCell(
        kind=short.run.kind,
        batch=short.run.batch,
        context_tokens=short.run.prompt_tokens + short.run.output_tokens + (steps - 1) / 2,
        draft_tokens=short.run.draft_tokens,
        seconds=_measured(
            (long.seconds - short.seconds) / steps,
            _variance(short, long),
            noise,
            f"difference of {steps} steps, {repeats} repeats, t interval",
        ),
        repeats=repeats,
    )


def _prompt(item: _Timed, noise: NoiseFit) -> StepCell:
    return StepCell(
        kind=RunKind.PREFILL,
        batch=item.run.batch,
        context_tokens=float(item.run.prompt_tokens),
        draft_tokens=0,
        seconds=_measured(
            item.seconds,
            1 / item.repeats,
            noise,
            f"{item.repeats} whole runs, t interval",
        ),
        repeats=item.repeats,
    )


def _measured(value: float, variance: float, noise: NoiseFit, basis: str) -> Estimate:
    """A step with its t interval; `variance` is relative and per squared noise of one timing."""
    quantile = float(stdtrit(noise.degrees_of_freedom, 0.975))
    half = value * quantile * noise.scale * math.sqrt(variance)
    return Estimate(
        value=value,
        low=max(0.0, value - half),
        high=value + half,
        source=Source.MEASURED,
        basis=basis,
    )


def _decode_row(short: _Timed, long: _Timed) -> TimedSteps:
    """The steps between the two lengths."""
    steps = long.run.output_tokens - short.run.output_tokens
    first = short.run.prompt_tokens + short.run.output_tokens
    return TimedSteps(
        stretches=(Stretch(steps=steps, decodes=short.run.batch, context_tokens=float(first)),),
        seconds=long.seconds - short.seconds,
        variance=_variance(short, long),
        runs=0,
    )


def _prompt_row(item: _Timed, budget: int) -> TimedSteps:
    return TimedSteps(
        stretches=prompt_steps(item.run.batch, item.run.prompt_tokens, budget),
        seconds=item.seconds,
        variance=1 / item.repeats,
        runs=1,
    )


def _verification(cells: Sequence[StepCell]) -> Iterator[VerificationCost]:
    plain = {cell.batch: cell.seconds for cell in cells if cell.kind is RunKind.DECODE}
    for cell in cells:
        base = plain.get(cell.batch)
        if cell.kind is not RunKind.VERIFY or base is None:
            continue
        ratio = cell.seconds.value / base.value
        # Relative half widths of independent figures add in squares.
        half = ratio * math.hypot(_relative(cell.seconds), _relative(base))
        yield VerificationCost(
            batch=cell.batch,
            draft_tokens=cell.draft_tokens,
            ratio=Estimate(
                value=ratio,
                low=max(0.0, ratio - half),
                high=ratio + half,
                source=Source.MEASURED,
                basis=f"steps of two engine starts, {cell.repeats} repeats each",
            ),
        )


def _relative(found: Estimate) -> float:
    return (found.high - found.value) / found.value
