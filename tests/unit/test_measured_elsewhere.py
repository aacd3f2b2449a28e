"""Measurements from elsewhere as rows of text."""

from dataclasses import replace

import pytest

from advisor.estimate import Source
from advisor.measurement.records import LoopKind
from advisor.measurement.report import Distribution, MeasuredPoint
from api.client import NOT_USED, MeasurementView
from api.documents.blocks import Paragraph, Table
from api.documents.outside import FIGURES, figures, load_text, outside_section, tool_text
from tests.fakes.stored_values import MEASURED
from tests.fakes.views import BEGIN, identifier

POINT = MeasuredPoint(kind=None, requests=1200, failed=0, duration_s=4.0)


@pytest.mark.parametrize(
    "kind, concurrency, rate, text",
    [
        (LoopKind.CLOSED, 8.0, None, "8 in flight"),
        (LoopKind.OPEN, 3.5, 2.5, "2.5 requests/s"),
        (LoopKind.CLOSED, None, None, "closed loop"),
        (LoopKind.OPEN, None, None, "open loop"),
        (None, 8.0, 2.5, "not said"),
    ],
)
def test_a_load_is_told_as_it_was_submitted(
    kind: LoopKind | None, concurrency: float | None, rate: float | None, text: str
) -> None:
    """What is not known of it is not guessed from its other figures."""
    assert load_text(replace(POINT, kind=kind, concurrency=concurrency, rate_per_s=rate)) == text


def test_times_are_medians_else_means_and_a_missing_one_is_a_dash() -> None:
    """A time without either is not told."""
    told = replace(
        POINT,
        ttft_s=Distribution(mean=9.0, percentiles={50.0: 0.25}),
        tpot_s=Distribution(mean=0.5),
        e2e_s=Distribution(percentiles={99.0: 3.0}),
        usable=False,
    )

    assert figures(told) == ("not said", "1,200", "-", "250.0 ms", "mean 500.0 ms", "-", "no")
    assert len(figures(told)) == len(FIGURES)


def test_beside_a_study_each_load_has_its_source_and_the_section_says_it_was_not_used() -> None:
    """Nothing measured elsewhere, no section."""
    view = MeasurementView(
        id=identifier(1),
        target_id=identifier(2),
        digest="d0",
        source=Source.MEASURED_OUTSIDE,
        report=MEASURED,
        created_at=BEGIN,
    )
    section = outside_section([view, view])

    assert outside_section([]) is None
    assert section is not None
    about, table = section.blocks
    assert isinstance(about, Paragraph)
    assert isinstance(table, Table)
    assert NOT_USED in about.text
    assert len(table.rows) == 2 * len(MEASURED.points)
    assert {row[1] for row in table.rows} == {Source.MEASURED_OUTSIDE.value}
    assert all(len(row) == len(table.columns) for row in table.rows)
    assert "1 of 8 requests failed" in table.rows[1]


def test_a_tool_is_named_with_what_it_measured() -> None:
    """As far as its file says."""
    assert tool_text(MEASURED) == "rooftune 0.1.0: demo, vllm 0.32.0"
    assert tool_text(replace(MEASURED, tool_version=None, model=None, engine=None)) == "rooftune"
