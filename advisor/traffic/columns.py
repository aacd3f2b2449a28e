"""Stored form of requests and token columns: zstd Parquet on buffers in memory.

Version 1 of the requests had fewer columns; what it lacks is not known. Token columns are the same
in both.
"""

import io
from collections.abc import Mapping, Sequence
from dataclasses import fields
from operator import attrgetter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from advisor.errors import InvalidInput
from advisor.traffic.ragged import Ragged
from advisor.traffic.trace import Request, RequestKind, TokenColumns

SCHEMA_VERSION = 2
_READABLE = ("1", "2")
_VERSION_KEY = b"rooftune_schema_version"
_TOKENIZER_KEY = b"rooftune_tokenizer_digest"
_TEMPLATE_KEY = b"rooftune_template_digest"
_IDS = pa.list_(pa.int32())
_KINDS: Mapping[str, pa.DataType] = {
    **dict.fromkeys(
        ("index", "line", "max_tokens", "prompt_tokens", "output_tokens", "images"), pa.int64()
    ),
    **dict.fromkeys(("arrival_s", "temperature", "top_p", "duration_s", "ttft_s"), pa.float64()),
    "block_ids": pa.list_(pa.int64()),
    "prompt_ids": _IDS,
    "output_ids": _IDS,
}
_LISTS = ("block_ids", "prompt_ids", "output_ids")
_NAMES = tuple(item.name for item in fields(Request))
_VALUES = attrgetter(*_NAMES)
_SCHEMA = pa.schema([(name, _KINDS.get(name, pa.string())) for name in _NAMES])


def requests_to_parquet(requests: Sequence[Request]) -> bytes:
    """Requests as one Parquet file; `requests_from_parquet` gives equal requests back."""
    columns = zip(*map(_VALUES, requests), strict=True) if requests else ((),) * len(_NAMES)
    arrays = [
        pa.array(values, type=item.type) for values, item in zip(columns, _SCHEMA, strict=True)
    ]
    return _written(pa.table(arrays, schema=_SCHEMA), {})


def requests_from_parquet(body: bytes) -> tuple[Request, ...]:
    """Requests of a Parquet file that `requests_to_parquet` wrote, of this version or before."""
    table = _read(body)
    columns: dict[str, Sequence[object]] = {
        name: table.column(name).to_pylist() for name in _NAMES if name in table.column_names
    }
    kinds = {kind.value: kind for kind in RequestKind}
    columns["kind"] = [kinds[str(kind)] for kind in columns["kind"]]
    for name in _LISTS:
        if name in columns:
            columns[name] = [_tupled(values) for values in columns[name]]
    names = tuple(columns)
    return tuple(
        Request(**dict(zip(names, row, strict=True))) for row in zip(*columns.values(), strict=True)
    )


def _tupled(values: object) -> tuple[int, ...] | None:
    return tuple(values) if isinstance(values, list) else None


def tokens_to_parquet(tokens: TokenColumns) -> bytes:
    """Token columns as one Parquet file; the digests stand in its metadata."""
    table = pa.table({"prompt": _listed(tokens.prompts), "output": _listed(tokens.outputs)})
    digests = {
        _TOKENIZER_KEY: tokens.tokenizer_digest.encode(),
        _TEMPLATE_KEY: tokens.template_digest.encode(),
    }
    return _written(table, digests)


def tokens_from_parquet(body: bytes) -> TokenColumns:
    """Token columns of a Parquet file that `tokens_to_parquet` wrote."""
    table = _read(body)
    metadata = table.schema.metadata
    return TokenColumns(
        tokenizer_digest=metadata[_TOKENIZER_KEY].decode(),
        template_digest=metadata[_TEMPLATE_KEY].decode(),
        prompts=_ragged(table.column("prompt")),
        outputs=_ragged(table.column("output")),
    )


def _listed(rows: Ragged) -> pa.Array:
    """Rows of numbers as a column of lists, without a Python object a number."""
    return pa.LargeListArray.from_arrays(
        pa.array(rows.offsets, type=pa.int64()),
        pa.array(rows.values, type=pa.int32()),
        mask=pa.array(~rows.known),
    ).cast(pa.large_list(pa.int32()))


def _ragged(column: pa.ChunkedArray) -> Ragged:
    return Ragged.joined([_ragged_part(chunk) for chunk in column.chunks])


def _ragged_part(rows: pa.Array) -> Ragged:
    known = rows.is_valid().to_numpy(zero_copy_only=False)
    lengths = rows.value_lengths().fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    return Ragged(
        rows.flatten().to_numpy(zero_copy_only=False).astype(np.int32, copy=False),
        np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths)]),
        known,
    )


def _written(table: pa.Table, metadata: dict[bytes, bytes]) -> bytes:
    buffer = io.BytesIO()
    marked = table.replace_schema_metadata({_VERSION_KEY: str(SCHEMA_VERSION).encode()} | metadata)
    pq.write_table(marked, buffer, compression="zstd")
    return buffer.getvalue()


def _read(body: bytes) -> pa.Table:
    table = pq.read_table(io.BytesIO(body))
    found = (table.schema.metadata or {}).get(_VERSION_KEY, b"none").decode()
    if found not in _READABLE:
        raise InvalidInput("schema_version", f"{found}, this version reads {SCHEMA_VERSION}")
    return table
