"""A document as Markdown; pictures are tables of the same figures."""

import re
from collections.abc import Iterator
from typing import assert_never

from api.documents.blocks import Block, Bullets, Document, Paragraph, Picture, Table

# Text of a file, a command line or a reviewer is only text: no markup in it takes effect.
_MARKUP = re.compile(r"([\\`*_\[\]<>#|~&])")


def as_markdown(found: Document) -> str:
    """The whole document."""
    parts = [f"# {plain(found.title)}", *(part for block in found.lead for part in _block(block))]
    for section in found.sections:
        parts.append(f"## {plain(section.title)}")
        parts += [part for block in section.blocks for part in _block(block)]
    return "\n\n".join(parts) + "\n"


def plain(text: str) -> str:
    """Text on one line without any Markdown in it."""
    return _MARKUP.sub(r"\\\1", " ".join(text.split()))


def _block(block: Block) -> Iterator[str]:
    match block:
        case Paragraph(text=text, alert=alert):
            yield f"> **Warning.** {plain(text)}" if alert else plain(text)
        case Bullets(items=items):
            yield "\n".join(f"- {plain(item)}" for item in items)
        case Table():
            yield _table(block)
        case Picture(chart=chart):
            yield f"### {plain(chart.title)}"
            if chart.missing is not None:
                yield plain(chart.missing)
                return
            yield _table(Table(columns=chart.columns, rows=chart.rows))
            yield plain(chart.caption)
        case _:
            assert_never(block)


def _table(table: Table) -> str:
    lines = [_line(table.columns), _line(("---",) * len(table.columns), raw=True)]
    return "\n".join([*lines, *(_line(row) for row in table.rows)])


def _line(cells: tuple[str, ...], *, raw: bool = False) -> str:
    return f"| {' | '.join(cell if raw else plain(cell) for cell in cells)} |"
