"""Files that users mistake for traffic: known by their content and refused with what to do."""

import re
from collections.abc import Mapping

from advisor.traffic.formats.fields import assign
from advisor.traffic.formats.format import Framing, Head, Refusal
from advisor.traffic.formats.guidellm import NO_REQUESTS, benchmarks_of, holds_requests

_RECORD = (
    "let `rooftune record` stand between your clients and the server for a while: it writes"
    " prompts, answers, lengths and times"
)
_VLLM_LOG = re.compile(
    r"(?:\(\w+[^)]*\) )?(?:INFO|WARNING|ERROR|DEBUG) \d\d-\d\d \d\d:\d\d:\d\d \[?[\w./-]+\.py:\d+\]"
)
_ACCESS_LOG = re.compile(r'(?:\(\w+[^)]*\) )?INFO: +[\w.:\[\]-]+ - "(?:GET|POST) ')
_SGLANG_LOG = re.compile(
    r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[^\]]*\] (?:server_args|INFO|WARNING|Prefill batch"
    r"|Decode batch|Load weight|max_total_num_tokens|KV Cache|Capture)"
)
_TGI_LOG = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z +(?:INFO|WARN|ERROR) +text_generation")
_METRIC = re.compile(r"# (?:HELP|TYPE) [A-Za-z_:][\w:]*( |$)")
_PAGE = re.compile(r"\s*<(?:!doctype\s+html|html|head|body)\b", re.IGNORECASE)
_QUANTILES = frozenset({"p1", "p5", "p10", "p25", "p50", "p75", "p90", "p95", "p99"})
_MANY = 3


def _texts(head: Head) -> tuple[str, ...]:
    """The first lines; a log may have been taken for a table because of its commas."""
    if head.framing is not Framing.CSV or assign(head.names):
        return head.lines
    cells = ([cell for cell in record.values() if cell is not None] for record in head.records)
    return (",".join(head.names), *(",".join(map(str, row)) for row in cells))


def _any_line(head: Head, *shapes: re.Pattern[str]) -> bool:
    return any(shape.match(line) for line in _texts(head) for shape in shapes)


def _keys(head: Head) -> frozenset[str]:
    """Keys of a document, or of the rows of a file that has one such document a line."""
    if head.framing in (Framing.JSON, Framing.JSONL):
        return frozenset((*head.document, *head.names))
    return frozenset()


def vllm_log(head: Head) -> bool:
    """Lines such as `INFO 11-18 11:13:33 metrics.py:351] …`, or the access log beside them."""
    return _any_line(head, _VLLM_LOG, _ACCESS_LOG)


def sglang_log(head: Head) -> bool:
    """Lines such as `[2025-03-01 10:00:00 TP0] Decode batch. …`."""
    return _any_line(head, _SGLANG_LOG)


def tgi_log(head: Head) -> bool:
    """Lines such as `2025-03-01T10:00:00.1Z INFO text_generation_router …`, as text or JSON."""
    targets = [record.get("target") for record in head.records if "fields" in record]
    return _any_line(head, _TGI_LOG) or any(
        isinstance(target, str) and target.startswith("text_generation") for target in targets
    )


def guidellm_table(head: Head) -> bool:
    """A table with columns such as `Successful Requests`, or `Run Info` over `Benchmark`."""
    names = head.names
    if head.framing is not Framing.CSV:
        return False
    if sum(name.startswith("Successful ") for name in names) >= _MANY:
        return True
    return "Run Info" in names and any(name in names for name in ("Benchmark", "Timings"))


def guidellm_totals(head: Head) -> bool:
    """A report whose benchmarks all have empty lists of requests."""
    found = benchmarks_of(head)
    return bool(found) and not any(map(holds_requests, found or ()))


def lifecycle_totals(head: Head) -> bool:
    """A document with `load_summary`, `successes` and `failures`."""
    return {"load_summary", "successes", "failures"} <= _keys(head)


def prometheus(head: Head) -> bool:
    """Lines such as `# HELP vllm:num_requests_running …`."""
    return _any_line(head, _METRIC)


def bench_totals(head: Head) -> bool:
    """A result of `vllm bench` or `bench_serving` without its arrays per request."""
    keys = _keys(head)
    serve = {"total_input_tokens", "request_throughput"} <= keys and "input_lens" not in keys
    throughput = {"requests_per_second", "tokens_per_second", "elapsed_time"} <= keys
    return serve or throughput or {"avg_latency", "latencies", "percentiles"} <= keys


def langfuse_spans(head: Head) -> bool:
    """A trace with `observations` none of which is a `GENERATION`."""
    shown = head.records[0].get("observations") if head.document and head.records else None
    if not isinstance(shown, list) or not {"trace", "observations"}.issuperset(head.document):
        return False
    kinds = {str(item.get("type")) for item in shown if isinstance(item, Mapping)}
    return not {"GENERATION", "EMBEDDING"} & kinds


def statistics(head: Head) -> bool:
    """A table with a rate and its variation per window, or with quantiles per client."""
    names = set(head.names)
    if head.framing not in (Framing.CSV, Framing.PARQUET):
        return False
    return {"rate_rps", "cv"} <= names or ("mean" in names and len(names & _QUANTILES) >= _MANY)


def model_config(head: Head) -> bool:
    """A `config.json`, a tokenizer or another file of a model's folder."""
    keys = _keys(head)
    return (
        {"model_type", "architectures"} <= keys
        or {"model_type", "hidden_size"} <= keys
        or {"added_tokens", "pre_tokenizer", "model"} <= keys
        or "tokenizer_class" in keys
        or {"metadata", "weight_map"} <= keys
    )


def page(head: Head) -> bool:
    """Text that starts with `<!DOCTYPE html>` or `<html>`."""
    return any(_PAGE.match(line) for line in _texts(head)[:_MANY])


REFUSED = (
    Refusal(
        name="html_page",
        title="a web page",
        claims=page,
        reason="it is HTML, probably the page of a log-in or of an error that was saved",
        remedy="download the file itself, signed in",
    ),
    Refusal(
        name="vllm_log",
        title="a log of a vLLM server",
        claims=vllm_log,
        reason="it has neither prompts nor lengths of single requests",
        remedy=_RECORD,
    ),
    Refusal(
        name="sglang_log",
        title="a log of an SGLang server",
        claims=sglang_log,
        reason="it has batches and neither prompts nor lengths of single requests",
        remedy=_RECORD,
    ),
    Refusal(
        name="tgi_log",
        title="a log of a TGI server",
        claims=tgi_log,
        reason="it has times and neither prompts nor lengths of single requests",
        remedy=_RECORD,
    ),
    Refusal(
        name="prometheus",
        title="metrics in the text format of Prometheus",
        claims=prometheus,
        reason="counters and histograms have no single requests",
        remedy=_RECORD,
    ),
    Refusal(
        name="guidellm_csv",
        title="the CSV export of GuideLLM",
        claims=guidellm_table,
        reason="it has totals and percentiles of each benchmark and no single requests",
        remedy="export the report as JSON with its requests, or upload the data set that was sent",
    ),
    Refusal(
        name="guidellm_totals",
        title="a GuideLLM report without requests",
        claims=guidellm_totals,
        reason=NO_REQUESTS,
        remedy=(
            "run GuideLLM again with a sample of requests kept in the report (no"
            " `--sample-requests 0`), or upload the data set that was sent"
        ),
    ),
    Refusal(
        name="inference_perf_totals",
        title="a summary of inference-perf",
        claims=lifecycle_totals,
        reason="it has totals and percentiles of a stage and no single requests",
        remedy=(
            "run it with `report.request_lifecycle.per_request: true` and upload"
            " per_request_lifecycle_metrics.json"
        ),
    ),
    Refusal(
        name="bench_totals",
        title="a benchmark's result without its requests",
        claims=bench_totals,
        reason="it has throughput and percentiles and no single requests",
        remedy="run `vllm bench serve` with `--save-result --save-detailed`",
    ),
    Refusal(
        name="langfuse_spans",
        title="a Langfuse trace without generations",
        claims=langfuse_spans,
        reason="none of its observations is a GENERATION: no model was called",
        remedy="export traces whose observations include the calls of a model",
    ),
    Refusal(
        name="statistics",
        title="statistics of traffic",
        claims=statistics,
        reason="rates, variations or quantiles of clients are no log of requests",
        remedy="draw requests from them (ServeGen does) and upload those, or upload a log",
    ),
    Refusal(
        name="model_config",
        title="a file of a model's folder",
        claims=model_config,
        reason="it describes a model and has no requests",
        remedy="upload a log of requests; the model is named where the target is made",
    ),
)
