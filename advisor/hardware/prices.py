"""What an hour of a card costs, and prices of the user's own in their place.

A file of prices is TOML or JSON: a key of the catalogue, then a number, a range, or a table::

    h100-sxm = 2.5
    l40s = [0.7, 0.9]

    [h200-sxm]
    per_hour = [3.0, 3.4]
    source = "our contract"
    date = "2026-11-01"
"""

import json
import math
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

from advisor.errors import InvalidInput, UnknownName
from advisor.estimate import Estimate, Source, weaker

SECONDS_PER_HOUR = 3600
_FIELDS = ("per_hour", "currency", "source", "date")
_ENDS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """Of one card for an hour, in `currency`: what was seen, its source and date."""

    low: float
    high: float
    source: str
    date: str
    currency: str = "USD"
    median: float | None = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.high) and 0 <= self.low <= self.high):
            raise InvalidInput("price", f"{self.low} to {self.high} is no range of prices")
        if self.median is not None and not self.low <= self.median <= self.high:
            raise InvalidInput("price.median", f"{self.median} is outside its range")

    @property
    def centre(self) -> float:
        """The median where it is known, else the geometric middle, 0 where a card is free."""
        return math.sqrt(self.low * self.high) if self.median is None else self.median


def price_of_tokens(price: Price, cards: int, tokens_per_s: Estimate) -> Estimate:
    """Price of a million output tokens on `cards` cards: price x 1e6 / (3600 X), handbook 10."""
    if cards < 1 or tokens_per_s.low <= 0:
        raise InvalidInput("tokens_per_s", "needs a card and a positive throughput")
    each = cards * 1e6 / SECONDS_PER_HOUR
    return Estimate(
        value=price.centre * each / tokens_per_s.value,
        low=price.low * each / tokens_per_s.high,
        high=price.high * each / tokens_per_s.low,
        source=weaker(tokens_per_s.source, Source.LITERATURE),
        basis=f"price of {price.date} ({price.source}), both at their ends",
    )


def read_prices(
    text: str, kind: Literal["toml", "json"], known: Collection[str]
) -> Mapping[str, Price]:
    """Prices in a user's file by key of the catalogue.

    What is not TOML or JSON raises `InvalidInput` with the line; a key that is not in `known`
    raises `UnknownName`; a wrong value `InvalidInput` naming key and field.
    """
    return {key: _price(key, value, known) for key, value in _parsed(text, kind).items()}


def _parsed(text: str, kind: str) -> Mapping[str, object]:
    try:
        found: object = tomllib.loads(text) if kind == "toml" else json.loads(text)
    except json.JSONDecodeError as error:
        raise InvalidInput("prices", f"line {error.lineno}: {error.msg}") from None
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput("prices", f"{error}") from None
    if not isinstance(found, dict):
        raise InvalidInput("prices", "is not a table of cards")
    return found


def _price(key: str, value: object, known: Collection[str]) -> Price:
    if key not in known:
        raise UnknownName("card", key, sorted(known))
    table: Mapping[str, object] = value if isinstance(value, dict) else {"per_hour": value}
    for name in table:
        if name not in _FIELDS:
            raise InvalidInput(f"prices.{key}.{name}", f"is none of {', '.join(_FIELDS)}")
    low, high = _range(f"prices.{key}.per_hour", table.get("per_hour"))
    return Price(
        low=low,
        high=high,
        source=_text(f"prices.{key}.source", table.get("source", "given by the user")),
        date=_text(f"prices.{key}.date", table.get("date", "no date given")),
        currency=_text(f"prices.{key}.currency", table.get("currency", "USD")),
    )


def _range(where: str, value: object) -> tuple[float, float]:
    ends = value if isinstance(value, list) else [value, value]
    if len(ends) != _ENDS:
        raise InvalidInput(where, "is neither a number nor a range of two")
    numbers = [_number(where, end) for end in ends]
    if numbers[0] > numbers[1]:
        raise InvalidInput(where, "begins above its end")
    return numbers[0], numbers[1]


def _number(where: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidInput(where, f"{value!r} is not a number")
    if not (math.isfinite(value) and value >= 0):
        raise InvalidInput(where, f"{value!r} is not a price")
    return float(value)


def _text(where: str, value: object) -> str:
    # TOML reads a date as one.
    found = str(value)
    if not found or isinstance(value, bool | int | float | list | dict):
        raise InvalidInput(where, f"{value!r} is not text")
    return found
