"""Case T-03: do the lengths of a session's rows hold the history, or the new turn alone?"""

import numpy as np
import pytest
from numpy.typing import NDArray

from advisor.traffic.facts import Codes, Integers
from advisor.traffic.formats.sessions import Nesting, session_reading, whole_prompts

NESTED = ((11, 12), (11, 12, 13), (11, 12, 13, 14, 15))


def codes(*values: int) -> Codes:
    return np.array(values, dtype=np.int32)


def counts(*values: int) -> Integers:
    return np.array(values, dtype=np.int64)


def listed(values: NDArray[np.int64]) -> list[int]:
    return [int(value) for value in values]


def nesting(*rows: tuple[int, ...]) -> float | None:
    tally = Nesting()
    for row in rows:
        tally.add("s", row)
    return tally.share


def test_lists_that_nest_are_cumulative() -> None:
    """The case's three rows: 5,120 prompt tokens in all, not 9,304."""
    found = session_reading(
        codes(0, 0, 0), counts(1024, 1536, 2560), counts(200, 200, 200), nested=nesting(*NESTED)
    )

    assert found is not None
    assert found.reading == "cumulative"
    assert not found.assumed
    assert "block ids" in found.reason
    assert int(found.prompt_tokens.sum()) == 5120


def test_the_same_rows_read_per_turn_hold_their_history() -> None:
    """What the reading can be overridden to: 1,024, then 1,024 + 200 + 1,536, and so on."""
    found = session_reading(
        codes(0, 0, 0),
        counts(1024, 1536, 2560),
        counts(200, 200, 200),
        nested=1.0,
        given="per_turn",
    )

    assert found is not None
    assert found.reading == "per_turn"
    assert listed(found.prompt_tokens) == [1024, 2760, 5520]


def test_lengths_that_grow_by_turn_and_answer_are_cumulative() -> None:
    """Without block ids the lengths themselves tell."""
    found = session_reading(codes(0, 1, 0, 1), counts(10, 50, 90, 400), counts(20, 30, 5, 5))

    assert found is not None
    assert not found.assumed
    assert found.reading == "cumulative"


def test_what_the_file_leaves_open_is_assumed_and_said() -> None:
    """Lengths that shrink speak for turns alone, which the reason says."""
    open_ = session_reading(codes(0, 0, 0), counts(100, 110, 105), counts(50, 50, 50))
    shrinking = session_reading(codes(0, 0, 0), counts(100, 20, 10), counts(50, 50, 50))

    assert open_ is not None
    assert shrinking is not None
    assert open_.assumed
    assert shrinking.assumed
    assert "100% of later turns are shorter" in shrinking.reason
    assert "per_turn" in open_.reason


def test_block_ids_that_begin_anew_speak_for_turns_alone() -> None:
    """So do lengths that shrink; the reading stays an assumption that is said with its doubts."""
    found = session_reading(
        codes(0, 0), counts(1024, 512), counts(9, 9), nested=nesting((1, 2), (3,))
    )

    assert found is not None
    assert found.assumed
    assert "in only 0% of them" in found.reason


def test_lengths_that_are_not_known_tell_nothing() -> None:
    """One length in a session cannot be compared with another."""
    found = session_reading(codes(0, 0), counts(-1, 20), counts(5, 5))

    assert found is not None
    assert found.assumed
    assert "no two lengths" in found.reason


def test_what_is_missing_from_a_history_is_said() -> None:
    """The second turn's answer is not known, so that the third prompt is too short."""
    found = session_reading(codes(0, 0, 0), counts(10, 10, 10), counts(5, -1, 5), given="per_turn")

    assert found is not None
    assert listed(found.prompt_tokens) == [10, 25, 35]
    assert "1 of their counts" in found.reason


def test_an_answer_from_the_user_ends_the_question() -> None:
    """Asked for cumulative lengths, nothing is assumed."""
    found = session_reading(codes(0, 0), counts(100, 20), counts(50, 50), given="cumulative")

    assert found is not None
    assert not found.assumed
    assert listed(found.prompt_tokens) == [100, 20]


@pytest.mark.parametrize("session", [codes(), codes(-1, -1, -1), codes(0, 1, 2)])
def test_without_a_second_row_in_a_session_there_is_no_question(session: Codes) -> None:
    """Rows without a session, or with one each."""
    lengths = np.full(len(session), 10, dtype=np.int64)

    assert session_reading(session, lengths, lengths, given="per_turn") is None


def test_sessions_do_not_mix_and_unknown_counts_are_left_out() -> None:
    """Rows of two sessions and of none, interleaved; -1 is a count that is not known."""
    whole, unknown = whole_prompts(
        codes(1, 0, -1, 1, 0, 1), counts(10, 7, 5, 20, -1, 30), counts(1, 2, 3, -1, 4, 5)
    )

    assert listed(whole) == [10, 7, 5, 31, -1, 61]
    assert unknown == 1


def test_a_half_full_last_block_may_change_its_id() -> None:
    """The next turn fills it, so that it gets another id."""
    assert nesting((1, 2), (1, 3, 4)) == 1
    assert nesting((1, 2, 3), (1, 4, 5)) == 0
    assert nesting((1,), (2, 3)) == 0
    assert nesting((1, 2)) is None
