"""A second run of the same requests is not faster because the first one filled the prefix cache."""

import math
from collections.abc import Sequence

from probes.vllm.engine import RunningEngine
from tests.bench.figures import Figure
from tests.measure.arms import Bench
from tests.measure.contenders import Load
from tests.measure.progress import Say
from tests.measure.prompts import prompts

PAIRS, CONTROL_PAIRS = 5, 2
# A pair is so many loads, each of its own prompts and made twice in a row: this machine drifts more
# between long loads than between short ones.
LOADS_PER_PAIR = 5
# Long prompts and short answers: what a warm cache speeds up most. A block is 128 tokens here.
LOADS = tuple(
    Load(prompts=prompts(2, 1600, first=100 + 2 * number), concurrency=2, tokens=4)
    for number in range(LOADS_PER_PAIR)
)


def prefix_figures(engine: RunningEngine, say: Say) -> list[Figure]:
    """The ratio of second to first runs, beside that of runs without the protocol's reset."""
    benches = [Bench(engine=engine, load=load) for load in LOADS]
    benches[0].throughput()
    ratios = []
    for number in range(PAIRS):
        ratios.append(geometric_mean([second_over_first(bench) for bench in benches]))
        say(f"pair {number + 1} of {PAIRS}: second over first run {ratios[-1]:.3f}")
    control = []
    for number in range(CONTROL_PAIRS):
        control.append(second_over_first(benches[number], resets=False))
        say(f"control {number + 1} of {CONTROL_PAIRS}: without the reset {control[-1]:.3f}")
    return [second_run_row(ratios, control)]


def second_over_first(bench: Bench, *, resets: bool = True) -> float:
    """Throughput of the second of two runs of one load, at once after the first."""
    first = bench.throughput()
    return bench.throughput(resets=resets) / first


def second_run_row(ratios: Sequence[float], control: Sequence[float]) -> Figure:
    """Distance of the mean ratio from 1."""
    return Figure(
        name="second_run_ratio_off",
        value=abs(geometric_mean(ratios) - 1),
        unit="fraction",
        better="lower",
        detail=f"second over first run: mean {geometric_mean(ratios):.3f} of"
        f" {', '.join(f'{at:.3f}' for at in ratios)}; control without the reset:"
        f" {', '.join(f'{at:.3f}' for at in control)}",
    )


def geometric_mean(ratios: Sequence[float]) -> float:
    """Of ratios, so that a half and a double cancel."""
    return math.exp(sum(math.log(at) for at in ratios) / len(ratios))
