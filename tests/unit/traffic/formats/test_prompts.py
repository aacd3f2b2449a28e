"""Task sets: one request per row."""

import pytest

from advisor.traffic.formats.fields import BadField
from advisor.traffic.trace import RequestKind
from tests.unit.traffic.formats.exports import messages, only, taken
from tests.unit.traffic.formats.gateway_exports import TASKS


@pytest.mark.parametrize(
    "name, prompt",
    [
        ("turns", "Write."),
        ("question", "How many?"),
        ("functions", "When is high tide?"),
        ("multi", "One."),
        ("instruction", "Sum up.\n\nA long text."),
    ],
)
def test_a_row_is_one_request(name: str, prompt: str) -> None:
    """Of several turns the first."""
    (message,) = messages(only("prompts", TASKS[name]))

    assert message == {"role": "user", "content": prompt}


def test_further_turns_are_noted() -> None:
    """They depend on answers that are not there."""
    _, notes = taken("prompts", TASKS["turns"], TASKS["multi"], TASKS["functions"])
    (lines,) = [lines for oddity, lines in notes.lines.items() if "further turns" in oddity]

    assert lines == [1, 2]


def test_a_solution_is_nobodys_answer() -> None:
    """The prompt is plain text to complete."""
    draft = only("prompts", TASKS["solution"])

    assert draft.kind is RequestKind.COMPLETION
    assert "response" not in draft.fields
    assert draft.fields["source_id"] == "T/0"


def test_an_answer_beside_a_question_is_the_recorded_one_and_said() -> None:
    """It may be a reference."""
    (draft,), notes = taken("prompts", TASKS["question"])

    assert draft.fields["response"] == "Two.\n#### 2"
    assert any("reference answer" in oddity for oddity in notes.lines)


def test_functions_are_tools() -> None:
    """As a chat request takes them."""
    assert '"type": "function"' in (only("prompts", TASKS["functions"]).fields["tools"] or "")


def test_tags_and_times_are_kept() -> None:
    """The category is the class; a list of questions may have times."""
    draft = only("prompts", {**TASKS["turns"], "timestamp": 5})

    assert (draft.fields["label"], draft.fields["source_id"]) == ("writing", "81")
    assert draft.time is not None


@pytest.mark.parametrize(
    "row",
    [
        {"turns": []},
        {"turns": "text"},
        {"turns": [7]},
        {"question": ""},
        {"question": [], "function": []},
        {"instruction": "", "output": "x"},
        {"foo": 1},
    ],
)
def test_rows_without_a_question_are_refused(row: dict[str, object]) -> None:
    """With a reason that quotes nothing."""
    with pytest.raises(BadField):
        taken("prompts", row)


def test_a_question_may_be_messages() -> None:
    """With or without functions, in one turn or several."""
    question = [{"role": "user", "content": "Why?"}]

    for row in ({"question": question}, {"question": question, "function": {"name": "tide"}}):
        assert messages(only("prompts", row)) == question
