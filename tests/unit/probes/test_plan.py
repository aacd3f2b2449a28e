"""What the load client sends for a row of the upload."""

import json
from dataclasses import replace

import pytest

from advisor.errors import InvalidInput
from advisor.traffic.trace import Request, RequestKind
from probes.load.plan import (
    CHAT_PATH,
    COMPLETION_PATH,
    LoadPlan,
    ReplayRule,
    load_plan,
    planned_request,
    read_plan,
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

    assert sent["max_tokens"] == limit


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


def plan_of(requests: list[Request]) -> LoadPlan:
    """A closed loop of two."""
    return load_plan(requests, host="127.0.0.1", port=1, model="m", concurrency=2, rule=RULE)


def test_a_plan_reads_back_as_it_was_written() -> None:
    """Value -> JSON -> value is the identity."""
    plan = plan_of([chat_request(0, "hé", label="a"), chat_request(1, "b")])
    gangs = replace(plan, schedule=Schedule(concurrency=2, gang=True))

    assert read_plan(plan.to_json()) == plan
    assert read_plan(gangs.to_json()) == gangs != plan


def test_a_plan_never_shows_its_prompts() -> None:
    """Its text form can end in a log."""
    plan = plan_of([chat_request(0, "secret")])

    assert "secret" not in repr(plan)
    assert "secret" not in repr(plan.requests[0])


def test_a_load_without_requests_is_refused() -> None:
    """Case T-01: never a load that waits with nothing to send."""
    with pytest.raises(InvalidInput, match="requests"):
        plan_of([])
