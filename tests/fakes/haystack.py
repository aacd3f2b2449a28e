"""Everything that a service holds, as texts to search: rows of every table, files, answers."""

import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow.parquet as pq
import zstandard
from sqlalchemy import MetaData
from tokenizers import Tokenizer

from db.session import Sessions
from tests.fakes.tokenizer import byte_tokenizer_json

PARQUET, ZSTD = b"PAR1", b"\x28\xb5\x2f\xfd"


def rows(sessions: Sessions) -> Iterator[tuple[str, str]]:
    """Table and text of every value of every row, compressed ones opened."""
    engine = sessions.kw["bind"]
    known = MetaData()
    known.reflect(engine)
    with engine.connect() as connection:
        for table in known.sorted_tables:
            for row in connection.execute(table.select()):
                for value in row:
                    yield from ((table.name, text) for text in opened(value))


def opened(value: object) -> Iterator[str]:
    """A value of a column as text."""
    if isinstance(value, memoryview):
        value = bytes(value)
    if not isinstance(value, bytes):
        yield value if isinstance(value, str) else json.dumps(value, default=str)
        return
    yield value.decode("utf-8", "replace")
    if value.startswith(PARQUET):
        for held in pq.read_table(io.BytesIO(value)).to_pylist():
            yield json.dumps(held, ensure_ascii=False)
            yield from _spoken(held)
    elif value.startswith(ZSTD):
        yield (
            zstandard.ZstdDecompressor()
            .decompressobj()
            .decompress(value)
            .decode("utf-8", "replace")
        )


def _spoken(row: dict[str, object]) -> Iterator[str]:
    """Token ids of the byte tokenizer as the text that they stand for."""
    tokenizer = Tokenizer.from_str(byte_tokenizer_json().decode())
    for ids in row.values():
        if isinstance(ids, list) and all(isinstance(item, int) for item in ids):
            known = [item for item in ids if 0 <= item < tokenizer.get_vocab_size()]
            yield tokenizer.decode(known)


def files(folder: Path) -> Iterator[tuple[str, str]]:
    """Name and text of every file below a folder."""
    for file in sorted(folder.rglob("*")):
        if file.is_file():
            yield from ((str(file.relative_to(folder)), text) for text in opened(file.read_bytes()))


def found(needles: Sequence[str], texts: Iterator[tuple[str, str]]) -> set[str]:
    """Where one of the needles stands, whatever its case; digits are looked for without spaces."""
    wanted = [needle.lower() for needle in needles]
    return {
        place
        for place, text in texts
        if any(needle in text.lower() or needle in _digits(text) for needle in wanted)
    }


def _digits(text: str) -> str:
    return "".join(letter for letter in text if letter.isdigit() or letter in '\n"{}[]:,')
