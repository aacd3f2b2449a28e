"""Stored records."""

from advisor.measurement.records import Outcome, RequestRecord
from probes.load.lines import record_from_line, record_to_line
from probes.load.records import records_from_parquet, records_to_parquet

FULL = RequestRecord(
    request_id="a",
    label="chat",
    outcome=Outcome.OK,
    intended_s=1.0,
    sent_s=1.5,
    end_s=3.0,
    first_token_s=2.0,
    last_token_s=2.9,
    prompt_tokens=10,
    output_tokens=3,
    cached_tokens=0,
    finish_reason="length",
    frame_times_s=(2.0, 2.9),
    token_ids=(1, 2, 3),
)
EMPTY = RequestRecord(
    request_id="b",
    label=None,
    outcome=Outcome.FAILED,
    intended_s=1.0,
    sent_s=1.0,
    end_s=1.0,
    error="http_500",
)


def test_records_read_back_from_parquet_as_they_were() -> None:
    """What was not measured stays unmeasured: null, not 0 (case S-04)."""
    assert records_from_parquet(records_to_parquet([FULL, EMPTY])) == [FULL, EMPTY]


def test_records_read_back_from_a_line_as_they_were() -> None:
    """The client process and its parent see the same value."""
    assert record_from_line(record_to_line(FULL)) == FULL
    assert record_from_line(record_to_line(EMPTY)) == EMPTY
