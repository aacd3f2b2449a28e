"""What the child process does with an upload: read, reduce to its privacy, count, add up.

Everything goes through part by part, so that memory does not grow with the file: parts of requests
and of token ids are frames of the answer at once, and wait without a name in the spool folder
where their classes are not known yet.
"""

import hashlib
import json
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import BinaryIO, TypeAlias

import orjson

from advisor.canonical import Json, as_json
from advisor.errors import InvalidInput
from advisor.techniques import draft_lengths
from advisor.traffic.columns import (
    requests_from_parquet,
    requests_to_parquet,
    tokens_to_parquet,
)
from advisor.traffic.figures import TrafficSummary
from advisor.traffic.formats.options import ReadOptions
from advisor.traffic.privacy.hashing import Stripper
from advisor.traffic.privacy.redaction import Redactor, said_of
from advisor.traffic.reading import open_trace
from advisor.traffic.reading.reader import OpenTrace
from advisor.traffic.summary import TrafficTally
from advisor.traffic.tokens import ChatTokenizer, token_columns, token_parts
from advisor.traffic.trace import Privacy, Request, TokenColumns, TraceReport
from api.codec import read
from api.frames import REQUESTS, TOKENS, read_frames, write_frame

CHUNK_REQUESTS = 2000
BLOCK_SIZE = 16
REPEATED = re.compile(r"^.+ appears(?= twice| \d+ times)")
LINE = orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE
Facts: TypeAlias = dict[str, Json]
Emit = Callable[[bytes, bytes], None]
Part: TypeAlias = tuple[Request, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What is asked of the child. `tokenizer` is the target's; `spool` a folder for its files.

    `block_size` is that of the target's KV cache, in tokens.
    """

    filename: str
    spool: str
    options: ReadOptions
    privacy: Privacy
    tokenizer: ChatTokenizer | None
    limits: tuple[int, ...]
    block_size: int

    @classmethod
    def read(cls, stream: BinaryIO) -> "Job":
        """From its frames: settings as JSON and, if there is one, ``tokenizer.json``."""
        frames = read_frames(stream)
        held = json.loads(next(frames))
        vocabulary = held["vocabulary"]
        return cls(
            filename=held["filename"],
            spool=held["spool"],
            options=ReadOptions(**held["options"]),
            privacy=Privacy(held["privacy"]),
            tokenizer=None
            if vocabulary is None
            else ChatTokenizer(next(frames), vocabulary["template"], vocabulary["special"]),
            limits=tuple(held["limits"]),
            block_size=held["block_size"],
        )

    def tally(self, report: TraceReport, *, stored: bool = False) -> TrafficTally:
        """An empty one for this upload; requests that are `stored` have their classes."""
        return TrafficTally(
            block_size=self.block_size,
            draft_lengths=draft_lengths(),
            limits=self.limits,
            block_tokens=report.block_tokens,
            find_classes=not stored,
        )


class _Kept:
    """What of a request is kept under the upload's privacy, before and after its figures."""

    def __init__(self, privacy: Privacy, secret: bytes) -> None:
        self._redactor = Redactor(secret) if privacy is Privacy.REDACTED else None
        self._stripper = (
            Stripper(secret, privacy, block_size=BLOCK_SIZE)
            if privacy in {Privacy.HASHED, Privacy.LENGTHS}
            else None
        )
        self.text = self._stripper is None

    def before(self, part: Part) -> Part:
        """As statistics may see it."""
        if self._redactor is not None:
            return tuple(self._redactor.request(request) for request in part)
        if self._stripper is not None:
            return tuple(self._stripper.unnamed(request) for request in part)
        return part

    def after(self, part: Part, tokens: TokenColumns | None) -> Part:
        """As it is stored."""
        if self._stripper is None:
            return part
        return tuple(
            self._stripper.stripped(
                request,
                None if tokens is None else tokens.prompts.array(place),
                None if tokens is None else tokens.outputs.array(place),
            )
            for place, request in enumerate(part)
        )


def read_upload(stream: BinaryIO, job: Job, secret: bytes, emit: Emit) -> Facts:
    """The facts of a traffic file; its requests and token ids are emitted.

    `secret` is for this upload alone. The first frames hold token ids, then come the requests.
    """
    with (
        tempfile.TemporaryFile(dir=job.spool) as spool,
        tempfile.TemporaryFile(dir=job.spool) as waiting,
    ):
        trace = open_trace(stream, filename=job.filename, spool=spool, options=job.options)
        pass_ = _Pass(job, trace, _Kept(job.privacy, secret))
        for part in trace.batches(CHUNK_REQUESTS):
            pass_.take(part, waiting, emit)
        waiting.seek(0)
        for body in _classified(read_frames(waiting), pass_.clusters()):
            emit(REQUESTS, body)
        return pass_.facts()


class _Pass:
    """One pass over the parts of a file.

    `own` says what the upload says by itself, `counted` what it says under the tokenizer. Without
    text there is one of them only: what was counted before it went.
    """

    def __init__(self, job: Job, trace: OpenTrace, kept: _Kept) -> None:
        self._job = job
        self._kept = kept
        self._report = trace.report
        self._sha = hashlib.sha256()
        self._requests = 0
        self._digests: tuple[str, str] | None = None
        self._counted = None if job.tokenizer is None else job.tally(trace.report)
        self._own = job.tally(trace.report) if kept.text or self._counted is None else None
        # Columns of a whole file at once are quicker; what is kept of a name is not up to them.
        self._columns = trace.facts if job.privacy is Privacy.RAW else None
        if self._columns is not None and self._own is not None:
            self._own.add_facts(self._columns)

    def take(self, part: Part, waiting: BinaryIO, emit: Emit) -> None:
        """The next part: its figures are added up, what is kept of it is written."""
        part = self._kept.before(part)
        tokens = None
        if self._job.tokenizer is not None and self._counted is not None:
            tokens = token_columns(part, self._job.tokenizer)
            self._digests = (tokens.tokenizer_digest, tokens.template_digest)
            self._counted.add(part, tokens)
        stored = self._kept.after(part, tokens)
        if self._own is not None and self._columns is None:
            self._own.add(stored, None)
        if tokens is not None and self._kept.text:
            emit(TOKENS, tokens_to_parquet(tokens))
        for request in stored:
            self._sha.update(orjson.dumps(request, option=LINE))
        self._requests += len(stored)
        write_frame(waiting, requests_to_parquet(stored))

    def clusters(self) -> tuple[str, ...] | None:
        """The class that was found for every request; None where the file names classes."""
        tally = self._counted or self._own
        if tally is None or tally.facts.labels:
            return None
        found = tally.clustering
        return found.names if len(found.classes) > 1 else None

    def facts(self) -> Facts:
        """Everything about the upload that is no request."""
        report = self._report
        if self._job.privacy is Privacy.HASHED and report.block_tokens is None:
            report = replace(report, block_tokens=BLOCK_SIZE)
        if self._job.privacy is not Privacy.RAW:
            # A warning may name the id that repeats, and an id may be somebody's name.
            warnings = tuple(REPEATED.sub("an id appears", item) for item in report.warnings)
            report = replace(report, warnings=warnings)
        counted = None if self._counted is None else self._summary(self._counted)
        if self._own is not None and self._counted is not None and self.clusters() is not None:
            self._own.adopt(self._counted.clustering)
        own = counted if self._own is None else self._summary(self._own)
        facts: Facts = {
            "report": as_json(report),
            "summary": as_json(own),
            "digest": self._sha.hexdigest(),
            "requests": self._requests,
            "counted": None,
        }
        if counted is not None and self._digests is not None:
            facts["counted"] = _counted(counted, self._digests)
        return facts

    def _summary(self, tally: TrafficTally) -> TrafficSummary:
        privacy = self._job.privacy
        return said_of(tally.finish(privacy=privacy, report=self._report), privacy)


def _counted(summary: TrafficSummary, digests: tuple[str, str]) -> Facts:
    tokenizer_digest, template_digest = digests
    return {
        "tokenizer_digest": tokenizer_digest,
        "template_digest": template_digest,
        "summary": as_json(summary),
    }


def _classified(bodies: Iterator[bytes], names: Sequence[str] | None) -> Iterator[bytes]:
    """Parts of requests with the classes that were found for them, once all were seen."""
    at = 0
    for body in bodies:
        if names is None:
            yield body
            continue
        part = requests_from_parquet(body)
        yield requests_to_parquet(
            [replace(request, cluster=names[at + place]) for place, request in enumerate(part)]
        )
        at += len(part)


def count_stored(stream: BinaryIO, job: Job, emit: Emit) -> Facts:
    """Facts of stored requests under the job's tokenizer, their token ids emitted.

    The frames of `stream` are the report on the upload and its parts.
    """
    if job.tokenizer is None:
        raise InvalidInput("tokenizer", "counting needs one")
    frames = read_frames(stream)
    report = read(next(frames), TraceReport)
    tally = job.tally(report, stored=True)
    digests = (job.tokenizer.tokenizer_digest, job.tokenizer.template_digest)
    for part, tokens in token_parts(map(requests_from_parquet, frames), job.tokenizer):
        tally.add(part, tokens)
        emit(TOKENS, tokens_to_parquet(tokens))
    summary = said_of(tally.finish(privacy=job.privacy, report=report), job.privacy)
    return _counted(summary, digests)
