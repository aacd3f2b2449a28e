"""Domain values as canonical bytes with a schema version, read back through upcasters.

The bytes are ``{"kind": ..., "schema_version": n, "value": {...}}`` in canonical JSON; `digest` of
the value is the hash of its canonical form, so what was hashed is what is stored.
"""

import json
from collections.abc import Callable, Hashable, Mapping
from functools import cache
from typing import Any, Generic, TypeVar, cast

from pydantic import TypeAdapter
from sqlalchemy import Dialect, LargeBinary
from sqlalchemy.types import TypeDecorator
from typing_extensions import override

from advisor.canonical import as_json, canonical_bytes
from advisor.errors import InvalidInput

T = TypeVar("T")
Upcaster = Callable[[dict[str, Any]], dict[str, Any]]


def _unchanged(value: dict[str, Any]) -> dict[str, Any]:
    return value


def _layers_in_groups(value: dict[str, Any]) -> dict[str, Any]:
    """`ModelShape` 1 said one dense layer and how often; 2 has groups of layers of any kind."""
    mixer = {
        "heads": value.pop("num_heads"),
        "kv_heads": value.pop("num_kv_heads"),
        "head_dim": value.pop("head_dim"),
        "bias": value.pop("attention_bias"),
        "output_bias": value.pop("output_bias", False),
        "qk_norm": value.pop("qk_norm"),
        "kind": "attention",
    }
    feed_forward = {"intermediate": value.pop("intermediate_size"), "kind": "dense"}
    group = {"count": value.pop("num_layers"), "mixer": mixer, "feed_forward": feed_forward}
    return {**value, "layers": [group]}


# By kind: `upcasters[n-1]` turns the value of schema version n into that of version n+1, so the
# current version of a kind is one more than the number of its upcasters.
#
# Every later version of the widened ones only added fields whose defaults mean what the version
# before meant.
_WIDENED = ("ServingConfig", "TraceReport", "TrialPlan")
_WIDENED_TWICE = ("EngineFacts", "Goal", "LoadPoint", "TrafficSummary")
UPCASTERS: Mapping[str, tuple[Upcaster, ...]] = {
    **dict.fromkeys(_WIDENED, (_unchanged,)),
    **dict.fromkeys(_WIDENED_TWICE, (_unchanged, _unchanged)),
    "Recommendation": (_unchanged, _unchanged, _unchanged),
    "ModelShape": (_layers_in_groups,),
}


@cache
def _adapter(cls: Hashable) -> TypeAdapter[Any]:
    return TypeAdapter(cast(Any, cls))


def schema_version(kind: str) -> int:
    """Version that `dump` writes for this kind."""
    return 1 + len(UPCASTERS.get(kind, ()))


def dump(value: object) -> bytes:
    """The envelope of a dataclass value, as canonical bytes."""
    kind = type(value).__name__
    return canonical_bytes(
        {"kind": kind, "schema_version": schema_version(kind), "value": as_json(value)}
    )


def load(cls: type[T], body: bytes) -> T:
    """The value in an envelope that this or an earlier version of Rooftune wrote."""
    envelope = json.loads(body)
    kind, version = envelope["kind"], envelope["schema_version"]
    if kind != cls.__name__:
        raise InvalidInput("stored value", f"holds a {kind}, wanted a {cls.__name__}")
    if version > schema_version(kind):
        raise InvalidInput("stored value", f"{kind} version {version} is newer than this program")
    value = envelope["value"]
    for upcast in UPCASTERS.get(kind, ())[version - 1 :]:
        value = upcast(value)
    read: T = _adapter(cast(Hashable, cls)).validate_python(value, strict=False)
    return read


class Stored(TypeDecorator[Any], Generic[T]):
    """A column that holds one advisor value as an envelope (see `dump`)."""

    impl = LargeBinary
    cache_ok = True

    def __init__(self, cls: type[T]) -> None:
        super().__init__()
        self.cls = cls

    @override
    def process_bind_param(self, value: T | None, dialect: Dialect) -> bytes | None:
        return None if value is None else dump(value)

    @override
    def process_result_value(self, value: bytes | None, dialect: Dialect) -> T | None:
        return None if value is None else load(self.cls, value)
