"""Public traces of lengths and times: Azure, BurstGPT, Mooncake, Bailian, `vllm bench`."""

import csv
import io
from collections.abc import Mapping, Sequence

import pytest

from advisor.traffic.formats.azure import AZURE
from advisor.traffic.formats.burstgpt import BURSTGPT
from advisor.traffic.formats.fields import BadField
from advisor.traffic.formats.format import Format, Framing, Head
from advisor.traffic.formats.hash_trace import BAILIAN, HASH_TRACES, MOONCAKE, TIMED_TRACE
from advisor.traffic.formats.lengths_csv import CsvRows
from advisor.traffic.formats.registry import FORMATS, REFUSALS
from advisor.traffic.formats.row import Draft, Notes

AZURE_2023 = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:17:03.9799600,4808,10"
AZURE_2025 = "TIMESTAMP,NumImages,ContextTokens,GeneratedTokens\n2024-10-15 07:00:00.1+00:00,2,90,8"
BURST_V1 = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,ChatGPT,472,18,490,Conversation log\n6,GPT-4,90,0,90,API log\n"  # noqa: E501
BURST_V3 = "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n19440110.0,ab-1,43,GPT-4,906,446,1352,Conversation log\n"  # noqa: E501


def rows_of(text: str) -> list[Mapping[str, object]]:
    return list(csv.DictReader(io.StringIO(text)))


def head_of(records: Sequence[Mapping[str, object]], framing: Framing) -> Head:
    return Head(framing=framing, names=tuple(records[0]), records=tuple(records))


def claimed(head: Head) -> list[str]:
    """The refusal that names the file, else the format that has it."""
    refused = [item.name for item in REFUSALS if item.claims(head)]
    return refused or [item.name for item in FORMATS if item.claims(head)][:1]


def taken(chosen: Format, records: Sequence[Mapping[str, object]]) -> tuple[list[Draft], Notes]:
    notes = Notes()
    found = [
        draft
        for line, record in enumerate(records, start=1)
        for draft in chosen.drafts(record, line, notes)
    ]
    return found, notes


def test_azure_times_keep_microseconds_of_their_seven_digits() -> None:
    """2023-11-16 18:17:03.97996 UTC."""
    records = rows_of(AZURE_2023)
    (draft,), _ = taken(AZURE, records)

    assert claimed(head_of(records, Framing.CSV)) == ["azure"]
    assert draft.time is not None
    assert draft.time.ns == 1_700_158_623_979_960_000
    assert (draft.fields["prompt_tokens"], draft.fields["output_tokens"]) == (4808, 10)


def test_azure_of_2025_counts_images() -> None:
    """The multimodal trace has one column more."""
    (draft,), _ = taken(AZURE, rows_of(AZURE_2025))

    assert draft.fields["images"] == 2


def test_azure_images_are_whole_numbers() -> None:
    """Half an image is no count."""
    with pytest.raises(BadField, match="NumImages"):
        taken(AZURE, rows_of(AZURE_2025.replace(",2,", ",2.5,")))


def test_burstgpt_keeps_its_failures_apart() -> None:
    """0 response tokens mean that no answer came."""
    records = rows_of(BURST_V1)
    (good, bad), _ = taken(BURSTGPT, records)

    assert claimed(head_of(records, Framing.CSV)) == ["burstgpt"]
    assert good.failed is None
    assert good.fields["label"] == "Conversation log"
    assert good.fields["model"] == "ChatGPT"
    assert good.time is not None
    assert good.time.ns == 5 * 10**9
    assert bad.failed == "no answer"


def test_burstgpt_3_has_sessions_and_durations() -> None:
    """A time below 10^8 is an offset, here 225 days into the trace."""
    (draft,), _ = taken(BURSTGPT, rows_of(BURST_V3))

    assert draft.fields["session"] == "ab-1"
    assert draft.fields["duration_s"] == 43
    assert draft.time is not None
    assert not draft.time.absolute


def hashed(length: int, ids: int, **more: object) -> dict[str, object]:
    return {
        "timestamp": 27_000,
        "input_length": length,
        "output_length": 5,
        "hash_ids": list(range(ids)),
    } | more


@pytest.mark.parametrize(
    "records, name",
    [
        ([hashed(6758, 14), hashed(7322, 15)], "mooncake"),
        ([hashed(2358, 147), hashed(1034, 64)], "vllm_timed_trace"),
        ([hashed(2358, 148), hashed(1034, 65)], "vllm_timed_trace"),
        ([hashed(300, 5), hashed(1000, 16)], "hash_trace_64"),
    ],
)
def test_the_tokens_of_a_block_follow_from_lengths_and_ids(
    records: list[Mapping[str, object]], name: str
) -> None:
    """With the last, half full block counted (14 of 512, 148 of 16) or not (147 of 16)."""
    chosen = next(item for item in HASH_TRACES if item.name == name)
    found, notes = taken(chosen, records)

    assert claimed(head_of(records, Framing.JSONL)) == [name]
    assert all(draft.fields["block_ids"] is not None for draft in found)
    assert notes.lines == {}


def test_ids_that_fit_no_size_are_no_hash_trace() -> None:
    """Such a file is read by its lengths alone."""
    records = [hashed(1000, 3), hashed(1000, 7)]

    assert [item.name for item in HASH_TRACES if item.claims(head_of(records, Framing.JSONL))] == []


def test_a_row_with_too_many_ids_loses_them_and_says_so() -> None:
    """Its length stays."""
    (draft,), notes = taken(MOONCAKE, [hashed(1024, 9)])

    assert "block_ids" not in draft.fields
    assert draft.fields["prompt_tokens"] == 1024
    assert "number of block ids" in notes.warnings()[0]


def test_mooncake_times_are_milliseconds_and_timed_traces_say_their_own() -> None:
    """27 s in the first; 27,000 s in the second unless the name says ms."""
    (first,), _ = taken(MOONCAKE, [hashed(1024, 2)])
    (second,), _ = taken(TIMED_TRACE, [hashed(32, 2)])
    named = hashed(32, 2, timestamp_ms=46.927)
    del named["timestamp"]
    (third,), _ = taken(TIMED_TRACE, [named])

    assert first.time is not None
    assert second.time is not None
    assert third.time is not None
    assert first.time.ns == 27 * 10**9
    assert second.time.ns == 27_000 * 10**9
    assert third.time.ns == 46_927_000


def test_sessions_and_ids_of_hash_traces_are_kept() -> None:
    """Case T-03 has sessions in the Mooncake shape."""
    (draft,), _ = taken(MOONCAKE, [hashed(1024, 2, session_id="s1", request_id="bench-0")])

    assert draft.fields["session"] == "s1"
    assert draft.fields["source_id"] == "bench-0"


def test_bailian_rows_are_no_sessions_by_their_own_chat_id() -> None:
    """A chat id of its own on every row would make each row a session."""
    record = hashed(521, 33, chat_id=159, parent_chat_id=-1, turn=1, type="text")
    (draft,), _ = taken(BAILIAN, [record])

    assert claimed(head_of([record], Framing.JSONL)) == ["bailian"]
    assert "session" not in draft.fields
    assert draft.fields["label"] == "text"
    assert draft.fields["source_id"] == "159"


@pytest.mark.parametrize("ids", ["7", [1, "2"], [1.5], [2**70]])
def test_block_ids_are_whole_numbers(ids: object) -> None:
    """Anything else is refused by the name of its field."""
    with pytest.raises(BadField, match="hash_ids"):
        taken(MOONCAKE, [hashed(1024, 2) | {"hash_ids": ids}])


def test_block_ids_of_64_bits_may_have_a_sign_or_not() -> None:
    """Both are how hashes are written."""
    ids = [2**64 - 1, -(2**63)]
    (draft,), _ = taken(MOONCAKE, [hashed(1024, 2) | {"hash_ids": ids}])

    assert draft.fields["block_ids"] == tuple(ids)


def test_lengths_of_zero_stay_and_are_said() -> None:
    """An answer of 0 tokens is one that ended at once; it is not unknown."""
    (draft,), notes = taken(MOONCAKE, [hashed(0, 0) | {"output_length": 0}])

    assert (draft.fields["prompt_tokens"], draft.fields["output_tokens"]) == (0, 0)
    assert len(notes.warnings()) == 2


def table(text: str) -> list[Draft]:
    header, *rows = csv.reader(io.StringIO(text))
    found = CsvRows(header)
    return [found.draft(row, line, Notes()) for line, row in enumerate(rows, start=2)]


def test_a_status_column_keeps_failed_rows_apart_before_their_empty_lengths_matter() -> None:
    """A client that gave up after 866 ms has no token counts (the log of IBM's TGIS)."""
    good, bad = table(
        "status,start_timestamp,end_timestamp,n_input_tokens,n_output_tokens,latency_ms,ttft_ms\n"
        "200,1697551907223,1697551909223,40,9,1990.5,80\n"
        "408,1697551907223,1697551908706,,,,866\n"
    )

    assert good.failed is None
    assert good.fields["duration_s"] == pytest.approx(1.9905)
    assert good.fields["ttft_s"] == pytest.approx(0.08)
    assert bad.failed == "408"


def test_an_end_beside_a_start_is_a_duration() -> None:
    """Where no column holds the duration itself."""
    (draft,) = table("start_timestamp,end_timestamp,input_tokens\n1697551907223,1697551909223,4\n")

    assert draft.fields["duration_s"] == 2


@pytest.mark.parametrize("status", ["200", "ok", "", "active", "null"])
def test_a_status_that_is_no_failure_is_none(status: str) -> None:
    """A column called status may hold anything."""
    (draft,) = table(f"status,input_tokens\n{status},4\n")

    assert draft.failed is None
