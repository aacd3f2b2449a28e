"""Exports in the shape in which the tools write them, with contents of our own."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from advisor.traffic.formats.format import Format, Framing, Head, Record
from advisor.traffic.formats.registry import FORMATS, REFUSALS
from advisor.traffic.formats.row import Draft, Notes

ASK: Mapping[str, object] = {"role": "user", "content": "Name a river."}
TOOL: Mapping[str, object] = {
    "type": "function",
    "function": {"name": "tide", "description": "Tides.", "parameters": {"type": "object"}},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """A file: its format's name, and its records (one document is one record)."""

    format: str
    records: Sequence[Record]
    framing: Framing = Framing.JSONL
    document: bool = False

    @property
    def head(self) -> Head:
        """What a reader sees of it first."""
        names = dict.fromkeys(name for record in self.records for name in record)
        keys = tuple(self.records[0]) if self.document else ()
        return Head(
            framing=self.framing,
            document=keys,
            names=tuple(names),
            records=tuple(self.records[:20]),
        )


def claimed(head: Head) -> list[str]:
    """Everybody who wants the file."""
    refusals = [refusal.name for refusal in REFUSALS if refusal.claims(head)]
    return refusals + [known.name for known in FORMATS if known.claims(head)]


def format_of(name: str) -> Format:
    """A format of the registry."""
    return next(known for known in FORMATS if known.name == name)


def taken(name: str, *records: Record) -> tuple[list[Draft], Notes]:
    """The drafts of records and what was odd about them."""
    notes = Notes()
    found: list[Draft] = []
    for line, record in enumerate(records, start=1):
        found.extend(format_of(name).drafts(record, line, notes))
    return found, notes


def only(name: str, record: Record) -> Draft:
    """The single draft of a record."""
    (found,), _ = taken(name, record)
    return found


def messages(draft: Draft) -> list[dict[str, object]]:
    """The messages of a draft."""
    found = json.loads(draft.fields.get("messages") or "[]")
    return [dict(message) for message in found]


def completion(text: str | None, **more: object) -> dict[str, object]:
    """A chat completion as vLLM and OpenAI answer it."""
    return {
        "id": "chatcmpl-9",
        "object": "chat.completion",
        "created": 1_750_000_000,
        "model": "m-7b",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": text},
                "finish_reason": "stop",
            }
        ],
        "usage": {
            "prompt_tokens": 12,
            "completion_tokens": 5,
            "total_tokens": 17,
            "prompt_tokens_details": {"cached_tokens": 8},
        },
        **more,
    }


def chunk(text: str | None, **more: object) -> dict[str, object]:
    """A chunk of a stream."""
    delta = {"role": "assistant"} if text is None else {"content": text}
    return {
        "id": "chatcmpl-9",
        "object": "chat.completion.chunk",
        "model": "m-7b",
        "choices": [{"index": 0, "delta": delta, "finish_reason": None}],
        **more,
    }
