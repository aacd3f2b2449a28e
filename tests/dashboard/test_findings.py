"""The recommendation page beside ranking and verdicts: pictures, load, quality, confirmation."""

import json
from dataclasses import replace

from streamlit.testing.v1 import AppTest

from advisor.recommender.recommendation import Recommendation
from advisor.states import RecommendationState
from api.charts.gallery import charts_of
from api.client import RecommendationView
from tests.dashboard.conftest import Opened
from tests.dashboard.test_workloads import shown
from tests.fakes import pictures, views
from tests.fakes.pictures import wide_body
from tests.fakes.planted_client import PlantedClient


def bundle(body: Recommendation) -> RecommendationView:
    """The body as the service answers it."""
    return RecommendationView(
        id=views.identifier(4),
        study_id=views.identifier(3),
        hash=body.hash,
        state=RecommendationState.PROPOSED,
        created_at=views.BEGIN,
        body=body,
        reviews=(),
        evidence_purged_at=None,
        outside=(),
    )


def seen(opened: Opened, body: Recommendation) -> AppTest:
    """The page of this recommendation."""
    return opened(PlantedClient(found=[bundle(body)]), "recommendation")


def test_every_picture_of_the_service_is_drawn_with_its_caption(opened: Opened) -> None:
    """The same figures as in the report, each with source and units below it."""
    at = seen(opened, wide_body())
    drawn = [json.loads(item.proto.spec) for item in at.get("plotly_chart")]
    expected = charts_of(wide_body())

    assert not at.exception
    assert len(drawn) == len(expected)
    assert all(chart.caption in shown(at) for chart in expected)
    assert {len(figure["data"]) for figure in drawn} == {
        len(json.loads(json.dumps(chart.figure))["data"]) for chart in expected
    }


def test_a_picture_that_cannot_be_drawn_is_a_sentence(opened: Opened) -> None:
    """An older bundle has no ladder, no roofline and no predictions."""
    body = replace(wide_body(), saturation=None, roofline=(), predictions=())
    at = seen(opened, body)
    missing = [chart.missing for chart in charts_of(body) if chart.missing is not None]

    assert not at.exception
    assert len(missing) == 3
    assert all(sentence in shown(at) for sentence in missing)
    assert len(at.get("plotly_chart")) == len(charts_of(body)) - len(missing)


def test_load_shows_the_saturation_with_interval_and_what_binds(opened: Opened) -> None:
    """And an unsaturated ladder claims no saturation."""
    saturated = shown(seen(opened, wide_body()))
    rising = replace(wide_body(), saturation=pictures.saturation(saturated=False))

    assert "14.2 (11.6 to 17.9) in flight" in saturated
    assert "what binds is compute" in saturated
    assert "is not saturated at 32 requests in flight" in shown(seen(opened, rising))


def test_quality_shows_agreement_with_tolerance_and_warns_below_the_floor(opened: Opened) -> None:
    """Below the floor is a warning; not measured has no figure."""
    body = wide_body()
    at = seen(opened, body)
    below = replace(body, quality=(replace(body.quality[0], within=False),))
    warned = seen(opened, below)

    assert "95.7 % (93.7 to 97.2)" in shown(at)
    assert "the baseline agrees with itself at 99.1 %" in shown(at)
    assert "quality not measured" in shown(at)
    assert any("below the goal" in item.value.replace("\\", "") for item in warned.warning)


def test_the_confirmation_shows_its_gain_its_order_and_its_word(opened: Opened) -> None:
    """A study that did not confirm says so."""
    at = seen(opened, wide_body())
    without = seen(opened, replace(wide_body(), confirmation=None))

    assert "Confirmed on 24 held-out requests" in shown(at)
    assert "+19.0 % (+10.0 % to +29.0 %)" in shown(at)
    assert "baseline, finalist, finalist, baseline" in shown(at)
    assert "did not compare its finalist" in shown(without)


def test_paging_and_notes_on_the_baseline_are_shown(opened: Opened) -> None:
    """Computed from the lengths; unknown flags by name."""
    text = shown(seen(opened, wide_body()))

    assert "Paged blocks of 128 tokens fill 83% of the cache" in text
    assert "--swap-space is not known to this vLLM" in text


def test_the_report_is_offered_as_a_file(opened: Opened) -> None:
    """HTML or Markdown, written when it is asked for."""
    at = seen(opened, wide_body())

    assert len(at.get("download_button")) == 1
    assert any(item.label == "Format" for item in at.selectbox)


def test_pictures_are_asked_for_once_per_bundle(opened: Opened) -> None:
    """A bundle never changes, so neither do its pictures."""
    client = PlantedClient(found=[bundle(wide_body())])
    at = opened(client, "recommendation")
    at.run()

    assert not at.exception
    assert client.drawn == 1
