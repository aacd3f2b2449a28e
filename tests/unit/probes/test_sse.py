"""The event stream parser: bytes in, frames out."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.load.sse import EventStream, Frame, read_frame

TEXT = "hé 你好 🙂 ok"


def event(delta: dict[str, object], **choice: object) -> bytes:
    """One chat frame on the wire."""
    body = {"choices": [{"index": 0, "delta": delta, **choice}]}
    return b"data: " + json.dumps(body, ensure_ascii=False).encode() + b"\n\n"


STREAM = (
    event({"role": "assistant", "content": ""}) + event({"content": TEXT}) + b"data: [DONE]\n\n"
)
# The same with everything that a server may put around it.
DECORATED = (
    b": keep-alive\r\n\r\n"
    b"event: message\r\nid: 7\r\n"
    + event({"role": "assistant", "content": ""}).replace(b"\n", b"\r\n")
    + b": ping\n\n"
    + event({"content": TEXT}).replace(b"data: ", b"data:")
    + b"retry: 3\n\ndata: [DONE]\n\n"
)


def frames(chunks: list[bytes]) -> list[Frame]:
    """All frames of a stream cut into `chunks`."""
    stream = EventStream()
    return [frame for chunk in chunks for frame in stream.feed(chunk)]


@given(st.lists(st.integers(0, len(DECORATED)), max_size=20))
def test_comments_other_fields_and_line_ends_change_nothing(cuts: list[int]) -> None:
    """However they are cut."""
    edges = sorted({0, len(DECORATED), *cuts})
    chunks = [DECORATED[start:end] for start, end in itertools.pairwise(edges)]

    assert frames(chunks) == frames([STREAM])


@given(st.lists(st.integers(0, len(STREAM)), max_size=20))
def test_the_cuts_of_the_network_change_nothing(cuts: list[int]) -> None:
    """Case D-03: a character cut by a packet border stays whole."""
    edges = sorted({0, len(STREAM), *cuts})
    chunks = [STREAM[start:end] for start, end in itertools.pairwise(edges)]

    assert frames(chunks) == frames([STREAM])
    assert frames(chunks)[1].text == TEXT


def test_a_role_only_frame_carries_no_token() -> None:
    """Case S-01: the first frame of a chat stream opens it and holds no token."""
    first, second, last = frames([STREAM])

    assert not first.carries_token
    assert second.carries_token
    assert last.done


def test_a_frame_with_ids_and_no_text_carries_tokens() -> None:
    """A token that is half a character has an id before it has a text."""
    (frame,) = frames([event({"content": ""}, token_ids=[7, 8])])

    assert frame.carries_token
    assert frame.token_ids == (7, 8)


@pytest.mark.parametrize(
    "delta",
    [
        {"reasoning": "because"},
        {"tool_calls": [{"function": {"name": "look", "arguments": "{}"}}]},
    ],
)
def test_reasoning_and_tool_calls_are_tokens_too(delta: dict[str, object]) -> None:
    """Their text counts like the answer's."""
    (frame,) = frames([event(delta)])

    assert frame.carries_token


@pytest.mark.parametrize(
    "payload, kind",
    [
        (b'{"error": {"message": "secret", "type": "InternalServerError"}}', "InternalServerError"),
        (b'{"error": {"message": "secret", "code": 500}}', "500"),
        (b'{"error": "secret text of the user"}', "unnamed"),
        (b'{"error": {"type": "secret text of the user"}}', "unnamed"),
        (b"not json", "not_json"),
        (b"[1]", "not_an_object"),
    ],
)
def test_an_error_inside_the_stream_is_named_without_its_message(payload: bytes, kind: str) -> None:
    """Case S-07: a failure after the headers is one; its message can quote the prompt."""
    frame = read_frame(payload)

    assert frame.error == f"in_band:{kind}"
    assert "secret" not in repr(frame)


@pytest.mark.parametrize("reason", ["abort", "error"])
def test_an_aborted_answer_is_a_failure(reason: str) -> None:
    """The engine says so in the finish reason only."""
    (frame,) = frames([event({"content": ""}, finish_reason=reason)])

    assert frame.error == f"finished:{reason}"


def test_usage_is_read_with_its_cached_tokens() -> None:
    """The last frame has no choice and holds the engine's own counts."""
    usage = {
        "prompt_tokens": 9,
        "completion_tokens": 4,
        "prompt_tokens_details": {"cached_tokens": 8},
    }
    frame = read_frame(json.dumps({"choices": [], "usage": usage}).encode())

    assert frame.usage is not None
    assert (frame.usage.prompt_tokens, frame.usage.completion_tokens) == (9, 4)
    assert frame.usage.cached_tokens == 8
    assert not frame.carries_token


def test_a_completion_frame_has_its_text_in_the_choice() -> None:
    """The completions route has no delta."""
    frame = read_frame(b'{"choices": [{"index": 0, "text": " one", "finish_reason": "length"}]}')

    assert frame.carries_token
    assert frame.finish_reason == "length"


def test_a_stream_cut_inside_an_event_is_pending() -> None:
    """What was cut is not lost silently."""
    stream = EventStream()
    list(stream.feed(STREAM[:-3]))

    assert stream.pending


def test_an_event_called_error_is_one() -> None:
    """Some servers name the event and send the error as it is."""
    (frame,) = frames([b'event: error\ndata: {"message": "secret"}\n\n'])

    assert frame.error == "in_band:unnamed"


@pytest.mark.parametrize(
    "rest, found",
    [
        (b"data: [DONE]", [Frame(done=True)]),
        (b"data: [DONE]\n", [Frame(done=True)]),
        (b'data: {"choi', []),
        (b": comment", []),
        (b"", []),
    ],
)
def test_the_end_of_the_stream_ends_its_last_event(rest: bytes, found: list[Frame]) -> None:
    """A whole event without its blank line counts, half an event does not."""
    stream = EventStream()
    list(stream.feed(event({"content": "a"}) + rest))

    assert list(stream.end()) == found
    assert not stream.pending


def test_reasoning_is_no_part_of_the_history() -> None:
    """The next turn quotes the answer only."""
    (frame,) = frames([event({"reasoning": "because", "content": "yes"})])

    assert (frame.text, frame.content) == ("becauseyes", "yes")


def test_accepted_drafts_come_with_the_usage() -> None:
    """vLLM's ``--per-request-spec-decode-metrics summary``: steps by accepted drafts."""
    drafts = {"acceptance_histogram": [4, 0, 3], "num_spec_steps": 7}
    body = {"choices": [], "usage": {}, "metrics": {"speculative_decoding": drafts}}

    assert read_frame(json.dumps(body).encode()).accepted_histogram == (4, 0, 3)
    assert read_frame(b'{"choices": [], "metrics": {}}').accepted_histogram is None


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "choices",
                        "delta",
                        "usage",
                        "token_ids",
                        "tool_calls",
                        "error",
                        "finish_reason",
                    ]
                ),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    )
)
def test_no_document_breaks_the_parser(document: object) -> None:
    """Whatever a server sends is a frame, perhaps one that names an error."""
    assert isinstance(read_frame(json.dumps(document).encode()), Frame)
