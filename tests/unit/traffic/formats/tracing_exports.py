"""Exports of tracing tools: Langfuse and OpenTelemetry."""

import json
from collections.abc import Mapping

from advisor.traffic.formats.format import Framing
from tests.unit.traffic.formats.exports import ASK, Export

OBSERVATION: Mapping[str, object] = {
    "id": "o-1",
    "traceId": "t-1",
    "type": "GENERATION",
    "name": "chat",
    "startTime": "2026-03-01T12:00:00.000Z",
    "endTime": "2026-03-01T12:00:02.000Z",
    "completionStartTime": "2026-03-01T12:00:00.400Z",
    "level": "DEFAULT",
    "statusMessage": None,
    "parentObservationId": None,
    "model": "m-7b",
    "modelParameters": {"temperature": "0.5", "max_tokens": 30},
    "input": json.dumps([ASK]),
    "output": json.dumps({"role": "assistant", "content": "The Elbe."}),
    "usageDetails": {"input": 4, "input_cache_read": 8, "output": 5, "total": 17},
    "latency": 2.0,
    "timeToFirstToken": 0.4,
    "promptName": None,
}
SPAN_ONLY: Mapping[str, object] = {**OBSERVATION, "id": "o-2", "type": "SPAN", "usageDetails": {}}
LANGFUSE_TRACE = Export(
    format="langfuse",
    framing=Framing.JSON,
    document=True,
    records=[
        {
            "trace": {"id": "t-1", "projectId": "p", "sessionId": "s-9", "name": "run"},
            "observations": [SPAN_ONLY, OBSERVATION],
        }
    ],
)
LANGFUSE_ROWS = Export(format="langfuse", records=[OBSERVATION, SPAN_ONLY])
LANGFUSE_PAGE = Export(
    format="langfuse",
    framing=Framing.JSON,
    document=True,
    records=[{"data": [OBSERVATION], "meta": {"page": 1, "limit": 50}}],
)
LANGFUSE_CSV = Export(
    format="langfuse",
    framing=Framing.CSV,
    records=[
        {
            "id": "o-1",
            "trace_id": "t-1",
            "type": "GENERATION",
            "start_time": "2026-03-01 12:00:00.000",
            "end_time": "2026-03-01 12:00:02.000",
            "provided_model_name": "m-7b",
            "model_parameters": '{"temperature": 0.5}',
            "usage_details": '{"input": 12, "output": 5, "total": 17}',
            "input": json.dumps(json.dumps([ASK])),
            "output": json.dumps("The Elbe."),
            "level": "DEFAULT",
            "completion_start_time": "",
        }
    ],
)
SPAN_NEW: Mapping[str, object] = {
    "trace_id": "tr-1",
    "span_id": "sp-1",
    "name": "chat m-7b",
    "start_time": "2026-03-01T12:00:00.000000",
    "end_time": "2026-03-01T12:00:02.500000",
    "attributes": {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "m-7b",
        "gen_ai.request.max_tokens": 64,
        "gen_ai.conversation.id": "conv-1",
        "gen_ai.usage.input_tokens": 40,
        "gen_ai.usage.output_tokens": 5,
        "gen_ai.system_instructions": json.dumps([{"type": "text", "content": "Be brief."}]),
        "gen_ai.input.messages": json.dumps(
            [
                {"role": "user", "parts": [{"type": "text", "content": "High tide?"}]},
                {
                    "role": "assistant",
                    "parts": [
                        {"type": "tool_call", "id": "c1", "name": "tide", "arguments": {"at": "X"}}
                    ],
                },
                {
                    "role": "tool",
                    "parts": [{"type": "tool_call_response", "id": "c1", "response": {"h": 9}}],
                },
            ]
        ),
        "gen_ai.output.messages": json.dumps(
            [
                {
                    "role": "assistant",
                    "parts": [{"type": "text", "content": "At nine."}],
                    "finish_reason": "stop",
                }
            ]
        ),
        "gen_ai.tool.definitions": json.dumps([{"type": "function", "name": "tide"}]),
    },
    "status": {"code": 0, "message": ""},
}
OTEL = Export(
    format="otel_genai",
    framing=Framing.JSON,
    document=True,
    records=[{"trace_id": "tr-1", "span_count": 1, "spans": [SPAN_NEW]}],
)


def attribute(key: str, value: object) -> dict[str, object]:
    """A key with its value as OTLP's JSON writes it."""
    kind = {str: "stringValue", int: "intValue", float: "doubleValue"}[type(value)]
    return {"key": key, "value": {kind: str(value) if kind == "intValue" else value}}


OTLP_SPAN: Mapping[str, object] = {
    "traceId": "5b8e",
    "spanId": "eee1",
    "name": "openai.chat",
    "kind": 3,
    "startTimeUnixNano": "1750000000000000000",
    "endTimeUnixNano": "1750000001500000000",
    "attributes": [
        attribute("llm.request.type", "chat"),
        attribute("gen_ai.system", "openai"),
        attribute("gen_ai.request.model", "m-7b"),
        attribute("gen_ai.request.temperature", 0.5),
        attribute("gen_ai.usage.prompt_tokens", 40),
        attribute("gen_ai.usage.completion_tokens", 5),
        attribute("gen_ai.prompt.0.role", "system"),
        attribute("gen_ai.prompt.0.content", "Be brief."),
        attribute("gen_ai.prompt.1.role", "user"),
        attribute("gen_ai.prompt.1.content", "High tide?"),
        attribute("gen_ai.prompt.2.role", "assistant"),
        attribute("gen_ai.prompt.2.tool_calls.0.id", "c1"),
        attribute("gen_ai.prompt.2.tool_calls.0.name", "tide"),
        attribute("gen_ai.prompt.2.tool_calls.0.arguments", '{"at": "X"}'),
        attribute("gen_ai.prompt.3.role", "tool"),
        attribute("gen_ai.prompt.3.tool_call_id", "c1"),
        attribute("gen_ai.prompt.3.content", "9"),
        attribute("gen_ai.completion.0.role", "assistant"),
        attribute("gen_ai.completion.0.content", "At nine."),
        attribute("llm.request.functions.0.name", "tide"),
        attribute("llm.request.functions.0.parameters", '{"type": "object"}'),
    ],
    "status": {},
}
OTLP = Export(
    format="otel_genai",
    framing=Framing.JSON,
    document=True,
    records=[
        {
            "resourceSpans": [
                {
                    "resource": {"attributes": [attribute("service.name", "shop")]},
                    "scopeSpans": [{"scope": {"name": "x"}, "spans": [OTLP_SPAN]}],
                }
            ]
        }
    ],
)
OTLP_LINES = Export(format="otel_genai", records=OTLP.records)
JAEGER = Export(
    format="otel_genai",
    framing=Framing.JSON,
    document=True,
    records=[
        {
            "data": [
                {
                    "traceID": "5b8e",
                    "processes": {},
                    "spans": [
                        {
                            "traceID": "5b8e",
                            "spanID": "eee1",
                            "operationName": "llm_request",
                            "startTime": 1_750_000_000_000_000,
                            "duration": 1_500_000,
                            "tags": [
                                {"key": "gen_ai.usage.prompt_tokens", "value": 12},
                                {"key": "gen_ai.usage.completion_tokens", "value": 5},
                            ],
                        }
                    ],
                }
            ]
        }
    ],
)
