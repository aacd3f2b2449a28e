"""Exports in which any value may be anything: rows are refused by field, and nothing crashes."""

import json
from collections.abc import Callable, Iterator, Sequence

import pytest

from advisor.traffic.formats.chat_jsonl import draft_of
from advisor.traffic.formats.fields import BadField
from advisor.traffic.formats.format import Record
from advisor.traffic.formats.row import Notes
from tests.unit.traffic.formats.exports import Export, claimed, format_of
from tests.unit.traffic.formats.test_reading_exports import FILES

CANARY = "CANARY words"
JUNK: Sequence[object] = (
    None, 7, float("nan"), CANARY, "\ud83d", [], [None], [CANARY], [[]], {"type": CANARY},
    {"role": CANARY}, [{"role": CANARY, "content": 7}], {"choices": [[]]}, {"parts": {}}, 10**400,
)  # fmt: skip
# One file of each shape.
SHAPES = (
    "batch input", "batch output", "gateway", "helicone", "jaeger", "langfuse trace", "litellm",
    "litellm payload", "otel", "otlp", "sharegpt", "task",
)  # fmt: skip
ROWS: Sequence[Record] = (
    {
        "timestamp": 1.5, "messages": [{"role": "user", "content": [{"type": "text"}]}],
        "response": {"choices": [{"message": {"content": "x"}}]}, "usage": {"input": 4},
        "tools": [{"name": "x"}], "instructions": "x", "latency_ms": 5, "end_time": 7,
        "prompt_token_ids": [1], "status": 200, "error": None,
    },
    {
        "request": {"system": [{"text": "x"}], "input": [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "x"}]},
            {"type": "function_call", "call_id": "c", "name": "n", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": [{"type": "text"}]},
        ]},
        "response": {"object": "response", "output": [
            {"type": "message", "content": [{"type": "output_text", "text": "x"}]},
        ]},
    },
    {
        "messages": [
            {"role": "user", "parts": [{"text": "x"}, {"function_response": {"name": "n"}}]},
            {"role": "model", "parts": [{"function_call": {"name": "n", "args": {}}}]},
            {"type": "ai", "content": "x", "tool_calls": [{"name": "n", "args": {}}]},
            {"type": "constructor", "id": ["x", "AIMessage"], "kwargs": {"content": "x"}},
            {"type": "human", "content": "x", "additional_kwargs": {"tool_calls": []}},
            {"role": "user", "content": [{"type": "tool_result", "content": [{"text": "x"}]}]},
        ],
        "response": {"candidates": [{"content": {"parts": [{"text": "x"}]}}]},
    },
    {
        "prompt": "x",
        "response": [
            {"index": 0, "choices": [{"index": 0, "delta": {"content": "x"}, "token_ids": [1]}]},
            {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens_details": {}}},
        ],
    },
    {
        "prompt": "x",
        "response": [
            {"type": "message_start", "message": {"usage": {"input_tokens": 1}}},
            {"type": "content_block_delta", "delta": {"text": "x"}},
        ],
    },
    {"prompt": "x", "response": [{"type": "response.completed", "response": {"output": [{}]}}]},
    {"prompt": "x", "response": {"generations": [[{"text": "x"}]], "body": {"error": {}}}},
)  # fmt: skip


def changed(value: object, junk: object) -> Iterator[object]:
    """The value with one of the values inside of it replaced, for each of them."""
    yield junk
    written = isinstance(value, str) and value.startswith(("{", "["))
    inside = json.loads(str(value)) if written else value
    for made in replaced(inside, junk):
        yield json.dumps(made) if written else made


def replaced(inside: object, junk: object) -> Iterator[object]:
    """An object or a list with a value in it changed."""
    if isinstance(inside, dict):
        for key, inner in inside.items():
            yield from ({**inside, key: other} for other in changed(inner, junk))
    elif isinstance(inside, list):
        for place, inner in enumerate(inside):
            for other in changed(inner, junk):
                yield [*inside[:place], other, *inside[place + 1 :]]


def reasons_of(drafts: Callable[[Record], object], record: Record) -> Iterator[str]:
    """Why every change of a record was refused; any other error goes through."""
    for junk in JUNK:
        for other in changed(record, junk):
            if isinstance(other, dict):
                try:
                    drafts(other)
                except BadField as bad:
                    yield f"{bad.field}: {bad.reason}"


@pytest.mark.parametrize("name", SHAPES)
def test_a_value_that_is_anything_costs_its_row_at_most(name: str) -> None:
    """Every value of every export, replaced by every kind of junk; reasons quote nothing."""
    export = FILES[name]
    notes = Notes()

    def drafts(record: Record) -> None:
        claimed(Export(format="", records=[record], document=export.document).head)
        list(format_of(export.format).drafts(record, 1, notes))

    found = set(reasons_of(drafts, export.records[0]))

    assert not [text for text in (*found, *notes.lines) if CANARY in text]


@pytest.mark.parametrize("row", ROWS)
def test_a_row_of_any_shape_may_hold_anything(row: Record) -> None:
    """The rules that all formats stand on."""
    found = set(reasons_of(lambda record: draft_of(record, 1, Notes()), row))

    assert found
    assert not [text for text in found if CANARY in text]
