"""All pictures of an upload, in the order in which a reader meets them."""

from advisor.recommender.capacity import CacheSize
from advisor.traffic.figures import TrafficSummary
from api.charts.arrivals import concurrency_chart, diurnal_chart, rate_chart
from api.charts.drafts import positions_chart, steps_chart
from api.charts.lengths import fit_chart, joint_chart
from api.charts.reuse import difference_chart, reuse_chart
from api.schemas import ChartView


def traffic_charts(
    summary: TrafficSummary, *, cache: CacheSize | None = None
) -> tuple[ChartView, ...]:
    """One per question; what the upload does not say is a sentence.

    `cache` is the target's KV cache, where its size is known or bounded.
    """
    return (
        joint_chart(summary),
        fit_chart(summary),
        rate_chart(summary),
        diurnal_chart(summary),
        concurrency_chart(summary),
        reuse_chart(summary, cache),
        difference_chart(summary),
        positions_chart(summary),
        steps_chart(summary),
    )
