"""What statistics take from the text of one request, so that the text itself need not be held."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b

import numpy as np
import orjson
from numpy.typing import NDArray

from advisor.traffic.trace import Request

UNREAD = -1
# A plain completion has no system prompt: what it opens with stands for one.
_OPENING = 256
# Code and language are read off this much of the last message of a user.
_READ = 2_000
# Longer lines are prose or data.
_LONG_LINE = 200
_FENCED = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
# Lines that only programs have: a keyword that opens a block or statement, a closing mark, an
# assignment, a comment, a call that stands by itself.
_CODE_LINE = re.compile(
    r"^(?:\s*(?:def|class|import|from|for|while|else|elif|try|except|function|const|let|var|public"
    r"|private|static|void|int|struct|using|package|func|fn|if|return|#include|SELECT|INSERT|UPDATE"
    r"|CREATE)\b.*[:;{}()=,]\s*|\s+(?:return|import|raise|yield|await|break|continue|pass)\b.*"
    r"|.*[;{}]\s*|\s*(?://|/\*|\*/).*|\s*[\w.\[\]]+\s*[+\-*/|&]?=\s*\S.*|\s*[\w.]+\(.*\)\s*:?\s*)$"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """Figures of a request's text; hashes are 0 and counts -1 where there is none."""

    turns: int = UNREAD
    tools: int = UNREAD
    tool_turns: int = UNREAD
    structured: int = UNREAD
    chars: int = UNREAD
    content: int = 0
    head: int = 0
    answer: int = 0
    code: float | None = None

    def of_blocks(self, blocks: Sequence[int]) -> "Text":
        """With the blocks of the prompt in the place of its text."""
        ids = np.asarray(blocks, dtype=np.int64)
        return replace(self, content=_hash(ids.tobytes()), head=_hash(ids[:1].tobytes()))


NOTHING = Text()


def read_text(request: Request) -> Text:
    """Figures of a request with text."""
    answer = 0 if request.response is None else _hash(request.response.encode("utf-8", "replace"))
    structured = int(_is_structured(request.response_format))
    tools = _length(request.tools)
    if request.messages is None:
        prompt = request.prompt or ""
        body = prompt.encode("utf-8", "replace")
        opening = prompt[:_OPENING].encode("utf-8", "replace")
        return Text(
            turns=1,
            tools=tools,
            tool_turns=0,
            structured=structured,
            chars=len(prompt),
            content=_hash(body),
            head=_hash(opening) if len(prompt) > _OPENING else 0,
            answer=answer,
            code=code_share(prompt[:_READ]),
        )
    messages = _messages(request)
    first = next(
        (place for place, item in enumerate(messages) if item.get("role") == "user"), len(messages)
    )
    whole = request.messages + (request.tools or "")
    return Text(
        turns=sum(item.get("role") == "user" for item in messages),
        tools=tools,
        tool_turns=sum(item.get("role") == "tool" for item in messages),
        structured=structured,
        chars=sum(len(part) for item in messages for part in _parts(item.get("content"))),
        content=_hash(whole.encode("utf-8", "replace")),
        head=_hash(orjson.dumps(messages[:first])) if first else 0,
        answer=answer,
        code=code_share(_last_of_user(messages)),
    )


def last_words(request: Request) -> str:
    """The last message of a user or the plain prompt, its first 2,000 characters."""
    if request.messages is None:
        return (request.prompt or "")[:_READ]
    return _last_of_user(_messages(request))


def _last_of_user(messages: Sequence[Mapping[str, object]]) -> str:
    for item in reversed(messages):
        if item.get("role") == "user":
            return "\n".join(_parts(item.get("content")))[:_READ]
    return ""


def with_ids(hashed: int, ids: NDArray[np.int32] | None) -> int:
    """A text's hash with the tokens that it became."""
    if ids is None:
        return hashed
    return _hash(hashed.to_bytes(8, "little") + ids.tobytes())


def code_share(text: str) -> float | None:
    """Share of the characters that stand in code blocks or in lines that read as code."""
    if not text.strip():
        return None
    fenced = sum(len(block) for block in _FENCED.findall(text))
    rest = _FENCED.sub("", text) if fenced else text
    bare = sum(
        len(line) + 1
        for line in rest.splitlines()
        if len(line) < _LONG_LINE and _CODE_LINE.match(line)
    )
    return min(1.0, (fenced + bare) / len(text))


def _messages(request: Request) -> list[Mapping[str, object]]:
    found = orjson.loads((request.messages or "[]").encode("utf-8", "replace"))
    return [item for item in found if isinstance(item, Mapping)]


def _parts(content: object) -> Iterator[str]:
    """The text of a message's content: a string, or a list of parts."""
    if isinstance(content, str):
        yield content
    elif isinstance(content, list):
        for part in content:
            text = part.get("text") if isinstance(part, Mapping) else None
            if isinstance(text, str):
                yield text


def _is_structured(response_format: str | None) -> bool:
    """Whether JSON or a schema was asked for."""
    if response_format is None:
        return False
    found = _json(response_format)
    return isinstance(found, Mapping) and found.get("type") not in (None, "text")


def _length(array: str | None) -> int:
    found = None if array is None else _json(array)
    return len(found) if isinstance(found, list) else 0


def _json(text: str) -> object:
    """The value; None where the file's own text is no JSON."""
    try:
        return orjson.loads(text)
    except ValueError:
        return None


def _hash(body: bytes) -> int:
    """64 bits, never 0: that means "no text"."""
    return int.from_bytes(blake2b(body, digest_size=8).digest(), "little") or 1
