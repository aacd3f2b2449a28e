"""Figures against targets: `make bench` and `make validate` stand or fall by these rules."""

import json
from pathlib import Path

import pytest

from tests.bench.figures import Figure, meets, read_targets, rows, write_figures


def figure(value: float | None, better: str = "higher") -> Figure:
    return Figure(name="f", value=value, unit="x", better=better, detail="")


@pytest.mark.parametrize(
    "value, better, limit, expected",
    [
        (2.5, "higher", 2.5, True),
        (2.4, "higher", 2.5, False),
        (600.0, "lower", 600.0, True),
        (601.0, "lower", 600.0, False),
        (None, "lower", 600.0, False),
    ],
)
def test_a_target_is_met_on_its_own_side(
    value: float | None, better: str, limit: float, *, expected: bool
) -> None:
    """What was not measured does not meet a target."""
    assert meets(figure(value, better), {"value": limit, "better": better}) is expected


def test_an_exclusive_bound_must_be_passed() -> None:
    """The same gain at 1 and at 16 is not more at 1."""
    target = {"value": 0.0, "better": "higher", "exclusive": True}

    assert not meets(figure(0.0), target)
    assert meets(figure(0.01), target)


def test_a_missed_figure_fails_the_run_and_stays_in_the_file(tmp_path: Path) -> None:
    """Red is shown, not hidden."""
    name, target = next(iter(read_targets().items()))
    worse = target["value"] + (-1 if target["better"] == "higher" else 1)
    missed = Figure(name=name, value=worse, unit="x", better=target["better"], detail="")
    code = write_figures([missed], tmp_path / "out" / "f.json", "Bench")
    [row] = json.loads((tmp_path / "out" / "f.json").read_text())

    assert code == 1
    assert row["ok"] is False
    assert "NO" in (tmp_path / "out" / "f.md").read_text()


def test_a_figure_without_a_target_is_a_series() -> None:
    """It is reported and fails nothing."""
    [row] = rows([Figure(name="nobody set one", value=1, unit="", better="lower", detail="")], {})

    assert (row["target"], row["ok"]) == (None, True)
