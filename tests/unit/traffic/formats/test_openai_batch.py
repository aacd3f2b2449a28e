"""Input and output files of the OpenAI batch API."""

import pytest

from advisor.traffic.formats.fields import BadField
from advisor.traffic.trace import RequestKind
from tests.unit.traffic.formats.exports import ASK, completion, messages, only, taken
from tests.unit.traffic.formats.gateway_exports import BATCH_INPUT, BATCH_OUTPUT


def test_an_input_row_is_its_body() -> None:
    """The id is theirs and need not be unique."""
    draft = only("openai_batch_input", BATCH_INPUT.records[0])

    assert messages(draft) == [ASK]
    assert (draft.fields["source_id"], draft.fields["max_tokens"]) == ("a-1", 9)
    assert draft.time is None


def test_embeddings_of_a_batch_are_no_requests() -> None:
    """A batch may call other models."""
    row = {"custom_id": "e", "method": "POST", "url": "/v1/embeddings", "body": {"input": "text"}}

    assert taken("openai_batch_input", row)[0] == []


def test_an_output_row_is_a_length() -> None:
    """There is no prompt in the file, so no text of an answer is kept."""
    (draft,), notes = taken("openai_batch_output", BATCH_OUTPUT.records[0])

    assert draft.kind is RequestKind.LENGTHS
    assert (draft.fields["prompt_tokens"], draft.fields["output_tokens"]) == (12, 5)
    assert "response" not in draft.fields
    assert draft.time is None
    assert any("no prompts" in oddity for oddity in notes.lines)


@pytest.mark.parametrize(
    "response, error, status",
    [
        ({"status_code": 500, "body": {"error": {"message": "SECRET"}}}, None, "500"),
        (None, {"code": "batch_expired", "message": "SECRET"}, "error"),
        ({"status_code": 200, "body": completion("x", error={"code": 429})}, None, "429"),
    ],
)
def test_a_failed_output_is_kept_apart(response: object, error: object, status: str) -> None:
    """By status, or as an error without one."""
    row = {"custom_id": "a", "response": response, "error": error}

    assert only("openai_batch_output", row).failed == status


@pytest.mark.parametrize("body", [None, completion("x", usage=None)])
def test_an_output_without_counts_cannot_be_taken(body: object) -> None:
    """It holds neither a prompt nor its length."""
    row = {"custom_id": "a", "response": {"status_code": 200, "body": body}, "error": None}
    with pytest.raises(BadField, match="response"):
        only("openai_batch_output", row)
