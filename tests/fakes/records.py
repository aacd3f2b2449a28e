"""Request records and load points of a quiet machine, for tests of what is made of them."""

from typing import Any

from advisor.measurement.points import summarise_point
from advisor.measurement.records import EngineCounters, LoadPoint, Outcome, RequestRecord
from tests.fakes.planted_world import QUIET

NOTHING = EngineCounters(
    prompt_tokens=0,
    generation_tokens=0,
    engine_steps=None,
    prefix_queries=0,
    prefix_hits=0,
    preemptions=0,
    drafts=0,
    draft_tokens=0,
    accepted=0,
    accepted_per_position=(),
    peak_kv_usage=None,
    peak_running=None,
    peak_waiting=None,
)


def record(sent_s: float, end_s: float, **changes: Any) -> RequestRecord:
    """A success of 10 tokens that saw its first token a tenth of the way."""
    first = sent_s + (end_s - sent_s) / 10
    values: dict[str, Any] = {
        "request_id": f"{sent_s}",
        "label": "chat",
        "outcome": Outcome.OK,
        "intended_s": sent_s,
        "sent_s": sent_s,
        "end_s": end_s,
        "first_token_s": first,
        "last_token_s": end_s,
        "prompt_tokens": 5,
        "output_tokens": 10,
    }
    return RequestRecord(**{**values, **changes})


def point(*records: RequestRecord, concurrency: int | None = 1, **changes: Any) -> LoadPoint:
    """The load point of these records on a quiet machine."""
    values: dict[str, Any] = {
        "repeat": 1,
        "subset_digest": "s",
        "counters": NOTHING,
        "host": QUIET,
        "num_speculative_tokens": None,
    }
    return summarise_point(concurrency=concurrency, records=records, **{**values, **changes})
