"""All pictures of a recommendation, in the order in which a reader meets them."""

from advisor.recommender.recommendation import Recommendation
from api.charts.acceptance import acceptance_chart
from api.charts.gains import class_chart, gains_chart
from api.charts.memory import memory_chart
from api.charts.predictions import predictions_chart
from api.charts.ranking import ranking_chart
from api.charts.roofline import roofline_chart
from api.charts.saturation import saturation_chart
from api.schemas import ChartView


def charts_of(body: Recommendation) -> tuple[ChartView, ...]:
    """One per question; a picture that cannot be drawn is a sentence that says why."""
    builders = (
        ranking_chart,
        gains_chart,
        saturation_chart,
        acceptance_chart,
        class_chart,
        roofline_chart,
        memory_chart,
        predictions_chart,
    )
    return tuple(build(body) for build in builders)
