"""Which names a field may have, and what its values may be. Reasons never quote a value."""

import math
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TypeAlias

Row: TypeAlias = Mapping[str, object]

# The first name of each field is the one that documentation and refusals give.
ALIASES: Mapping[str, tuple[str, ...]] = {
    "messages": ("messages", "chat", "conversation"),
    "prompt": ("prompt", "input", "text", "query", "instruction"),
    "response": ("response", "output", "completion", "answer", "assistant_response"),
    "prompt_tokens": (
        "prompt_tokens", "input_tokens", "context_tokens", "input_length", "prompt_length",
        "request_tokens", "prompt_len", "input_len", "num_prompt_tokens", "num_prefill_tokens",
        "n_input_tokens", "n_prompt_tokens", "prompt_token_count", "isl",
    ),
    "output_tokens": (
        "output_tokens", "completion_tokens", "generated_tokens", "output_length",
        "response_tokens", "response_length", "output_len", "num_output_tokens",
        "num_decode_tokens", "n_output_tokens", "n_generated_tokens", "completion_token_count",
        "osl",
    ),
    "timestamp": (
        "timestamp", "time", "arrival_s", "created", "created_at", "arrival_time", "arrived_at",
        "arrival_timestamp", "start_time", "start_timestamp", "request_time", "timestamp_s",
        "timestamp_ms", "timestamp_us", "timestamp_ns", "arrival_ms", "ts", "date", "datetime",
    ),
    "session_id": ("session_id", "conversation_id", "session", "thread_id", "chat_id"),
    "class": ("class", "label", "category", "task", "request_class"),
    "id": ("custom_id", "id", "request_id"),
    "max_tokens": ("max_tokens", "max_completion_tokens", "max_output_tokens", "max_new_tokens"),
    "temperature": ("temperature",),
    "top_p": ("top_p",),
    "tools": ("tools",),
    "response_format": ("response_format",),
    "usage": ("usage",),
    "model": ("model", "model_name", "model_id"),
}  # fmt: skip
ACCEPTED = tuple(names[0] for names in ALIASES.values())
PROMPT_FIELDS = ("messages", "prompt", "prompt_tokens")

MAX_COUNT = 10**8
_UNLIMITED = -1
_NAME = re.compile(r"[A-Za-z_][\w.\-/()]*( [\w.\-/()]+){0,3}")
_MAX_NAME = 40
_MAX_NAMES = 40
_MAX_DIGITS = 25
NOTHING = frozenset({"", "null", "none", "na", "n/a", "-"})


class BadField(ValueError):
    """A value that cannot be taken; the reason says why without quoting it."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field = field
        self.reason = reason


@lru_cache(maxsize=4096)
def compact(name: str) -> str:
    """Name without case and separators: "Context Tokens" and "context_tokens" are one."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


_FIELD_OF = {compact(name): field for field, names in ALIASES.items() for name in names}
_RANK = {compact(name): rank for names in ALIASES.values() for rank, name in enumerate(names)}


def field_of(name: str) -> str | None:
    """The field that a column or key stands for, None when it is none of ours."""
    return _FIELD_OF.get(compact(name))


def assign(names: Iterable[str]) -> dict[str, str]:
    """Field to the name that carries it; of two names for one field the better known wins."""
    chosen: dict[str, str] = {}
    for name in names:
        field = field_of(name)
        if field is None:
            continue
        if field not in chosen or _RANK[compact(name)] < _RANK[compact(chosen[field])]:
            chosen[field] = name
    return chosen


def shown(names: Iterable[str]) -> tuple[str, ...]:
    """Names fit for an error message; what does not look like a name may be text of a prompt."""
    listed = list(names)
    known = [
        name if len(name) <= _MAX_NAME and _NAME.fullmatch(name) else f"(column {place} is no name)"
        for place, name in enumerate(listed[:_MAX_NAMES], start=1)
    ]
    left = len(listed) - len(known)
    return (*known, f"and {left} more") if left else tuple(known)


def is_nothing(value: object) -> bool:
    """Whether a cell says that the value is not known."""
    return value is None or (isinstance(value, str) and value.strip().lower() in NOTHING)


def number(field: str, value: object) -> float | int | None:
    """A finite number or None for nothing; numbers written as text are read."""
    if type(value) is int:
        return value
    if isinstance(value, str):
        return _from_text(field, value)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadField(field, "not a number")
    if not math.isfinite(value):
        raise BadField(field, "not a number (NaN or infinity)")
    return value


def _from_text(field: str, text: str) -> float | int | None:
    if text.isascii() and text.isdigit() and len(text) < _MAX_DIGITS:
        return int(text)
    try:
        found = float(text)
    except ValueError:
        if is_nothing(text):
            return None
        raise BadField(field, "not a number") from None
    if not math.isfinite(found):
        raise BadField(field, "not a number (NaN or infinity)")
    return found


@lru_cache(maxsize=65_536)
def _count_cell(field: str, value: str) -> int | None:
    return _count(field, value)


def count(field: str, value: object) -> int | None:
    """A number of tokens, None when not known."""
    if type(value) is int and 0 <= value <= MAX_COUNT:
        return value
    # Lengths repeat: most cells of a long file were read before.
    return _count_cell(field, value) if isinstance(value, str) else _count(field, value)


def _count(field: str, value: object) -> int | None:
    found = number(field, value)
    if found is None:
        return None
    if found != int(found):
        raise BadField(field, "not a whole number")
    if found < 0:
        raise BadField(field, "negative")
    if found > MAX_COUNT:
        raise BadField(field, f"above {MAX_COUNT:,}")
    return int(found)


def limit(field: str, value: object) -> int | None:
    """A limit on output tokens; -1 is how several clients write "no limit"."""
    if number(field, value) == _UNLIMITED:
        return None
    return count(field, value)


def bounded(field: str, value: object, highest: float) -> float | None:
    """A number in ``[0, highest]``, None when not given."""
    found = number(field, value)
    if found is not None and not 0 <= found <= highest:
        raise BadField(field, f"outside 0 to {highest:g}")
    return None if found is None else float(found)


def text(field: str, value: object) -> str | None:
    """A string of valid Unicode, None when absent."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise BadField(field, "not a string")
    return valid(field, value)


def valid(field: str, value: str) -> str:
    """The string itself; raises where it holds bytes that were no UTF-8 or half a character."""
    if value.isascii():
        return value
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise BadField(field, "not valid Unicode text") from error
    return value


def tag(field: str, value: object) -> str | None:
    """A short name such as a session id or a class: a string or a number."""
    if type(value) is str:
        found = value.strip()
        return None if found.lower() in NOTHING else valid(field, found)
    if is_nothing(value):
        return None
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise BadField(field, "neither a string nor a number")
    return valid(field, str(value).strip())
