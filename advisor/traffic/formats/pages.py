"""Answers of list APIs: the records lie in a list inside of one object."""

from collections.abc import Mapping

from advisor.traffic.formats.format import Head

_MOST = 20


def page_of(head: Head, *keys: str) -> Head:
    """The head of the records that a document lists under one of the keys, else the head itself."""
    document = head.records[0] if head.document and head.records else {}
    for key in keys:
        items = document.get(key)
        if isinstance(items, list) and items and isinstance(items[0], Mapping):
            records = tuple(item for item in items[:_MOST] if isinstance(item, Mapping))
            names = dict.fromkeys(name for record in records for name in record)
            return Head(framing=head.framing, names=tuple(names), records=records)
    return head
