"""Values of the flags that are kept, read strictly; a wrong one is named by its shape only."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from advisor.baseline_command.words import shape_of
from advisor.errors import InvalidInput, UnknownName
from advisor.serving import NgramSpeculation
from advisor.units import GIB

SPECULATION = "--speculative-config"
_DTYPE_NAMES = {"half": "float16", "float": "float32"}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)([kKmMgGtT])")
_POWERS = "kmgt"
_SHARE = re.compile(r"\d?\.?\d{1,20}(?:[eE]-?\d{1,3})?")
_DRAFT_NUMBERS = ("num_speculative_tokens", "prompt_lookup_max", "prompt_lookup_min")
# vLLM's where neither end of the n-gram's length is given; one alone stands for both.
_LOOKUP = 5


def text_of(name: str, values: Sequence[str]) -> str:
    """The flag's value; none is an error."""
    if not values or not values[0]:
        raise InvalidInput(name, f"needs a value; write {name} VALUE, or leave it out")
    return values[0]


def integer_of(name: str, values: Sequence[str]) -> int:
    """A whole number from 0 up."""
    text = text_of(name, values)
    if not re.fullmatch(r"\d{1,15}", text, re.ASCII):
        raise InvalidInput(name, f"needs a whole number and has {shape_of(values)}; write one")
    return int(text)


def count_of(name: str, values: Sequence[str]) -> int:
    """A whole number above 0."""
    number = integer_of(name, values)
    if number < 1:
        raise InvalidInput(name, "needs a whole number above 0; leave it out for vLLM's own")
    return number


def size_of(name: str, values: Sequence[str]) -> int | None:
    """``4096``, ``4k`` (thousands), ``4K`` (1024s); None for ``auto`` and -1, vLLM's own choice."""
    text = text_of(name, values)
    if text in {"auto", "-1"}:
        return None
    sized = _SIZE.fullmatch(text)
    if sized is None:
        return count_of(name, values)
    number, suffix = sized.groups()
    power = 1 + _POWERS.index(suffix.lower())
    value = float(number) * (1000 if suffix.islower() else 1024) ** power
    if not (value.is_integer() and value > 0):
        raise InvalidInput(name, "is no whole number above 0; write it out")
    return int(value)


def gibibytes_of(name: str, values: Sequence[str]) -> int:
    """Bytes that are a whole number of GiB."""
    size = size_of(name, values)
    if size is None or size % GIB:
        raise InvalidInput(name, f"is no whole number of GiB; write a multiple of {GIB}")
    return size // GIB


def share_of(name: str, values: Sequence[str]) -> float:
    """A number in (0, 1]."""
    text = text_of(name, values)
    share = float(text) if _SHARE.fullmatch(text) else 0.0
    if not 0 < share <= 1:
        raise InvalidInput(name, "needs a share above 0 and up to 1; write one such as 0.9")
    return share


def one_of(known: Sequence[str]) -> Callable[[str, Sequence[str]], str]:
    """A reader of one of the names that Rooftune keeps; vLLM's aliases are resolved."""

    def read(name: str, values: Sequence[str]) -> str:
        given = text_of(name, values)
        text = _DTYPE_NAMES.get(given, given)
        if text not in known:
            raise UnknownName(f"value of {name}:", shape_of(values), known)
        return text

    return read


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafts:
    """Speculation as Rooftune can set it, None for another method; `left` are keys not kept."""

    value: NgramSpeculation | None
    left: tuple[str, ...]


def json_object_of(name: str, values: Sequence[str]) -> dict[str, Any]:
    """A JSON object."""
    try:
        held = json.loads(text_of(name, values))
    except ValueError:
        held = None
    if not isinstance(held, dict):
        example = '{"method":"ngram","num_speculative_tokens":4}'
        raise InvalidInput(name, f"is no JSON object; write it as '{example}'")
    return held


def drafts_of(settings: Mapping[str, Any]) -> Drafts:
    """The settings of ``--speculative-config``; `InvalidInput` names the wrong key."""
    rest = dict(settings)
    method = rest.pop("method", None) or rest.pop("model", None)
    if method not in {"ngram", "[ngram]"}:
        return Drafts(value=None, left=())
    drafts, most, least = (_draft_number(rest.pop(name, None), name) for name in _DRAFT_NUMBERS)
    if drafts is None:
        raise InvalidInput(SPECULATION, "lacks num_speculative_tokens; add it to the JSON")
    try:
        value = NgramSpeculation(
            num_speculative_tokens=drafts,
            prompt_lookup_max=most or least or _LOOKUP,
            prompt_lookup_min=least or most or _LOOKUP,
        )
    except InvalidInput as error:
        raise InvalidInput(SPECULATION, f"{error.field} {error.message}; correct it") from None
    return Drafts(value=value, left=tuple(sorted(str(key) for key in rest)))


def _draft_number(value: object, name: str) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InvalidInput(SPECULATION, f"{name} is no whole number above 0; correct it")
    return value
