"""What the load client sends for a row of the upload."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from advisor.canonical import Json
from advisor.errors import InvalidInput
from advisor.traffic.trace import Request, RequestKind
from probes.load.lines import json_bytes, plan_to_json, read_plan
from probes.load.plan import (
    CHAT_PATH,
    COMPLETION_PATH,
    EarlierAnswer,
    LoadPlan,
    PlannedRequest,
    ReplayRule,
    load_plan,
    planned_request,
    planned_requests,
)
from probes.load.schedule import Schedule
from tests.fakes.engines import chat_request

RULE = ReplayRule(cap_tokens=64, default_tokens=16, fixed=False)
FIXED = replace(RULE, fixed=True)


def body(
    request: Request, rule: ReplayRule = RULE, output_tokens: int | None = None
) -> dict[str, object]:
    """The body that `request` goes out with."""
    planned = planned_request(request, model="m", rule=rule, output_tokens=output_tokens)
    return dict(planned.body)


def test_sampling_values_go_out_as_they_came_and_absent_ones_do_not() -> None:
    """Case S-22: a forced temperature would measure another deployment."""
    hot = body(chat_request(0, "hi", temperature=1.0, top_p=0.9))
    cold = body(chat_request(0, "hi", temperature=0.0))
    absent = body(chat_request(0, "hi"))

    assert (hot["temperature"], hot["top_p"]) == (1.0, 0.9)
    assert cold["temperature"] == 0.0
    assert not {"temperature", "top_p"} & set(absent)


@pytest.mark.parametrize(
    "values, tokenised, limit",
    [
        ({"output_tokens": 4}, None, 4),
        ({"output_tokens": 4, "max_tokens": 900}, 7, 4),
        ({}, 7, 7),
        ({"max_tokens": 20}, None, 20),
        ({}, None, 16),
        ({"output_tokens": 5000}, None, 64),
        ({"output_tokens": 0}, None, 1),
    ],
)
def test_the_output_is_limited_by_what_was_recorded(
    values: dict[str, int], tokenised: int | None, limit: int
) -> None:
    """Cases T-23 and T-19: recorded length, else the request's limit, else the default; capped."""
    sent = body(chat_request(0, "hi", **values), output_tokens=tokenised)

    assert (sent["max_tokens"], sent["max_completion_tokens"]) == (limit, limit)


def test_a_fixed_length_is_asked_of_the_engine() -> None:
    """Every configuration then generates the same number of tokens."""
    sent = body(chat_request(0, "hi", output_tokens=9), FIXED)

    assert (sent["max_tokens"], sent["min_tokens"], sent["ignore_eos"]) == (9, 9, True)


def test_a_grammar_ends_where_it_ends() -> None:
    """After a complete object only the end is allowed, so it cannot be ignored."""
    asked = chat_request(0, "hi", output_tokens=9, response_format='{"type": "json_object"}')
    sent = body(asked, FIXED)

    assert sent["response_format"] == {"type": "json_object"}
    assert not {"ignore_eos", "min_tokens"} & set(sent)


def test_all_turns_go_to_the_chat_route_unchanged() -> None:
    """Cases E-28 and T-08: history, content null, tool calls and tools as they were."""
    messages = [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]},
        {"role": "tool", "tool_call_id": "1", "content": "42"},
    ]
    tools = [{"type": "function", "function": {"name": "look"}}]
    request = replace(chat_request(0, "-"), messages=json.dumps(messages), tools=json.dumps(tools))
    planned = planned_request(request, model="m", rule=RULE)

    assert planned.path == CHAT_PATH
    assert planned.body["messages"] == messages
    assert planned.body["tools"] == tools
    assert planned.body["tool_choice"] == "none"
    assert "tool_choice" not in body(request, replace(RULE, tool_parser=True))


def test_a_plain_prompt_goes_to_the_completions_route() -> None:
    """It has no turns to render."""
    request = Request(id="a", index=0, line=1, kind=RequestKind.COMPLETION, prompt="Once")
    planned = planned_request(request, model="m", rule=RULE)

    assert planned.path == COMPLETION_PATH
    assert planned.body["prompt"] == "Once"
    assert "max_completion_tokens" not in planned.body


def test_a_row_with_lengths_only_becomes_token_ids() -> None:
    """Same seed, same ids; two rows share no prefix that the file does not have."""
    rule = replace(RULE, vocab_size=50_000, seed=3)
    rows = [
        Request(id=str(i), index=i, line=i, kind=RequestKind.LENGTHS, prompt_tokens=40)
        for i in range(2)
    ]
    first, second = (body(row, rule)["prompt"] for row in rows)

    assert isinstance(first, list)
    assert len(first) == 40
    assert first == body(rows[0], rule)["prompt"]
    assert first[:4] != second[:4] if isinstance(second, list) else False


def test_a_row_with_lengths_only_needs_a_vocabulary() -> None:
    """Ids outside the model's vocabulary would be refused one by one."""
    row = Request(id="a", index=0, line=1, kind=RequestKind.LENGTHS, prompt_tokens=40)

    with pytest.raises(InvalidInput, match="vocab_size"):
        body(row)


def said(role: str, text: str | None, **more: object) -> dict[str, object]:
    """One message."""
    return {"role": role, "content": text, **more}


def turn(index: int, messages: list[dict[str, object]], **values: object) -> Request:
    """A request of session ``s``."""
    row = chat_request(index, "-", session="s", **values)
    return replace(row, messages=json.dumps(messages))


FIRST = [said("system", "be brief"), said("user", "one")]
SECOND = [*FIRST, said("assistant", "1"), said("user", "two")]
THIRD = [*SECOND, said("assistant", "2"), said("user", "three")]


def conversation() -> tuple[PlannedRequest, ...]:
    """Three turns that quote each other, and a stranger between them."""
    rows = [
        turn(0, FIRST, arrival_s=0.0, duration_s=2.0),
        turn(1, SECOND, arrival_s=5.0),
        chat_request(2, "another"),
        turn(3, THIRD, arrival_s=9.0),
    ]
    return planned_requests(rows, model="m", rule=RULE, sessions=True, think=True)


def test_later_turns_name_the_answers_that_they_quote() -> None:
    """The engine's own answers will stand there, so that its prefix cache sees what it made."""
    first, second, stranger, third = conversation()

    assert [item.turn for item in (first, second, stranger, third)] == [0, 1, None, 2]
    assert first.history == stranger.history == ()
    assert second.history == (EarlierAnswer(message=2, turn=0),)
    assert third.history == (EarlierAnswer(message=2, turn=0), EarlierAnswer(message=4, turn=1))
    assert third.body["messages"] == THIRD


def test_the_thinking_is_what_the_recording_shows() -> None:
    """From the end of the answer to the next question; unknown without the answer's duration."""
    first, second, _, third = conversation()

    assert (first.think_s, second.think_s, third.think_s) == (None, 3.0, None)


@pytest.mark.parametrize(
    "later",
    [
        [said("user", "one"), said("assistant", "1"), said("user", "two")],
        [*FIRST, said("user", "two")],
        [*FIRST, said("assistant", None, tool_calls=[{"id": "1"}]), said("tool", "42")],
        FIRST,
    ],
    ids=["other beginning", "no answer between", "an answer that calls a tool", "nothing new"],
)
def test_an_answer_that_cannot_be_told_stays_as_recorded(later: list[dict[str, object]]) -> None:
    """Only messages that are an earlier turn word for word show where its answer is."""
    rows = [turn(0, FIRST), turn(1, later)]
    _, second = planned_requests(rows, model="m", rule=RULE, sessions=True)

    assert second.history == ()


def test_without_sessions_each_request_goes_on_its_own() -> None:
    """As recorded, in any order."""
    planned = planned_requests([turn(0, FIRST), turn(1, SECOND)], model="m", rule=RULE)

    assert [(item.session, item.turn, item.history) for item in planned] == [(None, None, ())] * 2


def test_tool_messages_go_out_as_the_file_had_them(shared: Path) -> None:
    """Case T-08: content null or absent, tool calls, tool messages and tools unchanged."""
    for line in (shared / "cases" / "t08_tool_calls.jsonl").read_text().splitlines():
        row = json.loads(line)
        asked = replace(
            chat_request(0, "-"),
            messages=json.dumps(row["messages"]),
            tools=json.dumps(row["tools"]) if "tools" in row else None,
        )
        sent = json.loads(json_bytes(body(asked)))  # type: ignore[arg-type]

        assert sent["messages"] == row["messages"]
        assert sent.get("tools") == row.get("tools")


def test_what_orjson_cannot_write_is_written_all_the_same() -> None:
    """A schema may hold an integer beyond 64 bits, a prompt half of a surrogate pair."""
    document: dict[str, Json] = {"maximum": 1 << 70, "text": "\ud83d"}

    assert json.loads(json_bytes(document)) == document


def plan_of(requests: list[Request]) -> LoadPlan:
    """A closed loop of two."""
    return load_plan(requests, host="127.0.0.1", port=1, model="m", concurrency=2, rule=RULE)


def test_a_plan_reads_back_as_it_was_written() -> None:
    """Value -> JSON -> value is the identity."""
    plan = plan_of([chat_request(0, "hé", label="a"), chat_request(1, "b")])
    gangs = replace(plan, schedule=Schedule(concurrency=2, gang=True))

    elsewhere = replace(plan, api_key="k", base_path="/a", tls=True, retries=2)
    timed = replace(plan, schedule=Schedule(concurrency=None, offsets_s=(0.0, 0.1)))
    turns = replace(plan, requests=conversation())

    for value in (plan, gangs, elsewhere, timed, turns):
        assert read_plan(plan_to_json(value)) == value
        assert b"\n" not in plan_to_json(value)


def test_a_plan_never_shows_its_prompts() -> None:
    """Its text form can end in a log."""
    plan = replace(plan_of([chat_request(0, "secret")]), api_key="secret")

    assert "secret" not in repr(plan)
    assert "secret" not in repr(plan.requests[0])


def test_a_load_without_requests_is_refused() -> None:
    """Case T-01: never a load that waits with nothing to send."""
    with pytest.raises(InvalidInput, match="requests"):
        plan_of([])


@pytest.mark.parametrize(
    "changes",
    [
        {"host": "a\r\nX: y"},
        {"api_key": "k\n"},
        {"base_path": "/a b"},
        {"retries": -1},
        {"schedule": Schedule(concurrency=None, offsets_s=(0.0,))},
    ],
)
def test_a_plan_that_cannot_be_sent_is_refused(changes: dict[str, object]) -> None:
    """A line break in a header would start another one; every request needs a time."""
    plan = plan_of([chat_request(0, "a"), chat_request(1, "b")])

    with pytest.raises(InvalidInput):
        replace(plan, **changes)  # type: ignore[arg-type]


def test_a_session_has_one_turn_of_a_number() -> None:
    """Else their order is not known."""
    twice = replace(conversation()[0], request_id="again")

    with pytest.raises(InvalidInput, match="turn"):
        LoadPlan(
            host="h",
            port=1,
            schedule=Schedule(concurrency=1),
            requests=(*conversation(), twice),
        )
