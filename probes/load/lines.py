"""Per-request records as lines of JSON: what the client process prints, without heavy imports."""

import dataclasses
import json
from collections.abc import Mapping

from advisor.measurement.records import Outcome, RequestRecord


def record_to_line(record: RequestRecord) -> str:
    """One record as one line of JSON."""
    return json.dumps(dataclasses.asdict(record))


def record_from_line(line: str | bytes) -> RequestRecord:
    """The inverse of `record_to_line`."""
    return read_record(json.loads(line))


def read_record(row: Mapping[str, object]) -> RequestRecord:
    """A record from its fields as plain values."""
    values = {
        name: tuple(value) if isinstance(value, list) else value for name, value in row.items()
    }
    values["outcome"] = Outcome(str(values["outcome"]))
    return RequestRecord(**values)  # type: ignore[arg-type]
