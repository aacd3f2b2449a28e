"""Does the protocol call noise a gain, and does it find a slowdown that is there?

Ten comparisons of the engine with itself, ten with arm B slowed down by a tenth, taking turns so
that both kinds see the same machine. Each is pairs of loads A B, B A, ... over the same requests,
judged by the product's own rule.
"""

import math
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

from advisor.measurement.protocol.pairs import Change, Comparison
from probes.vllm.engine import RunningEngine
from tests.bench.figures import Figure
from tests.measure.arms import Bench
from tests.measure.contenders import Load
from tests.measure.progress import Say
from tests.measure.prompts import prompts
from tests.measure.slowdown import computing, slowed

COMPARISONS = 10
# Many pairs of short loads: what makes this machine faster and slower takes longer than a pair, so
# that both of its loads see the same, and five pairs bring the t interval's factor from 4.3 to 2.8.
PAIRS = 5
# Standing still for this share of the time takes as much off the throughput.
SHARE = 0.1
LOAD = Load(prompts=prompts(16, 120), concurrency=8, tokens=16)


def comparison_figures(
    engine: RunningEngine, say: Say, *, comparisons: int = COMPARISONS, pairs: int = PAIRS
) -> list[Figure]:
    """False verdicts without a change, and found slowdowns."""
    bench = Bench(engine=engine, load=LOAD)
    bench.throughput()  # the first load after a start is slower than all later ones
    pids = computing(engine)
    began_s = time.monotonic()
    same: list[Comparison] = []
    slower: list[Comparison] = []

    def slow() -> AbstractContextManager[None]:
        return slowed(pids, SHARE)

    for number in range(comparisons):
        same.append(bench.compared(pairs, nullcontext))
        slower.append(bench.compared(pairs, slow))
        say(f"{number + 1} of {comparisons}: same {shown(same[-1])}; slowed {shown(slower[-1])}")
    spent_s = time.monotonic() - began_s
    spent = f"{bench.taken} loads in {spent_s:.0f} s, {bench.disturbed} disturbed"
    return [no_change_row(same, spent), slowdown_row(slower, spent)]


def no_change_row(same: Sequence[Comparison], spent: str) -> Figure:
    """How many comparisons of an engine with itself were told as helps or hurts."""
    false = sum(found.change in {Change.HELPS, Change.HURTS} for found in same)
    return Figure(
        name="no_change_false_verdicts",
        value=false,
        unit="comparisons",
        better="lower",
        detail=f"of {len(same)}: {_all(same)}; {spent}",
    )


def slowdown_row(slower: Sequence[Comparison], spent: str) -> Figure:
    """How many planted slowdowns were told as hurts, and how large they were over all pairs."""
    hurt = sum(found.change is Change.HURTS for found in slower)
    return Figure(
        name="slowdown_found",
        value=hurt,
        unit="comparisons",
        better="higher",
        detail=f"of {len(slower)}: {_all(slower)}; planted {1 - SHARE:.2f}, seen over all pairs"
        f" {pooled(slower):.3f}; {spent}",
    )


def pooled(found: Sequence[Comparison]) -> float:
    """The geometric mean of the gains: one long run that shows how large the slowdown was."""
    return math.exp(sum(math.log(item.gain.value) for item in found) / len(found))


def shown(found: Comparison) -> str:
    """Verdict and interval."""
    gain = found.gain
    return f"{found.change.value} {gain.value:.3f} ({gain.low:.3f} to {gain.high:.3f})"


def _all(found: Sequence[Comparison]) -> str:
    return ", ".join(shown(item) for item in found)
