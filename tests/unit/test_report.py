"""What a terminal shows of a recommendation, and the same as HTML and as Markdown."""

import io
import re
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser

import pytest
from rich.console import Console
from typing_extensions import override

from advisor.recommender.recommendation import Recommendation
from advisor.states import RecommendationState
from advisor.traffic.figures import SubsetDistance
from api.charts.gallery import charts_of
from api.documents.content import document
from api.documents.markdown import as_markdown
from api.documents.page import as_html
from api.report import print_recommendation
from api.schemas import RecommendationView, ReviewView
from tests.fakes import pictures
from tests.fakes.pictures import wide_body

AT = datetime(2026, 3, 4, 9, 30, tzinfo=UTC)
HOSTILE = "</script><script>alert(1)</script> | *bold* [x](http://example.org)"
CONTENTS = (
    "Ranked configurations",
    "Verdicts",
    "Load and saturation",
    "Quality",
    "Confirmation",
    "Memory",
    "The model behind the forecast",
    "Baseline",
    "Provenance",
    "Reviews",
)


def view(body: Recommendation, *reviews: ReviewView) -> RecommendationView:
    """The bundle as the API answers it."""
    return RecommendationView(
        id="00000000-0000-0000-0000-000000000004",
        study_id=body.study_id,
        hash=body.hash,
        state=RecommendationState.PROPOSED,
        created_at=AT,
        body=body,
        reviews=reviews,
        evidence_purged_at=None,
        outside=(),
    )


def terminal(body: Recommendation) -> str:
    """The report on a wide terminal without colours."""
    out = io.StringIO()
    print_recommendation(body, Console(file=out, width=240))
    return out.getvalue()


class Page(HTMLParser):
    """Text outside scripts and styles, elements, and what they would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []
        self.elements: list[str] = []
        self.fetched: list[str] = []
        self.figures = 0
        self._hidden = 0

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        self._hidden += tag in {"script", "style"}
        self.fetched += [value or "" for name, value in attrs if name in {"src", "href"}]
        self.figures += any(name == "data-figure" for name, _ in attrs)

    @override
    def handle_endtag(self, tag: str) -> None:
        self._hidden -= tag in {"script", "style"}

    @override
    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.words.append(data)


def read_page(body: Recommendation, *reviews: ReviewView) -> Page:
    """The HTML report as a browser would read it."""
    page = Page()
    page.feed(as_html(document(view(body, *reviews))))
    return page


def in_markdown(body: Recommendation, *reviews: ReviewView) -> str:
    """The Markdown report without its escapes."""
    return as_markdown(document(view(body, *reviews))).replace("\\", "")


def test_a_report_names_sources_intervals_and_the_machine() -> None:
    """Every number with its interval; acceptance, memory and noise beside the verdicts."""
    text = terminal(wide_body())

    assert "measured here" in text
    assert "accepted by position" in text
    assert "memory: weights" in text
    assert "noise floor:" in text
    assert "measured on:" in text
    assert "Continuous batching" in text


def test_a_terminal_shows_load_confirmation_quality_and_paging() -> None:
    """One sentence each, with interval and what binds."""
    text = terminal(wide_body())

    assert "saturates at 14.2 (11.6 to 17.9) requests in flight" in text
    assert "what binds is compute" in text
    assert "Confirmed on 24 held-out requests" in text
    assert "+19.0 % (+10.0 % to +29.0 %)" in text
    assert "95.7 % (93.7 to 97.2) of 340 positions" in text
    assert "Paged blocks of 128 tokens fill 83%" in text
    assert "--swap-space" in text


def test_every_form_says_how_far_the_replayed_requests_are_from_the_upload() -> None:
    """Requests of how many, and the distance with its parts; without one nothing is said."""
    subset = SubsetDistance(
        requests=32, of=64, lengths=0.08, reuse=None, classes=0.03, burstiness=None, total=0.08
    )
    body = replace(wide_body(), subset=subset)
    written = as_markdown(document(view(body)))

    for text in (terminal(body), written):
        assert "32 of 64 requests, at a distance of 0.08" in text
        assert "lengths 0.08, classes 0.03;" in text
    assert "eplayed" not in terminal(replace(body, subset=None))


def test_what_a_study_did_not_do_is_no_line_of_the_terminal() -> None:
    """A bundle of an earlier version has none of it."""
    body = replace(
        wide_body(), saturation=None, confirmation=None, quality=(), paging=None, baseline_notes=()
    )
    text = terminal(body)

    assert "saturate" not in text
    assert "held-out" not in text
    assert "Paged blocks" not in text


def test_an_unsaturated_ladder_claims_no_knee() -> None:
    """The sentence names the highest load instead."""
    body = replace(wide_body(), saturation=pictures.saturation(saturated=False))

    assert "is not saturated at 32 requests in flight" in terminal(body)


def test_a_confirmation_that_was_not_measured_says_why() -> None:
    """And gives no gain."""
    body = wide_body()
    assert body.confirmation is not None
    missing = replace(
        body.confirmation, gain=None, confirmed=None, reason="no held-out request was left"
    )
    text = terminal(replace(body, confirmation=missing))

    assert "Not confirmed on held-out requests: no held-out request was left." in text


def test_the_html_report_is_one_file_that_fetches_nothing() -> None:
    """No address in any element, and a policy that forbids any."""
    page = read_page(wide_body())
    source = as_html(document(view(wide_body())))

    assert page.fetched == []
    assert set(page.elements).isdisjoint({"link", "img", "iframe", "object"})
    assert "default-src 'none'" in source
    assert page.figures == len(charts_of(wide_body()))
    assert "Plotly.react" in source


@pytest.mark.parametrize("form", ["html", "md"])
def test_both_forms_have_every_section_and_the_same_sentences(form: str) -> None:
    """Ranking, verdicts, load, quality, confirmation, memory, provenance, every warning."""
    body = wide_body()
    text = " ".join(read_page(body).words) if form == "html" else in_markdown(body)

    assert [title for title in CONTENTS if title not in text] == []
    assert all(verdict.sentence in text for verdict in body.verdicts)
    assert all(warning in text for warning in body.warnings)
    assert body.hash in text
    assert body.workload_digest in text
    assert body.model_digest in text
    assert all(item.config_hash in text for item in body.ranked)
    assert "95.7 % (93.7 to 97.2)" in text
    assert "baseline, finalist, finalist, baseline" in text
    assert "Noise floor: 2.0 % (1.9 to 2.1)" in text
    assert "14.2 (11.6 to 17.9)" in text


def test_markdown_has_the_pictures_as_tables() -> None:
    """Every row of every chart's table is there."""
    body = wide_body()
    text = in_markdown(body)

    for chart in charts_of(body):
        assert f"### {chart.title}" in text
        for row in chart.rows:
            assert f"| {' | '.join(row)} |" in text


def test_a_picture_that_cannot_be_drawn_is_its_sentence_in_both_forms() -> None:
    """No empty frame, no invented figure."""
    body = replace(wide_body(), saturation=None, roofline=())
    page = read_page(body)

    for chart in charts_of(body):
        if chart.missing is not None:
            assert chart.missing in " ".join(page.words)
            assert chart.missing in in_markdown(body)
    assert page.figures == len([chart for chart in charts_of(body) if chart.figure])


def test_a_report_without_pictures_carries_no_library() -> None:
    """Nothing measured: a small page of sentences."""
    body = replace(
        wide_body(),
        ranked=(),
        verdicts=(),
        saturation=None,
        roofline=(),
        predictions=(),
        memory=replace(pictures.memory(), device_bytes=None),
    )
    source = as_html(document(view(body)))

    assert "<script" not in source
    assert len(source) < 50_000


def test_somebody_elses_words_are_text_in_html_and_in_markdown() -> None:
    """A reviewer's comment, a warning and a flag cannot add an element, a row or a link."""
    body = replace(wide_body(), warnings=(HOSTILE,), baseline_notes=(HOSTILE,), machine=HOSTILE)
    review = ReviewView(
        id="r",
        recommendation_hash=body.hash,
        config_hash=body.best.config_hash,
        user=HOSTILE,
        decision="approve",
        comment=HOSTILE,
        at=AT,
    )
    page, clean = read_page(body, review), read_page(wide_body(), replace_words(review))
    source = as_markdown(document(view(body, review)))

    assert page.elements == clean.elements
    assert "alert(1)" in " ".join(page.words)
    assert not re.search(r"(?<!\\)\[x\]", source)
    assert not re.search(r"(?<!\\)<script", source)
    assert not re.search(r"(?<!\\)\*bold", source)


def replace_words(review: ReviewView) -> ReviewView:
    """The review with harmless words."""
    return replace(review, user="ada", comment="fine")
