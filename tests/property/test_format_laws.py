"""Laws of the formats of uploads: whatever a record holds, it is taken or refused by a reason."""

import json
from collections.abc import Mapping

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.traffic.formats.fields import BadField
from advisor.traffic.formats.format import Framing, Head, Record
from advisor.traffic.formats.registry import FORMATS, REFUSALS
from advisor.traffic.formats.row import Notes
from advisor.traffic.formats.sessions import session_reading, whole_prompts

CANARY = "canary-7f3a"
CHAT = {
    "model": "m",
    "messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}],
    "tools": [{"type": "function", "function": {"name": "f"}}],
    "max_tokens": 4,
}
ANSWER = {
    "id": "r1",
    "object": "chat.completion",
    "created": 1_700_000_000,
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "b"}}],
    "usage": {"prompt_tokens": 3, "completion_tokens": 1},
}
TIMINGS = {"request_start": 1_700_000_000.5, "request_end": 1_700_000_001.5}
# One good record of each shape; a law below puts anything in any place of it.
SEEDS: tuple[Record, ...] = (
    {"TIMESTAMP": "2023-11-16 18:17:03.9", "ContextTokens": "5", "GeneratedTokens": "1"},
    {"Timestamp": "5", "Model": "m", "Request tokens": "4", "Response tokens": "1",
     "Elapsed time": "2", "Session ID": "s", "Log Type": "API log"},
    {"timestamp": 0, "input_length": 16, "output_length": 1, "hash_ids": [1], "chat_id": 1,
     "parent_chat_id": -1, "turn": 1, "type": "text", "session_id": "s", "request_id": "r"},
    {"model_id": "m", "input_lens": [4, 5], "output_lens": [1, 2], "ttfts": [0.1, 0.2],
     "itls": [[], [0.1]], "start_times": [1.0, 2.0], "errors": ["", ""]},
    {"metrics": {}, "scheduler_metrics": {"requests_made": {"successful": 9}}, "requests": {
        "successful": [{"request_id": "a", "request_type": "chat_completions", "output": "b",
                        "prompt": "a", "prompt_tokens": 1, "info": {"timings": TIMINGS},
                        "request_args": {"body": CHAT}, "output_metrics": {"text_tokens": 1}}],
        "errored": [{}], "incomplete": []}},
    {"start_time": 1.0, "end_time": 2.0, "request": json.dumps(CHAT), "response": "b",
     "info": {"input_tokens": 3, "output_tokens": 1, "output_token_times": [1.5],
              "response_metrics": {"server_usage": {}, "response_chunks": ["data: {}"]}},
     "error": {"error_type": "500 x"}},
    {"custom_id": "j", "method": "POST", "url": "/v1/chat/completions", "body": CHAT},
    {"custom_id": "j", "response": {"status_code": 200, "body": ANSWER}, "error": None},
    {"request": CHAT, "response": ANSWER, "timestamp": "2024-05-01T10:00:00Z", "status": 200},
    {"id": "s", "conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]},
    {"type": "GENERATION", "input": CHAT, "output": ANSWER, "startTime": "2024-05-01T10:00:00Z",
     "endTime": "2024-05-01T10:00:01Z", "usageDetails": {"input": 3}, "model": "m"},
    {"attributes": {"gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": 3,
                    "gen_ai.input.messages": json.dumps(CHAT["messages"])},
     "start_time": "2024-05-01T10:00:00", "end_time": "2024-05-01T10:00:01"},
    {"request_id": "r", "call_type": "acompletion", "messages": CHAT["messages"],
     "response": ANSWER, "startTime": "2024-05-01 10:00:00.5", "endTime": 1_700_000_000.5,
     "prompt_tokens": 3, "completion_tokens": 1, "metadata": "{}", "status": "success"},
    {"question_id": 1, "category": "c", "turns": ["a", "b"], "prompt": "a"},
)  # fmt: skip
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.sampled_from(["", "200", "-1", "nan", "null", "2024-05-01 10:00:00", CANARY, "\ud800"])
)
VALUES = (
    SCALARS
    | st.lists(SCALARS, max_size=2)
    | st.dictionaries(
        st.sampled_from(["role", "content", "type", "text", "choices", "usage", "body", "code"]),
        SCALARS | st.lists(SCALARS, max_size=2),
        max_size=3,
    )
)

COUNTS = st.lists(st.tuples(st.integers(-1, 3), st.integers(-1, 50), st.integers(-1, 50)))


def replaced(value: object, place: int, other: object) -> tuple[object, int]:
    """The value with what stands at `place`, counted from its root, replaced; and what is left."""
    if place == 0:
        return other, -1
    place -= 1
    if isinstance(value, Mapping):
        made: dict[str, object] = {}
        for key, item in value.items():
            made[key], place = replaced(item, place, other) if place >= 0 else (item, place)
        return made, place
    if isinstance(value, list):
        listed: list[object] = []
        for item in value:
            new, place = replaced(item, place, other) if place >= 0 else (item, place)
            listed.append(new)
        return listed, place
    return value, place


@st.composite
def records(draw: st.DrawFn) -> dict[str, object]:
    """A good record of some format with something else in one or two of its places."""
    found: object = draw(st.sampled_from(SEEDS))
    for _ in range(draw(st.integers(1, 2))):
        found, _ = replaced(found, draw(st.integers(1, 24)), draw(VALUES))
    return dict(found) if isinstance(found, Mapping) else {}


@settings(max_examples=200)
@given(records())
def test_a_record_is_taken_or_refused_by_a_reason_that_quotes_nothing(
    record: dict[str, object],
) -> None:
    """Nothing but `BadField` comes out of a format, and no value of the file in it or in a note."""
    for chosen in FORMATS:
        notes = Notes()
        said = ""
        try:
            for draft in chosen.drafts(record, 7, notes):
                assert draft.line >= 7
                assert draft.failed != CANARY
        except BadField as bad:
            said = f"{bad.field} {bad.reason}"

        assert CANARY not in said + " ".join(notes.warnings())


@given(found=st.lists(records(), max_size=3), framing=st.sampled_from(Framing), whole=st.booleans())
def test_any_head_can_be_asked(
    found: list[dict[str, object]],
    framing: Framing,
    whole: bool,  # noqa: FBT001
) -> None:
    """No format and no refusal stumbles over a head of another."""
    names = tuple(dict.fromkeys(name for record in found for name in record))
    head = Head(
        framing=framing,
        document=names if whole else (),
        names=names,
        records=tuple(found),
        lines=(CANARY,) if framing is Framing.TEXT else (),
    )
    answers = [item.claims(head) for item in FORMATS] + [item.claims(head) for item in REFUSALS]

    assert set(answers) <= {True, False}


@given(COUNTS)
def test_whole_prompts_are_each_turn_and_all_before_it(rows: list[tuple[int, int, int]]) -> None:
    """The sums in one pass equal those of a loop over the rows."""
    columns = np.array(rows, dtype=np.int64).reshape(len(rows), 3)
    wanted = []
    history: dict[int, int] = {}
    for code, turn, answer in rows:
        known = turn >= 0 and code >= 0
        wanted.append(turn + history.get(code, 0) if known else turn)
        history[code] = history.get(code, 0) + max(turn, 0) + max(answer, 0)
    whole, _ = whole_prompts(columns[:, 0].astype(np.int32), columns[:, 1], columns[:, 2])

    assert whole.tolist() == wanted


@given(COUNTS, st.sampled_from([None, "cumulative"]))
def test_cumulative_lengths_are_left_as_they_are(
    rows: list[tuple[int, int, int]], given_: str | None
) -> None:
    """Only the per-turn reading changes a length."""
    columns = np.array(rows, dtype=np.int64).reshape(len(rows), 3)
    prompt = columns[:, 1]
    found = session_reading(columns[:, 0].astype(np.int32), prompt, columns[:, 2], given=given_)

    assert found is None or found.prompt_tokens.tolist() == prompt.tolist()
