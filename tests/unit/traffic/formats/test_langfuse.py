"""Langfuse traces and exports of observations."""

import json

import pytest

from advisor.traffic.trace import RequestKind
from tests.unit.traffic.formats.exports import ASK, TOOL, Export, claimed, messages, only, taken
from tests.unit.traffic.formats.tracing_exports import (
    LANGFUSE_CSV,
    LANGFUSE_TRACE,
    OBSERVATION,
    SPAN_ONLY,
)


def observed(**more: object) -> dict[str, object]:
    return {**OBSERVATION, **more}


def test_only_generations_of_a_trace_are_requests() -> None:
    """The session is the trace's; times give latency and time to the first token."""
    draft = only("langfuse", LANGFUSE_TRACE.records[0])

    assert messages(draft) == [ASK]
    assert draft.fields["response"] == "The Elbe."
    assert (draft.fields["duration_s"], draft.fields["ttft_s"]) == (2.0, 0.4)
    assert (draft.fields["session"], draft.fields["source_id"]) == ("s-9", "o-1")
    assert (draft.fields["temperature"], draft.fields["max_tokens"]) == (0.5, 30)


def test_a_record_that_is_a_span_is_no_request() -> None:
    """And no bad row."""
    assert taken("langfuse", SPAN_ONLY)[0] == []


def test_usage_details_of_a_side_add_up() -> None:
    """Cached tokens stand apart from the other input."""
    draft = only("langfuse", OBSERVATION)

    assert (draft.fields["prompt_tokens"], draft.fields["output_tokens"]) == (12, 5)
    assert draft.fields["session"] == "t-1"


@pytest.mark.parametrize(
    "usage, counts",
    [
        ({"inputUsage": 20, "outputUsage": 6}, (20, 6)),
        ({"usageDetails": None, "usage": {"input": 3, "output": 4, "unit": "TOKENS"}}, (3, 4)),
        ({"usageDetails": {}, "promptTokens": 8, "completionTokens": 2}, (8, 2)),
        ({"usageDetails": {}, "inputUsage": 0, "outputUsage": 0}, (None, None)),
        ({"usageDetails": {}, "usage": {"input": 3, "unit": "CHARACTERS"}}, (None, None)),
    ],
)
def test_counts_are_found_in_every_version(
    usage: dict[str, object], counts: tuple[int | None, int | None]
) -> None:
    """A usage of zeros is none; characters are no tokens."""
    draft = only("langfuse", observed(**usage))

    assert (draft.fields["prompt_tokens"], draft.fields["output_tokens"]) == counts


def test_a_row_of_the_csv_export_is_the_same_request() -> None:
    """Names with underscores, JSON twice in a string, blank cells."""
    draft = only("langfuse", LANGFUSE_CSV.records[0])

    assert messages(draft) == [ASK]
    assert draft.fields["response"] == "The Elbe."
    assert (draft.fields["prompt_tokens"], draft.fields["output_tokens"]) == (12, 5)
    assert (draft.fields["duration_s"], draft.fields["model"]) == (2.0, "m-7b")
    assert "ttft_s" not in draft.fields


def test_messages_of_langchain_are_chat_messages() -> None:
    """Classes written out, types as roles, calls with their arguments, tools as messages."""
    written = [
        {"type": "system", "content": "Be brief."},
        {
            "lc": 1,
            "type": "constructor",
            "id": ["langchain", "schema", "messages", "HumanMessage"],
            "kwargs": {"content": "High tide?"},
        },
        {"type": "ai", "content": "", "tool_calls": [{"name": "tide", "args": {}, "id": "c1"}]},
        {"type": "tool", "content": "9", "tool_call_id": "c1"},
        {"role": "tool", "content": TOOL},
    ]
    draft = only("langfuse", observed(input=json.dumps([written])))
    found = messages(draft)

    assert [message["role"] for message in found] == ["system", "user", "assistant", "tool"]
    assert found[2]["tool_calls"] == [
        {"id": "c1", "type": "function", "function": {"name": "tide", "arguments": "{}"}}
    ]
    assert found[3] == {"role": "tool", "tool_call_id": "c1", "content": "9"}
    assert json.loads(draft.fields["tools"] or "") == [TOOL]


def test_contents_of_gemini_are_chat_messages() -> None:
    """Calls without ids are paired with their results in order."""
    asked = {
        "config": {
            "system_instruction": "Be brief.",
            "tools": [{"function_declarations": [{"name": "tide"}]}],
        },
        "contents": [
            {"role": "user", "parts": [{"text": "High tide?"}, {"inline_data": {"data": "AAAA"}}]},
            {"role": "model", "parts": [{"function_call": {"name": "tide", "args": {"at": "X"}}}]},
            {
                "role": "user",
                "parts": [{"function_response": {"name": "tide", "response": {"h": 9}}}],
            },
        ],
    }
    answer = {
        "content": {"role": "model", "parts": [{"text": "At "}, {"text": "nine."}]},
        "usage_metadata": {"prompt_token_count": 9, "candidates_token_count": 3},
    }
    draft = only("langfuse", observed(input=json.dumps(asked), output=json.dumps(answer)))
    found = messages(draft)

    assert [message["role"] for message in found] == ["system", "user", "assistant", "tool"]
    assert found[3]["tool_call_id"] == "call_0"
    assert found[3]["content"] == '{"h": 9}'
    assert draft.fields["images"] == 1
    assert draft.fields["response"] == "At nine."
    assert json.loads(draft.fields["tools"] or "") == [
        {"type": "function", "function": {"name": "tide"}}
    ]


def test_blocks_of_anthropic_are_chat_messages() -> None:
    """Results of tools come before the text that goes with them."""
    asked = {
        "system": [{"type": "text", "text": "Be brief."}],
        "messages": [
            {"role": "user", "content": "High tide?"},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "..."},
                    {"type": "text", "text": "Let me see."},
                    {"type": "tool_use", "id": "c1", "name": "tide", "input": {"at": "X"}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "c1",
                        "content": [{"type": "text", "text": "9"}, {"type": "image"}],
                    },
                    {"type": "text", "text": "Well?"},
                ],
            },
        ],
        "tools": [{"name": "tide", "input_schema": {"type": "object"}}],
    }
    draft = only("langfuse", observed(input=asked))
    found = messages(draft)
    roles = [message["role"] for message in found]

    assert roles == ["system", "user", "assistant", "tool", "user"]
    assert found[2]["content"] == "Let me see."
    assert found[3] == {"role": "tool", "tool_call_id": "c1", "content": "9"}
    assert draft.fields["images"] == 1


def test_instructions_and_tools_may_stand_in_the_response() -> None:
    """As the traces of agents that call the Responses API do."""
    response = {
        "object": "response",
        "instructions": "Be brief.",
        "tools": [{"type": "function", "name": "tide"}],
        "output": [{"type": "message", "content": [{"type": "output_text", "text": "At nine."}]}],
    }
    draft = only("langfuse", observed(output=json.dumps(response)))

    assert [message["role"] for message in messages(draft)] == ["system", "user"]
    assert draft.fields["tools"]
    assert draft.fields["response"] == "At nine."


@pytest.mark.parametrize(
    "output, text",
    [
        ("plain words", "plain words"),
        (json.dumps("quoted words"), "quoted words"),
        ('{"answer": 5}', '{"answer": 5}'),
        ({"answer": 5}, '{"answer": 5}'),
        ({"role": "assistant", "content": None, "tool_calls": [{"id": "c"}]}, None),
        ({"role": "assistant", "content": "", "tool_calls": [{"id": "c"}]}, None),
        (None, None),
    ],
)
def test_an_output_is_text_where_it_is_no_response(output: object, text: str | None) -> None:
    """A model may have been asked for JSON."""
    assert only("langfuse", observed(output=output)).fields.get("response") == text


def test_plain_text_is_a_prompt() -> None:
    """Without messages it is a completion."""
    draft = only("langfuse", observed(input=json.dumps("Once upon")))

    assert draft.kind is RequestKind.COMPLETION
    assert draft.fields["prompt"] == "Once upon"


def test_an_input_of_unknown_shape_leaves_the_lengths() -> None:
    """A note says so without quoting it."""
    (draft,), notes = taken("langfuse", observed(input={"question": "SECRET"}))

    assert draft.kind is RequestKind.LENGTHS
    assert any("shape" in oddity for oddity in notes.lines)
    assert "SECRET" not in str(notes)


def test_errors_are_kept_apart() -> None:
    """The level says so."""
    assert only("langfuse", observed(level="ERROR", statusMessage="SECRET")).failed == "error"


def test_tool_definitions_are_tools() -> None:
    """Names to definitions as JSON, in newer exports."""
    definitions = {"tide": json.dumps({"parameters": {"type": "object"}})}
    draft = only("langfuse", observed(toolDefinitions=definitions))

    assert '"name": "tide"' in (draft.fields["tools"] or "")


def test_a_trace_may_hold_its_observations_itself() -> None:
    """As the API gives one trace; what is no observation is passed over."""
    trace = {"id": "t-1", "projectId": "p", "sessionId": "s-3", "observations": [None, OBSERVATION]}

    assert claimed(Export(format="", records=[trace], document=True).head) == ["langfuse"]
    assert only("langfuse", trace).fields["session"] == "s-3"


def test_a_latency_stands_in_for_an_end() -> None:
    """In seconds."""
    draft = only("langfuse", observed(endTime=None, completionStartTime=None, latency=1.5))

    assert (draft.fields["duration_s"], draft.fields["ttft_s"]) == (1.5, 0.4)


def test_parameters_may_ask_for_structured_output() -> None:
    """As JSON in a string."""
    wanted = {"response_format": json.dumps({"type": "json_object"})}

    draft = only("langfuse", observed(modelParameters=wanted))

    assert draft.fields["response_format"] == '{"type": "json_object"}'


def test_an_input_that_cannot_be_read_leaves_the_lengths() -> None:
    """Several texts, or parts that are none."""
    assert only("langfuse", observed(input=["a", "b"])).kind is RequestKind.LENGTHS
