"""Rows and sentences about traffic."""

from dataclasses import replace

import pytest

from advisor.traffic.figures import FirstDifference, SubsetDistance
from advisor.traffic.phrases import (
    PRIVACY_WORDS,
    coarse,
    distance_sentence,
    duplicates_sentence,
    early_sentence,
    fit_sentence,
    mix_parts,
    readings_lines,
    spread_out,
)
from advisor.traffic.trace import Privacy
from tests.fakes.traffic import PROFILE, REUSE, WHOLE_REPORT, fit


def test_every_privacy_mode_says_what_it_costs() -> None:
    """A person chooses by it."""
    assert set(PRIVACY_WORDS) == set(Privacy)


def test_rare_languages_are_counted_together() -> None:
    """Six names and the rest."""
    many = {f"l{place}": 10 - place for place in range(9)}
    rows = [
        part for part in mix_parts(replace(PROFILE.mix, languages=many)) if part.kind == "language"
    ]

    assert [part.name for part in rows] == ["l0", "l1", "l2", "l3", "l4", "l5", "3 others"]
    assert rows[-1].requests == 4 + 3 + 2


def test_languages_nobody_read_have_no_row() -> None:
    """Not looked at is not zero."""
    unread = replace(PROFILE.mix, read=0, languages={}, code=0)

    assert {part.kind for part in mix_parts(unread)}.isdisjoint({"language", "text"})


def test_a_limit_says_what_it_loses() -> None:
    """Requests and prompt tokens; what would serve all."""
    sentence = fit_sentence(fit(1024, 1))

    assert "does not serve 3 of 4 requests (75.0 %, with 75.0 % of the prompt tokens" in sentence
    assert "4,096 would serve all" in sentence
    assert fit_sentence(fit(4096, 4)) == "max_model_len 4,096 serves every request."


@pytest.mark.parametrize("most", [1, 2, 3, 8])
def test_coarse_bins_keep_every_request(most: int) -> None:
    """Edges are edges of the whole, and counts add up."""
    joint = PROFILE.joint_lengths
    assert joint is not None
    found = coarse(joint, most)

    assert sum(map(sum, found.counts)) == sum(map(sum, joint.counts))
    assert len(found.prompt_edges) == len(found.counts) + 1 <= most + 1
    assert len(found.output_edges) == len(found.counts[0]) + 1 <= most + 1
    assert set(found.prompt_edges) <= set(joint.prompt_edges)


def test_points_shown_of_a_curve_include_both_ends() -> None:
    """Few of many, and the ends among them."""
    assert spread_out(REUSE.curve, 2) == (REUSE.curve[0], REUSE.curve[-1])
    assert spread_out(REUSE.curve, 9) == REUSE.curve


def test_prompts_that_repeat_are_told_with_how_often() -> None:
    """And that none does."""
    found = PROFILE.duplicates
    assert found is not None

    assert "(25.0 %) have a prompt that occurs more than once" in duplicates_sentence(found)
    assert "No prompt repeats" in duplicates_sentence(replace(found, repeated=0))


@pytest.mark.parametrize(
    "early,lost,told",
    [(0.5, 0.2, "50.0 % of"), (None, None, "do not show"), (0.0, 0.0, "No prompt")],
)
def test_what_early_differences_cost_is_said_or_said_to_be_unknown(
    early: float | None, lost: float | None, told: str
) -> None:
    """Block ids do not show it; none is an answer too."""
    found = FirstDifference(edges=(0, 16), counts=(1,), early=early, lost_share=lost)

    assert told in early_sentence(found)


def test_a_distance_names_only_what_is_known() -> None:
    """Without times there is no burstiness to keep."""
    found = SubsetDistance(
        requests=48, of=244, lengths=0.05, reuse=None, classes=0.01, burstiness=None, total=0.05
    )
    sentence = distance_sentence(found)

    assert "48 of 244 requests" in sentence
    assert "(lengths 0.05, classes 0.01;" in sentence


def test_a_reading_says_how_to_take_the_other() -> None:
    """With the option of the command line; one that we do not know has none."""
    report = replace(WHOLE_REPORT, readings={"session_lengths": "per_turn", "zone": "UTC"})

    assert list(readings_lines(report)) == [
        "session_lengths: per_turn (--session-lengths overrides)",
        "zone: UTC",
    ]
