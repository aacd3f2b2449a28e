"""One byte form per value: what is hashed is what is stored."""

import dataclasses
import enum
import hashlib
import json
import math
from collections.abc import Mapping
from typing import TypeAlias

from advisor.errors import InvalidInput

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"


def as_json(value: object, field: str = "value") -> Json:
    """A dataclass, enum, tuple or mapping as plain JSON values; NaN and infinity are refused."""
    if isinstance(value, enum.Enum):
        return as_json(value.value, field)
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidInput(field, f"{value} has no JSON form")
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            item.name: as_json(getattr(value, item.name), f"{field}.{item.name}")
            for item in dataclasses.fields(value)
        }
    return _container(value, field)


def _container(value: object, field: str) -> Json:
    if isinstance(value, Mapping):
        return {str(key): as_json(item, f"{field}.{key}") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(item, f"{field}[{index}]") for index, item in enumerate(value)]
    if isinstance(value, frozenset | set):
        return sorted((as_json(item, field) for item in value), key=str)
    raise InvalidInput(field, f"{type(value).__name__} has no canonical form")


def canonical_bytes(value: object) -> bytes:
    """UTF-8 JSON with sorted keys and no spaces: equal values give equal bytes."""
    text = json.dumps(
        as_json(value),
        sort_keys=True,
        ensure_ascii=False,
        separators=(",", ":"),
        allow_nan=False,
    )
    return text.encode()


def digest(value: object) -> str:
    """SHA-256 of the canonical bytes, in hexadecimal."""
    return hashlib.sha256(canonical_bytes(value)).hexdigest()
