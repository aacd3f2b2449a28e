"""Predicted against measured on public data: `python -m tests.validate [SET ...]`.

Reads the measurements beside the checkout (`../shared`), writes `build/validate.json`,
`build/validate.md` and, when all sets ran, `docs/validation.md`. Exits 1 when a row with a target
misses it, 3 without the public data. Rows without a target are a series to watch, not a gate.
"""

import importlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tests.bench.figures import Figure, read_targets, rows, write_figures
from tests.validate.page import page
from tests.validate.report import Point, ValidationSet, summary

ROOT = Path(__file__).parents[2]
MEASURED = ROOT.parent / "shared" / "data" / "measurements"
PAGE = ROOT / "docs" / "validation.md"
# A module of this package each: the page lists them in this order.
SETS = ("memory", "argonne", "silicon", "replay", "effects", "simulator", "mfu", "measurement")


def set_figures(found: ValidationSet) -> Iterator[Figure]:
    """Error, coverage and width of one set: no one of them says enough alone."""
    if not found.points:
        return
    said = summary(found.points)
    detail = f"{said.points} points; interval high/low {said.width:.2f} in the median"
    for part, value, better in (
        ("median_error", said.median_error, "lower"),
        ("mean_error", said.mean_error, "lower"),
        ("p90_error", said.p90_error, "lower"),
        ("coverage", said.coverage, "higher"),
    ):
        yield Figure(
            name=f"{found.name}_{part}", value=value, unit="fraction", better=better, detail=detail
        )


def coverage_figures(sets: Sequence[ValidationSet]) -> Iterator[Figure]:
    """What the 90 % intervals hold: over all held-out points, and in the worst set."""
    pooled = {found.name: summary(found.points) for found in sets if found.pooled and found.points}
    points: list[Point] = [
        point for found in sets if found.name in pooled for point in found.points
    ]
    if not points:
        return
    all_of_them = summary(points)
    detail = f"{len(points)} held-out points; high/low {all_of_them.width:.2f} in the median"
    for name, better in (
        ("interval_coverage_pooled", "higher"),
        ("interval_coverage_pooled_excess", "lower"),
    ):
        yield Figure(
            name=name, value=all_of_them.coverage, unit="fraction", better=better, detail=detail
        )
    yield Figure(
        name="interval_coverage_worst_set",
        value=min(said.coverage for said in pooled.values()),
        unit="fraction",
        better="higher",
        detail="; ".join(
            f"{name}: {said.coverage:.3f}, high/low {said.width:.2f}"
            for name, said in pooled.items()
        ),
    )


def run(names: Sequence[str]) -> list[ValidationSet]:
    """The sets one after another, with a bar on standard error."""
    shown = (
        TextColumn("validate {task.description:<10}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    sets = []
    with Progress(*shown, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task("", total=len(names))
        for name in names:
            bars.update(task, description=name)
            sets.append(importlib.import_module(f"tests.validate.{name}").validation(MEASURED))
            bars.advance(task)
    return sets


def main() -> int:
    """0 when no figure misses its target, 1 otherwise, 2 usage, 3 without the public data."""
    names = sys.argv[1:] or SETS
    unknown = set(names) - set(SETS)
    if unknown:
        sys.stderr.write(
            f"no such set: {', '.join(sorted(unknown))}; there are {', '.join(SETS)}\n"
        )
        return 2
    if not MEASURED.is_dir():
        sys.stderr.write("public measurements are not beside the checkout: ../shared/data\n")
        return 3
    sets = run(names)
    figures = [
        *(figure for found in sets for figure in found.figures),
        *coverage_figures(sets),
        *(figure for found in sets for figure in set_figures(found)),
    ]
    if tuple(names) == SETS:
        PAGE.write_text(page(sets, rows(figures, read_targets())), encoding="utf-8")
    return write_figures(figures, ROOT / "build" / "validate.json", "Validation")


if __name__ == "__main__":
    sys.exit(main())
