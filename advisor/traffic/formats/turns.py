"""Chat messages of any well-known shape as the messages that an OpenAI-compatible server takes."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from advisor.traffic.formats.fields import BadField

Item = Mapping[str, object]

ROLES: Mapping[str, str] = {
    "ai": "assistant", "aimessage": "assistant", "aimessagechunk": "assistant",
    "assistant": "assistant", "bard": "assistant", "bing": "assistant", "bot": "assistant",
    "chatgpt": "assistant", "gpt": "assistant", "model": "assistant",
    "human": "user", "humanmessage": "user", "prompter": "user", "user": "user",
    "system": "system", "systemmessage": "system", "developer": "developer",
    "function": "tool", "functionmessage": "tool", "functionresponse": "tool",
    "observation": "tool", "tool": "tool", "toolmessage": "tool", "toolresponse": "tool",
}  # fmt: skip
_TEXT = frozenset({"text", "input_text", "output_text"})
_THOUGHTS = frozenset({"reasoning", "thinking", "redacted_thinking", "thought"})
_CALLS = frozenset({"tool_use", "tool_call", "tool-call"})
_RESULTS = frozenset({"tool_result", "tool_call_response", "tool-result"})
_FOREIGN = frozenset({"parts", "additional_kwargs", "kwargs"})
_SPEAKER = ("from", "type", "id")


@dataclass(slots=True)
class Turns:
    """Messages in the making. `images` counts the parts that are not text, which are left out.

    Messages that are as an OpenAI-compatible server takes them are kept as they are. Others are
    made anew: Responses items, Anthropic and Gemini contents, LangChain messages, ShareGPT turns
    and the parts of OpenTelemetry.
    """

    messages: list[object] = field(default_factory=list)
    tools: list[object] = field(default_factory=list)
    images: int = 0
    _calls: int = 0
    _waiting: list[tuple[str, str]] = field(default_factory=list)
    _open: bool = False

    def add(self, item: object) -> None:
        """One message; what no shape fits is kept for the check to name its place."""
        opened, self._open = self._open, False
        if not isinstance(item, dict):
            self.messages.append(item)
        elif isinstance(item.get("role"), str) and _FOREIGN.isdisjoint(item):
            self._openai(item)
        elif (kind := item_kind(item)) in {"function_call", "custom_tool_call"}:
            self._called(item, joined=opened)
        elif kind in {"function_call_output", "custom_tool_call_output"}:
            self._result(item.get("call_id"), None, item.get("output"))
        elif kind not in _THOUGHTS:
            self._foreign(item)

    def extend(self, items: Sequence[object]) -> None:
        """Messages in their order."""
        for item in items:
            self.add(item)

    def _openai(self, item: Item) -> None:
        content = item.get("content")
        if item.get("type") == "message":  # an item of the Responses API
            item = {"role": item["role"], "content": content}
        if isinstance(content, list):
            self._listed(item, content)
        elif isinstance(content, dict) and content.get("type") == "function":
            self.tools.append(content)  # Langfuse's LangChain handler writes tools as messages
        else:
            self.messages.append(item)

    def _listed(self, item: Item, content: Sequence[object]) -> None:
        plain = all(isinstance(part, dict) and part.get("type") == "text" for part in content)
        if plain or not all(isinstance(part, dict) for part in content):
            self.messages.append(item)
            return
        rest = {key: value for key, value in item.items() if key not in {"content", "type", "id"}}
        self._parted(rest, content)

    def _foreign(self, item: Item) -> None:
        kwargs = item.get("kwargs")
        inner = kwargs if isinstance(kwargs, dict) else item
        role = inner.get("role") or item.get("from") or _speaker(item)
        known = ROLES.get(str(role).lower().replace("_", "")) if role else None
        if known is None:
            self.messages.append(item)
            return
        content = inner.get("parts", inner.get("content", item.get("value")))
        calls = _langchain_calls(inner)
        rest: dict[str, object] = {"role": known}
        if isinstance(inner.get("tool_call_id"), str):
            rest["tool_call_id"] = inner["tool_call_id"]
        if calls:
            rest["tool_calls"] = calls
        if isinstance(content, list):
            self._parted(rest, content)
        else:
            self.messages.append(rest | {"content": content})

    def _parted(self, rest: dict[str, object], parts: Sequence[object]) -> None:
        """A message from parts; the results of tools among them become messages of their own."""
        texts: list[object] = []
        calls: list[object] = []
        results = len(self.messages)
        for part in parts:
            self._part(part, texts, calls)
        answered = len(self.messages) > results
        if not texts and not calls and answered:
            return
        message = rest | {"content": _content(texts, empty=None if calls else "")}
        if calls:
            message["tool_calls"] = calls
        self.messages.append(message)

    def _part(self, part: object, texts: list[object], calls: list[object]) -> None:
        if isinstance(part, str):
            texts.append({"type": "text", "text": part})
            return
        if not isinstance(part, dict):
            raise BadField("messages", "holds a part that is neither text nor an object")
        kind = _part_kind(part)
        if kind in _TEXT:
            texts.append({"type": "text", "text": part.get("text", part.get("content"))})
        elif kind == "refusal":
            texts.append({"type": "text", "text": part.get("refusal")})
        elif kind in _CALLS:
            calls.append(self._call(part))
        elif kind in _RESULTS:
            self._answered(part)
        elif kind not in _THOUGHTS:
            self.images += 1

    def _call(self, part: Item) -> object:
        inner = part.get("function_call", part.get("functionCall", part))
        found = inner if isinstance(inner, dict) else part
        name = str(found.get("name") or found.get("toolName") or "")
        given = found.get("call_id") or found.get("id") or found.get("toolCallId")
        return self._named(
            name, given, found.get("arguments", found.get("args", found.get("input")))
        )

    def _named(self, name: str, given: object, arguments: object) -> dict[str, object]:
        call = given if isinstance(given, str) and given else f"call_{self._calls}"
        self._calls += 1
        self._waiting.append((name, call))
        return {
            "id": call,
            "type": "function",
            "function": {"name": name, "arguments": _json(arguments)},
        }

    def _answered(self, part: Item) -> None:
        inner = part.get("function_response", part.get("functionResponse", part))
        found = inner if isinstance(inner, dict) else part
        name = found.get("name")
        names = ("response", "result", "content", "output")
        content = next((found[key] for key in names if key in found), None)
        given = found.get("tool_use_id") or found.get("id") or found.get("toolCallId")
        self._result(given, name, content)

    def _result(self, given: object, name: object, content: object) -> None:
        call = given if isinstance(given, str) and given else self._call_of(name)
        if isinstance(content, list):
            inner = Turns()
            texts: list[object] = []
            for part in content:
                inner._part(part, texts, [])
            self.images += inner.images
            content = _content(texts, empty="")
        elif not isinstance(content, str):
            content = _json(content)
        self.messages.append({"role": "tool", "tool_call_id": call, "content": content})

    def _call_of(self, name: object) -> str:
        """The oldest call of this name that has no result yet."""
        for place, (called, call) in enumerate(self._waiting):
            if called == name:
                del self._waiting[place]
                return call
        return f"call_{name}"

    def _called(self, item: Item, *, joined: bool) -> None:
        """A call of the Responses API; calls in a row are one turn of the assistant."""
        call = self._named(
            str(item.get("name") or ""), item.get("call_id"), item.get("arguments", "")
        )
        self._open = True
        last = self.messages[-1] if joined else None
        if isinstance(last, dict) and isinstance(last.get("tool_calls"), list):
            last["tool_calls"].append(call)
        else:
            self.messages.append({"role": "assistant", "content": None, "tool_calls": [call]})


def item_kind(item: Item) -> str:
    """What an item says it is; "" where it says nothing."""
    kind = item.get("type")
    return kind if isinstance(kind, str) else ""


def _speaker(item: Item) -> object:
    """Who speaks in a LangChain message: its type, or the class that it was written from."""
    kind = item.get("type")
    if kind == "constructor" and isinstance(item.get("id"), list):
        names = item["id"]
        return names[-1] if isinstance(names, list) and names else None
    return kind


def _part_kind(part: Item) -> str | None:
    """What a part is; Gemini's parts have no type and are told by their keys."""
    if kind := item_kind(part):
        return kind
    for found, names in (
        ("thought", ("thought",)),
        ("tool_call", ("function_call", "functionCall")),
        ("tool_result", ("function_response", "functionResponse")),
        ("text", ("text",)),
    ):
        if any(part.get(name) is not None for name in names):
            return found
    return None


def _langchain_calls(inner: Item) -> list[object]:
    more = inner.get("additional_kwargs")
    given = more.get("tool_calls") if isinstance(more, dict) else None
    calls = inner.get("tool_calls") or given
    if not isinstance(calls, list):
        return []
    return [_langchain_call(call) for call in calls]


def _langchain_call(call: object) -> object:
    if not isinstance(call, dict) or "function" in call:
        return call
    return {
        "id": call.get("id"),
        "type": "function",
        "function": {"name": call.get("name"), "arguments": _json(call.get("args"))},
    }


def _content(texts: list[object], *, empty: str | None) -> object:
    """One text as a string, several as text parts."""
    if not texts:
        return empty
    first = texts[0]
    return first["text"] if len(texts) == 1 and isinstance(first, dict) else texts


def _json(value: object) -> str:
    """Arguments and results of tools as the text that the model sees."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps({} if value is None else value, ensure_ascii=False, allow_nan=False)
    except (ValueError, RecursionError) as error:
        raise BadField("messages", "holds a tool call that JSON cannot write") from error
