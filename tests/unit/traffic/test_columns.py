"""Stored form of requests and tokens."""

import io
from pathlib import Path

import numpy as np
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
from advisor.traffic.ragged import Ragged
from advisor.traffic.trace import Request, RequestKind, TokenColumns
from tests.unit.traffic.rows import columns, jsonl, read

SAVED = Path(__file__).resolve().parents[2] / "golden" / "stored"


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


def test_ids_of_blocks_and_tokens_come_back_equal() -> None:
    """64 bits for blocks; none is not an empty list."""
    request = Request(
        id="r1",
        index=0,
        line=1,
        kind=RequestKind.LENGTHS,
        block_ids=(-(2**63), 2**63 - 1),
        prompt_ids=(),
        output_ids=(151_000,),
        images=2,
        duration_s=0.5,
        ttft_s=0.1,
        model="m",
        cluster="k",
    )

    assert requests_from_parquet(requests_to_parquet([request])) == (request,)


def test_requests_of_the_first_version_are_read() -> None:
    """Bytes that an earlier release wrote: the fields it did not have are not known."""
    chat, completion, lengths = requests_from_parquet((SAVED / "requests.1.parquet").read_bytes())

    assert (chat.messages, chat.label) == ('[{"role": "user", "content": "Grüße 你好"}]', "faq")
    assert (completion.arrival_s, completion.prompt) == (1.25, "p")
    assert (lengths.prompt_tokens, lengths.output_tokens, lengths.images) == (4, 0, 0)
    assert {chat.model, chat.cluster, chat.block_ids, chat.prompt_ids, chat.duration_s} == {None}


def test_tokens_of_the_first_version_are_read() -> None:
    """As above."""
    tokens = tokens_from_parquet((SAVED / "tokens.1.parquet").read_bytes())

    assert tokens == columns([[1, 2], None, []], [None, [3], []])


def test_token_columns_come_back_equal() -> None:
    """Unknown, empty and filled, with both digests."""
    tokens = columns([[1, 2], None, []], [None, [3], []])

    assert tokens_from_parquet(tokens_to_parquet(tokens)) == tokens


def test_columns_without_rows_come_back_equal() -> None:
    """An upload may have a part without requests."""
    tokens = columns([])

    assert tokens_from_parquet(tokens_to_parquet(tokens)) == tokens


def test_numbers_of_an_unknown_row_are_not_stored() -> None:
    """A part of other columns may carry some between its rows."""
    values = np.array([1, 9, 9, 2], dtype=np.int32)
    prompts = Ragged(values, np.array([0, 1, 3, 4]), np.array([True, False, True]))
    tokens = TokenColumns(
        tokenizer_digest="t", template_digest="c", prompts=prompts, outputs=Ragged.of([None] * 3)
    )

    assert list(tokens_from_parquet(tokens_to_parquet(tokens)).prompts) == [(1,), None, (2,)]


@pytest.mark.parametrize("metadata", [None, {b"rooftune_schema_version": b"99"}])
def test_another_version_is_refused(metadata: dict[bytes, bytes] | None) -> None:
    """What a later release wrote is not guessed at."""
    buffer = io.BytesIO()
    pq.write_table(pa.table({"id": ["a"]}).replace_schema_metadata(metadata), buffer)
    with pytest.raises(InvalidInput, match="schema_version"):
        requests_from_parquet(buffer.getvalue())
