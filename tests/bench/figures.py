"""Figures with their targets: JSON for machines, Markdown for people."""

import json
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

TARGETS = Path(__file__).parents[2] / "docs" / "targets.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One measured figure; its target, if it has one, stands in docs/targets.toml by `name`.

    `better` is "lower" or "higher". `value` None: it could not be measured, `detail` says why.
    """

    name: str
    value: float | None
    unit: str
    better: str
    detail: str


def read_targets(path: Path = TARGETS) -> Mapping[str, Mapping[str, Any]]:
    """Targets by the name of their figure."""
    return tomllib.loads(path.read_text(encoding="utf-8"))


def meets(figure: Figure, target: Mapping[str, Any] | None) -> bool:
    """A figure without a target is ok; one with a target and no value is not."""
    if target is None:
        return True
    if figure.value is None:
        return False
    limit: float = target["value"]
    if figure.value == limit:
        return not target.get("exclusive", False)
    return figure.value < limit if target["better"] == "lower" else figure.value > limit


def rows(
    figures: Sequence[Figure], targets: Mapping[str, Mapping[str, Any]]
) -> list[dict[str, object]]:
    """The rows of `build/bench.json` and `build/validate.json`."""
    return [
        {
            "name": figure.name,
            "value": figure.value,
            "unit": figure.unit,
            "target": targets.get(figure.name, {}).get("value"),
            "better": figure.better,
            "ok": meets(figure, targets.get(figure.name)),
            "detail": figure.detail,
        }
        for figure in figures
    ]


def write_figures(figures: Sequence[Figure], path: Path, title: str) -> int:
    """Writes JSON and Markdown, prints a table; 1 when a row is not ok."""
    table = rows(figures, read_targets())
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(table, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    lines = [f"# {title}", "", "| figure | value | target | ok | detail |", "|---|--:|--:|---|---|"]
    shown = Table("figure", "value", "target", "ok", "detail", title=title)
    for row in table:
        cells = (
            str(row["name"]),
            _text(row["value"], row["unit"]),
            "" if row["target"] is None else f"{row['better']} than {row['target']}",
            "yes" if row["ok"] else "NO",
            str(row["detail"]),
        )
        lines.append(f"| {' | '.join(cells)} |")
        shown.add_row(*cells)
    path.with_suffix(".md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    Console(file=sys.stdout).print(shown)
    return 0 if all(row["ok"] for row in table) else 1


def _text(value: object, unit: object) -> str:
    return "not measured" if value is None else f"{value:.4g} {unit}"
