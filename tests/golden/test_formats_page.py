"""docs/formats.md is made from the registry, so that documentation and code cannot part."""

import inspect
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from advisor.traffic.formats.fields import ALIASES
from advisor.traffic.formats.format import Format, Head
from advisor.traffic.formats.registry import FORMATS, REFUSALS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "formats.md"
INTRODUCTION = """\
# Formats of traffic

Made from the registry of formats by `tests/golden/test_formats_page.py`; `make golden` renews it.

A file is known by its content, never by its name. Every format may be compressed with gzip or
zstd, start with a byte-order mark, be UTF-16, end its lines with CRLF and lack the last line end.
JSON may be written as JSON Lines, as one array or as one document, and inside of JSON strings;
tables may be CSV (comma, semicolon, tab, bar) or Parquet.

What is found out can be overridden: `columns` maps our fields to the names in the file,
`time_unit` is the unit of its times, `session_lengths` says whether the lengths of a session's
rows are `cumulative` or `per_turn`, `format` names one of the formats below. Requests that a log
says failed are counted apart by their status and are no part of the traffic.
"""
GENERIC = """
## Any other JSON or table

Names of fields are taken whatever their case and separators; the first is ours. A row whose
`status` or `status_code` is 400 to 599 or says a failure, or that has an `error`, failed. A
duration and a time to the first token are taken from names with a unit (`latency_ms`, `ttft_s`),
else the duration from an end beside the start. A row needs messages, a prompt or its length.

| our field | names |
|---|---|"""
REFUSED = """
## Files that are no traffic

They are refused by name.

| file | known by | why not | what to do |
|---|---|---|---|"""


def recognised(claims: Callable[[Head], bool]) -> str:
    """The first line of what the function says of itself."""
    function = claims.func if isinstance(claims, partial) else claims
    return (inspect.getdoc(function) or "").partition("\n")[0]


def cell(text: str) -> str:
    return text.replace("|", "\\|")


def format_lines(item: Format, names: list[str]) -> Iterator[str]:
    yield f"\n## {item.title}\n"
    yield f"Name: {', '.join(f'`{name}`' for name in names)}. {recognised(item.claims)}\n"
    yield "| our field | in the file |\n|---|---|"
    yield from (f"| {ours} | {cell(theirs)} |" for ours, theirs in item.mapping.items())
    if item.quirks:
        yield ""
        yield from (f"- {quirk}" for quirk in item.quirks)


def page() -> str:
    """The whole page. Formats of one title differ by a number only and share a section."""
    lines = [INTRODUCTION.rstrip("\n")]
    titles = dict.fromkeys(item.title for item in FORMATS)
    for title in titles:
        members = [item for item in FORMATS if item.title == title]
        lines += format_lines(members[0], [item.name for item in members])
    lines.append(GENERIC)
    lines += [f"| {ours} | {', '.join(names)} |" for ours, names in ALIASES.items()]
    lines.append(REFUSED)
    lines += [
        f"| {item.title} (`{item.name}`) | {cell(recognised(item.claims))} | {item.reason}"
        f" | {item.remedy} |"
        for item in REFUSALS
    ]
    return "\n".join(lines) + "\n"


def test_the_page_of_formats_is_the_committed_one(update_golden: bool) -> None:  # noqa: FBT001
    """`--update-golden` rewrites it and fails."""
    if update_golden:
        PAGE.write_text(page(), encoding="utf-8")
        pytest.fail("golden file rewritten; look at the difference and run again")

    assert page() == PAGE.read_text(encoding="utf-8")


def test_every_format_and_refusal_says_how_it_is_known() -> None:
    """By the docstring of the function that claims it, and by a mapping."""
    silent = [item.name for item in FORMATS if not (recognised(item.claims) and item.mapping)]
    silent += [item.name for item in REFUSALS if not recognised(item.claims)]

    assert silent == []


def test_the_page_names_our_fields_as_the_code_does() -> None:
    """A field of a mapping is a field of a request or one that columns can be mapped to."""
    known = {*ALIASES, *("block_ids", "duration_s", "ttft_s", "images", "failed")}
    known |= {"prompt_ids", "output_ids"}
    named = {ours for item in FORMATS for ours in item.mapping}

    assert named - known == set()
