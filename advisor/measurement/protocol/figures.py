"""Figures of a load with their intervals, from the requests and the time of its steady window."""

from collections.abc import Sequence

import numpy as np

from advisor.estimate import Estimate
from advisor.measurement.protocol.flow import token_curve
from advisor.measurement.protocol.intervals import (
    LEAST_BATCHES,
    batch_means,
    mean,
    percentile,
    ratio,
)
from advisor.measurement.records import RequestRecord, Window

_SHARES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
# Finer than is needed, so that neighbours that are alike can be merged (handbook 11.1).
_SLICES = 4 * LEAST_BATCHES


def intervals_of(
    steady: Sequence[RequestRecord],
    loaded: Sequence[RequestRecord],
    good: Sequence[RequestRecord],
) -> dict[str, Estimate]:
    """What `LoadPoint.intervals` holds, keyed "ttft_s p50".

    First tokens of those sent in the window, other times of those answered under the load, drafts
    of all. A figure that the count does not allow is left out.
    """
    found = {
        **latency_intervals("ttft_s", steady),
        **latency_intervals("tpot_s", loaded),
        **latency_intervals("e2e_s", loaded),
    }
    length = acceptance_length(good)
    return found if length is None else {**found, "acceptance_length": length}


def latency_intervals(name: str, requests: Sequence[RequestRecord]) -> dict[str, Estimate]:
    """Percentiles and mean of one time of the requests, which are in order of sending.

    Sessions, where there are any, are clusters.
    """
    seen = [(getattr(item, name), item) for item in requests]
    known = [(float(value), item) for value, item in seen if value is not None]
    values = [value for value, _ in known]
    clusters = _sessions([item for _, item in known])
    figures = {key: percentile(values, at, clusters=clusters) for key, at in _SHARES.items()}
    figures["mean"] = mean(values, clusters=clusters)
    return {f"{name} {key}": value for key, value in figures.items() if value is not None}


def acceptance_length(requests: Sequence[RequestRecord]) -> Estimate | None:
    """Tokens that a verification step yields, its own among them, with an interval over requests.

    None where the engine does not say what its steps accepted.
    """
    known = [item.accepted_histogram for item in requests if item.accepted_histogram]
    steps = [float(sum(counts)) for counts in known]
    tokens = [
        float(sum((1 + place) * count for place, count in enumerate(counts))) for counts in known
    ]
    return ratio(tokens, steps)


def steady_throughput(records: Sequence[RequestRecord], window: Window) -> Estimate | None:
    """Output tokens per second in the window, by batch means; None where none was steady."""
    if not window.steady or window.until_s <= window.since_s:
        return None
    edges = np.linspace(window.since_s, window.until_s, _SLICES + 1)
    tokens = token_curve(records).between(edges)
    return batch_means((tokens / (edges[1] - edges[0])).tolist())


def chunk_gaps_s(requests: Sequence[RequestRecord]) -> list[float]:
    """Gaps between neighbouring frames of each request: not time per token (case S-03)."""
    gaps = [np.diff(np.asarray(item.frame_times_s)) for item in requests if item.frame_times_s]
    return np.concatenate(gaps).tolist() if gaps else []


def _sessions(requests: Sequence[RequestRecord]) -> list[str] | None:
    """What each request belongs to: its session, or itself; None where nothing has a session."""
    if all(item.session is None for item in requests):
        return None
    return [item.session or f"request {place}" for place, item in enumerate(requests)]
