"""JSON values as YAML that readers of YAML 1.1 and 1.2 take for the same values."""

import json
from collections.abc import Iterable, Iterator, Mapping

from advisor.canonical import Json

INDENT = "  "


def as_yaml(documents: Iterable[Json]) -> str:
    """A stream of documents, each after its ``---``."""
    return "".join("\n".join(("---", *_lines(document, ""), "")) for document in documents)


def _lines(value: Json, indent: str) -> Iterator[str]:
    if isinstance(value, Mapping) and value:
        for name, item in value.items():
            yield from _entry(f"{indent}{_scalar(name)}:", item, indent + INDENT)
    elif isinstance(value, list) and value:
        for item in value:
            yield from _entry(f"{indent}-", item, indent + INDENT)
    else:
        yield f"{indent}{_scalar(value)}"


def _entry(head: str, item: Json, indent: str) -> Iterator[str]:
    """A key or a dash with its value beside it, or below it where it has parts."""
    if isinstance(item, dict | list) and item:
        yield head
        yield from _lines(item, indent)
    else:
        yield f"{head} {_scalar(item)}"


def _scalar(value: Json) -> str:
    """JSON's own form, which YAML reads; text is quoted, so that no word is taken for a value."""
    if isinstance(value, float):
        # Without a point, YAML 1.1 takes a number with an exponent for text.
        digits, mark, power = repr(value).partition("e")
        return (
            f"{digits}.0{mark}{power}" if mark and "." not in digits else f"{digits}{mark}{power}"
        )
    written = json.dumps(value, ensure_ascii=False, allow_nan=False)
    # JSON writes a character beyond 16 bits as two escapes, which YAML takes for two characters.
    return "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in written)
