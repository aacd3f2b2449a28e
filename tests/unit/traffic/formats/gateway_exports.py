"""Exports of gateways, batches, conversations and task sets."""

import json
from collections.abc import Mapping

from advisor.traffic.formats.format import Framing
from tests.unit.traffic.formats.exports import ASK, TOOL, Export, completion

GATEWAY = Export(
    format="openai_logs",
    records=[
        {
            "timestamp": "2026-03-01T12:00:00.250Z",
            "latency_ms": 812.5,
            "ttft_ms": 90,
            "status_code": 200,
            "path": "/v1/chat/completions",
            "request": {"model": "m-7b", "messages": [ASK], "max_tokens": 64, "temperature": 0},
            "response": completion("The Elbe."),
        }
    ],
)
GATEWAY_BODIES = Export(
    format="openai_logs",
    records=[
        {
            "ts": 1_750_000_000.5,
            "request_body": json.dumps({"model": "m-7b", "prompt": "Once", "max_tokens": 3}),
            "response_body": json.dumps({"choices": [{"index": 0, "text": " upon a time"}]}),
        }
    ],
)
COMPLETIONS = Export(format="openai_logs", records=[completion("Hi."), completion("Ho.")])
BATCH_INPUT = Export(
    format="openai_batch_input",
    records=[
        {
            "custom_id": "a-1",
            "method": "POST",
            "url": "/v1/chat/completions",
            "body": {"model": "m-7b", "messages": [ASK], "max_completion_tokens": 9},
        }
    ],
)
BATCH_OUTPUT = Export(
    format="openai_batch_output",
    records=[
        {
            "id": "batch_req_1",
            "custom_id": "a-1",
            "response": {"status_code": 200, "request_id": "q", "body": completion("The Elbe.")},
            "error": None,
        }
    ],
)
SHAREGPT = Export(
    format="sharegpt",
    framing=Framing.JSON,
    records=[
        {
            "id": "c-1",
            "conversations": [
                {"from": "human", "value": "Name a river."},
                {"from": "gpt", "value": "The Elbe."},
                {"from": "human", "value": "Another?"},
                {"from": "gpt", "value": "The Oder."},
            ],
        }
    ],
)
TASKS: Mapping[str, Mapping[str, object]] = {
    "turns": {"question_id": 81, "category": "writing", "turns": ["Write.", "Write again."]},
    "solution": {
        "task_id": "T/0", "prompt": "def one():\n", "entry_point": "one",
        "canonical_solution": "    return 1\n", "test": "assert one() == 1",
    },
    "question": {"question": "How many?", "answer": "Two.\n#### 2"},
    "functions": {
        "id": "simple_0",
        "question": [[{"role": "user", "content": "When is high tide?"}]],
        "function": [
            {"name": "tide", "description": "Tides.", "parameters": {"type": "object"}}
        ],
    },
    "multi": {
        "id": "multi_0",
        "question": [[{"role": "user", "content": "One."}], [{"role": "user", "content": "Two."}]],
        "initial_config": {},
        "path": ["ls"],
    },
    "instruction": {"instruction": "Sum up.", "input": "A long text.", "output": "Short."},
}  # fmt: skip
SPEND_LOG: Mapping[str, object] = {
    "request_id": "chatcmpl-1",
    "call_type": "acompletion",
    "api_key": "hash",
    "spend": 0.0002,
    "total_tokens": 17,
    "prompt_tokens": 12,
    "completion_tokens": 5,
    "startTime": "2026-01-24 09:20:46.847371",
    "endTime": "2026-01-24 09:20:48.847371",
    "completionStartTime": "2026-01-24 09:20:47.097371",
    "model": "m-7b",
    "cache_hit": "None",
    "cache_key": "Cache OFF",
    "custom_llm_provider": "hosted_vllm",
    "metadata": json.dumps({"usage_object": {"prompt_tokens": 12}, "status": None}),
    "messages": json.dumps([ASK]),
    "response": json.dumps(completion("The Elbe.")),
    "proxy_server_request": json.dumps(
        {"model": "m", "messages": [ASK], "max_tokens": 40, "tools": [TOOL]}
    ),
    "session_id": "s-1",
    "status": "success",
}
LITELLM = Export(format="litellm", records=[SPEND_LOG])
LITELLM_PAGE = Export(
    format="litellm",
    framing=Framing.JSON,
    document=True,
    records=[{"data": [SPEND_LOG], "total": 1, "page": 1, "page_size": 50, "total_pages": 1}],
)
LITELLM_PAYLOAD = Export(
    format="litellm",
    framing=Framing.JSON,
    document=True,
    records=[
        {
            "id": "chatcmpl-2",
            "trace_id": "t-1",
            "call_type": "acompletion",
            "stream": True,
            "response_cost": 0.1,
            "status": "success",
            "custom_llm_provider": "openai",
            "total_tokens": 17,
            "prompt_tokens": 12,
            "completion_tokens": 5,
            "startTime": 1_750_000_000.0,
            "endTime": 1_750_000_002.5,
            "completionStartTime": 1_750_000_000.5,
            "response_time": 2.5,
            "model": "m-7b",
            "metadata": {"user_api_key_hash": None},
            "messages": [ASK],
            "response": completion("The Elbe."),
            "model_parameters": {"temperature": 0.2, "max_tokens": 30, "stream": True},
            "error_str": None,
        }
    ],
)
HELICONE_ROW: Mapping[str, object] = {
    "response_id": "r-1",
    "response_created_at": "2026-03-01T12:00:02.100Z",
    "response_status": 200,
    "response_body": completion("The Elbe."),
    "request_id": "q-1",
    "request_created_at": "2026-03-01T12:00:00.000Z",
    "request_body": {"model": "m-7b", "messages": [ASK], "max_tokens": 20},
    "request_path": "https://gateway.example/v1/chat/completions",
    "request_properties": {"Helicone-Session-Id": "s-1"},
    "request_model": "m-7b",
    "provider": "OPENAI",
    "delay_ms": 2000,
    "time_to_first_token": 300,
    "total_tokens": 17,
    "prompt_tokens": 12,
    "completion_tokens": 5,
}
HELICONE = Export(format="helicone", records=[HELICONE_ROW])
HELICONE_CSV = Export(
    format="helicone",
    framing=Framing.CSV,
    records=[
        {
            "response_id": "r-1",
            "response_created_at": "2026-03-01T12:00:02.000Z",
            "response_status": "200",
            "request_created_at": "2026-03-01T12:00:00.000Z",
            "request_body": json.dumps({"messages": [ASK]}).replace('"', '""'),
            "request_properties": "",
            "request_user_id": "",
            "model": "m-7b",
            "prompt_tokens": "12",
            "completion_tokens": "5",
            "latency": "",
            "cost": "",
        }
    ],
)
