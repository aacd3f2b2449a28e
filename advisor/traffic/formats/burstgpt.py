"""BurstGPT (Wang et al., 2024): requests to hosted models, with lengths, sessions and failures."""

from collections.abc import Iterable

from advisor.traffic.formats.fields import count
from advisor.traffic.formats.format import Format, Framing, Head, Record
from advisor.traffic.formats.lengths_row import failed_draft, lengths_draft, tag_of
from advisor.traffic.formats.row import Draft, Notes, RequestFields
from advisor.traffic.formats.times import read_time
from advisor.traffic.formats.timings import measured

NO_ANSWER = "no answer"


def claims(head: Head) -> bool:
    """A table with the columns `Timestamp`, `Model`, `Request tokens` and `Response tokens`."""
    return head.framing in (Framing.CSV, Framing.PARQUET) and head.has(
        "Timestamp", "Model", "Request tokens", "Response tokens"
    )


def drafts(record: Record, line: int, notes: Notes) -> Iterable[Draft]:
    """One row, one request; no response tokens mean that the request failed."""
    fields: RequestFields = {
        "prompt_tokens": count("Request tokens", record.get("Request tokens")),
        "output_tokens": count("Response tokens", record.get("Response tokens")),
    }
    if fields["output_tokens"] == 0:
        yield failed_draft(line, NO_ANSWER)
        return
    fields["model"] = tag_of(record, "Model")
    fields["label"] = tag_of(record, "Log Type")
    fields["session"] = tag_of(record, "Session ID")
    fields["duration_s"] = measured(record.get("Elapsed time"), 1, notes, line)
    time = read_time("Timestamp", record.get("Timestamp"), "s")
    yield lengths_draft(line, time, fields, notes, field="Request tokens")


BURSTGPT = Format(
    name="burstgpt",
    title="BurstGPT trace (CSV, versions 1 to 3)",
    claims=claims,
    drafts=drafts,
    mapping={
        "timestamp": "Timestamp (seconds from the first day of the trace)",
        "prompt_tokens": "Request tokens",
        "output_tokens": "Response tokens",
        "model": "Model",
        "class": "Log Type",
        "session_id": "Session ID (version 3)",
        "duration_s": "Elapsed time (seconds, version 3)",
        "failed": "Response tokens of 0",
    },
    quirks=(
        "A row with 0 response tokens is a failed request: counted apart as `no answer`.",
        "`Total tokens` is not read: it is the sum of the other two.",
    ),
)
