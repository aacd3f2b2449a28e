"""Rows of nobody's format, and the shapes of requests and answers that all formats share."""

import json

import pytest

from advisor.traffic.formats.answers import answer_of
from advisor.traffic.formats.asked import asked_of, tools_of
from advisor.traffic.formats.chat_jsonl import draft_of, fill_prompt
from advisor.traffic.formats.decoding import decoded, unwrapped
from advisor.traffic.formats.fields import BadField
from advisor.traffic.formats.row import Draft, Notes, RequestFields
from advisor.traffic.formats.times import Time
from advisor.traffic.formats.timings import between_s, error_status
from advisor.traffic.formats.turns import Turns
from advisor.traffic.trace import RequestKind
from tests.unit.traffic.formats.exports import ASK, chunk, completion, messages


def drafted(**row: object) -> Draft:
    return draft_of(row, 1, Notes())


@pytest.mark.parametrize(
    "value, found",
    [
        ('{"a": 1}', {"a": 1}),
        (json.dumps(json.dumps([1])), [1]),
        (json.dumps("text"), "text"),
        ("plain", "plain"),
        ('"Yes," she said. "No."', '"Yes," she said. "No."'),
        ("{broken", "{broken"),
        ("[" * 100_000, "[" * 100_000),
        (7, 7),
        ("5", "5"),
    ],
)
def test_json_in_strings_is_decoded(value: object, found: object) -> None:
    """Up to three layers; what is no JSON stays."""
    assert decoded(value) == found


def test_the_text_of_a_json_object_stays_text_when_unwrapped() -> None:
    """Only strings are taken out of their quotes."""
    assert unwrapped(json.dumps('{"a": 1}')) == '{"a": 1}'
    assert unwrapped('"open') == '"open'
    assert unwrapped(json.dumps(json.dumps(json.dumps(json.dumps("x"))))) == '"x"'


def test_messages_may_be_json_in_a_string() -> None:
    """As tables hold them; a prompt that is about some data stays text."""
    data = '[{"price": 3}]'

    assert messages(drafted(messages=json.dumps([ASK]))) == [ASK]
    assert messages(drafted(prompt=json.dumps([ASK]))) == [ASK]
    assert drafted(prompt=data).fields["prompt"] == data


def test_a_system_prompt_of_an_anthropic_request_is_its_first_message() -> None:
    """In a row of its own the name may mean anything."""
    asked = {"system": [{"type": "text", "text": "Be brief."}], "messages": [ASK]}
    found = messages(drafted(request=asked))

    assert found == [{"role": "system", "content": "Be brief."}, ASK]
    assert messages(drafted(system="linux", messages=[ASK])) == [ASK]


def test_choices_may_stand_in_the_row_itself() -> None:
    """A row that is request and response at once."""
    draft = drafted(**completion("The Elbe."), messages=[ASK])

    assert (draft.fields["response"], draft.fields["output_tokens"]) == ("The Elbe.", 5)


def test_token_ids_may_stand_in_the_row_itself() -> None:
    """Names of our own; they count the tokens too."""
    draft = drafted(prompt="Hi.", response="Ho.", prompt_token_ids=[1, 2], output_token_ids="[3]")

    assert (draft.fields["prompt_ids"], draft.fields["output_ids"]) == ((1, 2), (3,))
    assert (draft.fields["prompt_tokens"], draft.fields["output_tokens"]) == (2, 1)
    assert drafted(prompt=["Hi."]).fields["prompt"] == "Hi."


@pytest.mark.parametrize(
    "response, text",
    [
        (json.dumps(completion("A.")), "A."),
        (json.dumps([chunk("A"), chunk(".")]), "A."),
        (json.dumps({"object": "response", "output": [{"content": "A."}]}), "A."),
        ('["A.", "B."]', '["A.", "B."]'),
        ('{"choices": ["red", "blue"]}', '{"choices": ["red", "blue"]}'),
        ('"quoted"', '"quoted"'),
        ("data: 5 apples", "data: 5 apples"),
        ({"candidates": [{"content": {"parts": [{"text": "A"}, {"text": "."}]}}]}, "A."),
        ({"candidates": [{"content": {"parts": [{"thought": True, "text": "Hm"}]}}]}, None),
        ({"generations": [[{"text": "A."}]]}, "A."),
        ({"type": "constructor", "kwargs": {"content": "A."}}, "A."),
        ({"content": ["A", "."]}, "A."),
        ({"output_text": "A."}, "A."),
        ([{"finish_reason": "stop", "message": {"content": "A."}}], "A."),
        ([{"role": "assistant", "content": "A."}], "A."),
        ([{"type": "function_call", "name": "tide"}], None),
        ([], None),
        (json.dumps({"status_code": 200, "body": json.dumps(completion("A."))}), None),
    ],
)
def test_the_text_of_an_answer_is_found(response: object, text: str | None) -> None:
    """And what a model wrote itself is not taken apart."""
    found = answer_of(response)

    assert found.text == text or (text is None and found.text == response)


def test_the_last_usage_of_a_stream_counts() -> None:
    """With continuous usage every chunk holds the counts so far."""
    usages = ({"prompt_tokens": 5, "completion_tokens": count} for count in (1, 2))
    found = answer_of([chunk("a", usage=usage) for usage in usages])

    assert (found.prompt_tokens, found.output_tokens) == (5, 2)


def test_a_stream_may_hold_several_choices() -> None:
    """Text of the first; an index that is none counts as the first."""
    second = chunk("b")
    second["choices"] = [{"index": 1, "text": "b"}, {"index": None, "text": "c"}]

    assert (answer_of([chunk("a"), second]).text, answer_of([second]).choices) == ("a", 2)


def test_a_stream_that_was_cut_off_has_the_text_so_far() -> None:
    """Without a completed response."""
    events = [{"type": "response.created", "response": {"output": []}}]

    assert answer_of(events).text is None


@pytest.mark.parametrize(
    "body, kind",
    [
        ("Once", "prompt"),
        (["Once"], "prompt"),
        ([[ASK]], "messages"),
        ({"messages": [[ASK]]}, "messages"),
        ({"input": [ASK]}, "messages"),
        ({"input": "Once", "instructions": "Be brief."}, "messages"),
        ({"prompt": "Once"}, "prompt"),
        ({"role": "user", "content": "Q"}, "messages"),
        ({"args": [], "kwargs": {"messages": [ASK]}}, "messages"),
        ({"prompt": [1, 2]}, "ids"),
        ({}, "nothing"),
        ([], "nothing"),
        (None, "nothing"),
        ("", "nothing"),
    ],
)
def test_a_request_is_found_in_every_shape(body: object, kind: str) -> None:
    """Messages, a prompt, token ids, or nothing."""
    asked = asked_of(body)
    found = {"messages": asked.messages, "prompt": asked.prompt, "ids": asked.prompt_ids}

    assert [name for name, value in found.items() if value] == ([] if kind == "nothing" else [kind])


def test_a_system_message_that_is_there_already_is_not_doubled() -> None:
    """Both ways to give one at once."""
    asked = asked_of({"system": "A.", "messages": [{"role": "system", "content": "A."}, ASK]})

    assert asked.messages is not None
    assert len(asked.messages) == 2


def test_instructions_may_be_an_object() -> None:
    """Gemini's have parts."""
    asked = asked_of({"systemInstruction": {"parts": [{"text": "A."}]}, "contents": [ASK]})

    assert asked.messages is not None
    assert asked.messages[0] == {"role": "system", "content": "A."}


def test_tools_are_kept_as_they_are_or_made_so() -> None:
    """Those with a function are unchanged; built-in tools have none and stay."""
    plain = [{"type": "function", "function": {"name": "tide"}}]
    built_in = {"type": "web_search"}

    assert tools_of(plain) is plain
    assert tools_of([built_in, {"name": "tide"}]) == [built_in, *plain]
    assert tools_of([]) is None
    assert tools_of("none") is None
    with pytest.raises(BadField, match="not a list of objects"):
        tools_of(["SECRET"])


def test_messages_that_no_shape_fits_are_left_for_the_check() -> None:
    """It names their place."""
    with pytest.raises(BadField) as bad:
        drafted(messages=[ASK, {"type": "SECRET"}])

    assert (bad.value.field, "SECRET" in bad.value.reason) == ("messages[1].role", False)


def test_parts_that_are_nothing_are_refused() -> None:
    """A number among the parts of a Gemini message."""
    with pytest.raises(BadField, match="neither text nor an object"):
        drafted(messages=[{"role": "user", "parts": [7]}])


def test_arguments_that_json_cannot_write_are_refused() -> None:
    """NaN has no JSON form."""
    part = {"type": "tool_call", "name": "tide", "arguments": {"at": float("nan")}}
    with pytest.raises(BadField, match="JSON cannot write"):
        drafted(messages=[{"role": "assistant", "parts": [part]}])


def test_a_result_without_a_call_has_a_name_of_its_own() -> None:
    """The call may lie before the log."""
    turns = Turns()
    turns.extend(
        [
            {"role": "user", "parts": [{"functionResponse": {"name": "tide", "response": 9}}]},
            {"role": "assistant", "parts": [{"type": "refusal", "refusal": "No."}, "But"]},
            {"role": "assistant", "parts": [{"functionCall": {"name": "a"}}, {"text": "x"}]},
            {"type": "ai", "content": "y", "additional_kwargs": {"tool_calls": [{"function": {}}]}},
            {"role": "user", "parts": [{"functionResponse": {"name": "b", "response": None}}]},
        ]
    )
    first, second, third, fourth, fifth = turns.messages

    assert first == {"role": "tool", "tool_call_id": "call_tide", "content": "9"}
    assert second == {
        "role": "assistant",
        "content": [{"type": "text", "text": "No."}, {"type": "text", "text": "But"}],
    }
    assert isinstance(third, dict)
    assert third["content"] == "x"
    assert isinstance(fourth, dict)
    assert fourth["tool_calls"] == [{"function": {}}]
    assert fifth == {"role": "tool", "tool_call_id": "call_b", "content": "{}"}


def test_an_end_before_the_start_is_no_duration() -> None:
    """Nor is one on another scale, or none at all."""
    start = Time(10**9, "s", absolute=False)

    assert between_s(start, Time(3 * 10**9, "s", absolute=False)) == 2
    assert between_s(start, Time(0, "s", absolute=False)) is None
    assert between_s(start, Time(2 * 10**18, "s", absolute=True)) is None
    assert between_s(start, None) is None


def test_an_error_is_its_status_and_nothing_else() -> None:
    """A code with letters may quote anything."""
    assert error_status({"code": "SECRET", "status": 429.0}) == "429"
    assert error_status({"code": "SECRET"}) == "error"
    assert error_status({}) is None


def test_a_lone_length_is_a_request() -> None:
    """Lengths have no text and no answer."""
    draft = drafted(prompt_tokens=5, response="SECRET", completion_tokens=2)

    assert draft.kind is RequestKind.LENGTHS
    assert "response" not in draft.fields


def test_a_cell_with_pictures_counts_them() -> None:
    """Tables hold messages as JSON too."""
    parts = [{"type": "text", "text": "What?"}, {"type": "image_url"}]
    fields: RequestFields = {}
    kind = fill_prompt(fields, {"messages": [{"role": "user", "content": parts}]}, Notes(), 1)

    assert (kind, fields["images"]) == (RequestKind.CHAT, 1)
