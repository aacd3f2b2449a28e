"""The upload of a study, and its tokens under the target's tokenizer."""

from dataclasses import dataclass
from uuid import UUID

from advisor.techniques import draft_lengths
from advisor.traffic.columns import (
    requests_from_parquet,
    tokens_from_parquet,
    tokens_to_parquet,
)
from advisor.traffic.summary import summarise
from advisor.traffic.tokens import token_columns
from advisor.traffic.trace import Request, TokenColumns
from db import workloads
from db.session import transaction
from db.tables import StudyRow, TargetRow
from db.tokenizer import chat_tokenizer
from probes.workplace import Workplace

BLOCK_SIZES = {"cpu": 128, "cuda": 16}  # vLLM's default number of tokens in a KV block


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """All requests of an upload and their token columns; `digest` names the upload."""

    digest: str
    requests: tuple[Request, ...]
    tokens: TokenColumns


def traffic_of(place: Workplace, study: StudyRow, target: TargetRow) -> Traffic:
    """The traffic of a study; its tokens are computed at the first call only and then kept."""
    tokenizer = chat_tokenizer(target)
    digests = (tokenizer.tokenizer_digest, tokenizer.template_digest)
    requests, digest = _upload(place, study.workload_id)
    with transaction(place.sessions) as session:
        known = workloads.token_columns(session, study.workload_id, *digests)
    if known is not None:
        return Traffic(digest=digest, requests=requests, tokens=tokens_from_parquet(known.body))
    place.event("study", study.id, "progress", {"phase": "tokenising"})
    tokens = token_columns(requests, tokenizer)
    lookup, *others = draft_lengths()
    summary = summarise(
        requests,
        tokens,
        block_size=_block_size(study, target),
        lookup_tokens=lookup,
        other_lookups=others,
    )
    with transaction(place.sessions) as session:
        workloads.put_token_columns(
            session,
            workload_id=study.workload_id,
            tokenizer_digest=digests[0],
            template_digest=digests[1],
            summary=summary,
            body=tokens_to_parquet(tokens),
        )
    return Traffic(digest=digest, requests=requests, tokens=tokens)


def _upload(place: Workplace, workload_id: UUID) -> tuple[tuple[Request, ...], str]:
    with transaction(place.sessions) as session:
        requests = tuple(
            request
            for body in workloads.chunks(session, workload_id)
            for request in requests_from_parquet(body)
        )
        return requests, workloads.one(session, workload_id, None).digest


def _block_size(study: StudyRow, target: TargetRow) -> int:
    """Tokens in a KV block of the baseline."""
    kind = target.device.kind if target.device else "cpu"
    return study.baseline.levers.block_size or BLOCK_SIZES[kind]
