"""The API's side of reading an upload: a child process does it, in bounded memory and time.

Both ends of the exchange are files without a name in the spool folder, so that a killed process
leaves nothing behind. Nothing is stored before the child has read the whole file, and parts go
from the file to the database one at a time.
"""

import json
import logging
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from advisor.errors import (
    FileTooLong,
    InvalidInput,
    NoUsableRows,
    RooftuneError,
    UnknownName,
    UnreadableFile,
)
from advisor.serving import default_block_size
from advisor.traffic.figures import TrafficSummary
from advisor.traffic.formats.options import ReadOptions
from advisor.traffic.trace import Privacy, TraceReport
from api.codec import json_text, read
from api.errors import UploadTooLarge
from api.frames import FACTS, REQUESTS, TOKENS, Frames, write_frame
from api.settings import ApiSettings, child_environment

log = logging.getLogger(__name__)

# What the child is asked, and the program that does it.
_PROGRAMS = {"read": "api.reader", "tokens": "api.reader", "derive": "api.deriver"}


class ReaderFault(RuntimeError):
    """The child failed in a way that is a fault of ours; its frames are in the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one child may use; `spool` is the folder of its files."""

    rows: int
    memory_bytes: int
    timeout_s: float
    spool: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    """A target's tokenizer: ``tokenizer.json``, its special tokens, the chat template.

    `limits` are the target's length limits in tokens, `block_size` is that of its KV cache.
    """

    tokenizer_json: bytes
    special: Mapping[str, str]
    chat_template: str | None
    block_size: int
    limits: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """How a file is to be read and how much of it is kept."""

    filename: str = "upload"
    options: ReadOptions = field(default_factory=ReadOptions)
    privacy: Privacy = Privacy.RAW
    vocabulary: Vocabulary | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """The summary of a workload under one vocabulary; its token ids are in `chunks`, read once."""

    tokenizer_digest: str
    template_digest: str
    summary: TrafficSummary
    chunks: Iterable[bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Intake:
    """A traffic file as the database keeps it; `digest` hashes the accepted requests.

    `chunks` are the requests as Parquet, read once. `bytes` is the size of derived traffic.
    """

    report: TraceReport
    summary: TrafficSummary
    digest: str
    requests: int
    chunks: Iterable[bytes]
    counted: Counted | None
    bytes: int | None = None


def limits_of(settings: ApiSettings) -> Limits:
    """The limits of an upload."""
    return Limits(
        rows=settings.upload_max_rows,
        memory_bytes=settings.upload_memory_bytes,
        timeout_s=settings.upload_timeout_s,
        spool=spool_of(settings),
    )


def spool_of(settings: ApiSettings) -> Path:
    """Where uploads wait while they are read; made on first use."""
    spool = settings.data_dir / "spool"
    spool.mkdir(mode=0o700, parents=True, exist_ok=True)
    return spool


@contextmanager
def read_upload(file: BinaryIO, asked: Asked, limits: Limits) -> Iterator[Intake]:
    """Read a traffic file; a bad one raises what it deserves (`NoUsableRows`, ...)."""
    with _answer("read", file, asked, limits) as (facts, frames):
        yield _intake(facts, frames)


@contextmanager
def read_derived(given: BinaryIO, asked: Asked, limits: Limits) -> Iterator[Intake]:
    """Derive traffic from stored requests, in the frames that `api.order` names."""
    with _answer("derive", given, asked, limits) as (facts, frames):
        yield _intake(facts, frames)


def _intake(facts: Mapping[str, Any], frames: Frames) -> Intake:
    counted = facts["counted"]
    return Intake(
        report=read(json.dumps(facts["report"]), TraceReport),
        summary=read(json.dumps(facts["summary"]), TrafficSummary),
        digest=facts["digest"],
        requests=facts["requests"],
        chunks=frames.of(REQUESTS),
        counted=None if counted is None else _counted(counted, frames),
        bytes=facts.get("bytes"),
    )


def write_stored(given: BinaryIO, report: TraceReport, chunks: Iterable[bytes]) -> None:
    """Stored requests as `count_tokens` takes them."""
    write_frame(given, json_text(report).encode())
    for chunk in chunks:
        write_frame(given, chunk)
    given.flush()
    given.seek(0)


@contextmanager
def count_tokens(given: BinaryIO, asked: Asked, limits: Limits) -> Iterator[Counted]:
    """Tokenise what `write_stored` wrote under the vocabulary of `asked`."""
    with _answer("tokens", given, asked, limits) as (facts, frames):
        yield _counted(facts, frames)


def _counted(facts: Mapping[str, Any], frames: Frames) -> Counted:
    return Counted(
        tokenizer_digest=facts["tokenizer_digest"],
        template_digest=facts["template_digest"],
        summary=read(json.dumps(facts["summary"]), TrafficSummary),
        chunks=frames.of(TOKENS),
    )


def _plain(filename: str) -> str:
    """A file name for messages: what does not print is left out."""
    return "".join(letter for letter in filename if letter.isprintable())[:200] or "upload"


def _write_job(job: BinaryIO, asked: Asked, limits: Limits) -> None:
    vocabulary = asked.vocabulary
    settings: dict[str, object] = {
        "filename": _plain(asked.filename),
        "spool": str(limits.spool.absolute()),
        "options": {**asdict(asked.options), "max_rows": limits.rows},
        "privacy": asked.privacy.value,
        "limits": () if vocabulary is None else vocabulary.limits,
        "block_size": default_block_size(None) if vocabulary is None else vocabulary.block_size,
        "vocabulary": None
        if vocabulary is None
        else {"special": dict(vocabulary.special), "template": vocabulary.chat_template},
    }
    write_frame(job, json.dumps(settings).encode())
    if vocabulary is not None:
        write_frame(job, vocabulary.tokenizer_json)
    job.flush()
    job.seek(0)


@contextmanager
def _answer(
    what: str, given: BinaryIO, asked: Asked, limits: Limits
) -> Iterator[tuple[dict[str, Any], Frames]]:
    """Facts and frames of a child that has ended, while its answer is open."""
    with (
        tempfile.TemporaryFile(dir=limits.spool) as job,
        tempfile.TemporaryFile(dir=limits.spool) as answer,
    ):
        _write_job(job, asked, limits)
        argv = [sys.executable, "-m", _PROGRAMS[what], what, "--job", str(job.fileno())]
        argv += ["--memory", str(limits.memory_bytes)]
        argv += ["--seconds", str(int(limits.timeout_s) + 1)]
        try:
            subprocess.run(
                argv,
                stdin=given,
                stdout=answer,
                stderr=subprocess.DEVNULL,  # a traceback would quote the file
                env=child_environment(),
                pass_fds=(job.fileno(),),
                timeout=limits.timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise UploadTooLarge("reading takes too long", f"{limits.timeout_s:.0f} s") from None
        frames = Frames(answer)
        yield _facts(next(frames.of(FACTS), b""), limits), frames


def _facts(frame: bytes, limits: Limits) -> dict[str, Any]:
    if not frame:  # the kernel ended the child at its memory or processor limit
        raise _too_large(None, limits)
    facts: dict[str, Any] = json.loads(frame)
    if "refused" in facts:
        raise _refusal(facts["refused"], limits)
    return facts


def _too_large(rows: int | None, limits: Limits) -> UploadTooLarge:
    if rows is None:
        return UploadTooLarge(
            "reading takes too much memory or time",
            f"{limits.memory_bytes} bytes and {limits.timeout_s:.0f} s",
        )
    return UploadTooLarge(f"the file has {rows} rows", f"{limits.rows} rows")


def _refusal(refused: Mapping[str, Any], limits: Limits) -> RooftuneError:
    match refused["error"]:
        case "NoUsableRows":
            rejects = [(line, name, reason) for line, name, reason in refused["rejects"]]
            return NoUsableRows(refused["reason"], refused["found"], refused["accepted"], rejects)
        case "UnreadableFile":
            return UnreadableFile(refused["reason"], refused["remedy"])
        case "FileTooLong":
            return FileTooLong(refused["reason"], refused["remedy"])
        case "InvalidInput":
            return InvalidInput(refused["field"], refused["message"])
        case "UnknownName":
            return UnknownName(refused["kind"], refused["name"], refused["known"])
        case "TooLarge":
            return _too_large(refused["rows"], limits)
        case kind:
            log.error("reader: %s %s\n%s", kind, refused.get("type"), refused.get("at"))
            raise ReaderFault(kind)
