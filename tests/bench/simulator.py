"""Figures of the simulator: how fast it serves loads, and in how much memory.

Each runs in a process of its own after one small run, so that compiled code is loaded. Times are
CPU time, because other work may run beside it, except where two threads share the work.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from advisor.roofline.step.steptime import AffineStep, StepTables, TableLimits
from advisor.simulator import Load, SchedulerSettings, simulate, simulate_many
from tests.bench.figures import Figure
from tests.bench.traffic import Measured, peak_mib

PROMPT, OUTPUT = 500, 200
RATE = 33.0  # requests per second: some 150 run at once on the engine below, which keeps up
OVERLOAD = 400.0
CONFIGURATIONS, TRACE = 5000, 2000
SEED = 5
LIMITS = TableLimits(max_tokens=16384, max_requests=1024, max_context=8192)
ENGINE = SchedulerSettings(
    num_blocks=20_480, max_num_seqs=1024, max_num_batched_tokens=8192, max_model_len=8192
)


def tables(fixed_s: float = 0.0071) -> StepTables:
    """An 8B model on one large GPU, about."""
    return AffineStep(fixed_s=fixed_s, token_s=2.1e-5, context_s=4.5e-8).tables(LIMITS)


def load(count: int, rate: float) -> Load:
    """Poisson arrivals of equal requests."""
    gaps = np.random.default_rng(SEED).exponential(1 / rate, count)
    return Load(
        arrival_s=np.cumsum(gaps),
        prompt_tokens=np.full(count, PROMPT),
        output_tokens=np.full(count, OUTPUT),
    )


def warm() -> None:
    """Compiled code is there afterwards."""
    simulate(load(10, RATE), ENGINE, tables())


def one_load(count: int, rate: float) -> Measured:
    """CPU seconds of one simulation, how full the engine was, and peak memory."""
    served = load(count, rate)
    start_s = time.process_time()
    outcome = simulate(served, ENGINE, tables())
    spent_s = time.process_time() - start_s
    return {
        "seconds": spent_s,
        "running": float(outcome.running.mean()),
        "waiting": float(outcome.waiting.max()),
        "preemptions": int(outcome.preemptions.sum()),
        "peak_mib": peak_mib(),
    }


def many() -> Measured:
    """Wall seconds of many configurations of one trace, on two threads."""
    served = load(TRACE, RATE)
    rng = np.random.default_rng(SEED)
    cases = [
        (
            SchedulerSettings(
                num_blocks=int(rng.integers(2_000, 40_000)),
                max_num_seqs=int(rng.choice([64, 128, 256, 512, 1024])),
                max_num_batched_tokens=int(rng.choice([2048, 4096, 8192, 16384])),
                max_model_len=8192,
                enable_prefix_caching=bool(rng.random() < 0.5),
            ),
            tables(float(rng.uniform(0.004, 0.012))),
        )
        for _ in range(CONFIGURATIONS)
    ]
    start_s = time.perf_counter()
    outcomes = simulate_many(served, cases)
    spent_s = time.perf_counter() - start_s
    return {
        "seconds": spent_s,
        "waited": sum(bool(outcome.waiting.max() > 10) for outcome in outcomes),
        "peak_mib": peak_mib(),
    }


RUNS: dict[str, Callable[[], Measured]] = {
    "10k": lambda: one_load(10_000, RATE),
    "10k_overload": lambda: one_load(10_000, OVERLOAD),
    "1m": lambda: one_load(1_000_000, RATE),
    "1m_overload": lambda: one_load(1_000_000, OVERLOAD),
    "many": many,
}


def measured(kind: str) -> Measured:
    """What another process finds."""
    command = [sys.executable, "-m", "tests.bench.simulator", kind]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, cwd=root)
    found: Measured = json.loads(done.stdout)
    return found


def _told(found: Measured) -> str:
    return (
        f"{float(found['seconds']):.3f} s of CPU time, {float(found['running']):.0f} running on"
        f" average, at most {int(found['waiting']):,} waiting,"
        f" {int(found['preemptions']):,} preemptions"
    )


def figures() -> Iterator[Figure]:
    """The worse of a load that the engine keeps up with and of one far above it."""
    for name, count in (("10k", 10_000), ("1m", 1_000_000)):
        steady, flooded = measured(name), measured(f"{name}_overload")
        detail = (
            f"{count:,} requests of {PROMPT} in and {OUTPUT} out, prefix caching on. At {RATE:g}/s:"
            f" {_told(steady)}. At {OVERLOAD:g}/s, overload: {_told(flooded)}"
        )
        yield Figure(
            name=f"simulate_{name}_requests_s",
            value=max(float(steady["seconds"]), float(flooded["seconds"])),
            unit="s",
            better="lower",
            detail=detail,
        )
        if name == "1m":
            yield Figure(
                name="simulate_1m_peak_mib",
                value=max(float(steady["peak_mib"]), float(flooded["peak_mib"])),
                unit="MiB",
                better="lower",
                detail="peak memory of the process, interpreter and compiled code included",
            )
    found = measured("many")
    yield Figure(
        name="simulate_5000_configs_s",
        value=float(found["seconds"]),
        unit="s",
        better="lower",
        detail=(
            f"wall time of {CONFIGURATIONS:,} configurations (blocks, seats, budget, caching, step"
            f" time) of {TRACE:,} requests on two threads; in {int(found['waited']):,} of them more"
            " than 10 requests waited"
        ),
    )


if __name__ == "__main__":
    warm()
    sys.stdout.write(json.dumps(RUNS[sys.argv[1]]()))
