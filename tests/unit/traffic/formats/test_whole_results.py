"""Result files of load generators as they lie on disk: documents, arrays, refusals."""

import io
import json

import pytest

from advisor.errors import NoUsableRows, UnreadableFile
from advisor.traffic.formats.options import ReadOptions
from advisor.traffic.reading import read_trace
from advisor.traffic.trace import Trace
from tests.unit.traffic.formats.test_benchmark_results import bench, guided, lifecycle, report

CANARY = "canary-7f3a"


def read(value: object, options: ReadOptions | None = None, *, indent: int | None = 1) -> Trace:
    body = json.dumps(value, indent=indent).encode()
    return read_trace(io.BytesIO(body), filename="upload", options=options or ReadOptions())


def test_a_guidellm_report_of_two_rates_is_one_trace_with_ids_of_its_own() -> None:
    """Rows of different benchmarks share numbers and not ids; failures are no requests."""
    later = guided(info={"timings": {"request_start": 1_786_678_150.25}})
    trace = read(
        {
            "metadata": {"version": 2},
            "config": {},
            "benchmarks": [
                report(successful=[guided(), guided()], errored=[guided()]),
                report(successful=[later], errored=[], incomplete=[]),
            ],
        }
    )

    assert trace.report.format == "guidellm"
    assert trace.report.accepted == 3
    assert dict(trace.report.failed) == {"error": 1}
    assert trace.report.rows == 4
    assert len({request.id for request in trace.requests}) == 3
    assert [request.arrival_s for request in trace.requests] == [0, 0, 2]


def test_a_report_without_requests_says_what_to_do() -> None:
    """By its name, not as a file without rows."""
    with pytest.raises(UnreadableFile, match="GuideLLM report without requests"):
        read({"metadata": {}, "config": {}, "benchmarks": [report(successful=[])]})


@pytest.mark.parametrize("indent", [None, 1])
def test_an_inference_perf_file_is_an_array(indent: int | None) -> None:
    """Its clock starts anywhere: arrivals are offsets from the first request."""
    error = {"error_type": "503 x", "error_msg": CANARY}
    trace = read(
        [lifecycle(), lifecycle(start_time=5001.5), lifecycle(error=error, info=None)],
        indent=indent,
    )

    assert trace.report.format == "inference_perf"
    assert [request.arrival_s for request in trace.requests] == [0, 1.5]
    assert dict(trace.report.failed) == {"503": 1}
    assert trace.report.time_unit == "s"
    assert CANARY not in repr(trace.report)


def test_a_detailed_bench_result_is_one_object_or_a_line_of_several() -> None:
    """`--append-result` writes a line a run."""
    one = read(bench())
    body = b"\n".join(json.dumps(bench()).encode() for _ in range(2))
    two = read_trace(io.BytesIO(body), filename="upload")

    assert one.report.format == two.report.format == "vllm_bench"
    assert (one.report.accepted, two.report.accepted) == (2, 4)
    assert dict(two.report.failed) == {"error": 2}
    assert len({request.id for request in two.requests}) == 4


def test_a_bench_result_without_details_says_which_option_keeps_them() -> None:
    """Throughput and percentiles are no traffic."""
    record = {name: item for name, item in bench().items() if not isinstance(item, list)}
    with pytest.raises(UnreadableFile, match="save-detailed"):
        read(record)


def test_a_timed_trace_is_read_in_the_unit_that_the_user_gives() -> None:
    """The unit is an option of the tool that replays it."""
    rows = [
        {"timestamp": 500 * place, "input_length": 32, "output_length": 1, "hash_ids": [1, 2]}
        for place in range(3)
    ]
    assumed = read(rows)
    given = read(rows, ReadOptions(time_unit="ms"))

    assert assumed.report.format == "vllm_timed_trace"
    assert assumed.requests[-1].arrival_s == 1000
    assert given.requests[-1].arrival_s == 1
    assert given.report.block_tokens == assumed.report.block_tokens == 16


def test_half_a_character_of_utf_16_in_a_broken_document_is_a_refusal() -> None:
    """No parser stumbles over text that has no UTF-8."""
    body = b"\xff\xfe" + '{\n"messages": "\ud800'.encode("utf-16-le", "surrogatepass")
    with pytest.raises((NoUsableRows, UnreadableFile)):
        read_trace(io.BytesIO(body), filename="upload")
