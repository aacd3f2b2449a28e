"""Prices: a user's own file, what is wrong in it, and the price of tokens."""

import pytest

from advisor.errors import InvalidInput, UnknownName
from advisor.estimate import Estimate, Source
from advisor.hardware import CATALOGUE, Price, price_of_tokens, priced, read_prices

TOML = """
h100-sxm = 2.5
l40s = [0.7, 0.9]

[h200-sxm]
per_hour = [3.0, 3.4]
source = "our contract"
date = 2026-11-01
"""


def test_a_user_s_prices_replace_those_of_the_catalogue() -> None:
    """By key: a number, a range, or a table; all others stay."""
    found = priced(read_prices(TOML, "toml", CATALOGUE))

    assert (found["h100-sxm"].price.low, found["h100-sxm"].price.high) == (2.5, 2.5)
    assert (found["l40s"].price.low, found["l40s"].price.high) == (0.7, 0.9)
    assert found["h200-sxm"].price.source == "our contract"
    assert found["h200-sxm"].price.date == "2026-11-01"
    assert found["b200"] is CATALOGUE["b200"]
    assert CATALOGUE["h100-sxm"].price.high == 5.0


def test_json_says_the_same() -> None:
    """Either format."""
    text = '{"h100-sxm": {"per_hour": 2.5, "currency": "EUR"}}'

    assert read_prices(text, "json", CATALOGUE)["h100-sxm"].currency == "EUR"


@pytest.mark.parametrize(
    "text,kind,said",
    [
        ("h100-sxm = \nl4 = 1", "toml", "line 1"),
        ('{\n "h100-sxm": }', "json", "line 2"),
        ("[1]", "json", "table of cards"),
        ('h100-sxm = "2.5"', "toml", "prices.h100-sxm.per_hour"),
        ("h100-sxm = true", "toml", "prices.h100-sxm.per_hour"),
        ("h100-sxm = -1", "toml", "not a price"),
        ("h100-sxm = nan", "toml", "not a price"),
        ("h100-sxm = [3, 2]", "toml", "begins above"),
        ("h100-sxm = [1, 2, 3]", "toml", "range of two"),
        ("[h100-sxm]\nper_day = 3", "toml", "prices.h100-sxm.per_day"),
        ("[h100-sxm]\nsource = 'x'", "toml", "prices.h100-sxm.per_hour"),
        ("[h100-sxm]\nper_hour = 1\nsource = 3", "toml", "prices.h100-sxm.source"),
    ],
)
def test_a_wrong_price_says_where_it_is(text: str, kind: str, said: str) -> None:
    """The line where the file cannot be read, else key and field."""
    with pytest.raises(InvalidInput, match=said):
        read_prices(text, "json" if kind == "json" else "toml", CATALOGUE)


def test_a_price_of_an_unknown_card_lists_the_known_ones() -> None:
    """A typing error must not be ignored."""
    with pytest.raises(UnknownName, match="h100-sxm"):
        read_prices("h100 = 1", "toml", CATALOGUE)
    with pytest.raises(UnknownName):
        priced({"h100": CATALOGUE["l4"].price})


def test_tokens_cost_what_the_cards_cost_meanwhile() -> None:
    """$2.95 an hour at 1,000 tokens/s: 82 cents a million, twice that on two cards."""
    rate = Estimate(value=1000, low=800, high=1250, source=Source.MEASURED, basis="given")
    price = CATALOGUE["h100-sxm"].price
    one, two = (price_of_tokens(price, cards, rate) for cards in (1, 2))

    assert one.value == pytest.approx(2.95 / 3.6)
    assert one.low == pytest.approx(1.99 / 3.6 / 1.25)
    assert one.high == pytest.approx(5.0 / 3.6 / 0.8)
    assert two.value == pytest.approx(2 * one.value)
    assert one.source is Source.LITERATURE
    with pytest.raises(InvalidInput):
        price_of_tokens(price, 0, rate)


@pytest.mark.parametrize("low,high,median", [(2, 1, None), (-1, 1, None), (1, 2, 3)])
def test_a_price_is_a_range_around_its_median(low: float, high: float, median: float) -> None:
    """Refused where it is made."""
    with pytest.raises(InvalidInput):
        Price(low=low, high=high, median=median, source="x", date="y")
