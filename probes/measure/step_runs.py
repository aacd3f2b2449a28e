"""Times the runs that identify an engine's step time: equal requests at once, lengths forced."""

import random
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from advisor.canonical import Json
from advisor.errors import EngineFailed
from advisor.measurement.records import Outcome
from advisor.measurement.step_plan import StepRun
from advisor.measurement.steps import StepTiming
from advisor.states import FailureKind
from probes.load.plan import COMPLETION_PATH, LoadPlan, PlannedRequest
from probes.load.runner import run_load
from probes.load.schedule import Schedule
from probes.measure.server import Server

# Verification runs are of drafts that are refused. More than this accepted, and steps are fewer
# than tokens by so much that the time of a step is another one.
MOST_ACCEPTED = 0.02
_DRAFTED = (
    "vllm:spec_decode_num_draft_tokens_total",
    "vllm:spec_decode_num_accepted_tokens_total",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedRuns:
    """Timings of all runs, and the share of drafted tokens that was accepted (None: no drafts)."""

    timings: tuple[StepTiming, ...]
    accepted_share: float | None

    @property
    def flaw(self) -> str | None:
        """Why the time of a verification step would be wrong."""
        if self.accepted_share is None or self.accepted_share <= MOST_ACCEPTED:
            return None
        return f"{self.accepted_share:.1%} of the drafts were accepted: steps are fewer than tokens"


def time_runs(
    server: Server,
    runs: Sequence[StepRun],
    *,
    vocab_size: int,
    repeats: int,
    seed: int,
    cancelled: threading.Event,
    told: Callable[[int, int], None],
) -> TimedRuns:
    """Every run `repeats` times, in rounds; the first round of all is thrown away as a warm-up.

    Prompts are random token ids, other ones each time, so that none is in a prefix cache. `told`
    hears how many of how many runs are done. Raises `EngineFailed` when a request fails.
    """
    rng = random.Random(seed)  # noqa: S311 - load, not a secret
    timings: list[StepTiming] = []
    total = len(runs) * (repeats + 1)
    before = server.snapshot()
    for turn in range(repeats + 1):
        for place, run in enumerate(runs):
            seconds = _seconds(server, run, vocab_size, rng, cancelled=cancelled)
            if turn:
                timings.append(StepTiming(run=run, seconds=seconds))
            told(turn * len(runs) + place + 1, total)
    after = server.snapshot()
    share = None
    if before is not None and after is not None:
        share = _accepted_share(before.totals, after.totals)
    return TimedRuns(timings=tuple(timings), accepted_share=share)


def _seconds(
    server: Server, run: StepRun, vocab_size: int, rng: random.Random, *, cancelled: threading.Event
) -> float:
    """From the first send to the last end."""
    plan = LoadPlan(
        host=server.address.host,
        port=server.address.port,
        schedule=Schedule(concurrency=run.batch, gang=True),
        requests=tuple(
            PlannedRequest(
                request_id=f"step-{place}",
                label=None,
                path=COMPLETION_PATH,
                body=_body(server.identity.model, run, vocab_size, rng),
            )
            for place in range(run.batch)
        ),
    )
    with server.watched(cancelled, busy=True) as ended:
        records = run_load(plan, cancelled=ended).records
    failed = [record.error for record in records if record.outcome is not Outcome.OK]
    if failed:
        raise EngineFailed(FailureKind.LOAD_FAILED, f"a run to time failed: {failed[0]}")
    return max(record.end_s for record in records) - min(record.sent_s for record in records)


def _body(model: str, run: StepRun, vocab_size: int, rng: random.Random) -> dict[str, Json]:
    prompt: list[Json] = [rng.randrange(vocab_size) for _ in range(run.prompt_tokens)]
    return {
        "model": model,
        "prompt": prompt,
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0.0,
        "ignore_eos": True,
        "min_tokens": run.output_tokens,
        "max_tokens": run.output_tokens,
    }


def _accepted_share(before: Mapping[str, float], after: Mapping[str, float]) -> float | None:
    """Of the tokens drafted between two looks at the counters; None where none was."""
    drafted, accepted = (after.get(name, 0.0) - before.get(name, 0.0) for name in _DRAFTED)
    return accepted / drafted if drafted > 0 else None
