"""Exports as files: the reader finds their format, whatever its framing and its name."""

import csv
import gzip
import io
import json

import pytest

from advisor.traffic.formats.format import Framing
from tests.unit.traffic.formats.every_export import EXPORTS
from tests.unit.traffic.formats.exports import Export
from tests.unit.traffic.formats.gateway_exports import GATEWAY
from tests.unit.traffic.rows import read

FILES = {
    **{name: export for name, export in EXPORTS.items() if not name.startswith("task ")},
    "task": EXPORTS["task turns"],
}


def written(export: Export) -> bytes:
    """The file that the tool would have written."""
    if export.framing is Framing.CSV:
        text = io.StringIO()
        rows = csv.DictWriter(text, list(export.records[0]))
        rows.writeheader()
        rows.writerows(export.records)
        return text.getvalue().encode()
    if export.document:
        return json.dumps(export.records[0], indent=1).encode()
    if export.framing is Framing.JSON:
        return json.dumps(export.records).encode()
    return "\n".join(json.dumps(record) for record in export.records).encode()


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_read_as_its_format(name: str) -> None:
    """Its spans and other records that are no requests are no rows."""
    export = FILES[name]
    report = read(written(export)).report

    assert report.format == export.format
    assert (report.accepted > 0, report.rejected, report.failed) == (True, 0, {})
    assert report.rows == report.accepted


@pytest.mark.parametrize("name", ["helicone", "langfuse rows", "batch input", "otlp lines"])
def test_an_array_of_records_and_a_compressed_file_are_the_same_file(name: str) -> None:
    """JSON Lines, one array, gzip of either."""
    export = FILES[name]
    array = json.dumps(export.records).encode()
    found = [read(body).requests for body in (written(export), array, gzip.compress(array))]

    assert found[0] == found[1] == found[2]


def test_failed_requests_of_an_export_are_counted_by_status() -> None:
    """They are rows, and none of the requests."""
    record = {**GATEWAY.records[0], "status_code": 429}
    report = read(written(Export(format="", records=[*GATEWAY.records, record]))).report

    assert (report.rows, report.accepted, report.failed) == (2, 1, {"429": 1})
