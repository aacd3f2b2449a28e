"""The subset that trials replay: sessions, and how far it is from the upload."""

from collections import Counter
from dataclasses import replace

import pytest

from advisor.traffic.sampling.sample import probe_subset
from advisor.traffic.trace import Request, TokenColumns
from tests.unit.traffic.rows import columns, texts


def conversations(count: int, turns: int) -> tuple[tuple[Request, ...], TokenColumns]:
    """Sessions whose turns come in rounds; every prompt begins with the one before."""
    requests = tuple(
        replace(request, index=place, session=f"s{place % count}", prompt=f"prompt {place}")
        for place, request in enumerate(texts(count * turns))
    )
    prompts = [
        range(1000 * (place % count), 1000 * (place % count) + 32 * (1 + place // count))
        for place in range(count * turns)
    ]
    return requests, columns(prompts)


def test_sessions_are_whole_and_their_turns_keep_their_order() -> None:
    """Four of ten conversations, from the first turn to the last."""
    requests, tokens = conversations(10, 3)
    found = probe_subset(
        requests, tokens, size=12, seed=4, max_prompt_tokens=1000, mean_prompt_limit=None
    )
    order = [(requests[place].session, place) for place in found.places]

    assert set(Counter(session for session, _ in order).values()) == {3}
    for session in {name for name, _ in order}:
        turns = [place for name, place in order if name == session]
        assert turns == sorted(turns)
    assert found.cut == 0
    assert [name for name, _ in order] != sorted(str(name) for name, _ in order)


def test_a_session_too_large_for_the_seats_is_cut_at_its_end_and_that_is_counted() -> None:
    """Three turns of five fill the last seats."""
    requests, tokens = conversations(4, 5)
    found = probe_subset(
        requests, tokens, size=8, seed=4, max_prompt_tokens=1000, mean_prompt_limit=None
    )
    turns = Counter(requests[place].session for place in found.places)

    assert sorted(turns.values()) == [3, 5]
    assert found.cut == 1
    assert {place for place in found.places if turns[requests[place].session] == 3} == {
        place for place in range(12) if turns[requests[place].session] == 3
    }


def test_a_mean_limit_shortens_sessions_from_their_end() -> None:
    """What is left of each is its beginning."""
    requests, tokens = conversations(10, 3)
    found = probe_subset(
        requests, tokens, size=12, seed=4, max_prompt_tokens=1000, mean_prompt_limit=50
    )
    lengths_ = [len(tokens.prompts[place] or ()) for place in found.places]

    assert len(set(found.places)) == 12
    assert sum(lengths_) / 12 <= 50
    for session in {requests[place].session for place in found.places}:
        turns = sorted(place for place in found.places if requests[place].session == session)
        assert turns == [turns[0] % 10 + 10 * at for at in range(len(turns))]


def test_a_class_that_only_follows_others_does_not_leave_seats_empty() -> None:
    """One conversation: its first turn has no seat of its class, still three turns are taken."""
    requests, tokens = conversations(1, 10)
    mixed = tuple(
        replace(request, label="a" if place == 0 else "b") for place, request in enumerate(requests)
    )

    chosen = probe_subset(
        mixed, tokens, size=3, seed=1, max_prompt_tokens=1000, mean_prompt_limit=None
    ).places

    assert sorted(chosen) == [0, 1, 2]


def test_the_distance_is_that_to_the_whole_upload() -> None:
    """Half of the upload does not fit: what fits, taken whole, is far from it; all is not."""
    requests = texts(40)
    tokens = columns([range(10 * (place % 10 + 1)) for place in range(40)])
    whole = probe_subset(
        requests, tokens, size=40, seed=1, max_prompt_tokens=1000, mean_prompt_limit=None
    ).distance
    half = probe_subset(
        requests, tokens, size=40, seed=1, max_prompt_tokens=51, mean_prompt_limit=None
    ).distance

    assert (whole.requests, whole.of, whole.lengths, whole.total) == (40, 40, 0, 0)
    assert (half.requests, half.of) == (20, 40)
    assert half.lengths == pytest.approx(0.5)
    assert half.burstiness is None
