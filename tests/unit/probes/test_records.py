"""Stored records."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from advisor.measurement.records import Outcome, RequestRecord
from probes.load.health import ProcessHealth
from probes.load.lines import health_to_line, read_line, record_from_line, record_to_line
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
    frame_tokens=(1, 2),
    attempts=2,
    last_sent_s=1.75,
    temperature=0.7,
    session="s",
    turn=1,
    wanted_tokens=4,
    accepted_histogram=(5, 0, 2),
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


def test_a_file_from_before_the_newer_columns_still_reads() -> None:
    """What it does not hold is unknown; it was sent once."""
    table = pq.read_table(pa.BufferReader(records_to_parquet([FULL])))
    newer = table.column_names[table.column_names.index("token_ids") + 1 :]
    sink = pa.BufferOutputStream()
    pq.write_table(table.drop_columns(newer), sink)
    (old,) = records_from_parquet(bytes(sink.getvalue()))

    assert len(newer) == 8
    assert (old.frame_times_s, old.token_ids) == (FULL.frame_times_s, FULL.token_ids)
    assert (old.attempts, old.frame_tokens, old.temperature, old.session) == (1, None, None, None)


@pytest.mark.parametrize("record", [FULL, EMPTY], ids=["full", "empty"])
def test_records_read_back_from_a_line_as_they_were(record: RequestRecord) -> None:
    """The client process and its parent see the same value."""
    line = record_to_line(record)

    assert record_from_line(line) == record
    assert read_line(line) == record
    assert b"\n" not in line


def test_a_processes_health_reads_back_as_it_was() -> None:
    """Delays are floats to the last bit."""
    health = ProcessHealth(
        cpu_share=0.1 + 0.2, loop_delay_p99_s=1 / 3, frames=7, send_delays_s=(1e-7, 2 / 3)
    )

    assert read_line(health_to_line(health)) == health
