"""Per-request records as compressed Parquet; columns that an older file lacks are unknown."""

import dataclasses
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from advisor.measurement.records import RequestRecord
from probes.load.lines import read_record

_SCHEMA = pa.schema(
    [
        ("request_id", pa.string()),
        ("label", pa.string()),
        ("outcome", pa.string()),
        ("intended_s", pa.float64()),
        ("sent_s", pa.float64()),
        ("end_s", pa.float64()),
        ("first_token_s", pa.float64()),
        ("last_token_s", pa.float64()),
        ("prompt_tokens", pa.int64()),
        ("output_tokens", pa.int64()),
        ("cached_tokens", pa.int64()),
        ("finish_reason", pa.string()),
        ("error", pa.string()),
        ("frame_times_s", pa.list_(pa.float64())),
        ("token_ids", pa.list_(pa.int32())),
        ("frame_tokens", pa.list_(pa.int32())),
        ("attempts", pa.int32()),
        ("last_sent_s", pa.float64()),
        ("temperature", pa.float64()),
        ("session", pa.string()),
        ("turn", pa.int32()),
        ("wanted_tokens", pa.int64()),
        ("accepted_histogram", pa.list_(pa.int64())),
    ]
)


def records_to_parquet(records: Sequence[RequestRecord]) -> bytes:
    """One row per record, zstd-compressed."""
    table = pa.Table.from_pylist([dataclasses.asdict(record) for record in records], _SCHEMA)
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    return bytes(sink.getvalue())


def records_from_parquet(body: bytes) -> list[RequestRecord]:
    """The inverse of `records_to_parquet`."""
    return [read_record(row) for row in pq.read_table(pa.BufferReader(body)).to_pylist()]
