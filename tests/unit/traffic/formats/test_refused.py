"""Files that are no traffic are refused by their name, with what to do instead."""

import io
from collections.abc import Mapping

import pytest

from advisor.errors import UnreadableFile
from advisor.traffic.formats.format import Framing, Head
from advisor.traffic.formats.registry import FORMATS, REFUSALS
from advisor.traffic.reading import read_trace


def refused(head: Head) -> list[str]:
    return [item.name for item in REFUSALS if item.claims(head)]


def text(*lines: str) -> Head:
    return Head(framing=Framing.TEXT, lines=lines)


def document(*names: str, records: tuple[Mapping[str, object], ...] = ()) -> Head:
    return Head(framing=Framing.JSON, document=names, names=names, records=records)


def table(*names: str) -> Head:
    return Head(framing=Framing.CSV, names=names)


def observed(*observations: Mapping[str, object]) -> Head:
    whole: Mapping[str, object] = {"trace": {}, "observations": list(observations)}
    return document(*whole, records=(whole,))


CASES = {
    "vllm_log of 2024": (
        text("INFO 11-18 11:13:33 metrics.py:351] Avg prompt throughput: 260.3 tokens/s, Running"),
        "vllm_log",
    ),
    "vllm_log of today": (
        text("(APIServer pid=7) INFO 03-01 10:00:00 [loggers.py:248] Engine 000: Avg prompt"),
        "vllm_log",
    ),
    "access log first": (
        text('INFO:     127.0.0.1:5 - "POST /v1/completions HTTP/1.1"'),
        "vllm_log",
    ),
    "log taken for a table": (
        table("INFO 11-18 11:13:33 metrics.py:351] Avg prompt throughput: 0.1 tokens/s", " Run"),
        "vllm_log",
    ),
    "log with another first line": (
        Head(
            framing=Framing.CSV,
            names=("Starting up", " please wait"),
            records=(
                {"Starting up": "INFO 03-01 10:00:00 [api_server.py:1] a", " please wait": "b"},
            ),
        ),
        "vllm_log",
    ),
    "sglang": (text("[2025-03-01 10:00:00 TP0] Decode batch. #running-req: 3"), "sglang_log"),
    "tgi": (text("2025-03-01T10:00:00.1Z  INFO text_generation_router::server: x"), "tgi_log"),
    "tgi as JSON": (
        Head(
            framing=Framing.JSONL,
            names=("timestamp", "level", "fields", "target"),
            records=({"fields": {}, "target": "text_generation_router::server"},),
        ),
        "tgi_log",
    ),
    "prometheus": (text("# HELP vllm:num_requests_running Running requests."), "prometheus"),
    "page": (text("<!DOCTYPE html>", "<html>"), "html_page"),
    "page on one line": (table('<html lang="en"><head>', "b"), "html_page"),
    "guidellm table": (
        table("Type", "Successful Requests", "Successful Request latency mean", "Successful x"),
        "guidellm_csv",
    ),
    "guidellm table of today": (table("Run Info", "Run Info", "Benchmark"), "guidellm_csv"),
    "inference-perf": (document("load_summary", "successes", "failures"), "inference_perf_totals"),
    "bench": (document("total_input_tokens", "request_throughput", "mean_ttft_ms"), "bench_totals"),
    "bench throughput": (
        document("elapsed_time", "num_requests", "requests_per_second", "tokens_per_second"),
        "bench_totals",
    ),
    "bench latency": (document("avg_latency", "latencies", "percentiles"), "bench_totals"),
    "langfuse": (observed({"type": "SPAN"}, {"type": "AGENT"}), "langfuse_spans"),
    "servegen rates": (table("category", "client", "t_s", "rate_rps", "cv"), "statistics"),
    "servegen lengths": (
        table("category", "client", "field", "mean", "p1", "p50", "p99"),
        "statistics",
    ),
    "config.json": (document("architectures", "model_type", "hidden_size"), "model_config"),
    "tokenizer.json": (document("added_tokens", "pre_tokenizer", "model"), "model_config"),
    "weights' index": (document("metadata", "weight_map"), "model_config"),
}


@pytest.mark.parametrize("head, name", CASES.values(), ids=CASES)
def test_what_is_no_traffic_is_known_by_its_content(head: Head, name: str) -> None:
    """And by one refusal only."""
    assert refused(head) == [name]


TRAFFIC = {
    "a table of lengths": table("input_tokens", "output_tokens"),
    "requests": Head(
        framing=Framing.JSONL, names=("messages", "model"), records=({"messages": []},)
    ),
    "a prompt about logs": Head(
        framing=Framing.JSONL,
        names=("prompt",),
        records=({"prompt": "INFO 11-18 11:13:33 metrics.py:351] x"},),
    ),
    "a table of prompts about logs": Head(
        framing=Framing.CSV,
        names=("prompt", "id"),
        records=({"prompt": "INFO 11-18 11:13:33 metrics.py:351] x", "id": "1"},),
    ),
    "a trace with a generation": observed({"type": "SPAN"}, {"type": "GENERATION"}),
    "a trace too long to be shown": document("trace", "observations", records=({},)),
    "a detailed result": document("total_input_tokens", "request_throughput", "input_lens"),
}


@pytest.mark.parametrize("head", TRAFFIC.values(), ids=TRAFFIC)
def test_traffic_is_not_refused(head: Head) -> None:
    """Also where it looks a little like what is refused."""
    assert refused(head) == []


def test_every_refusal_says_what_to_do() -> None:
    """A reason and a remedy, and names that differ."""
    assert all(item.reason and item.remedy and item.title for item in REFUSALS)
    assert len({item.name for item in REFUSALS}) == len(REFUSALS)
    assert len({item.name for item in FORMATS}) == len(FORMATS)


FILES = {
    "html_page": b'<!DOCTYPE html>\n<html lang="en">\n<body>Sign in</body>\n</html>\n',
    "sglang_log": (
        b"[2025-03-01 10:00:00 TP0] Prefill batch. #new-seq: 1, #new-token: 12, #cached-token: 0\n"
        b"[2025-03-01 10:00:01 TP0] Decode batch. #running-req: 1, #token: 13\n"
    ),
    "tgi_log": (
        b"2025-03-01T10:00:00.1Z  INFO text_generation_router::server: total_time=1s\n" * 3
    ),
    "prometheus": (
        b"# HELP vllm:prompt_tokens_total Number of prefill tokens processed.\n"
        b"# TYPE vllm:prompt_tokens_total counter\n"
        b'vllm:prompt_tokens_total{model_name="m",engine="0"} 12.0\n'
    ),
    "model_config": b'{\n "architectures": ["L"],\n "model_type": "l",\n "hidden_size": 8\n}\n',
}


@pytest.mark.parametrize("name, body", FILES.items(), ids=FILES)
def test_a_whole_file_that_is_no_traffic_is_refused_with_the_remedy(name: str, body: bytes) -> None:
    """Whatever framing it is taken for at first."""
    chosen = next(item for item in REFUSALS if item.name == name)
    with pytest.raises(UnreadableFile) as caught:
        read_trace(io.BytesIO(body), filename="upload.txt")

    assert chosen.title in str(caught.value)
    assert chosen.remedy in str(caught.value)
