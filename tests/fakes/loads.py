"""Small loads for tests of the load client, and the frames that answer them."""

import json
from dataclasses import replace
from typing import Any

from advisor.canonical import Json
from advisor.measurement.records import RequestRecord
from probes.load.plan import CHAT_PATH, COMPLETION_PATH, PlannedRequest
from probes.load.runner import Loaded
from probes.load.schedule import Schedule

ONE = Schedule(concurrency=1)
DONE = b"data: [DONE]\n\n"
USAGE = b'data: {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 9}}\n\n'


def ask(index: int, tokens: int = 8, *, path: str = CHAT_PATH, **values: Any) -> PlannedRequest:
    """A request for so many tokens."""
    words: dict[str, Json] = (
        {"prompt": "a b c"}
        if path == COMPLETION_PATH
        else {"messages": [{"role": "user", "content": f"question {index}"}]}
    )
    body: dict[str, Json] = {
        "model": "paced",
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_token_ids": True,
        "max_tokens": tokens,
    }
    request = PlannedRequest(request_id=f"r{index}", label=None, path=path, body=body | words)
    return replace(request, **values)


def by_id(loaded: Loaded) -> dict[str, RequestRecord]:
    """The records by their request."""
    return {record.request_id: record for record in loaded.records}


def event(text: str, **body: object) -> bytes:
    """One chat frame."""
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": None}
    document = {"choices": [choice], **body}
    return b"data: " + json.dumps(document, ensure_ascii=False).encode() + b"\n\n"
