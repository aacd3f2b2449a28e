"""Requests and files for the tests of traffic."""

import io
import json
from collections.abc import Sequence

from advisor.traffic.reading import read_trace
from advisor.traffic.trace import Request, RequestKind, TokenColumns, Trace


def read(body: bytes | str, max_bad_share: float = 0.5) -> Trace:
    """The trace in a file with this content."""
    raw = body.encode() if isinstance(body, str) else body
    return read_trace(io.BytesIO(raw), filename="sample", max_bad_share=max_bad_share)


def jsonl(*rows: object) -> str:
    """One JSON document per line."""
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def one(row: object) -> Request:
    """The single request of a file with this row."""
    return read(jsonl(row)).requests[0]


def rejected(row: object) -> tuple[str, str]:
    """Field and reason for which a row is rejected, beside one good row."""
    (reject,) = read(jsonl({"prompt": "good"}, row)).report.rejects
    return reject.field, reject.reason


def lengths(index: int, prompt: int | None, output: int | None, **more: object) -> Request:
    """A request with lengths only."""
    return Request(
        id=f"r{index}",
        index=index,
        line=index,
        kind=RequestKind.LENGTHS,
        prompt_tokens=prompt,
        output_tokens=output,
        **more,  # type: ignore[arg-type]
    )


def texts(count: int, **more: object) -> tuple[Request, ...]:
    """Completion requests with equal further fields."""
    return tuple(
        Request(
            id=f"r{index}",
            index=index,
            line=index,
            kind=RequestKind.COMPLETION,
            prompt="text",
            **more,  # type: ignore[arg-type]
        )
        for index in range(count)
    )


def columns(
    prompts: Sequence[Sequence[int] | None], outputs: Sequence[Sequence[int] | None] | None = None
) -> TokenColumns:
    """Token columns of some tokenizer."""
    given = [None] * len(prompts) if outputs is None else outputs
    return TokenColumns.of(
        tokenizer_digest="t",
        template_digest="c",
        prompts=tuple(None if ids is None else tuple(ids) for ids in prompts),
        outputs=tuple(None if ids is None else tuple(ids) for ids in given),
    )
