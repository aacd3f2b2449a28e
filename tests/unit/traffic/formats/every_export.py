"""All exports of ours by name."""

from collections.abc import Mapping

from tests.unit.traffic.formats.exports import Export
from tests.unit.traffic.formats.gateway_exports import (
    BATCH_INPUT,
    BATCH_OUTPUT,
    COMPLETIONS,
    GATEWAY,
    GATEWAY_BODIES,
    HELICONE,
    HELICONE_CSV,
    LITELLM,
    LITELLM_PAGE,
    LITELLM_PAYLOAD,
    SHAREGPT,
    TASKS,
)
from tests.unit.traffic.formats.tracing_exports import (
    JAEGER,
    LANGFUSE_CSV,
    LANGFUSE_PAGE,
    LANGFUSE_ROWS,
    LANGFUSE_TRACE,
    OTEL,
    OTLP,
    OTLP_LINES,
)

EXPORTS: Mapping[str, Export] = {
    "gateway": GATEWAY,
    "gateway bodies": GATEWAY_BODIES,
    "completions": COMPLETIONS,
    "batch input": BATCH_INPUT,
    "batch output": BATCH_OUTPUT,
    "sharegpt": SHAREGPT,
    "litellm": LITELLM,
    "litellm page": LITELLM_PAGE,
    "litellm payload": LITELLM_PAYLOAD,
    "langfuse trace": LANGFUSE_TRACE,
    "langfuse rows": LANGFUSE_ROWS,
    "langfuse page": LANGFUSE_PAGE,
    "langfuse csv": LANGFUSE_CSV,
    "otel": OTEL,
    "otlp": OTLP,
    "otlp lines": OTLP_LINES,
    "jaeger": JAEGER,
    "helicone": HELICONE,
    "helicone csv": HELICONE_CSV,
} | {f"task {name}": Export(format="prompts", records=[row]) for name, row in TASKS.items()}
