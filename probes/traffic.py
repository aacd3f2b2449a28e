"""The upload of a study, and its tokens under the target's tokenizer."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from uuid import UUID

from advisor.errors import InvalidInput
from advisor.serving import default_block_size
from advisor.techniques import draft_lengths
from advisor.traffic.columns import (
    requests_from_parquet,
    tokens_from_parquet,
    tokens_to_parquet,
)
from advisor.traffic.figures import TrafficSummary
from advisor.traffic.privacy.redaction import PRIVACY_LIMITS, said_of
from advisor.traffic.summary import TrafficTally
from advisor.traffic.tokens import token_columns
from advisor.traffic.trace import Privacy, Request, TokenColumns
from db import workloads
from db.session import transaction
from db.tables import StudyRow, TargetRow, WorkloadRow
from db.tokenizer import chat_tokenizer
from probes.workplace import Workplace


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """All requests of an upload and their token columns; `digest` names the upload."""

    digest: str
    requests: tuple[Request, ...]
    tokens: TokenColumns


def traffic_of(place: Workplace, study: StudyRow, target: TargetRow) -> Traffic:
    """The traffic of a study; its tokens are computed at the first call only and then kept.

    An upload that keeps no text has none, and its summary stays what it was when it had. Raises
    `InvalidInput` for one that was purged.
    """
    tokenizer = chat_tokenizer(target)
    digests = (tokenizer.tokenizer_digest, tokenizer.template_digest)
    with transaction(place.sessions) as session:
        workload = workloads.one(session, study.workload_id, None)
        if workload.purged_at is not None:
            raise InvalidInput("workload", "it was purged: nothing of it is left to replay")
        stored = workloads.chunks(session, workload.id)
        parts = [requests_from_parquet(body) for body in stored]
        kept = workloads.token_chunks(session, workload.id, *digests)
        known = [tokens_from_parquet(body) for body in kept]
    requests = tuple(chain.from_iterable(parts))
    if not known and Privacy(workload.privacy).keeps_text:
        place.event("study", study.id, "progress", {"phase": "tokenising"})
        known = [token_columns(part, tokenizer) for part in parts]
        summary = _summary(workload, parts, known, _block_size(study, target))
        with transaction(place.sessions) as session:
            workloads.put_token_columns(
                session,
                workload_id=workload.id,
                tokenizer_digest=digests[0],
                template_digest=digests[1],
                summary=summary,
                chunks=map(tokens_to_parquet, known),
            )
    tokens = TokenColumns.joined(known) if known else token_columns(requests, tokenizer)
    return Traffic(digest=workload.digest, requests=requests, tokens=tokens)


def privacy_reason(place: Workplace, workload_id: UUID) -> str | None:
    """What a study lacks because of how much of the upload's text is kept; None when all is."""
    with transaction(place.sessions) as session:
        privacy = Privacy(workloads.one(session, workload_id, None).privacy)
    if privacy.keeps_text:
        return None
    return f"the upload is kept as `{privacy.value}`: {'; '.join(PRIVACY_LIMITS[privacy])}"


def _summary(
    workload: WorkloadRow,
    parts: Sequence[tuple[Request, ...]],
    tokens: Sequence[TokenColumns],
    block_size: int,
) -> TrafficSummary:
    privacy = Privacy(workload.privacy)
    tally = TrafficTally(
        block_size=block_size,
        draft_lengths=draft_lengths(),
        block_tokens=workload.report.block_tokens,
        find_classes=False,
    )
    for part, columns in zip(parts, tokens, strict=True):
        tally.add(part, columns)
    return said_of(tally.finish(privacy=privacy, report=workload.report), privacy)


def _block_size(study: StudyRow, target: TargetRow) -> int:
    """Tokens in a KV block of the baseline."""
    kind = target.device.kind if target.device else "cpu"
    return study.baseline.levers.block_size or default_block_size(kind)
