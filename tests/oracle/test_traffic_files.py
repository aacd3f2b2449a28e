"""Every public sample of traffic (../shared/data/traffic) against the counts of its README."""

import io
from collections.abc import Sequence
from pathlib import Path

import pytest

from advisor.errors import UnreadableFile
from advisor.traffic.formats.options import ReadOptions
from advisor.traffic.formats.registry import FORMATS, REFUSALS
from advisor.traffic.reading import OpenTrace, open_trace
from advisor.traffic.trace import Request

# File, format, requests, failed requests by status.
TRACES: tuple[tuple[str, str, int, dict[str, int]], ...] = (
    ("azure_2023/AzureLLMInferenceTrace_code.csv", "azure", 8_819, {}),
    ("azure_2023/AzureLLMInferenceTrace_conv.csv", "azure", 19_366, {}),
    ("mooncake_fast25/conversation_trace.jsonl", "mooncake", 12_031, {}),
    ("mooncake_fast25/synthetic_trace.jsonl", "mooncake", 3_993, {}),
    ("sharegpt_300/sharegpt_300_llama-3.1-8b_blk16.jsonl", "vllm_timed_trace", 300, {}),
    ("sharegpt_300/sharegpt_300_qwen3-32b_blk16.jsonl", "vllm_timed_trace", 300, {}),
    ("ibm_tgis/llama13b_a100x1_u32_requests.csv", "csv", 1_612, {"408": 1_560}),
    ("lengths/sharegpt-vicuna.csv.gz", "csv", 81_494, {}),
    ("lengths/llama2-70b-99.csv", "csv", 24_576, {}),
    ("lengths/mixtral-8x7b.csv", "csv", 15_000, {}),
    ("lengths/llama3-1-405b.csv", "csv", 8_313, {}),
    ("lengths/llama3-1-8b-datacenter.csv", "csv", 13_368, {}),
    ("lengths/deepseek-r1.csv", "csv", 4_388, {}),
    ("lengths/arxiv_summarization_llama2_tok.csv.gz", "csv", 28_257, {}),
    ("lengths/gpt-oss.csv", "csv", 6_396, {}),
    ("lengths/swebench-lite.csv", "csv", 300, {}),
    ("prompts/spec_bench_question.jsonl", "prompts", 480, {}),
    ("prompts/mt_bench_question.jsonl", "prompts", 80, {}),
    ("prompts/HumanEval.jsonl.gz", "prompts", 164, {}),
    ("prompts/gsm8k_test.jsonl", "prompts", 1_319, {}),
    ("prompts/bfcl_v4_live_simple.jsonl", "prompts", 258, {}),
    ("prompts/bfcl_v4_live_parallel.jsonl", "prompts", 16, {}),
    ("prompts/bfcl_v4_parallel.jsonl", "prompts", 200, {}),
    ("prompts/bfcl_v4_multi_turn_base.jsonl", "prompts", 200, {}),
    ("formats/burstgpt_v1_first_rows.csv", "burstgpt", 3, {}),
    ("formats/burstgpt_v3_first_rows.csv", "burstgpt", 4, {}),
    ("formats/openai_batch_input_aibrix.jsonl", "openai_batch_input", 10, {}),
    ("formats/litellm_spend_log_fixture.json", "litellm", 1, {}),
    ("formats/litellm_standard_logging_payload_fixture.json", "litellm", 1, {}),
    ("formats/langfuse_trace_google-adk-2025-08-28.json", "langfuse", 2, {}),
    ("formats/langfuse_trace_langgraph-python-2025-08-22.json", "langfuse", 2, {}),
    ("formats/langfuse_trace_openai-agents-2025-09-30.json", "langfuse", 2, {}),
    ("formats/otel_genai_customer_support_escalation.json", "otel_genai", 9, {}),
    ("formats/otel_genai_parallel_requests.json", "otel_genai", 5, {}),
    ("formats/otel_genai_prefix_sharing_example.json", "otel_genai", 7, {}),
    ("formats/otel_genai_simple_chain.json", "otel_genai", 3, {}),
    # Cut to 60 requests; the engine died in the run and 22 streams ended before a first token.
    ("formats/vllm_bench_serve_result_405b_h100_trimmed.json", "vllm_bench", 38, {"no answer": 22}),
)
REFUSED = (
    ("formats/guidellm_export_kaito_a100_rate16.csv", "guidellm_csv"),
    ("formats/guidellm_report_v2_mock_model.json", "guidellm_totals"),
    ("formats/inference_perf_stage_lifecycle_metrics.json", "inference_perf_totals"),
    ("formats/inference_perf_stage_prometheus_metrics.json", "inference_perf_totals"),
    ("formats/vllm_server_log_engine_died_trimmed.txt", "vllm_log"),
    ("servegen/client_length_quantiles.csv", "statistics"),
    ("servegen/client_rate_windows_top8.csv.gz", "statistics"),
)
BLOCK_TOKENS = {item.name: item.block_tokens for item in FORMATS}


@pytest.fixture(scope="module")
def traffic(shared: Path) -> Path:
    return shared / "data" / "traffic"


def opened(path: Path, options: ReadOptions | None = None) -> OpenTrace:
    with path.open("rb") as stream:
        return open_trace(
            stream, filename=path.name, spool=io.BytesIO(), options=options or ReadOptions()
        )


def requests_of(trace: OpenTrace) -> list[Request]:
    return [request for batch in trace.batches() for request in batch]


def file_names(rows: Sequence[Sequence[object]]) -> list[str]:
    return [str(row[0]).rpartition("/")[2] for row in rows]


@pytest.mark.parametrize("sample", TRACES, ids=file_names(TRACES))
def test_a_public_sample_has_as_many_requests_as_its_readme_says(
    traffic: Path, sample: tuple[str, str, int, dict[str, int]]
) -> None:
    """No row is rejected; failed requests are counted apart; the format is known by content."""
    name, chosen, requests, failed = sample
    report = opened(traffic / name).report

    assert report.format == chosen
    assert report.accepted == requests
    assert dict(report.failed) == failed
    assert report.rejects == ()
    assert report.rows == requests + sum(failed.values())
    assert report.block_tokens == BLOCK_TOKENS.get(chosen)


@pytest.mark.parametrize("name, refusal", REFUSED, ids=file_names(REFUSED))
def test_a_public_sample_that_is_no_traffic_is_refused_by_name(
    traffic: Path, name: str, refusal: str
) -> None:
    """With the reason and what to do instead."""
    chosen = next(item for item in REFUSALS if item.name == refusal)
    with pytest.raises(UnreadableFile) as caught:
        opened(traffic / name)

    assert chosen.title in str(caught.value)
    assert chosen.remedy in str(caught.value)


def test_every_public_sample_is_looked_at(traffic: Path) -> None:
    """A file that is added to the folder is added here."""
    held = {str(path.relative_to(traffic)) for path in traffic.glob("*/*")}
    named = {row[0] for row in TRACES} | {row[0] for row in REFUSED}

    assert {name for name in held if not name.endswith("README.md")} == named


def test_lengths_of_zero_are_said(traffic: Path) -> None:
    """ShareGPT counted by conversation: 745 empty prompts and 74 empty answers."""
    said = " ".join(opened(traffic / "lengths" / "sharegpt-vicuna.csv.gz").report.warnings)

    assert "745 rows count 0 tokens in the prompt" in said
    assert "74 rows count 0 tokens in the answer" in said


def test_times_of_the_traces_are_read_in_their_units(traffic: Path) -> None:
    """An hour of Azure's conversations, an hour of Mooncake's, half a minute of ShareGPT."""
    spans = {
        folder: requests_of(opened(traffic / folder / name))[-1].arrival_s
        for folder, name in (
            ("azure_2023", "AzureLLMInferenceTrace_conv.csv"),
            ("mooncake_fast25", "conversation_trace.jsonl"),
            ("sharegpt_300", "sharegpt_300_qwen3-32b_blk16.jsonl"),
        )
    }

    assert spans["azure_2023"] == pytest.approx(3501, abs=5)
    assert spans["mooncake_fast25"] == pytest.approx(3536, abs=5)
    assert spans["sharegpt_300"] == pytest.approx(30, rel=0.1)


def test_case_t_03_is_read_as_cumulative_and_can_be_overridden(shared: Path) -> None:
    """5,120 prompt tokens in all, not 9,304; with per-turn lengths it would be the latter."""
    path = shared / "cases" / "t03_sessions_cumulative.jsonl"
    trace = opened(path)
    other = opened(path, ReadOptions(session_lengths="per_turn"))

    assert trace.report.readings["session_lengths"] == "cumulative"
    assert sum(request.prompt_tokens or 0 for request in requests_of(trace)) == 5_120
    assert other.report.readings["session_lengths"] == "per_turn"
    assert sum(request.prompt_tokens or 0 for request in requests_of(other)) == 9_304
    assert [request.block_ids for request in requests_of(other)] == [(11, 12), None, None]
