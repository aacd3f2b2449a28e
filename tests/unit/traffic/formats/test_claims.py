"""Every export is claimed by its own format and by no other."""

from collections.abc import Mapping

import pytest

from advisor.traffic.formats.fields import ALIASES
from advisor.traffic.formats.format import Framing
from advisor.traffic.formats.registry import FORMATS
from advisor.traffic.trace import RequestKind
from tests.unit.traffic.formats.every_export import EXPORTS
from tests.unit.traffic.formats.exports import ASK, Export, claimed, taken

OF_NOBODY: Mapping[str, Mapping[str, object]] = {
    "messages": {"messages": [ASK]},
    "prompt": {"prompt": "Name a river.", "output_tokens": 4},
    "lengths": {"timestamp": 0, "input_length": 100, "output_length": 10},
    "completion": {"prompt": "Tea.", "completion": "Warm.", "completion_tokens": 4},
    "recorded": {
        "timestamp": 1_750_000_000.5, "messages": [ASK], "response": "The Elbe.",
        "usage": {"prompt_tokens": 9, "completion_tokens": 2}, "model": "m",
        "stream": True, "finish_reason": "stop", "latency_s": 0.5, "ttft_s": 0.1,
    },
    "traced": {"trace_id": "t", "session_id": "s", "prompt": "Hi.", "response": "Ho."},
    "input": {"input": [ASK], "output": "The Elbe."},
    "unknown": {"foo": "a", "bar": 1},
}  # fmt: skip


@pytest.mark.parametrize("name", EXPORTS)
def test_an_export_is_claimed_by_one_format_only(name: str) -> None:
    """By content: no format steals the file of another."""
    export = EXPORTS[name]

    assert claimed(export.head) == [export.format]


@pytest.mark.parametrize("name", OF_NOBODY)
@pytest.mark.parametrize("framing", [Framing.JSONL, Framing.CSV, Framing.PARQUET])
def test_plain_rows_are_left_to_the_generic_rules(name: str, framing: Framing) -> None:
    """What has no tool's signs is nobody's."""
    head = Export(format="", framing=framing, records=[OF_NOBODY[name]]).head

    assert claimed(head) == []


@pytest.mark.parametrize("name", EXPORTS)
def test_an_export_gives_requests(name: str) -> None:
    """A prompt or a length in each, and nothing that failed."""
    export = EXPORTS[name]
    records = export.records
    if export.document:  # as a reader takes records from their place in a document
        inner = next(iter(records[0].values()))
        records = inner if "data" in records[0] and isinstance(inner, list) else records
    drafts, _ = taken(export.format, *records)

    assert drafts
    for draft in drafts:
        assert draft.failed is None
        assert draft.kind is not RequestKind.LENGTHS or draft.fields["prompt_tokens"]


@pytest.mark.parametrize("known", FORMATS, ids=lambda known: known.name)
def test_a_format_documents_what_it_maps(known: object) -> None:
    """Our names on the left, theirs on the right."""
    (found,) = [item for item in FORMATS if item is known]
    ours = {
        *ALIASES, "images", "duration_s", "ttft_s", "prompt_ids", "output_ids", "block_ids",
        "failed", "label", "session", "arrival_s",
    }  # fmt: skip

    assert found.title
    assert {name for names in found.mapping for name in names.split(", ")} <= ours
    assert all(found.mapping.values())
