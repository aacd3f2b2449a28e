"""Stored form of requests and token columns: zstd Parquet on buffers in memory."""

import io
from collections.abc import Sequence
from dataclasses import fields

import pyarrow as pa
import pyarrow.parquet as pq

from advisor.errors import InvalidInput
from advisor.traffic.trace import Request, RequestKind, TokenColumns

SCHEMA_VERSION = 1
_VERSION_KEY = b"rooftune_schema_version"
_TOKENIZER_KEY = b"rooftune_tokenizer_digest"
_TEMPLATE_KEY = b"rooftune_template_digest"
_INTEGERS = ("index", "line", "max_tokens", "prompt_tokens", "output_tokens")
_NUMBERS = ("arrival_s", "temperature", "top_p")
_NAMES = tuple(item.name for item in fields(Request))


def _request_schema() -> pa.Schema:
    """Integers, floats and strings as `Request` has them."""
    kinds = {name: pa.int64() for name in _INTEGERS} | {name: pa.float64() for name in _NUMBERS}
    return pa.schema([(name, kinds.get(name, pa.string())) for name in _NAMES])


def requests_to_parquet(requests: Sequence[Request]) -> bytes:
    """Requests as one Parquet file; `requests_from_parquet` gives equal requests back."""
    schema = _request_schema()
    columns = [
        pa.array([getattr(request, name) for request in requests], type=schema.field(name).type)
        for name in _NAMES
    ]
    return _written(pa.table(columns, schema=schema), {})


def requests_from_parquet(body: bytes) -> tuple[Request, ...]:
    """Requests of a Parquet file that `requests_to_parquet` wrote."""
    table = _read(body)
    columns = {name: table.column(name).to_pylist() for name in _NAMES}
    columns["kind"] = [RequestKind(kind) for kind in columns["kind"]]
    return tuple(
        Request(**dict(zip(_NAMES, row, strict=True)))
        for row in zip(*columns.values(), strict=True)
    )


def tokens_to_parquet(tokens: TokenColumns) -> bytes:
    """Token columns as one Parquet file; the digests stand in its metadata."""
    kind = pa.list_(pa.int32())
    table = pa.table(
        {
            "prompt": pa.array([_listed(ids) for ids in tokens.prompts], type=kind),
            "output": pa.array([_listed(ids) for ids in tokens.outputs], type=kind),
        }
    )
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
        prompts=tuple(_tupled(ids) for ids in table.column("prompt").to_pylist()),
        outputs=tuple(_tupled(ids) for ids in table.column("output").to_pylist()),
    )


def _listed(ids: tuple[int, ...] | None) -> list[int] | None:
    return None if ids is None else list(ids)


def _tupled(ids: list[int] | None) -> tuple[int, ...] | None:
    return None if ids is None else tuple(ids)


def _written(table: pa.Table, metadata: dict[bytes, bytes]) -> bytes:
    buffer = io.BytesIO()
    marked = table.replace_schema_metadata({_VERSION_KEY: str(SCHEMA_VERSION).encode()} | metadata)
    pq.write_table(marked, buffer, compression="zstd")
    return buffer.getvalue()


def _read(body: bytes) -> pa.Table:
    table = pq.read_table(io.BytesIO(body))
    found = (table.schema.metadata or {}).get(_VERSION_KEY, b"none").decode()
    if found != str(SCHEMA_VERSION):
        raise InvalidInput("schema_version", f"{found}, this version reads {SCHEMA_VERSION}")
    return table
