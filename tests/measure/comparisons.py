"""Does the protocol call noise a gain, and does it find a slowdown that is there?

Ten comparisons of the engine with itself and ten with the engine slowed down by a tenth. Both come
from the same rounds of three loads, A B A, over the same requests: the two A of a round are a pair
without a change, B against both is a pair with one. The product's own rule judges them.
"""

import math
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager

from advisor.measurement.protocol.pairs import Change, Comparison, compare
from probes.vllm.engine import RunningEngine
from tests.bench.figures import Figure
from tests.measure.arms import Bench, Round
from tests.measure.contenders import Load
from tests.measure.progress import Say
from tests.measure.prompts import prompts
from tests.measure.slowdown import computing, slowed

COMPARISONS = 10
# Many rounds of short loads: this machine's speed drifts more between long loads than between short
# ones (a pair of 3 s spreads by 8 %, one of 16 s as much), so that more rounds are what helps.
ROUNDS = 10
# Standing still for SHARE of the time takes SLOWDOWN off the throughput: more than the share, as
# what was stopped must find its way back (100 rounds with a share of 0.1 saw 0.12). The row says
# what was seen over all rounds.
SLOWDOWN = 0.1
SHARE = 0.082
LOAD = Load(prompts=prompts(8, 60), concurrency=8, tokens=8)


def comparison_figures(
    engine: RunningEngine, say: Say, *, comparisons: int = COMPARISONS, rounds: int = ROUNDS
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
        made = [bench.round(slow) for _ in range(rounds)]
        same.append(compare(unchanged(made)))
        slower.append(compare([item.change for item in made]))
        say(f"{number + 1} of {comparisons}: same {shown(same[-1])}; slowed {shown(slower[-1])}")
    spent_s = time.monotonic() - began_s
    spent = f"{bench.taken} loads in {spent_s:.0f} s, {bench.disturbed} disturbed"
    return [no_change_row(same, spent), slowdown_row(slower, spent)]


def unchanged(rounds: Sequence[Round]) -> list[tuple[float, float]]:
    """The two A of each round, the earlier one first in every other of them."""
    pairs = [(item.before, item.after) for item in rounds]
    return [pair if place % 2 == 0 else pair[::-1] for place, pair in enumerate(pairs)]


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
        detail=f"of {len(slower)}: {_all(slower)}; planted {1 - SLOWDOWN:.2f}, seen over all pairs"
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
