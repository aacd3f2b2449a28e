"""Logs of OpenAI-style gateways: envelopes, streams, tools, pictures, token ids, failures."""

import json

import pytest

from advisor.traffic.formats.chat_jsonl import draft_of
from advisor.traffic.formats.fields import BadField
from advisor.traffic.formats.row import Notes
from advisor.traffic.trace import RequestKind
from tests.unit.traffic.formats.exports import (
    ASK,
    TOOL,
    Export,
    chunk,
    claimed,
    completion,
    messages,
    only,
    taken,
)
from tests.unit.traffic.formats.gateway_exports import COMPLETIONS, GATEWAY, GATEWAY_BODIES

LOGS = "openai_logs"
CALL = {"id": "c1", "type": "function", "function": {"name": "tide", "arguments": '{"at": "X"}'}}
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


def logged(response: object, **asked: object) -> dict[str, object]:
    return {"request": {"messages": [ASK], **asked}, "response": response}


def test_a_call_gives_its_two_halves_and_its_times() -> None:
    """Request and response objects, latencies with their unit in the name."""
    draft = only(LOGS, GATEWAY.records[0])

    assert messages(draft) == [ASK]
    assert draft.fields["response"] == "The Elbe."
    assert (draft.fields["prompt_tokens"], draft.fields["output_tokens"]) == (12, 5)
    assert (draft.fields["duration_s"], draft.fields["ttft_s"]) == (0.8125, 0.09)
    assert (draft.fields["model"], draft.fields["max_tokens"]) == ("m-7b", 64)


def test_bodies_may_be_json_in_a_string() -> None:
    """A completion with its pieces as text."""
    draft = only(LOGS, GATEWAY_BODIES.records[0])

    assert draft.kind is RequestKind.COMPLETION
    assert (draft.fields["prompt"], draft.fields["response"]) == ("Once", " upon a time")
    assert draft.fields["max_tokens"] == 3


def test_responses_alone_are_lengths() -> None:
    """Their text belongs to no prompt and is not kept."""
    first, _ = taken(LOGS, *COMPLETIONS.records)[0]

    assert first.kind is RequestKind.LENGTHS
    assert first.fields["prompt_tokens"] == 12
    assert "response" not in first.fields


def test_the_chunks_of_a_stream_are_put_together() -> None:
    """The role frame has no text, the last frame has the usage."""
    usage = {"prompt_tokens": 7, "completion_tokens": 2}
    frames = [
        chunk(None, prompt_token_ids=[1, 2, 3]),
        chunk("The "),
        chunk("Elbe."),
        {"choices": [], "usage": usage},
    ]
    frames[1]["choices"][0]["token_ids"] = [8]  # type: ignore[index]
    frames[2]["choices"][0]["token_ids"] = [9, 10]  # type: ignore[index]
    draft = only(LOGS, logged(frames))

    assert draft.fields["response"] == "The Elbe."
    assert (draft.fields["prompt_tokens"], draft.fields["output_tokens"]) == (3, 3)
    assert draft.fields["prompt_ids"] == (1, 2, 3)
    assert draft.fields["output_ids"] == (8, 9, 10)


def test_a_stream_may_be_kept_as_it_went_over_the_wire() -> None:
    """Server-sent events in one string, with a line that was cut off."""
    lines = "".join(f"data: {json.dumps(chunk(text))}\n\n" for text in (None, "The ", "Elbe."))
    wire = lines + 'data: {"cut\n\ndata: [DONE]\n\n'

    assert only(LOGS, logged(wire)).fields["response"] == "The Elbe."


def test_the_responses_api_is_a_chat() -> None:
    """Instructions are the system message; calls of tools in a row are one turn."""
    request = {
        "model": "m-7b",
        "instructions": "Be brief.",
        "tools": [{"type": "function", "name": "tide", "parameters": {"type": "object"}}],
        "max_output_tokens": 50,
        "input": [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Q"}]},
            {"type": "reasoning", "summary": []},
            {"type": "function_call", "call_id": "a", "name": "tide", "arguments": "{}"},
            {"type": "function_call", "call_id": "b", "name": "tide", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "a", "output": "9"},
            {"type": "function_call_output", "call_id": "b", "output": "10"},
        ],
    }
    response = {
        "object": "response",
        "status": "completed",
        "error": None,
        "output": [
            {"type": "reasoning", "summary": []},
            {"type": "message", "content": [{"type": "output_text", "text": "At nine."}]},
        ],
        "usage": {
            "input_tokens": 40,
            "output_tokens": 20,
            "output_tokens_details": {"reasoning_tokens": 16},
        },
    }
    (draft,), notes = taken(LOGS, {"request": request, "response": response})
    roles = [message["role"] for message in messages(draft)]

    assert roles == ["system", "user", "assistant", "tool", "tool"]
    assert [call["id"] for call in messages(draft)[2]["tool_calls"]] == ["a", "b"]  # type: ignore[attr-defined]
    assert draft.fields["response"] == "At nine."
    assert (draft.fields["prompt_tokens"], draft.fields["output_tokens"]) == (40, 20)
    assert json.loads(draft.fields["tools"] or "")[0]["function"]["name"] == "tide"
    assert draft.fields["max_tokens"] == 50
    assert any("reasoning" in oddity for oddity in notes.lines)


def test_the_events_of_a_responses_stream_are_put_together() -> None:
    """Pieces of the text, or the completed response at the end."""
    pieces = [{"type": "response.output_text.delta", "delta": part} for part in ("The ", "Elbe.")]
    whole = {
        "type": "response.completed",
        "response": {
            "object": "response",
            "output": [{"type": "message", "content": [{"type": "output_text", "text": "Done."}]}],
        },
    }

    assert only(LOGS, logged(pieces)).fields["response"] == "The Elbe."
    assert only(LOGS, logged([*pieces, whole])).fields["response"] == "Done."


def test_of_several_answers_the_first_is_kept_and_its_length_is_unknown() -> None:
    """The usage counts all of them; token ids count the first."""
    answer = completion("One.")
    second = {"index": 1, "message": {"content": "Two."}, "finish_reason": "stop"}
    answer["choices"] = [*answer["choices"], second]  # type: ignore[misc]
    (draft,), notes = taken(LOGS, logged(answer, n=2))
    answer["choices"][0]["token_ids"] = [4, 5]  # type: ignore[index]

    assert draft.fields["response"] == "One."
    assert draft.fields["output_tokens"] is None
    assert any("several answers" in oddity for oddity in notes.lines)
    assert only(LOGS, logged(answer, n=2)).fields["output_tokens"] == 2


def test_a_call_of_a_tool_is_no_text() -> None:
    """The tool is kept in history unchanged, the call as an answer is not text."""
    answer = completion(None)
    answer["choices"][0]["message"]["tool_calls"] = [CALL]  # type: ignore[index]
    history = [
        ASK,
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "9"},
    ]
    draft = only(LOGS, logged(answer, messages=history, tools=[TOOL]))

    assert messages(draft) == history
    assert json.loads(draft.fields["tools"] or "") == [TOOL]
    assert draft.fields.get("response") is None
    assert draft.fields["output_tokens"] == 5


def test_pictures_are_counted_and_left_out() -> None:
    """The text beside them stays; a note says so."""
    content = [{"type": "text", "text": "What is it?"}, PICTURE, {"type": "input_audio"}]
    (draft,), notes = taken(LOGS, logged(None, messages=[{"role": "user", "content": content}]))

    assert draft.fields["images"] == 2
    assert messages(draft) == [{"role": "user", "content": "What is it?"}]
    assert "AAAA" not in str(draft.fields)
    assert any("only their text" in oddity for oddity in notes.lines)


def test_token_ids_as_a_prompt_are_a_length() -> None:
    """The completions API takes ids; there is no text to replay."""
    row = {
        "request": {"prompt": [5, 6, 7], "max_tokens": 3},
        "response": {"choices": [{"text": "x", "prompt_token_ids": [5, 6, 7], "token_ids": [8]}]},
    }
    draft = only(LOGS, row)

    assert draft.kind is RequestKind.LENGTHS
    assert (draft.fields["prompt_ids"], draft.fields["output_ids"]) == ((5, 6, 7), (8,))
    assert (draft.fields["prompt_tokens"], draft.fields["output_tokens"]) == (3, 1)


def test_several_prompts_in_one_request_are_refused() -> None:
    """Their counts and answers cannot be told apart."""
    with pytest.raises(BadField, match="several prompts"):
        only(LOGS, {"request": {"prompt": ["a", "b"]}, "response": completion("x")})


@pytest.mark.parametrize(
    "more, status",
    [
        ({"status_code": 429}, "429"),
        ({"status": 503}, "503"),
        ({"status": "408"}, "408"),
        ({"status": "failed"}, "error"),
        ({"error": {"message": "SECRET", "code": "rate_limit", "status": 429}}, "429"),
        ({"error": "SECRET"}, "error"),
        ({"response": {"error": {"message": "SECRET", "code": 500}}}, "500"),
        ({"response": {"status_code": 502, "body": "SECRET"}}, "502"),
        ({"response": {"status_code": 400, "body": {"error": {"message": "SECRET"}}}}, "400"),
        ({"response": [chunk("a"), {"choices": [], "error": {"code": 500}}]}, "500"),
    ],
)
def test_failed_requests_are_kept_apart(more: dict[str, object], status: str) -> None:
    """By their status; nothing of their text is kept."""
    draft = only(LOGS, logged(completion("x")) | more)

    assert draft.failed == status
    assert draft.fields == {}


@pytest.mark.parametrize(
    "more", [{"status": 200}, {"status": "ok"}, {"error": None}, {"error": ""}, {"status": True}]
)
def test_a_status_that_is_no_failure_is_none(more: dict[str, object]) -> None:
    """A 200 and empty errors."""
    assert only(LOGS, logged(completion("x")) | more).failed is None


def test_embeddings_are_no_requests_to_a_generating_model() -> None:
    """They are left out without being bad rows."""
    row = {"path": "/v1/embeddings", "request": {"input": "text"}, "response": {"data": []}}

    assert taken(LOGS, row)[0] == []


def test_a_duration_comes_from_an_end_too() -> None:
    """Start and end on one scale."""
    row = logged(completion("x")) | {"start_time": 100.0, "end_time": 102.5}

    assert only(LOGS, row).fields["duration_s"] == 2.5


@pytest.mark.parametrize("value", [-1, "soon", 1e12])
def test_a_duration_that_is_none_is_unknown(value: object) -> None:
    """A broken measurement does not cost the request."""
    (draft,), notes = taken(LOGS, logged(completion("x")) | {"latency_ms": value})

    assert "duration_s" not in draft.fields
    assert any("duration" in oddity for oddity in notes.lines)


def test_a_latency_without_a_unit_is_not_read() -> None:
    """Nobody knows whether it is seconds or milliseconds."""
    assert "duration_s" not in only(LOGS, logged(completion("x")) | {"latency": 12}).fields


def test_rows_of_our_recorder_keep_their_times_and_model() -> None:
    """`rooftune record` writes a flat row for the generic rules."""
    row = {
        "timestamp": 1_750_000_000.5,
        "messages": [ASK],
        "response": "The Elbe.",
        "usage": {"prompt_tokens": 9, "completion_tokens": 2},
        "session_id": "s",
        "model": "m-7b",
        "stream": True,
        "finish_reason": "stop",
        "latency_s": 0.5,
        "ttft_s": None,
    }
    fields = draft_of(row, 1, Notes()).fields

    assert (fields["duration_s"], fields.get("ttft_s")) == (0.5, None)
    assert (fields["model"], fields["session"]) == ("m-7b", "s")
    assert (fields["prompt_tokens"], fields["output_tokens"]) == (9, 2)


def test_cached_tokens_of_anthropic_belong_to_the_prompt() -> None:
    """Its input tokens leave them out; OpenAI's prompt tokens hold them already."""
    usage = {"input_tokens": 5, "cache_read_input_tokens": 7, "output_tokens": 2}
    answer = {"content": [{"type": "text", "text": "Hi."}], "usage": usage, "choices": None}
    draft = only(LOGS, logged(answer))

    assert (draft.fields["prompt_tokens"], draft.fields["output_tokens"]) == (12, 2)
    assert draft.fields["response"] == "Hi."


def test_bad_token_ids_are_named_without_a_value() -> None:
    """They are part of a row that lies."""
    answer = completion("x", prompt_token_ids=["SECRET"])
    with pytest.raises(BadField, match="whole numbers") as bad:
        only(LOGS, logged(answer))

    assert "SECRET" not in bad.value.reason


def test_chunks_may_stand_beside_the_messages() -> None:
    """A row that is the request itself, with the frames of its answer."""
    row = {"messages": [ASK], "chunks": [chunk("The "), chunk("Elbe.")]}

    assert claimed(Export(format="", records=[row]).head) == [LOGS]
    assert only(LOGS, row).fields["response"] == "The Elbe."


def test_an_unreadable_end_costs_no_request() -> None:
    """An end before the start is no duration."""
    row = logged(completion("x")) | {"start_time": 100.0, "end_time": 99.0}

    assert "duration_s" not in only(LOGS, row).fields


def test_the_events_of_anthropic_are_put_together() -> None:
    """vLLM speaks that API too; the usage comes in two halves."""
    frames = [
        {"type": "message_start", "message": {"usage": {"input_tokens": 5, "output_tokens": 1}}},
        {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "The "}},
        {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "Elbe."}},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn"},
            "usage": {"output_tokens": 3},
        },
    ]
    fields = only(LOGS, logged(frames)).fields

    assert fields["response"] == "The Elbe."
    assert (fields["prompt_tokens"], fields["output_tokens"]) == (5, 3)
