"""The subset that every trial replays."""

from collections import Counter

import pytest

from advisor.errors import InvalidInput
from advisor.traffic.sample import output_limit, probe_subset
from advisor.traffic.trace import Request, TokenColumns
from tests.unit.traffic.rows import columns, lengths, texts


def many(counts: dict[str, int], **more: object) -> tuple[tuple[Request, ...], TokenColumns]:
    """Requests of several classes with prompts of 10, 20, .. tokens."""
    requests = tuple(
        request for label, count in counts.items() for request in texts(count, label=label, **more)
    )
    return requests, columns([range(10 * (place % 10 + 1)) for place in range(len(requests))])


def pick(
    requests: tuple[Request, ...],
    tokens: TokenColumns,
    size: int = 10,
    *,
    seed: int = 1,
    longest: int = 1000,
    mean: float | None = None,
) -> tuple[int, ...]:
    return probe_subset(
        requests,
        tokens,
        size=size,
        seed=seed,
        max_prompt_tokens=longest,
        mean_prompt_limit=mean,
    )


def test_classes_keep_their_shares_and_small_ones_their_seat() -> None:
    """60, 39 and 1 of 100 requests: 6, 3 and 1 of ten."""
    requests, tokens = many({"a": 60, "b": 39, "c": 1})
    chosen = pick(requests, tokens)

    assert Counter(requests[place].label for place in chosen) == {"a": 6, "b": 3, "c": 1}
    assert len(set(chosen)) == 10


def test_fewer_seats_than_classes_go_to_the_largest() -> None:
    """Two seats for three classes."""
    requests, tokens = many({"a": 50, "b": 40, "c": 2})

    assert {requests[place].label for place in pick(requests, tokens, 2)} == {"a", "b"}


def test_many_small_classes_take_seats_from_the_large_one() -> None:
    """Every class is seen at least once."""
    requests, tokens = many({"a": 100, **{f"s{place}": 1 for place in range(9)}})
    chosen = pick(requests, tokens)

    assert len({requests[place].label for place in chosen}) == 10
    assert len(chosen) == 10


def test_equal_arguments_give_the_equal_order_and_another_seed_another() -> None:
    """Trials of one study replay one subset in one order."""
    requests, tokens = many({"a": 60, "b": 40})

    assert pick(requests, tokens) == pick(requests, tokens)
    assert pick(requests, tokens) != pick(requests, tokens, seed=2)
    assert list(pick(requests, tokens)) != sorted(pick(requests, tokens))


def test_a_small_upload_is_taken_whole() -> None:
    """Size is an upper bound."""
    requests, tokens = many({"a": 3})

    assert sorted(pick(requests, tokens)) == [0, 1, 2]


def test_no_request_passes_the_limit_with_its_output() -> None:
    """Prompt plus max_tokens."""
    requests, tokens = many({"a": 50}, max_tokens=25)
    chosen = pick(requests, tokens, 50, longest=60)

    assert {len(tokens.prompts[place] or ()) for place in chosen} == {10, 20, 30}


def test_lengths_and_unrenderable_prompts_are_not_replayed() -> None:
    """Only text can be sent."""
    requests = (*texts(2), lengths(2, 10, 10))

    assert pick(requests, columns([range(5), None, range(5)])) == (0,)


def test_nothing_that_fits_is_an_error_that_says_so() -> None:
    """No empty subset."""
    requests, tokens = many({"a": 3})
    with pytest.raises(InvalidInput, match="fits into 5 tokens"):
        pick(requests, tokens, longest=5)
    with pytest.raises(InvalidInput, match="size"):
        pick(requests, tokens, 0)


def test_a_mean_limit_swaps_long_prompts_for_shorter_ones_of_their_class() -> None:
    """Shares stay, the mean holds, and a limit that holds anyway changes nothing."""
    requests, tokens = many({"a": 60, "b": 40})
    free = pick(requests, tokens, 20)
    kept = pick(requests, tokens, 20, mean=40)

    def mean(chosen: tuple[int, ...]) -> float:
        return sum(len(tokens.prompts[place] or ()) for place in chosen) / len(chosen)

    assert mean(kept) <= 40 < mean(free)
    assert mean(kept) > 30
    assert Counter(requests[place].label for place in kept) == {"a": 12, "b": 8}
    assert pick(requests, tokens, 20, mean=1000) == free


def test_a_mean_limit_that_cannot_hold_gives_the_shortest() -> None:
    """As far as it goes, without end."""
    requests, tokens = many({"a": 20, "b": 0, "c": 2})
    chosen = pick(requests, tokens, 2, mean=1)

    assert [len(tokens.prompts[place] or ()) for place in chosen] == [10, 10]


def test_a_class_without_a_seat_gives_no_swap() -> None:
    """Two classes, one seat."""
    requests, tokens = many({"a": 20, "b": 10})

    assert [len(tokens.prompts[place] or ()) for place in pick(requests, tokens, 1, mean=1)] == [10]


@pytest.mark.parametrize(
    "fields, output, limit",
    [
        ({"max_tokens": 9, "output_tokens": 4}, [1], 9),
        ({"output_tokens": 4}, [1], 4),
        ({}, [1, 2], 2),
        ({}, None, None),
        ({"output_tokens": 0}, None, 1),
    ],
)
def test_the_limit_is_the_requests_own_else_what_was_recorded(
    fields: dict[str, int], output: list[int] | None, limit: int | None
) -> None:
    """And never zero, which engines refuse."""
    (request,) = texts(1, **fields)

    assert output_limit(request, output) == limit
