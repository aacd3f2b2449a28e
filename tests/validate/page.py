"""`docs/validation.md`, written by `make validate`: the same data give the same page."""

import math
from collections.abc import Iterator, Mapping, Sequence

from tests.validate.report import Point, ValidationSet, summary

HEAD = """# Validation: predicted against measured

Written by `make validate` from public measurements that are not part of this repository; splits
and seeds are fixed in `tests/validate/`. Nothing here was fitted to the points it is tested on;
where a rule was changed after results had been seen, the notes of its set say so. Intervals are
nominal 90 %; their width stands beside their coverage, because a wide interval covers anything.
What a model leaves out is listed with each set.
"""
# Wall times differ from run to run; they stand in build/validate.md only.
TIMED = ("replay_s",)


def page(sets: Sequence[ValidationSet], rows: Sequence[Mapping[str, object]]) -> str:
    """The whole page."""
    return "\n".join([HEAD, *_targets(rows), *(line for found in sets for line in _set(found))])


def _targets(rows: Sequence[Mapping[str, object]]) -> Iterator[str]:
    yield "## Targets"
    yield ""
    yield "| figure | value | target | met |"
    yield "|---|--:|--:|---|"
    for row in rows:
        if row["target"] is None or row["name"] in TIMED:
            continue
        met = "yes" if row["ok"] else "**no**"
        bound = "at most" if row["better"] == "lower" else "at least"
        limit = f"{bound} {_text(row['target'])}"
        yield f"| `{row['name']}` | {_text(row['value'])} | {limit} | {met} |"
    yield ""


def _set(found: ValidationSet) -> Iterator[str]:
    yield f"## {found.title}"
    yield ""
    yield found.what
    yield ""
    yield from _points(found)
    for figure in found.figures:
        if figure.name not in TIMED:
            yield f"- `{figure.name}`: {_text(figure.value)} {figure.unit}. {figure.detail}"
    if found.figures:
        yield ""
    if found.peers:
        yield "| other predictor | its figure | source |"
        yield "|---|---|---|"
        yield from (f"| {peer.name} | {peer.figure} | {peer.source} |" for peer in found.peers)
        yield ""
    if found.not_modelled:
        yield f"Not modelled: {'; '.join(found.not_modelled)}."
        yield ""
    for note in found.notes:
        yield note
        yield ""


def _points(found: ValidationSet) -> Iterator[str]:
    if not found.points:
        return
    series: dict[str, list[Point]] = {}
    for point in found.points:
        series.setdefault(point.series, []).append(point)
    yield (
        "| series | points | median error | mean error | p90 error | 90 % interval holds"
        " | high/low |"
    )
    yield "|---|--:|--:|--:|--:|--:|--:|"
    for name, points in (*sorted(series.items()), ("all", list(found.points))):
        said = summary(points)
        width = "-" if math.isinf(said.width) else f"{said.width:.2f}"
        yield (
            f"| {name} | {said.points} | {said.median_error:.1%} | {said.mean_error:.1%} |"
            f" {said.p90_error:.1%} | {said.coverage:.0%} | {width} |"
        )
    yield ""


def _text(value: object) -> str:
    return "not measured" if value is None else f"{value:.4g}"
