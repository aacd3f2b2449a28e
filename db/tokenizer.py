"""The tokenizer of a target as it is stored: one compressed value with its special tokens."""

import json
from collections.abc import Mapping

import zstandard

from advisor.canonical import canonical_bytes
from advisor.errors import Unavailable
from advisor.traffic.tokens import ChatTokenizer
from db.tables import TargetRow


def pack_tokenizer(tokenizer_json: bytes, special: Mapping[str, str]) -> bytes:
    """Zstandard of ``{"tokenizer": text of tokenizer.json, "special": {"bos_token": ...}}``."""
    body = canonical_bytes({"tokenizer": tokenizer_json.decode(), "special": dict(special)})
    return zstandard.ZstdCompressor(level=6).compress(body)


def unpack_tokenizer(body: bytes) -> tuple[bytes, dict[str, str]]:
    """What `pack_tokenizer` stored: the bytes of ``tokenizer.json`` and the special tokens."""
    held = json.loads(zstandard.ZstdDecompressor().decompress(body))
    return held["tokenizer"].encode(), held["special"]


def chat_tokenizer(target: TargetRow) -> ChatTokenizer:
    """The tokenizer of an inspected target; raises `Unavailable` before it is inspected."""
    if target.tokenizer is None:
        raise Unavailable(f"target {target.name!r} is {target.state}", "wait until it is ready")
    tokenizer_json, special = unpack_tokenizer(target.tokenizer)
    return ChatTokenizer(tokenizer_json, target.chat_template, special)
