"""Input and output files of the OpenAI batch API, which vLLM's `run-batch` reads and writes too.

An output file names its requests by `custom_id` and holds no prompt: lengths are left.
"""

from collections.abc import Iterable, Mapping

from advisor.traffic.formats.answers import answer_of
from advisor.traffic.formats.chat_jsonl import exchange_of
from advisor.traffic.formats.exchange import Exchange, draft
from advisor.traffic.formats.fields import BadField
from advisor.traffic.formats.format import Format, Head, Record
from advisor.traffic.formats.row import Draft, Notes
from advisor.traffic.formats.timings import failure_of

_NO_PROMPT = "come from a batch's output file, which holds no prompts: only lengths are known"
_OUTPUT_URLS = ("/v1/embeddings", "/v1/score", "/v1/rerank", "/v1/moderations")


def is_input(head: Head) -> bool:
    """Rows of `custom_id`, `url` or `method`, and the request as `body`."""
    return head.has("custom_id", "body") and (head.has("url") or head.has("method"))


def is_output(head: Head) -> bool:
    """Rows of `custom_id` with a `response` and an `error`, and no request."""
    return head.has("custom_id", "response", "error") and not head.has("body")


def input_drafts(row: Record, line: int, notes: Notes) -> Iterable[Draft]:
    """The request of one row; calls of other models than generating ones are none."""
    url = row.get("url")
    if isinstance(url, str) and url.endswith(_OUTPUT_URLS):
        return
    yield draft(exchange_of(row, line, notes), line, notes)


def output_drafts(row: Record, line: int, notes: Notes) -> Iterable[Draft]:
    """One answered request by its lengths, or one that failed."""
    response = row.get("response")
    failed = failure_of(row, response)
    answer = answer_of(response)
    body = response.get("body") if isinstance(response, Mapping) else None
    if failed is None and answer.failed is None:
        if not isinstance(body, Mapping):
            raise BadField("response", "neither an answer nor an error")
        if answer.prompt_tokens is None and answer.prompt_ids is None:
            raise BadField("response", "no count of prompt tokens, and the prompt is not here")
        notes.add(_NO_PROMPT, line)
    values = {"id": row.get("custom_id")}
    yield draft(Exchange(answer=answer, values=values, failed=failed), line, notes)


OPENAI_BATCH_INPUT = Format(
    name="openai_batch_input",
    title="OpenAI batch input (JSONL)",
    claims=is_input,
    drafts=input_drafts,
    mapping={
        "id": "custom_id (need not be unique)",
        "messages": "body.messages, body.input with body.instructions",
        "prompt": "body.prompt",
        "max_tokens": "body.max_tokens, body.max_completion_tokens, body.max_output_tokens",
        "temperature": "body.temperature",
        "top_p": "body.top_p",
        "tools": "body.tools",
        "response_format": "body.response_format",
        "model": "body.model",
    },
    quirks=(
        "A batch has no times: there is no arrival rate to learn from it.",
        "Rows for embeddings, scores and moderation are no requests to a generating model.",
    ),
)
OPENAI_BATCH_OUTPUT = Format(
    name="openai_batch_output",
    title="OpenAI batch output (JSONL)",
    claims=is_output,
    drafts=output_drafts,
    mapping={
        "id": "custom_id",
        "prompt_tokens": "response.body.usage.prompt_tokens or input_tokens",
        "output_tokens": "response.body.usage.completion_tokens or output_tokens",
        "model": "response.body.model",
        "prompt_ids": "response.body.prompt_token_ids",
        "output_ids": "response.body.choices[0].token_ids",
        "failed": "response.status_code of 400 and above, error",
    },
    quirks=(
        (
            "The output file holds no prompts: only lengths are read, and no text of an answer is"
            " kept. Upload the input file for the prompts."
        ),
        "`created` is when the batch answered, not when a request came: it is not read as a time.",
    ),
)
