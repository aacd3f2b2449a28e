"""The Azure LLM inference traces (Patel et al., Splitwise, ISCA 2024): times and token counts."""

from collections.abc import Iterable

from advisor.traffic.formats.fields import count
from advisor.traffic.formats.format import Format, Framing, Head, Record
from advisor.traffic.formats.lengths_row import lengths_draft, whole_number
from advisor.traffic.formats.row import Draft, Notes, RequestFields
from advisor.traffic.formats.times import read_time


def claims(head: Head) -> bool:
    """A table with the columns `TIMESTAMP`, `ContextTokens` and `GeneratedTokens`."""
    return head.framing in (Framing.CSV, Framing.PARQUET) and head.has(
        "TIMESTAMP", "ContextTokens", "GeneratedTokens"
    )


def drafts(record: Record, line: int, notes: Notes) -> Iterable[Draft]:
    """One row, one request."""
    fields: RequestFields = {
        "prompt_tokens": count("ContextTokens", record.get("ContextTokens")),
        "output_tokens": count("GeneratedTokens", record.get("GeneratedTokens")),
    }
    if images := whole_number("NumImages", record.get("NumImages")):
        fields["images"] = images
    time = read_time("TIMESTAMP", record.get("TIMESTAMP"), None)
    yield lengths_draft(line, time, fields, notes, field="ContextTokens")


AZURE = Format(
    name="azure",
    title="Azure LLM inference trace (CSV of 2023, 2024 and 2025)",
    claims=claims,
    drafts=drafts,
    mapping={
        "timestamp": "TIMESTAMP",
        "prompt_tokens": "ContextTokens",
        "output_tokens": "GeneratedTokens",
        "images": "NumImages (multimodal trace)",
    },
    plain={
        "timestamp": "TIMESTAMP",
        "prompt_tokens": "ContextTokens",
        "output_tokens": "GeneratedTokens",
    },
    quirks=(
        "Times have seven fractional digits and no zone: the seventh is dropped, UTC is assumed.",
        "Line ends are CRLF and the last line has none.",
        "There is no text: nothing can be said about prefixes and about drafts.",
    ),
)
