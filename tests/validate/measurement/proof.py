"""The rows `planted_coverage_virtual` and `planted_marks_missed`."""

import multiprocessing
import os
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from tests.bench.figures import Figure
from tests.validate.measurement.coverage import quantities, run
from tests.validate.measurement.marks import Marked, marked
from tests.validate.measurement.worlds import WORLDS
from tests.validate.report import ValidationSet

RUNS = 200
SEEDS = 60


def coverage_figure(runs: int = RUNS) -> Figure:
    """The share of intervals that hold the truth, of the quantity that is covered least."""
    seeds = runs // len(WORLDS)
    with _pool() as pool:
        found = pool.map(_runs, range(len(WORLDS)), [seeds] * len(WORLDS))
        told = [item for world in found for item in world]
    shares = list(quantities(told))
    least = min(share for _, share, _, _ in shares)
    detail = "; ".join(
        f"{name} {share:.3f} of {given}" + (f", {without} without an interval" if without else "")
        for name, share, given, without in shares
    )
    return Figure(
        name="planted_coverage_virtual",
        value=least,
        unit="fraction",
        better="higher",
        detail=f"{len(told)} runs on {len(WORLDS)} planted engines; {detail}",
    )


def marks_figures(seeds: int = SEEDS) -> tuple[Figure, Figure]:
    """Planted points without their mark, and the share of faultless ones with one."""
    with _pool() as pool:
        found = [item for told in pool.map(marked, range(seeds)) for item in told]
    missed = [item for item in found if item.missed]
    clean = [item for item in found if item.wanted is None]
    false = [item for item in clean if item.false]
    planted = Counter(item.kind for item in found if item.wanted is not None)
    return (
        Figure(
            name="planted_marks_missed",
            value=len(missed),
            unit="points",
            better="lower",
            detail=f"of {planted.total()}, {len(planted)} kinds; missed: {_kinds(missed)}",
        ),
        Figure(
            name="planted_marks_false",
            value=len(false) / len(clean),
            unit="fraction",
            better="lower",
            detail=f"{len(clean)} loads without a fault; marked: {_kinds(false)}",
        ),
    )


def _kinds(found: Sequence[Marked]) -> str:
    counts = Counter(item.kind for item in found)
    return ", ".join(f"{count} {kind}" for kind, count in counts.items()) or "none"


def _runs(world: int, seeds: int) -> list[dict[str, bool | None]]:
    return [run(WORLDS[world], 1000 * world + seed) for seed in range(seeds)]


def _pool() -> ProcessPoolExecutor:
    """Processes that start afresh: numpy's threads do not survive a fork."""
    fresh = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(max_workers=min(4, os.cpu_count() or 1), mp_context=fresh)


def validation(_: Path) -> ValidationSet:
    """Needs no public data: the truth is planted."""
    return ValidationSet(
        name="measurement",
        title="The measurement protocol",
        what=(
            "intervals and marks of load points on planted engines in virtual time, with noise of"
            " 2 to 8 % in their steps and starts, closed and open loops"
        ),
        points=(),
        figures=(coverage_figure(), *marks_figures()),
        notes=(
            (
                "A run is four starts with one load each, a ladder, and a search for the largest"
                " rate that keeps the limits. Within one load an interval is held against what is"
                " true under that start, over the starts against what is true of the engine."
            ),
        ),
    )
