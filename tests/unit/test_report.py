"""What a terminal shows of a recommendation."""

import io

from rich.console import Console

from api.report import print_recommendation
from tests.fakes.views import body


def shown() -> str:
    """The report of a whole planted study, on a wide terminal without colours."""
    out = io.StringIO()
    print_recommendation(body(), Console(file=out, width=240))
    return out.getvalue()


def test_a_report_names_sources_intervals_and_the_machine() -> None:
    """Every number with its interval; acceptance, memory and noise beside the verdicts."""
    text = shown()

    assert "measured here" in text
    assert "accepted by position" in text
    assert "memory: weights" in text
    assert "noise floor:" in text
    assert "measured on:" in text
    assert "Continuous batching" in text
