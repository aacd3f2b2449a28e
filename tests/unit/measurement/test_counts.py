"""Where token counts come from, and asked against made output lengths."""

import json
from pathlib import Path

import pytest

from advisor.measurement.counts import count_sources, output_lengths
from advisor.measurement.records import Outcome
from tests.fakes.records import record


def test_the_share_of_counts_that_are_not_the_engines_own_is_told(shared: Path) -> None:
    """Case S-21: usage wins; ids are a fallback, and without either nothing is counted."""
    case = json.loads((shared / "cases" / "s21_retokenize.json").read_text())
    by_usage = [
        record(
            0.0,
            row["e2e_s"],
            first_token_s=row["ttft_s"],
            output_tokens=row["usage"]["completion_tokens"],
        )
        for row in case["requests"]
    ]
    by_ids = record(0.0, 1.0, prompt_tokens=None, token_ids=(1, 2), output_tokens=2)
    unknown = record(0.0, 1.0, prompt_tokens=None, output_tokens=None, first_token_s=None)
    failed = record(0.0, 1.0, outcome=Outcome.FAILED, output_tokens=None)
    found = count_sources([*by_usage, by_ids, unknown, failed])

    assert [item.tpot_s for item in by_usage] == pytest.approx([0.02, 0.02])
    assert (found.usage, found.token_ids, found.none, found.no_token_seen) == (2, 1, 1, 1)
    assert found.fallback_share == 0.5
    assert count_sources([failed]).fallback_share == 0.0


def test_an_ignored_limit_is_seen() -> None:
    """Case T-23: answers that run on past the four tokens that were asked for."""
    kept = record(0.0, 1.0, wanted_tokens=4, output_tokens=4)
    early = record(0.0, 1.0, wanted_tokens=4, output_tokens=2)
    ran_on = record(0.0, 1.0, wanted_tokens=4, output_tokens=900)
    unasked = record(0.0, 1.0, output_tokens=7)
    found = output_lengths([kept, early, ran_on, unasked])

    assert (found.requests, found.asked_tokens, found.made_tokens) == (3, 12, 906)
    assert (found.shorter, found.longer, found.limit_ignored) == (1, 1, True)
    assert not output_lengths([kept, early]).limit_ignored


def test_a_retried_request_is_one_request(shared: Path) -> None:
    """Case S-08: 4.2 s as the user sees it, 1 s for the last attempt under its own name."""
    case = json.loads((shared / "cases" / "s08_retries.json").read_text())
    records = []
    for row in case["logical_requests"]:
        first, last = row["attempts"][0], row["attempts"][-1]
        records.append(
            record(
                first["start"],
                last["end"],
                first_token_s=last["first_token"],
                output_tokens=last["completion_tokens"],
                attempts=len(row["attempts"]),
                last_sent_s=last["start"],
            )
        )
    tried, once = records

    assert sum(item.attempts for item in records) - len(records) == 2
    assert (tried.e2e_s, tried.ttft_s) == pytest.approx((4.2, 3.5))
    assert tried.last_attempt_s == pytest.approx(1.0)
    assert once.e2e_s == once.last_attempt_s == pytest.approx(1.0)
