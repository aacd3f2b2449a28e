"""The subset that every trial replays."""

from collections import Counter
from dataclasses import replace

import pytest

from advisor.errors import InvalidInput
from advisor.traffic.ragged import Ragged
from advisor.traffic.sampling.sample import (
    fitting_places,
    output_limit,
    probe_subset,
    static_subset,
)
from advisor.traffic.sampling.split import held_out
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
    ).places


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


def test_what_is_left_out_is_not_chosen() -> None:
    """Neither among the first nor to fill a share."""
    requests, tokens = many({"a": 12, "b": 12})
    chosen = probe_subset(
        requests,
        tokens,
        size=24,
        seed=1,
        max_prompt_tokens=1000,
        mean_prompt_limit=None,
        without=range(6),
    ).places

    assert sorted(chosen) == list(range(6, 24))


def distinct(
    counts: dict[str, int], *, sessions: int | None = None
) -> tuple[tuple[Request, ...], TokenColumns]:
    """Requests whose prompts differ; with `sessions` dealt out to that many conversations."""
    labels = [label for label, count in counts.items() for _ in range(count)]
    requests = tuple(
        replace(
            request,
            index=place,
            label=labels[place],
            prompt=f"prompt {place}",
            session=None if sessions is None else f"s{place % sessions}",
        )
        for place, request in enumerate(texts(len(labels)))
    )
    return requests, columns([[place, *range(9)] for place in range(len(requests))])


def split(requests: tuple[Request, ...], tokens: TokenColumns, seed: int = 1) -> frozenset[int]:
    return held_out(requests, tokens, seed=seed, max_prompt_tokens=1000)


def test_a_third_is_held_out_of_every_class() -> None:
    """30, 15 and 3: 10, 5 and 1."""
    requests, tokens = distinct({"a": 30, "b": 15, "c": 3})
    held = split(requests, tokens)

    assert Counter(requests[place].label for place in held) == {"a": 10, "b": 5, "c": 1}
    assert split(requests, tokens) == held
    assert split(requests, tokens, seed=2) != held


def test_classes_of_one_are_held_out_in_their_sum() -> None:
    """Thirty labels with one request each: none has a third, together they have ten."""
    requests, tokens = distinct({f"c{place}": 1 for place in range(30)})

    assert len(split(requests, tokens)) == 10


def test_a_session_stays_together() -> None:
    """Six conversations of ten: two of them are held out whole."""
    requests, tokens = distinct({"a": 60}, sessions=6)
    held = split(requests, tokens)

    assert len(held) == 20
    assert len({requests[place].session for place in held}) == 2


def test_equal_prompts_stay_together_whatever_their_session() -> None:
    """A chain of sessions that share a prompt is one group; too large to be held out."""
    requests, tokens = distinct({"a": 40}, sessions=20)
    same = tuple(
        replace(request, prompt="again") if place < 20 else request
        for place, request in enumerate(requests)
    )

    assert len(split(requests, tokens)) in {13, 14}
    assert split(same, tokens) == frozenset()


def test_equal_tokens_are_an_equal_prompt() -> None:
    """Two templates can render two texts into one prompt."""
    requests, _ = distinct({"a": 10})

    assert split(requests, columns([[1, 2, 3]] * 10)) == frozenset()


def test_what_does_not_fit_counts_for_no_share_but_goes_with_its_group() -> None:
    """A long prompt of a held-out conversation is not left for the other side."""
    requests, tokens = distinct({"a": 12}, sessions=6)
    long = replace(
        tokens,
        prompts=Ragged.of(
            (*(ids or ()), *range(2000)) if place < 6 else ids
            for place, ids in enumerate(tokens.prompts)
        ),
    )
    held = split(requests, long)
    fitting = fitting_places(requests, long, max_prompt_tokens=1000)

    assert fitting == frozenset(range(6, 12))
    assert len(held & fitting) == 2
    assert {place - 6 for place in held & fitting} == held - fitting


def gangs(
    lengths_: list[int], size: int, *, mean: float | None = None, without: frozenset[int]
) -> tuple[int, ...]:
    """A static subset of requests with these output lengths and prompts of rising length."""
    requests = tuple(
        replace(request, max_tokens=length)
        for request, length in zip(texts(len(lengths_)), lengths_, strict=True)
    )
    return static_subset(
        requests,
        columns([range(place + 1) for place in range(len(lengths_))]),
        size=size,
        seed=3,
        max_prompt_tokens=10_000,
        mean_prompt_limit=mean,
        without=without,
    )


SKEWED = [4] * 60 + [40] * 30 + [160] * 10


def test_static_batches_get_outputs_as_unlike_as_all_are() -> None:
    """Longest over mean of twelve lies next to that of a hundred; each part is in it."""
    chosen = gangs(SKEWED, 12, without=frozenset())
    outputs = [SKEWED[place] for place in chosen]

    assert len(set(chosen)) == 12
    assert max(outputs) * 12 / sum(outputs) == pytest.approx(160 * 100 / sum(SKEWED), rel=0.25)
    assert outputs != sorted(outputs)
    assert gangs(SKEWED, 12, without=frozenset()) == chosen


def test_static_batches_take_nothing_that_is_held_out_and_no_more_than_there_is() -> None:
    """A small upload is taken whole."""
    held = frozenset(range(0, 100, 2))

    assert not held & set(gangs(SKEWED, 12, without=held))
    assert sorted(gangs([5, 6, 7], 12, without=frozenset({1}))) == [0, 2]


def test_static_batches_leave_the_longest_prompts_aside() -> None:
    """The mean limit holds for what they are drawn from."""
    chosen = gangs([4] * 100, 12, mean=20, without=frozenset())

    assert max(chosen) < 40
    assert len(gangs([4] * 100, 12, mean=1, without=frozenset())) == 12


def test_a_static_subset_needs_every_length() -> None:
    """Where a request's own limit is open nothing can be spread."""
    with pytest.raises(InvalidInput, match="max_tokens"):
        static_subset(
            texts(3),
            columns([[1], [2], [3]]),
            size=2,
            seed=1,
            max_prompt_tokens=100,
            mean_prompt_limit=None,
            without=(),
        )


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
