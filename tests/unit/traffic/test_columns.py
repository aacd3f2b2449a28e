"""Stored form of requests and tokens."""

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from advisor.errors import InvalidInput
from advisor.traffic.columns import (
    requests_from_parquet,
    requests_to_parquet,
    tokens_from_parquet,
    tokens_to_parquet,
)
from tests.unit.traffic.rows import columns, jsonl, read


def test_requests_come_back_equal() -> None:
    """Chat, completion and lengths with every field."""
    full = {
        "messages": [{"role": "user", "content": "Grüße 你好"}], "tools": [], "response": "x",
        "response_format": {"type": "text"}, "usage": {"prompt_tokens": 3, "completion_tokens": 1},
        "timestamp": 1_700_000_000.25, "max_tokens": 5, "temperature": 0, "top_p": 0.5,
        "class": "c", "session_id": "s", "id": "a",
    }  # fmt: skip
    requests = read(jsonl(full, {"prompt": "p"}, {"input_tokens": 4})).requests

    assert requests_from_parquet(requests_to_parquet(requests)) == requests


def test_token_columns_come_back_equal() -> None:
    """Unknown, empty and filled, with both digests."""
    tokens = columns([[1, 2], None, []], [None, [3], []])

    assert tokens_from_parquet(tokens_to_parquet(tokens)) == tokens


@pytest.mark.parametrize("metadata", [None, {b"rooftune_schema_version": b"99"}])
def test_another_version_is_refused(metadata: dict[bytes, bytes] | None) -> None:
    """Upcasters come with the second version."""
    buffer = io.BytesIO()
    pq.write_table(pa.table({"id": ["a"]}).replace_schema_metadata(metadata), buffer)
    with pytest.raises(InvalidInput, match="schema_version"):
        requests_from_parquet(buffer.getvalue())
