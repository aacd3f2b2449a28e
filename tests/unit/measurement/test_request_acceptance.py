"""Acceptance by request: intervals that requests support, classes, temperatures, cross-checks."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from advisor.errors import InvalidInput
from advisor.measurement.acceptance import figures
from advisor.measurement.clusters import assumed_count
from advisor.measurement.records import Outcome, RequestRecord
from advisor.measurement.request_acceptance import (
    AcceptanceKey,
    acceptance_by,
    alone_check,
    cross_check,
    histogram_of_frames,
    point_figures,
    request_figures,
    temperature_gap,
)
from advisor.roofline.speculation import (
    best_draft_tokens_measured,
    expected_tokens,
    tokens_from_survival,
)
from tests.fakes.records import NOTHING, point, record

KEY = AcceptanceKey(
    engine="vllm",
    engine_version="0.32.0",
    model_digest="m",
    template_digest="t",
    draft_method="ngram",
    draft_digest=None,
    num_speculative_tokens=3,
)


def told(histogram: tuple[int, ...], **changes: object) -> RequestRecord:
    """A success whose engine names its steps; the prompt's own step gives one token more."""
    tokens = 1 + sum((j + 1) * count for j, count in enumerate(histogram))
    return record(0, 1, output_tokens=tokens, accepted_histogram=histogram, **changes)


def planted(
    rng: np.random.Generator, requests: int, *, spread: float, **changes: object
) -> list[RequestRecord]:
    """Requests of 40 steps with k = 3, whose acceptance differs from one to the next."""
    found = []
    for _ in range(requests):
        share = rng.beta(0.6 / spread, 0.4 / spread) if spread else 0.6
        accepted = (rng.random((40, 3)) < share).cumprod(axis=1).sum(axis=1)
        counts = np.bincount(accepted, minlength=4)
        found.append(told(tuple(int(n) for n in counts), **changes))
    return found


def test_figures_are_those_of_the_counters() -> None:
    """S-14's definition: every step counts; positions count per draft."""
    found = request_figures([told((2, 1, 1)), told((4, 0, 2))], num_speculative_tokens=2)

    assert found is not None
    assert (found.drafts, found.accepted, found.draft_tokens) == (10, 7, 20)
    assert found.per_position is not None
    assert [share.value for share in found.per_position] == [pytest.approx(0.4), pytest.approx(0.3)]
    assert found.acceptance_length == pytest.approx(1.7)
    assert found.tokens_per_step == pytest.approx(19 / 12)
    assert found.coverage == pytest.approx(10 / 12)


@pytest.mark.parametrize("spread", [0.0, 0.2])
def test_intervals_hold_the_truth_whether_requests_differ_or_not(spread: float) -> None:
    """Mean acceptance 0.6 at the first position, in 95 % of samples but for chance."""
    covered = 0
    for seed in range(100):
        records = planted(np.random.default_rng(seed), 30, spread=spread)
        found = request_figures(records, num_speculative_tokens=3, seed=seed)
        assert found is not None
        assert found.per_position is not None
        covered += found.per_position[0].low <= 0.6 <= found.per_position[0].high

    assert covered >= 90


def test_intervals_follow_the_number_of_requests_not_of_tokens() -> None:
    """Five requests that differ are five, however many drafts each has."""
    rng = np.random.default_rng(2)
    few = request_figures(planted(rng, 5, spread=0.2), num_speculative_tokens=3)
    many = request_figures(planted(rng, 200, spread=0.2), num_speculative_tokens=3)

    assert few is not None
    assert many is not None
    assert few.per_position is not None
    assert many.per_position is not None
    widths = [share.high - share.low for share in (few.per_position[0], many.per_position[0])]
    assert widths[0] > 0.3
    assert widths[1] < widths[0] / 4


def test_few_requests_that_agree_are_not_certain() -> None:
    """Three requests whose every draft was accepted do not show that all are; one shows nothing."""
    three = request_figures([told((0, 0, 50))] * 3, num_speculative_tokens=2)
    one = request_figures([told((0, 0, 50))], num_speculative_tokens=2)

    assert three is not None
    assert one is not None
    assert three.per_position is not None
    assert one.per_position is not None
    assert 0.2 < three.per_position[0].low < 0.9
    assert three.per_position[0].high == 1.0
    assert one.per_position[0].low == 0.0


def test_turns_of_a_session_count_as_one() -> None:
    """Ten turns of one session are no ten requests."""
    rng = np.random.default_rng(4)
    turns = planted(rng, 20, spread=0.2)
    sessions = [replace(turn, session=str(place // 10)) for place, turn in enumerate(turns)]
    found = [request_figures(r, num_speculative_tokens=3) for r in (turns, sessions)]
    widths = [
        share.per_position[0].high - share.per_position[0].low
        for share in found
        if share is not None and share.per_position is not None
    ]

    assert widths[1] > 2 * widths[0]


def test_without_a_draft_there_is_no_rate_but_a_reason() -> None:
    """Case S-18."""
    found = request_figures([record(0, 1, accepted_histogram=(0, 0))], num_speculative_tokens=1)

    assert found is not None
    assert (found.per_position, found.acceptance_rate, found.coverage) == (None, None, None)
    assert found.tokens_per_step == 1.0
    assert found.reason == "nothing was drafted in 10 tokens"


def test_nothing_is_said_where_no_request_tells() -> None:
    """Failures do not, nor do requests without counts."""
    assert request_figures([record(0, 1)], num_speculative_tokens=2) is None
    failed = told((1, 1), outcome=Outcome.FAILED)
    assert request_figures([failed], num_speculative_tokens=1) is None


def test_a_longer_acceptance_than_drafted_is_refused() -> None:
    """The wrong k would make every figure wrong."""
    with pytest.raises(InvalidInput, match="more than 1"):
        request_figures([told((1, 0, 3))], num_speculative_tokens=1)


def test_frames_stand_in_where_the_engine_does_not_tell() -> None:
    """Frames of 1, 3, 1 and 2 tokens: the first is the prompt's, then 2, 0 and 1 accepted."""
    assert histogram_of_frames((1, 3, 1, 2)) == (1, 1, 1)
    assert histogram_of_frames((1,)) == (0,)
    found = request_figures(
        [record(0, 1, output_tokens=7, frame_tokens=(1, 3, 1, 2))] * 2, num_speculative_tokens=2
    )

    assert found is not None
    assert found.per_position is not None
    assert found.per_position[0].value == pytest.approx(2 / 3)
    assert found.coverage is None
    assert "look alike" in found.per_position[0].basis


def test_acceptance_is_apart_by_class_and_temperature() -> None:
    """Case S-22: 0, 1.0 and the engine's default are three temperatures."""
    records = [
        told((0, 9), label="code", temperature=0.0),
        told((9, 1), label="chat", temperature=1.0),
        told((5, 5), label="chat", temperature=None),
        record(0, 1, label=None, temperature=0.5),
    ]
    found = acceptance_by(records, num_speculative_tokens=1)

    assert {name: item.acceptance_rate for name, item in found.items()} == {
        "class chat": pytest.approx(6 / 20),
        "class code": 1.0,
        "temperature 0": 1.0,
        "temperature 1": pytest.approx(0.1),
        "temperature default": pytest.approx(0.5),
    }


def test_a_greedy_probe_does_not_speak_for_sampled_traffic(shared: Path) -> None:
    """Case S-22: measured at 0, a third at 1.0 and a third at the default remain unknown."""
    rows = (shared / "cases" / "s22_temperature_mix.jsonl").read_text().splitlines()
    traffic = [json.loads(row).get("temperature") for row in rows]
    gap = temperature_gap([0.0], traffic)

    assert traffic == [0, 1.0, None]
    assert gap is not None
    assert "67% of the traffic is sampled at 1, default" in gap
    assert temperature_gap([0.0, 1.0, None], traffic) is None


def test_requests_and_counters_must_agree() -> None:
    """2.000 by the requests; the counters of a load with others beside them say less."""
    counters = replace(
        NOTHING, generation_tokens=40, drafts=18, draft_tokens=18, accepted=20, engine_steps=20
    )
    mine = request_figures([told((0, 19))], num_speculative_tokens=1)
    assert mine is not None
    agreeing = replace(mine, tokens_per_step=2.0)
    engines = figures(replace(counters, accepted=20), num_speculative_tokens=1)

    assert cross_check(agreeing, engines) is None
    assert alone_check(agreeing, counters) is None
    told_apart = cross_check(replace(mine, tokens_per_step=1.8), engines)
    assert told_apart is not None
    assert "1.800 tokens per step by the requests, 2.000" in told_apart
    assert alone_check(replace(mine, tokens_per_step=1.8), counters) is not None
    assert alone_check(mine, replace(counters, engine_steps=None)) is None


def test_a_load_point_takes_its_intervals_from_its_requests() -> None:
    """Positions by the requests where they tell; a disagreement is a remark, the point usable."""
    counters = replace(
        NOTHING,
        generation_tokens=78,
        drafts=38,
        draft_tokens=38,
        accepted=38,
        accepted_per_position=(38,),
    )
    records = [told((0, 19)), replace(told((0, 19)), sent_s=1, end_s=2, intended_s=1)]
    agreeing = point(*records, counters=counters, num_speculative_tokens=1)
    apart = point(
        *records,
        counters=replace(counters, generation_tokens=100),
        num_speculative_tokens=1,
    )

    assert agreeing.acceptance is not None
    assert agreeing.acceptance.per_position is not None
    assert "2 requests in 2 groups" in agreeing.acceptance.per_position[0].basis
    assert not [flaw for flaw in agreeing.flaws if "add up" in flaw]
    assert [flaw for flaw in apart.flaws if "add up" in flaw]
    assert apart.usable is agreeing.usable


def test_counters_alone_are_as_wide_as_their_requests_allow() -> None:
    """400 drafts of 10 requests are fewer than 400 independent ones, of one request nearly none."""
    counters = replace(
        NOTHING,
        generation_tokens=700,
        drafts=400,
        draft_tokens=400,
        accepted=200,
        accepted_per_position=(200,),
    )
    plain = figures(counters, num_speculative_tokens=1).per_position
    widths = []
    for requests in (1, 10):
        found, doubt = point_figures([record(0, 1)] * requests, counters, num_speculative_tokens=1)
        assert doubt is None
        assert found.per_position is not None
        widths.append(found.per_position[0].high - found.per_position[0].low)

    assert plain is not None
    assert widths[0] > 0.8
    assert widths[0] > widths[1] > 2 * (plain[0].high - plain[0].low)
    with pytest.raises(InvalidInput):
        assumed_count(0.0, 1)
    assert assumed_count(5.0, 10) < 5


def test_acceptance_is_reused_only_for_an_equal_key() -> None:
    """Case E-28: never across engines, versions, templates or draft lengths."""
    assert KEY.differs(KEY) is None
    assert KEY.differs(replace(KEY, engine_version="0.31.0")) == (
        "measured with another engine version"
    )
    several = KEY.differs(replace(KEY, template_digest="u", num_speculative_tokens=5))
    assert several == "measured with another template digest, num speculative tokens"


def test_case_s16_the_draft_length_comes_from_positions_not_from_the_rate(shared: Path) -> None:
    """S-16: tokens per step by k, and the best k at each cost."""
    case = json.loads((shared / "cases" / "s16_per_position.json").read_text())
    survival = case["per_position"]
    tokens = [tokens_from_survival(survival[:k]) for k in range(1, 11)]
    best = [
        best_draft_tokens_measured(survival, cost)
        for cost in case["relative_cost_per_extra_draft_token"]
    ]
    gains = [
        tokens[k - 1] / (1 + cost * k)
        for k, cost in zip(best, case["relative_cost_per_extra_draft_token"], strict=True)
    ]

    assert tokens[:5] == pytest.approx([1.74, 2.28, 2.69, 2.99, 3.21])
    assert tokens[9] == pytest.approx(3.64)
    assert case["num_accepted_tokens"] / case["num_draft_tokens"] == pytest.approx(0.264, abs=5e-4)
    assert best == [8, 6, 5, 3]
    assert gains == pytest.approx([3.08, 2.59, 2.14, 1.68], abs=0.005)


def test_case_s17_a_probability_per_token_is_no_accepted_share(shared: Path) -> None:
    """S-17: 3.689 tokens per step, 53.8 % of the draft; never 5.0."""
    case = json.loads((shared / "cases" / "s17_formula.json").read_text())
    tokens = expected_tokens(case["per_token_acceptance"], case["k"])

    assert tokens == pytest.approx(3.689, abs=5e-4)
    assert (tokens - 1) / case["k"] == pytest.approx(0.538, abs=5e-4)
