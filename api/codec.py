"""Values of `api.schemas` and `advisor` as JSON and back, through one reader per type."""

from collections.abc import Hashable
from functools import cache
from typing import Any, TypeVar, cast

from pydantic import TypeAdapter

T = TypeVar("T")


@cache
def _adapter(cls: Hashable) -> TypeAdapter[Any]:
    return TypeAdapter(cast(Any, cls))


def read(body: bytes | str, cls: type[T]) -> T:
    """JSON text as a `cls`; what does not fit raises `pydantic.ValidationError`."""
    value: T = _adapter(cast(Hashable, cls)).validate_json(body)
    return value


def read_value(value: object, cls: type[T]) -> T:
    """JSON values (objects, lists, numbers, text) as a `cls`."""
    read_back: T = _adapter(cast(Hashable, cls)).validate_python(value)
    return read_back


def json_value(value: object) -> Any:
    """A view as JSON values."""
    return _adapter(cast(Hashable, type(value))).dump_python(value, mode="json")


def json_text(value: object) -> str:
    """A view as one line of JSON."""
    return _adapter(cast(Hashable, type(value))).dump_json(value).decode()
