"""ShareGPT conversations: every answer is a request."""

import pytest

from advisor.traffic.formats.fields import BadField
from tests.unit.traffic.formats.exports import TOOL, Export, claimed, messages, only, taken
from tests.unit.traffic.formats.gateway_exports import SHAREGPT

HUMAN = {"from": "human", "value": "Name a river."}
GPT = {"from": "gpt", "value": "The Elbe."}


def test_every_answer_is_a_request_with_its_history() -> None:
    """Two answers, one session; the history before an answer is its prompt."""
    drafts, _ = taken("sharegpt", SHAREGPT.records[0])

    assert [len(messages(draft)) for draft in drafts] == [1, 3]
    assert [draft.fields["response"] for draft in drafts] == ["The Elbe.", "The Oder."]
    assert {draft.fields["session"] for draft in drafts} == {"c-1"}
    assert messages(drafts[1])[1] == {"role": "assistant", "content": "The Elbe."}


@pytest.mark.parametrize(
    "record",
    [
        {"id": "x", "items": [HUMAN, GPT]},
        {"id": "x", "messages": [HUMAN, GPT]},
        {"id": "x", "conversation": [HUMAN, GPT]},
        {
            "conversations": [
                {"role": "user", "content": "Q"},
                {"role": "assistant", "content": "A"},
            ]
        },
        {"conversations": [{"user": "human", "text": "Q"}, {"user": "chatgpt", "text": "A"}]},
    ],
)
def test_spellings_of_turns_are_known(record: dict[str, object]) -> None:
    """Other names of the list, of the speaker and of the text."""
    assert claimed(Export(format="", records=[record]).head) == ["sharegpt"]
    assert [message["role"] for message in messages(only("sharegpt", record))] == ["user"]


def test_a_system_prompt_and_tools_belong_to_every_request() -> None:
    """They may stand beside the turns or among them."""
    turns = [{"from": "system", "value": "Be brief."}, HUMAN, GPT]
    beside = only("sharegpt", {"system": "Be kind.", "conversations": turns[1:], "tools": [TOOL]})
    among = only("sharegpt", {"conversations": turns})

    assert [message["role"] for message in messages(beside)] == ["system", "user"]
    assert [message["role"] for message in messages(among)] == ["system", "user"]
    assert beside.fields["tools"]


def test_an_open_question_at_the_end_has_no_recorded_answer() -> None:
    """It was asked all the same."""
    drafts, notes = taken("sharegpt", {"conversations": [HUMAN, GPT, HUMAN]})

    assert [draft.fields.get("response") for draft in drafts] == ["The Elbe.", None]
    assert any("no recorded answer" in oddity for oddity in notes.lines)


def test_an_opening_of_the_assistant_is_no_answer() -> None:
    """Nobody asked for it; it stays in the history."""
    (draft,), _ = taken("sharegpt", {"conversations": [GPT, HUMAN, GPT]})

    assert [message["role"] for message in messages(draft)] == ["assistant", "user"]


@pytest.mark.parametrize(
    "turns", [[GPT], [HUMAN, {"from": "SECRET", "value": "x"}], [HUMAN, "SECRET"], []]
)
def test_turns_that_are_no_conversation_are_refused(turns: list[object]) -> None:
    """The reason quotes nothing."""
    with pytest.raises(BadField) as bad:
        taken("sharegpt", {"conversations": turns})

    assert "SECRET" not in bad.value.reason


def test_pictures_of_a_conversation_are_counted() -> None:
    """Only the text is kept."""
    parts = [{"type": "text", "text": "What?"}, {"type": "image"}]
    record = {"conversations": [{"from": "human", "value": parts}, GPT]}
    (draft,), notes = taken("sharegpt", record)

    assert draft.fields["images"] == 1
    assert any("only their text" in oddity for oddity in notes.lines)


def test_public_collections_are_conversations_too() -> None:
    """A list of OpenAI messages with the number of turns; without it the row is one request."""
    turns = [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "A"}]
    collected = {"conversation_hash": "h", "model": "m", "conversation": turns * 2, "turn": 2}
    logged = {"conversation_id": "c", "conversation": turns * 2}

    assert len(taken("sharegpt", collected)[0]) == 2
    assert claimed(Export(format="", records=[collected]).head) == ["sharegpt"]
    assert claimed(Export(format="", records=[logged]).head) == []
