"""Whether a load was really there: in flight as planned, or sent as its schedule said."""

from collections.abc import Sequence

from advisor.measurement.records import RequestRecord

# A closed loop is steady when less than this share of its slots stood empty (case S-24); slots
# stand empty for the time that the client needs between an answer and the next request.
LOAD_SHARE = 0.85
# An open loop sends at set times: what falls short of the rate by this was held back.
RATE_SHARE = 0.95


def load_reached(in_flight: float, concurrency: int) -> bool:
    """Whether enough of the planned requests were in flight (case S-24)."""
    return in_flight >= LOAD_SHARE * concurrency


def in_flight_by_rates(tokens_per_s: float, tokens_per_s_per_request: float) -> float:
    """Requests in flight from the total rate and that of one request (Little's law, case S-24)."""
    return tokens_per_s / tokens_per_s_per_request


def sent_rate_per_s(records: Sequence[RequestRecord]) -> float | None:
    """Requests sent per second, over the gaps between sends; None below two."""
    return _rate([record.sent_s for record in records])


def intended_rate_per_s(records: Sequence[RequestRecord]) -> float | None:
    """The same of when the schedule wanted them sent."""
    return _rate([record.intended_s for record in records])


def rate_reached(records: Sequence[RequestRecord]) -> bool:
    """Whether an open loop was sent as its schedule said (case S-06).

    The schedule's own rate over these requests is compared, not the rate asked for: a few Poisson
    arrivals differ from their mean rate by chance, which is no fault of the client.
    """
    sent, wanted = sent_rate_per_s(records), intended_rate_per_s(records)
    if sent is None or wanted is None:
        return True
    return sent >= RATE_SHARE * wanted


def little_gap(planned: float, *, requests_per_s: float, e2e_s: float) -> float:
    """``|N - X E2E| / N``: how far the load that ran is from the planned one (handbook 4.3)."""
    return abs(planned - requests_per_s * e2e_s) / planned


def _rate(times_s: Sequence[float]) -> float | None:
    span_s = max(times_s) - min(times_s) if times_s else 0.0
    return (len(times_s) - 1) / span_s if span_s > 0 else None
