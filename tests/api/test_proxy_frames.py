"""Frames of a stream: cut where they end, whatever the network does."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.proxy.frames import (
    FrameSplitter,
    body_of,
    carries_token,
    choice_text,
    data_of,
    error_in,
    usage_in,
)
from tests.fakes.small_engine import TEXT


def frame(end: str, **body: object) -> bytes:
    return f"data: {json.dumps(body, ensure_ascii=False)}{end}".encode()


STREAM = b"".join(
    [
        b": a comment\n\n",
        frame("\n\n", text=TEXT),
        frame("\r\n\r\n", text="two\n\nlines"),
        b"event: message\ndata: [DONE]\n\n",
        b"data: cut",
    ]
)


def split(chunks: list[bytes]) -> list[bytes]:
    splitter = FrameSplitter()
    whole = [found for chunk in chunks for found in splitter.feed(chunk)]
    return [*whole, splitter.rest()]


@given(st.lists(st.integers(0, len(STREAM)), max_size=20))
def test_the_cuts_of_the_network_change_nothing(cuts: list[int]) -> None:
    """Case D-03: the same frames, and every byte in them, wherever the chunks end."""
    edges = sorted({0, len(STREAM), *cuts})
    chunks = [STREAM[start:end] for start, end in itertools.pairwise(edges)]

    assert split(chunks) == split([STREAM])
    assert b"".join(split(chunks)) == STREAM
    assert len(split(chunks)) == 5


def test_a_frame_tells_its_data() -> None:
    """Comments have none; several lines of data are one."""
    assert data_of(b": a comment\n\n") == b""
    assert data_of(b"event: x\r\ndata: [DONE]\r\n\r\n") == b"[DONE]"
    assert body_of(data_of(b'data: {"a":\ndata: 1}\n\n')) == {"a": 1}


@pytest.mark.parametrize(
    "choice, text",
    [
        ({"delta": {"role": "assistant", "content": ""}}, ""),
        ({"delta": {"content": "a"}}, "a"),
        ({"delta": {"reasoning": "because"}}, "because"),
        ({"delta": {"tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}}, "f{}"),
        ({"message": {"content": "whole"}}, "whole"),
        ({"text": "plain"}, "plain"),
        ({"delta": {"content": None, "tool_calls": None}}, ""),
        ({"delta": "odd"}, ""),
    ],
)
def test_a_token_is_any_text_that_a_choice_adds(choice: dict[str, object], text: str) -> None:
    """Case S-01: the role-only frame has none."""
    assert choice_text(choice) == text
    assert carries_token({"choices": [choice]}) is bool(text)


def test_counts_that_are_no_counts_are_not_known() -> None:
    """Not measured is None, never 0."""
    good = usage_in({"usage": {"prompt_tokens": 7, "completion_tokens": 5}})

    assert good is not None
    assert (good.prompt_tokens, good.completion_tokens) == (7, 5)
    assert usage_in({"usage": None}) is None
    assert usage_in({"usage": {"prompt_tokens": 7}}) is None
    assert usage_in({"usage": {"prompt_tokens": True, "completion_tokens": -1}}) is None


def test_an_error_inside_an_answer_has_a_status() -> None:
    """Its code where that is one of HTTP, else 500."""
    assert error_in({"choices": []}) is None
    assert error_in({"error": {"code": 429}}) == 429
    assert error_in({"error": {"code": "overloaded"}}) == 500
    assert error_in({"error": "no"}) == 500
