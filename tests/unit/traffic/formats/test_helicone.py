"""Helicone's export of requests."""

import json

import pytest

from advisor.traffic.trace import RequestKind
from tests.unit.traffic.formats.exports import ASK, messages, only, taken
from tests.unit.traffic.formats.gateway_exports import HELICONE_CSV, HELICONE_ROW


def test_a_request_with_its_bodies() -> None:
    """Milliseconds, the session among the properties."""
    draft = only("helicone", HELICONE_ROW)

    assert messages(draft) == [ASK]
    assert draft.fields["response"] == "The Elbe."
    assert (draft.fields["prompt_tokens"], draft.fields["output_tokens"]) == (12, 5)
    assert (draft.fields["duration_s"], draft.fields["ttft_s"]) == (2.0, 0.3)
    assert (draft.fields["session"], draft.fields["max_tokens"]) == ("s-1", 20)


def test_a_cell_with_quotes_doubled_once_too_often_is_read() -> None:
    """The CSV export does so to bodies; blank cells are nothing."""
    draft = only("helicone", HELICONE_CSV.records[0])

    assert messages(draft) == [ASK]
    assert draft.fields["duration_s"] == 2.0
    assert (draft.fields["prompt_tokens"], draft.fields["output_tokens"]) == (12, 5)


def test_an_export_without_bodies_is_lengths() -> None:
    """Bodies are there on request only."""
    row = {**HELICONE_ROW, "request_body": None, "response_body": None}
    draft = only("helicone", row)

    assert draft.kind is RequestKind.LENGTHS
    assert (draft.fields["prompt_tokens"], draft.fields["output_tokens"]) == (12, 5)


def test_cached_tokens_of_anthropic_belong_to_the_prompt() -> None:
    """The table counts them apart."""
    row = {
        **HELICONE_ROW,
        "response_body": None,
        "provider": "ANTHROPIC",
        "prompt_cache_read_tokens": 100,
        "prompt_cache_write_tokens": 10,
    }

    assert only("helicone", row).fields["prompt_tokens"] == 122


@pytest.mark.parametrize(
    "more, status",
    [
        ({"response_status": 429}, "429"),
        ({"response_status": "500"}, "500"),
        ({"response_status": -3}, "error"),
        ({"response_body": {"error": {"message": "SECRET"}}}, "error"),
    ],
)
def test_failures_are_kept_apart(more: dict[str, object], status: str) -> None:
    """Statuses below 0 are Helicone's own."""
    assert only("helicone", {**HELICONE_ROW, **more}).failed == status


def test_other_calls_are_no_requests() -> None:
    """Embeddings go through the same gateway."""
    path = "https://gateway.example/v1/embeddings"

    assert taken("helicone", {**HELICONE_ROW, "request_path": path})[0] == []


def test_bodies_may_be_json_in_a_string() -> None:
    """As tables hold them."""
    row = {
        **HELICONE_ROW,
        "request_body": json.dumps(HELICONE_ROW["request_body"]),
        "response_body": json.dumps(HELICONE_ROW["response_body"]),
        "request_properties": json.dumps({"Helicone-Session-Id": "s-2"}),
    }
    draft = only("helicone", row)

    assert messages(draft) == [ASK]
    assert (draft.fields["response"], draft.fields["session"]) == ("The Elbe.", "s-2")


def test_a_status_that_is_no_number_is_no_failure() -> None:
    """Nobody knows what it says."""
    assert only("helicone", {**HELICONE_ROW, "response_status": "fine"}).failed is None
