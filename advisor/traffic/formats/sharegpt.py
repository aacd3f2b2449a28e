"""ShareGPT: conversations as lists of turns. Every answer is a request of its conversation."""

from collections.abc import Iterable, Mapping, Sequence

from advisor.traffic.formats.asked import tools_of
from advisor.traffic.formats.decoding import decoded
from advisor.traffic.formats.exchange import IMAGES
from advisor.traffic.formats.fields import BadField, text
from advisor.traffic.formats.format import Format, Head, Record
from advisor.traffic.formats.row import (
    Draft,
    Notes,
    RequestFields,
    check_messages,
    content_text,
    dumped,
    set_tags,
)
from advisor.traffic.formats.turns import ROLES, Turns
from advisor.traffic.trace import RequestKind

_LISTS = ("conversations", "conversation", "items", "messages")
_SPEAKERS = ("from", "role", "speaker", "user")
_TEXTS = ("value", "content", "text", "markdown")
# Names that public collections of conversations have and logs of requests have not.
_WHOLE = frozenset({"turn", "conversation_hash", "num_turns"})
_IDS = ("id", "conversation_hash", "conversation_id", "session_id", "uuid")
_OPEN = "end with a question that has no answer: it is a request with no recorded answer"


def claims(head: Head) -> bool:
    """A list of turns under `conversations`, or under another name with `from` and `value`."""
    return any(_listed(record) is not None for record in head.records)


def _listed(record: Record) -> Sequence[object] | None:
    for name in _LISTS:
        turns = decoded(record.get(name))
        if not isinstance(turns, list) or not turns or not isinstance(turns[0], Mapping):
            continue
        first = turns[0]
        if {"from", "value"} <= first.keys():
            return turns
        collected = name == "conversation" and not _WHOLE.isdisjoint(record)
        whole = name == "conversations" or collected
        if whole and _first(first, _SPEAKERS) and _has(first, _TEXTS):
            return turns
    return None


def _first(turn: Mapping[str, object], names: Sequence[str]) -> object:
    return next((turn[name] for name in names if turn.get(name)), None)


def _has(turn: Mapping[str, object], names: Sequence[str]) -> bool:
    return any(name in turn for name in names)


def drafts(record: Record, line: int, notes: Notes) -> Iterable[Draft]:
    """Each answer is one request with everything before it as its prompt.

    An open question at the end is a request whose answer is not known.
    """
    turns = _listed(record)
    if turns is None:
        raise BadField("conversations", "no list of turns")
    messages, images = _messages(record, turns)
    if images:
        notes.add(IMAGES, line)
    # An answer to nothing is an opening of the assistant.
    ends = [
        place for place, message in enumerate(messages) if place and message["role"] == "assistant"
    ]
    if messages[-1]["role"] in {"user", "tool"}:
        notes.add(_OPEN, line)
        ends.append(len(messages))
    if not ends:
        raise BadField("conversations", "no question in it")
    session = _first(record, _IDS) or f"line {line}"
    tools = tools_of(record.get("tools"))
    for end in ends:
        fields: RequestFields = {"messages": dumped("messages", messages[:end]), "images": images}
        if end < len(messages):
            fields["response"] = text("conversations", content_text(messages[end].get("content")))
        if tools is not None:
            fields["tools"] = dumped("tools", tools)
        set_tags(fields, {"session_id": session, "model": record.get("model")})
        yield Draft(line, RequestKind.CHAT, None, fields)


def _messages(record: Record, turns: Sequence[object]) -> tuple[Sequence[dict[str, object]], int]:
    made = Turns()
    if isinstance(record.get("system"), str) and record["system"]:
        made.add({"role": "system", "content": record["system"]})
    for place, turn in enumerate(turns):
        made.add(_message(place, turn))
    return check_messages(made.messages), made.images


def _message(place: int, turn: object) -> dict[str, object]:
    where = f"conversations[{place}]"
    if not isinstance(turn, Mapping):
        raise BadField(where, "not an object")
    role = ROLES.get(str(_first(turn, _SPEAKERS)).lower().replace("_", ""))
    if role is None:
        raise BadField(where, "a speaker that is neither human, gpt, system nor tool")
    content = next((turn[name] for name in _TEXTS if name in turn), None)
    return {"role": role, "content": content}


SHAREGPT = Format(
    name="sharegpt",
    title="ShareGPT conversations",
    claims=claims,
    drafts=drafts,
    mapping={
        "messages": "the turns before each answer (from: human, gpt, system, tool; value)",
        "response": "value of the gpt turn",
        "session_id": "id (the line where there is none)",
        "tools": "tools",
        "model": "model",
    },
    quirks=(
        (
            "Every answer is one request of one session whose prompt is the whole history before"
            " it, as a chat server sees it."
        ),
        "Conversations of LMSYS-Chat and WildChat are read so too.",
        (
            "The turns may stand under conversations, items or messages; the speaker under from,"
            " role or user, as human, user, gpt, chatgpt, assistant, system or tool."
        ),
        "Nothing says when a turn came or how many tokens it had.",
    ),
)
