"""Result files of load generators that hold their requests are traffic."""

import json
from collections.abc import Mapping

import pytest

from advisor.traffic.formats.fields import BadField
from advisor.traffic.formats.format import Framing, Head
from advisor.traffic.formats.guidellm import GUIDELLM
from advisor.traffic.formats.inference_perf import INFERENCE_PERF
from advisor.traffic.formats.registry import FORMATS, REFUSALS
from advisor.traffic.formats.row import Draft, Notes
from advisor.traffic.formats.vllm_bench import VLLM_BENCH
from advisor.traffic.trace import RequestKind

Item = dict[str, object]
ASKED: Item = {
    "model": "m",
    "messages": [{"role": "user", "content": "why"}],
    "max_tokens": 64,
    "temperature": 0.5,
}


def claimed(head: Head) -> list[str]:
    """The refusal that names the file, else the format that has it."""
    refused = [item.name for item in REFUSALS if item.claims(head)]
    return refused or [item.name for item in FORMATS if item.claims(head)][:1]


def bench(**more: object) -> Item:
    return {
        "date": "20250301-100000",
        "backend": "vllm",
        "model_id": "m",
        "completed": 2,
        "total_input_tokens": 38,
        "request_throughput": 9.5,
        "input_lens": [13, 25, 27],
        "output_lens": [3, 1, 0],
        "ttfts": [0.15, 0.2, 0.0],
        "itls": [[0.1, 0.2], [], []],
        "start_times": [100.0, 100.5, 101.0],
        "generated_texts": ["a b c", "d", ""],
        "errors": ["", "", "Bad Request"],
    } | more


def bench_drafts(record: Mapping[str, object]) -> tuple[list[Draft], Notes]:
    notes = Notes()
    return list(VLLM_BENCH.drafts(record, 1, notes)), notes


def test_a_detailed_vllm_bench_result_is_as_many_requests_as_its_arrays_are_long() -> None:
    """Times from the tool's clock, durations from the first token and the gaps after it."""
    record = bench()
    head = Head(
        framing=Framing.JSON, document=tuple(record), names=tuple(record), records=(record,)
    )
    (first, second, third), _ = bench_drafts(record)

    assert claimed(head) == ["vllm_bench"]
    assert first.fields["duration_s"] == pytest.approx(0.45)
    assert first.fields["ttft_s"] == 0.15
    assert first.fields["model"] == "m"
    assert first.time is not None
    assert second.time is not None
    assert second.time.ns - first.time.ns == 500_000_000
    assert third.failed == "error"
    assert [draft.line for draft in (first, second, third)] == [1, 2, 3]


def test_a_stream_that_ended_before_its_first_token_failed() -> None:
    """Older versions count it as a success without an error."""
    record = bench(errors=["", "", ""])
    del record["start_times"]
    found, _ = bench_drafts(record)

    assert [draft.failed for draft in found] == [None, None, "no answer"]
    assert found[0].time is None


def test_latencies_of_newer_versions_win() -> None:
    """They are what the client measured from end to end."""
    (first, *_), _ = bench_drafts(bench(latencies=[0.5, 0.2, 0.1]))

    assert first.fields["duration_s"] == 0.5


def test_without_gaps_and_latencies_a_duration_is_not_known() -> None:
    """SGLang's tool writes both; a file that was cut may lack them."""
    record = bench()
    del record["itls"]
    (first, *_), _ = bench_drafts(record)

    assert "duration_s" not in first.fields
    assert first.fields["ttft_s"] == 0.15


def test_arrays_of_different_lengths_are_refused() -> None:
    """Nobody could tell which output belongs to which input."""
    with pytest.raises(BadField, match="length"):
        bench_drafts(bench(output_lens=[1]))


def test_one_bad_entry_does_not_lose_the_run() -> None:
    """It is left out and said."""
    found, notes = bench_drafts(bench(input_lens=[13, None, 27]))

    assert [draft.line for draft in found] == [1, 3]
    assert "left out" in notes.warnings()[0]


def lifecycle(**more: object) -> Item:
    return {
        "start_time": 5000.0,
        "end_time": 5002.5,
        "request": json.dumps(ASKED),
        "response": "",
        "info": {"input_tokens": 11, "output_tokens": 4, "output_token_times": [5000.25, 5001.0]},
        "error": None,
    } | more


def lifecycle_draft(record: Item) -> Draft:
    (draft,) = INFERENCE_PERF.drafts(record, 1, Notes())
    return draft


def test_inference_perf_requests_come_from_the_json_that_was_sent() -> None:
    """A stream's answer is empty in the file: not recorded, not an empty answer."""
    record = lifecycle()
    head = Head(framing=Framing.JSON, names=tuple(record), records=(record,))
    draft = lifecycle_draft(record)

    assert claimed(head) == ["inference_perf"]
    assert draft.kind is RequestKind.CHAT
    assert draft.fields["messages"] == json.dumps(ASKED["messages"])
    assert (draft.fields["prompt_tokens"], draft.fields["output_tokens"]) == (11, 4)
    assert (draft.fields["max_tokens"], draft.fields["temperature"]) == (64, 0.5)
    assert (draft.fields["duration_s"], draft.fields["ttft_s"]) == (2.5, 0.25)
    assert "response" not in draft.fields


def test_inference_perf_of_2026_nests_its_counts_and_keeps_chunks() -> None:
    """The server's own counts win over those of the tool's tokenizer."""
    chunk = {"choices": [{"index": 0, "delta": {"content": "yes"}}]}
    info = {
        "request_metrics": {"text": {"input_tokens": 9}},
        "response_metrics": {
            "output_tokens": 1,
            "output_token_times": [5001.0],
            "response_chunks": [f"data: {json.dumps(chunk)}", "data: [DONE]"],
            "server_usage": {"prompt_tokens": 12, "completion_tokens": 2},
        },
    }
    draft = lifecycle_draft(lifecycle(info=info))

    assert (draft.fields["prompt_tokens"], draft.fields["output_tokens"]) == (12, 2)
    assert draft.fields["response"] == "yes"
    assert draft.fields["ttft_s"] == 1


@pytest.mark.parametrize(
    "error, status",
    [
        ({"error_type": "429 Too Many Requests", "error_msg": "secret"}, "429"),
        ({"error_type": "TimeoutError", "error_msg": "secret"}, "error"),
    ],
)
def test_inference_perf_failures_are_named_by_their_status(error: object, status: str) -> None:
    """No text of the error is kept."""
    draft = lifecycle_draft(lifecycle(error=error, info=None, response=None))

    assert draft.failed == status
    assert draft.fields == {}


def guided(**more: object) -> Item:
    return {
        "type_": "generative_request_stats",
        "request_id": "a1",
        "request_type": "chat_completions",
        "request_args": json.dumps({"method": "POST", "stream": True, "body": ASKED}),
        "output": "because",
        "info": {
            "status": "completed",
            "timings": {
                "request_start": 1_786_678_148.25,
                "first_token_iteration": 1_786_678_148.5,
                "request_end": 1_786_678_150.25,
            },
        },
        "input_metrics": {"text_tokens": 12},
        "output_metrics": {"text_tokens": 1},
    } | more


def report(**requests: object) -> Item:
    return {"type_": "generative_benchmark", "metrics": {}, "requests": requests}


def guided_head(*benchmarks: Item) -> Head:
    whole: Item = {"metadata": {"version": 2}, "config": {}, "benchmarks": list(benchmarks)}
    names = tuple(whole)
    return Head(framing=Framing.JSON, document=names, names=names, records=(whole,))


def test_a_guidellm_report_gives_its_successful_requests_and_counts_the_others() -> None:
    """Version 2: what was sent is JSON in a string, counts are metrics, times are timings."""
    record = report(successful=[guided()], errored=[guided()], incomplete=[guided()], total=None)
    good, bad, cut = GUIDELLM.drafts(record, 3, Notes())

    assert claimed(guided_head(record)) == ["guidellm"]
    assert good.fields["messages"] == json.dumps(ASKED["messages"])
    assert good.fields["response"] == "because"
    assert good.fields["source_id"] == "a1"
    assert (good.fields["prompt_tokens"], good.fields["output_tokens"]) == (12, 1)
    assert good.fields["duration_s"] == 2
    assert good.fields["ttft_s"] == pytest.approx(0.25)
    assert good.time is not None
    assert good.time.absolute
    assert (bad.failed, cut.failed) == ("error", "incomplete")
    assert [draft.line for draft in (good, bad, cut)] == [3, 4, 5]


def test_a_guidellm_report_of_version_1_has_the_prompt_as_text() -> None:
    """Its request type says how it was sent."""
    old: Item = {
        "request_type": "text_completions",
        "prompt": "why",
        "request_args": {"payload": {}},
        "output": "because",
        "prompt_tokens": 1,
        "output_tokens": 1,
        "start_time": 1_740_000_000.0,
        "first_token_time": 1_740_000_000.5,
        "end_time": 1_740_000_001.0,
    }
    chat = old | {"request_type": "chat_completions"}
    first, second = GUIDELLM.drafts(report(successful=[old, chat]), 1, Notes())

    assert first.kind is RequestKind.COMPLETION
    assert first.fields["prompt"] == "why"
    assert (first.fields["duration_s"], first.fields["ttft_s"]) == (1, 0.5)
    assert second.kind is RequestKind.CHAT


def test_a_guidellm_report_without_requests_is_refused_by_name() -> None:
    """It is traffic again when one of its benchmarks has some."""
    record = report(successful=[], errored=[], incomplete=[], total=None)

    assert claimed(guided_head(record, record)) == ["guidellm_totals"]
    assert claimed(guided_head(record, report(successful=[guided()]))) == ["guidellm"]
    with pytest.raises(BadField, match="no single requests"):
        list(GUIDELLM.drafts(record, 1, Notes()))


def test_a_long_guidellm_report_is_known_by_its_keys_alone() -> None:
    """Of a document that is read in parts the lists are not shown."""
    names = ("metadata", "config", "benchmarks")

    assert claimed(Head(framing=Framing.JSON, document=names, names=names, records=({},))) == [
        "guidellm"
    ]


@pytest.mark.parametrize(
    "totals",
    [
        {"scheduler_metrics": {"requests_made": {"successful": 300}}},
        {"request_totals": {"successful": 2}},
    ],
)
def test_a_guidellm_report_that_keeps_a_sample_says_so(totals: Item) -> None:
    """Its requests came more often than their times show."""
    notes = Notes()
    list(GUIDELLM.drafts(report(successful=[guided()]) | totals, 1, notes))

    assert "keeps a part" in notes.warnings()[0]
