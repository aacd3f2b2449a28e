"""LiteLLM's spend log and standard payload."""

import json

import pytest

from advisor.traffic.trace import RequestKind
from tests.unit.traffic.formats.exports import ASK, completion, messages, only, taken
from tests.unit.traffic.formats.gateway_exports import LITELLM_PAYLOAD, SPEND_LOG


def test_a_spend_log_row_is_decoded_from_its_strings() -> None:
    """Messages, response and the proxied request are JSON in strings; times have no zone."""
    draft = only("litellm", SPEND_LOG)

    assert messages(draft) == [ASK]
    assert draft.fields["response"] == "The Elbe."
    assert (draft.fields["prompt_tokens"], draft.fields["output_tokens"]) == (12, 5)
    assert (draft.fields["duration_s"], draft.fields["ttft_s"]) == (2.0, 0.25)
    assert (draft.fields["max_tokens"], draft.fields["session"]) == (40, "s-1")
    assert draft.fields["tools"]


def test_rows_that_store_no_text_are_lengths() -> None:
    """The proxy writes {} then."""
    row = {**SPEND_LOG, "messages": "{}", "response": "{}", "proxy_server_request": "{}"}
    draft = only("litellm", row)

    assert draft.kind is RequestKind.LENGTHS
    assert draft.fields["prompt_tokens"] == 12
    assert "messages" not in draft.fields


def test_messages_may_lie_in_the_proxied_request_only() -> None:
    """Newer versions keep them there."""
    assert messages(only("litellm", {**SPEND_LOG, "messages": "{}"})) == [ASK]


def test_a_standard_payload_has_epoch_times_and_parameters() -> None:
    """Seconds since 1970."""
    draft = only("litellm", LITELLM_PAYLOAD.records[0])

    assert draft.time is not None
    assert draft.time.absolute
    assert (draft.fields["duration_s"], draft.fields["ttft_s"]) == (2.5, 0.5)
    assert (draft.fields["temperature"], draft.fields["max_tokens"]) == (0.2, 30)
    assert draft.fields["session"] == "t-1"


def test_a_call_that_was_not_streamed_has_no_time_to_its_first_token() -> None:
    """The log gives its end there."""
    row = {**SPEND_LOG, "completionStartTime": SPEND_LOG["endTime"]}

    assert "ttft_s" not in only("litellm", row).fields


@pytest.mark.parametrize(
    "more, status",
    [
        ({"status": "failure"}, "error"),
        (
            {
                "status": "failure",
                "metadata": json.dumps({"error_information": {"error_code": "429"}}),
            },
            "429",
        ),
        ({"status": "failure", "error_information": {"error_code": "503"}}, "503"),
        ({"status": None, "error_str": "SECRET"}, "error"),
    ],
)
def test_failures_are_kept_apart(more: dict[str, object], status: str) -> None:
    """With the code of their error where there is one."""
    draft = only("litellm", {**SPEND_LOG, **more})

    assert draft.failed == status
    assert draft.fields == {}


@pytest.mark.parametrize("call", ["aembedding", "arerank", "aimage_generation", "atranscription"])
def test_other_calls_are_no_requests(call: str) -> None:
    """Nothing is generated."""
    assert taken("litellm", {**SPEND_LOG, "call_type": call})[0] == []


def test_a_response_time_stands_in_for_an_end() -> None:
    """In seconds."""
    row = {**SPEND_LOG, "endTime": None, "response_time": 1.5}

    assert only("litellm", row).fields["duration_s"] == 1.5


def test_cache_hits_of_the_gateway_are_noted() -> None:
    """They reached no model."""
    _, notes = taken("litellm", {**SPEND_LOG, "cache_hit": "True"})

    assert any("own cache" in oddity for oddity in notes.lines)


def test_counts_of_the_usage_object_stand_in_for_zeros() -> None:
    """Streamed calls may log 0 at the top."""
    usage = {"prompt_tokens": 31, "completion_tokens": 7}
    row = {
        **SPEND_LOG,
        "prompt_tokens": 0,
        "completion_tokens": 0,
        "response": completion("x", usage=None),
        "metadata": json.dumps(json.dumps({"usage_object": usage})),
    }
    draft = only("litellm", row)

    assert (draft.fields["prompt_tokens"], draft.fields["output_tokens"]) == (31, 7)


def test_a_prompt_of_unknown_shape_leaves_the_lengths() -> None:
    """The counts are still true."""
    (draft,), notes = taken("litellm", {**SPEND_LOG, "messages": [{"weird": "SECRET"}]})

    assert draft.kind is RequestKind.LENGTHS
    assert any("shape" in oddity for oddity in notes.lines)
    assert "SECRET" not in str(notes)
