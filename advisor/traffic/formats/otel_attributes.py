"""Attributes of OpenTelemetry spans, in OTLP's JSON, as plain objects, or numbered one by one."""

from collections.abc import Iterable, Mapping, Sequence

Attributes = Mapping[str, object]

_SCALARS = ("stringValue", "boolValue", "doubleValue", "string_value", "bool_value", "double_value")


def attributes_of(value: object) -> dict[str, object]:
    """Names and values, whether they are an object or a list of keys and values.

    OTLP wraps each value by its kind (``{"intValue": "7"}``); Jaeger writes them as they are.
    """
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if not isinstance(value, Sequence) or isinstance(value, str):
        return {}
    return {
        str(item["key"]): plain(item.get("value"))
        for item in value
        if isinstance(item, Mapping) and "key" in item
    }


def plain(value: object) -> object:
    """A value without OTLP's wrapping."""
    if not isinstance(value, Mapping) or len(value) != 1:
        return value
    ((kind, inner),) = value.items()
    if kind in _SCALARS:
        return inner
    if kind in {"intValue", "int_value"}:
        return int(inner) if isinstance(inner, str) and inner.lstrip("-").isdecimal() else inner
    if kind in {"arrayValue", "array_value"}:
        return [plain(item) for item in _values(inner)]
    if kind in {"kvlistValue", "kvlist_value"}:
        return attributes_of(_values(inner))
    return value


def _values(inner: object) -> Sequence[object]:
    found = inner.get("values") if isinstance(inner, Mapping) else None
    return found if isinstance(found, list) else []


def numbered(attributes: Attributes, prefix: str) -> list[object]:
    """The list that names like ``gen_ai.prompt.0.role`` spell out, with lists inside of it."""
    tree: dict[str, object] = {}
    start = prefix + "."
    for name, value in attributes.items():
        if name.startswith(start):
            _put(tree, name[len(start) :].split("."), value)
    return _listed(tree) if tree and all(key.isdecimal() for key in tree) else []


def _put(tree: dict[str, object], path: Sequence[str], value: object) -> None:
    for step in path[:-1]:
        inner = tree.setdefault(step, {})
        if not isinstance(inner, dict):
            return  # a name that is a value and a branch at once: the value holds
        tree = inner
    tree.setdefault(path[-1], value)


def _listed(tree: Mapping[str, object]) -> list[object]:
    return [_made(tree[key]) for key in sorted(tree, key=int)]


def _made(node: object) -> object:
    if not isinstance(node, dict):
        return node
    if node and all(key.isdecimal() for key in node):
        return _listed(node)
    return {key: _made(value) for key, value in node.items()}


def messages_of(items: Iterable[object]) -> list[object]:
    """Numbered messages as chat messages: flat tool calls (`name`, `arguments`) are nested."""
    return [_message(item) for item in items]


def _message(item: object) -> object:
    if isinstance(item, Mapping) and isinstance(item.get("message"), Mapping):
        item = item["message"]  # OpenInference: llm.input_messages.0.message.role
    if not isinstance(item, Mapping):
        return item
    found = {key: value for key, value in item.items() if key in {"role", "content"}}
    calls = item.get("tool_calls")
    if isinstance(calls, list):
        found["tool_calls"] = [_call(call) for call in calls]
        found.setdefault("content", None)
    if isinstance(item.get("tool_call_id"), str):
        found["tool_call_id"] = item["tool_call_id"]
    parts = item.get("contents")
    if isinstance(parts, list) and "content" not in found:
        found["content"] = [_part(part) for part in parts]
    return found


def _call(call: object) -> object:
    inner = call.get("tool_call") if isinstance(call, Mapping) else None
    found = inner if isinstance(inner, Mapping) else call
    if not isinstance(found, Mapping):
        return found
    function = found.get("function")
    named = function if isinstance(function, Mapping) else found
    return {
        "id": found.get("id"),
        "type": "function",
        "function": {"name": named.get("name"), "arguments": named.get("arguments") or "{}"},
    }


def _part(part: object) -> object:
    inner = part.get("message_content") if isinstance(part, Mapping) else None
    return inner if isinstance(inner, Mapping) else part
