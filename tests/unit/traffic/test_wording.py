"""Names and sentences of classes."""

import numpy as np

from advisor.traffic.classes.wording import described
from advisor.traffic.facts import Codes, Facts
from tests.unit.traffic.figures import columns_of


def names(facts: Facts, codes: list[int]) -> list[str]:
    """The names that classes with these codes get."""
    held: Codes = np.array(codes, dtype=np.int32)
    return [item.name for item in described(facts, held, None, origin="found")]


def test_two_of_one_name_are_told_apart_by_what_is_longer() -> None:
    """The words for both lengths are the same: the larger difference speaks."""
    assert names(columns_of([400, 1_100], [100, 120]), [0, 1]) == [
        "medium-context",
        "medium-context-longer-prompts",
    ]
    assert names(columns_of([400, 420], [450, 100]), [0, 1]) == [
        "medium-context-longer-answers",
        "medium-context",
    ]


def test_three_of_one_name_are_numbered() -> None:
    """So are two that are alike in everything."""
    assert names(columns_of([5, 6, 7], [1, 1, 1]), [0, 1, 2]) == [
        "short-context",
        "short-context-2",
        "short-context-3",
    ]
    assert names(columns_of([5, 5], [1, 1]), [0, 1]) == ["short-context", "short-context-2"]
    assert names(columns_of([-1, -1], [-1, -1]), [0, 1]) == ["context", "context-2"]


def test_characters_speak_where_tokens_are_not_counted() -> None:
    """As characters, in the sentence."""
    facts = columns_of([-1, -1], [-1, -1], text_chars=np.array([12_340, 12_340]))
    (found,) = described(facts, np.zeros(2, dtype=np.int32), None, origin="found")

    assert found.name == "long-context"
    assert found.description == "long prompts (median 12,000 characters)"
    assert found.prompt_tokens is None


def test_partly_held_properties_are_said_to_be_so() -> None:
    """Some with tools, some of it code."""
    facts = columns_of(
        [-1] * 4,
        [-1] * 4,
        tools=np.array([1, 1, 0, 0], dtype=np.int32),
        code=np.array([1, np.nan, 0, 0]),
    )
    (found,) = described(facts, np.zeros(4, dtype=np.int32), None, origin="found")

    assert found.traits == ("some with tools", "some of it code")


def test_nothing_known_is_said() -> None:
    """A sentence all the same."""
    (found,) = described(columns_of([-1], [-1]), np.zeros(1, dtype=np.int32), ["x"], origin="label")

    assert (found.name, found.traits) == ("x", ())
    assert found.description == "nothing is known of these requests"
