"""What a logged request asked: messages or a prompt, and the tools it offered."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from advisor.traffic.formats.decoding import decoded
from advisor.traffic.formats.fields import BadField, text
from advisor.traffic.formats.turns import Turns, item_kind

_MESSAGES = ("messages", "contents", "input_messages", "chat_history")
_SYSTEM = ("system", "instructions", "system_instruction", "systemInstruction")
_DECLARATIONS = ("function_declarations", "functionDeclarations")


@dataclass(slots=True, kw_only=True)
class Asked:
    """Messages, or the text of a prompt, or its token ids alone; nothing of it is checked yet."""

    messages: Sequence[object] | None = None
    prompt: str | None = None
    prompt_ids: tuple[int, ...] | None = None
    tools: object = None
    images: int = 0


def asked_of(body: object) -> Asked:
    """The request in a body of any known API; nothing where there is none in it."""
    body = decoded(body)
    if isinstance(body, str):
        return Asked(prompt=body or None)
    if isinstance(body, Sequence):
        return listed(body)
    return _mapped(body) if isinstance(body, dict) else Asked()


def listed(items: Sequence[object]) -> Asked:
    """A list of messages, of token ids, or of one text."""
    if items and all(type(item) is int for item in items):
        return Asked(prompt_ids=ids_of(items))
    if len(items) == 1 and isinstance(items[0], list):
        return listed(items[0])
    if items and all(isinstance(item, str) for item in items):
        if len(items) > 1:
            raise BadField("prompt", "several prompts in one request")
        return Asked(prompt=text("prompt", items[0]) or None)
    return _chat(items, None, None) if items else Asked()


def _mapped(body: Mapping[str, object]) -> Asked:
    config = body.get("config")
    inner: Mapping[str, object] = config if isinstance(config, dict) else {}
    system = _first(body, _SYSTEM) or _first(inner, _SYSTEM)
    tools = _first(body, ("tools", "functions")) or _first(inner, ("tools",))
    messages = decoded(_first(body, _MESSAGES))
    if isinstance(messages, list) and messages:
        while len(messages) == 1 and isinstance(messages[0], list):
            messages = messages[0]
        return _chat(messages, system, tools)
    prompt = decoded(_first(body, ("input", "prompt", "prompts")))
    if isinstance(prompt, str) and system:
        return _chat([{"role": "user", "content": prompt}], system, tools)
    if isinstance(prompt, list) and prompt and isinstance(prompt[0], dict):
        return _chat(prompt, system, tools)
    if isinstance(prompt, str | list):
        return asked_of(prompt)
    if isinstance(body.get("role"), str) and ("content" in body or "parts" in body):
        return _chat([body], None, None)
    nested = body.get("kwargs")
    return _mapped(nested) if isinstance(nested, dict) and nested is not body else Asked()


def _first(body: Mapping[str, object], names: Sequence[str]) -> object:
    return next((body[name] for name in names if body.get(name)), None)


def _chat(items: Sequence[object], system: object, tools: object) -> Asked:
    turns = Turns()
    system = decoded(system)
    if system and not (isinstance(items[0], dict) and items[0].get("role") == "system"):
        turns.add(system_message(system))
    turns.extend(items)
    offered = tools_of(tools) or turns.tools or None
    return Asked(messages=turns.messages, tools=offered, images=turns.images)


def system_message(value: object) -> object:
    """Instructions as the message that stands before all others."""
    if isinstance(value, dict):
        value = value.get("parts", value.get("content", value.get("text")))
    if isinstance(value, list):
        return {"role": "system", "parts": value}
    return {"role": "system", "content": value}


def tools_of(value: object) -> object:
    """Tools as a chat request takes them; those that already are so are kept as they are."""
    value = decoded(value)
    if not isinstance(value, list) or not value:
        return None
    if all(isinstance(tool, dict) and "function" in tool for tool in value):
        return value
    return [made for tool in value for made in _tool(decoded(tool))]


def _tool(tool: object) -> Sequence[object]:
    if not isinstance(tool, dict):
        raise BadField("tools", "not a list of objects")
    declared = _first(tool, _DECLARATIONS)
    if isinstance(declared, list):
        return [made for inner in declared for made in _tool(inner)]
    if "function" in tool or "name" not in tool:
        return [tool]
    function = {
        "name": tool["name"],
        "description": tool.get("description"),
        "parameters": _first(tool, ("parameters", "input_schema", "inputSchema")),
    }
    kept = {key: value for key, value in function.items() if value is not None}
    return [{"type": "function", "function": kept}]


def is_chat(value: object) -> bool:
    """Whether a list is one of messages and not some data that a prompt is about."""
    if not isinstance(value, list) or not value or not isinstance(value[0], dict):
        return False
    first = value[0]
    return "role" in first or item_kind(first) in {"message", "human", "system", "function_call"}


def ids_of(value: object) -> tuple[int, ...] | None:
    """Token ids, None for nothing; raises where something else stands in their place."""
    if value is None:
        return None
    if not isinstance(value, list) or not all(type(item) is int and item >= 0 for item in value):
        raise BadField("token ids", "not a list of whole numbers")
    return tuple(value)
