"""OpenTelemetry spans of calls to models, in several conventions and exports."""

import json

import pytest

from advisor.traffic.formats.otel_attributes import attributes_of, numbered
from advisor.traffic.trace import RequestKind
from tests.unit.traffic.formats.exports import ASK, Export, claimed, messages, only, taken
from tests.unit.traffic.formats.tracing_exports import (
    JAEGER,
    OTEL,
    OTLP,
    OTLP_SPAN,
    SPAN_NEW,
    attribute,
)

OTEL_NAME = "otel_genai"
ROLES = ["system", "user", "assistant", "tool"]


def span(**attributes: object) -> dict[str, object]:
    named = {name.replace("__", "."): value for name, value in attributes.items()}
    return {"trace_id": "t", "start_time": "2026-03-01T12:00:00", "attributes": named}


def test_the_messages_of_the_new_convention_are_chat_messages() -> None:
    """Parts, a system instruction of its own, tools."""
    draft = only(OTEL_NAME, OTEL.records[0])
    found = messages(draft)

    assert [message["role"] for message in found] == ROLES
    assert found[3] == {"role": "tool", "tool_call_id": "c1", "content": '{"h": 9}'}
    assert draft.fields["response"] == "At nine."
    assert (draft.fields["prompt_tokens"], draft.fields["output_tokens"]) == (40, 5)
    assert (draft.fields["session"], draft.fields["source_id"]) == ("conv-1", "sp-1")
    assert (draft.fields["duration_s"], draft.fields["max_tokens"]) == (2.5, 64)
    assert '"name": "tide"' in (draft.fields["tools"] or "")


@pytest.mark.parametrize("record", [OTLP.records[0], OTLP_SPAN])
def test_numbered_attributes_of_otlp_are_chat_messages(record: dict[str, object]) -> None:
    """The whole message or one span; counts are strings there, times nanoseconds."""
    draft = only(OTEL_NAME, record)
    found = messages(draft)

    assert [message["role"] for message in found] == ROLES
    assert found[2]["tool_calls"] == [
        {"id": "c1", "type": "function", "function": {"name": "tide", "arguments": '{"at": "X"}'}}
    ]
    assert draft.fields["response"] == "At nine."
    assert (draft.fields["prompt_tokens"], draft.fields["output_tokens"]) == (40, 5)
    assert (draft.fields["duration_s"], draft.fields["session"]) == (1.5, "5b8e")
    assert draft.time is not None
    assert draft.time.ns == 1_750_000_000_000_000_000
    assert json.loads(draft.fields["tools"] or "")[0]["function"] == {
        "name": "tide",
        "parameters": {"type": "object"},
    }


def test_jaeger_counts_microseconds() -> None:
    """Its tags are the attributes; lengths only here."""
    draft = only(OTEL_NAME, JAEGER.records[0])

    assert draft.kind is RequestKind.LENGTHS
    assert draft.fields["duration_s"] == 1.5
    assert draft.time is not None
    assert draft.time.ns == 1_750_000_000_000_000_000


def test_spans_of_vllm_are_lengths_with_latencies() -> None:
    """It traces no text."""
    record = span(
        gen_ai__request__id="cmpl-1",
        gen_ai__usage__prompt_tokens=12,
        gen_ai__usage__completion_tokens=5,
        gen_ai__usage__num_sequences=1,
        gen_ai__latency__time_to_first_token=0.25,
        gen_ai__latency__e2e=1.25,
    )
    draft = only(OTEL_NAME, record)

    assert draft.kind is RequestKind.LENGTHS
    assert (draft.fields["ttft_s"], draft.fields["duration_s"]) == (0.25, 1.25)
    assert draft.fields["source_id"] == "cmpl-1"


def test_events_hold_the_messages_of_older_instrumentations() -> None:
    """One event per message, the answer as a choice."""
    events = [
        {"name": "gen_ai.system.message", "attributes": {"content": "Be brief."}},
        {"name": "gen_ai.user.message", "attributes": {"content": "High tide?"}},
        {
            "name": "gen_ai.assistant.message",
            "attributes": {"tool_calls": json.dumps([{"id": "c1", "function": {"name": "tide"}}])},
        },
        {"name": "gen_ai.tool.message", "attributes": {"id": "c1", "content": "9"}},
        {
            "name": "gen_ai.choice",
            "attributes": {"index": 0, "message": json.dumps({"content": "At nine."})},
        },
    ]
    draft = only(OTEL_NAME, {**span(gen_ai__operation__name="chat"), "events": events})

    assert [message["role"] for message in messages(draft)] == ROLES
    assert draft.fields["response"] == "At nine."


def test_events_may_hold_all_messages_at_once() -> None:
    """As `gen_ai.content.prompt` and `gen_ai.content.completion` do."""
    answer = [{"role": "assistant", "content": "The Elbe."}]
    events = [
        {
            "name": "gen_ai.content.prompt",
            "attributes": [attribute("gen_ai.prompt", json.dumps([ASK]))],
        },
        {
            "name": "gen_ai.content.completion",
            "attributes": [attribute("gen_ai.completion", json.dumps(answer))],
        },
    ]
    draft = only(OTEL_NAME, {**span(gen_ai__operation__name="chat"), "events": events})

    assert messages(draft) == [ASK]
    assert draft.fields["response"] == "The Elbe."


def test_openinference_is_read_too() -> None:
    """Numbered messages under other names, parameters as JSON."""
    attributes = {
        "openinference.span.kind": "LLM",
        "llm.model_name": "m-7b",
        "llm.invocation_parameters": '{"temperature": 0.5, "max_tokens": 9}',
        "llm.token_count.prompt": 12,
        "llm.token_count.completion": 5,
        "llm.input_messages.0.message.role": "user",
        "llm.input_messages.0.message.contents.0.message_content.type": "text",
        "llm.input_messages.0.message.contents.0.message_content.text": "Name a river.",
        "llm.output_messages.0.message.role": "assistant",
        "llm.output_messages.0.message.content": "The Elbe.",
        "llm.tools.0.tool.json_schema": '{"type": "function", "function": {"name": "tide"}}',
    }
    draft = only(OTEL_NAME, {"trace_id": "t", "attributes": attributes})

    assert messages(draft)[0]["content"] == [{"type": "text", "text": "Name a river."}]
    assert draft.fields["response"] == "The Elbe."
    assert (draft.fields["max_tokens"], draft.fields["model"]) == (9, "m-7b")
    assert '"tide"' in (draft.fields["tools"] or "")


@pytest.mark.parametrize(
    "attributes",
    [
        {"gen_ai__operation__name": "execute_tool", "gen_ai__tool__name": "tide"},
        {"gen_ai__operation__name": "embeddings", "gen_ai__usage__input_tokens": 5},
        {"gen_ai__operation__name": "invoke_agent", "gen_ai__usage__input_tokens": 5},
        {"openinference__span__kind": "CHAIN", "llm__token_count__prompt": 5},
        {"http__request__method": "GET"},
    ],
)
def test_other_spans_are_no_requests(attributes: dict[str, object]) -> None:
    """Tools, agents, embeddings and the rest of a service."""
    assert taken(OTEL_NAME, span(**attributes))[0] == []


@pytest.mark.parametrize(
    "status, more, failed",
    [
        ({"code": 2, "message": "SECRET"}, {}, "error"),
        ({"code": "STATUS_CODE_ERROR"}, {"error__type": "429"}, "429"),
        ({"status_code": "ERROR"}, {"http__response__status_code": 503}, "503"),
        ({}, {"error__type": "RateLimitError"}, "error"),
        ({"code": 1}, {"http__response__status_code": 200}, None),
    ],
)
def test_failed_calls_are_kept_apart(
    status: dict[str, object], more: dict[str, object], failed: str | None
) -> None:
    """By their HTTP status where it is known."""
    record = span(gen_ai__operation__name="chat", gen_ai__usage__input_tokens=5, **more)

    assert only(OTEL_NAME, {**record, "status": status}).failed == failed


def test_of_several_answers_the_output_is_unknown() -> None:
    """The usage counts them all."""
    outputs = [{"role": "assistant", "parts": [{"type": "text", "content": x}]} for x in "ab"]
    attributes = SPAN_NEW["attributes"]
    assert isinstance(attributes, dict)
    record = {**SPAN_NEW, "attributes": {**attributes, "gen_ai.output.messages": outputs}}
    draft = only(OTEL_NAME, record)

    assert (draft.fields["response"], draft.fields["output_tokens"]) == ("a", None)


def test_json_output_is_structured_output() -> None:
    """The convention says the type of the output only."""
    record = span(gen_ai__operation__name="chat", gen_ai__usage__input_tokens=5)
    named = record["attributes"]
    assert isinstance(named, dict)
    named["gen_ai.output.type"] = "json"

    assert only(OTEL_NAME, record).fields["response_format"] == '{"type": "json_object"}'


def test_values_of_otlp_are_unwrapped() -> None:
    """Every kind of value, lists and objects inside."""
    found = attributes_of(
        [
            {"key": "a", "value": {"intValue": "-7"}},
            {"key": "b", "value": {"arrayValue": {"values": [{"boolValue": True}]}}},
            {"key": "c", "value": {"kvlistValue": {"values": [attribute("d", 0.5)]}}},
            {"key": "e", "value": {"bytesValue": "AA=="}},
            {"key": "f", "value": {"arrayValue": {}}},
            "no attribute",
        ]
    )

    assert found == {
        "a": -7, "b": [True], "c": {"d": 0.5}, "e": {"bytesValue": "AA=="}, "f": [],
    }  # fmt: skip


def test_names_that_number_nothing_are_no_list() -> None:
    """And a name that is a value and a branch keeps its value."""
    assert numbered({"p.role": "user"}, "p") == []
    assert numbered({"p.0": "text", "p.0.role": "user", "p.10": "b", "p.2": "a"}, "p") == [
        "text",
        "a",
        "b",
    ]


def test_spans_among_others_of_a_record_are_found() -> None:
    """One collection a line; what is no span is passed over."""
    record = {"spans": [None, span(gen_ai__operation__name="chat", gen_ai__usage__input_tokens=5)]}

    assert claimed(Export(format="", records=[record]).head) == [OTEL_NAME]
    assert only(OTEL_NAME, record).fields["prompt_tokens"] == 5


def test_messages_that_are_broken_leave_the_lengths() -> None:
    """Numbers where messages and calls should be, an event that is none."""
    attributes = {
        "gen_ai.usage.input_tokens": 5,
        "gen_ai.prompt.0": "text",
        "gen_ai.prompt.1.role": "user",
        "gen_ai.completion.0.role": "assistant",
        "gen_ai.completion.0.tool_calls.0": 7,
    }
    draft = only(OTEL_NAME, {"attributes": attributes, "events": [None]})

    assert draft.kind is RequestKind.LENGTHS
    assert draft.fields["session"] is None


def test_a_prompt_may_be_the_body_of_a_request() -> None:
    """One attribute with all of it."""
    record = span(gen_ai__prompt=json.dumps({"messages": [ASK]}), gen_ai__output__text="The Elbe.")
    draft = only(OTEL_NAME, record)

    assert (messages(draft), draft.fields["response"]) == ([ASK], "The Elbe.")


def test_spans_of_the_ai_sdk_are_read() -> None:
    """Its own names for messages, beside those of the convention."""
    call = {"type": "tool-call", "toolCallId": "c1", "toolName": "tide", "input": {"at": "X"}}
    result = {"type": "tool-result", "toolCallId": "c1", "toolName": "tide", "output": {"h": 9}}
    asked = [
        {"role": "user", "content": [{"type": "text", "text": "High tide?"}]},
        {"role": "assistant", "content": [call]},
        {"role": "tool", "content": [result]},
    ]
    record = span(
        gen_ai__request__model="m-7b",
        gen_ai__usage__input_tokens=40,
        ai__prompt__messages=json.dumps(asked),
        ai__prompt__tools=[json.dumps({"type": "function", "name": "tide"})],
        ai__response__text="At nine.",
        ai__response__msToFirstChunk=250,
    )
    draft = only(OTEL_NAME, record)

    assert [message["role"] for message in messages(draft)] == ROLES[1:]
    assert messages(draft)[2] == {"role": "tool", "tool_call_id": "c1", "content": '{"h": 9}'}
    assert (draft.fields["response"], draft.fields["ttft_s"]) == ("At nine.", 0.25)
    assert '"name": "tide"' in (draft.fields["tools"] or "")
