"""The API's side of reading an upload: a child process does it, in bounded memory and time.

Both ends of the exchange are files without a name in the spool folder, so that a killed process
leaves nothing behind, and nothing is stored before the child has read the whole file.
"""

import json
import logging
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from advisor.errors import InvalidInput, NoUsableRows, RooftuneError, UnreadableFile
from advisor.traffic.trace import TraceReport, TrafficSummary
from api.codec import read
from api.errors import UploadTooLarge
from api.frames import read_frames, write_frame
from api.settings import ApiSettings, child_environment

log = logging.getLogger(__name__)


class ReaderFault(RuntimeError):
    """The child failed in a way that is a fault of ours; its frames are in the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one child may use."""

    rows: int
    memory_bytes: int
    timeout_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Intake:
    """A traffic file as the database keeps it; `digest` hashes the accepted requests."""

    report: TraceReport
    summary: TrafficSummary
    digest: str
    requests: int
    chunks: tuple[bytes, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    """A target's tokenizer: ``tokenizer.json``, its special tokens, the chat template."""

    tokenizer_json: bytes
    special: Mapping[str, str]
    chat_template: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """Token columns of a workload under one vocabulary and the summary that needs them."""

    tokenizer_digest: str
    template_digest: str
    summary: TrafficSummary
    body: bytes


def limits_of(settings: ApiSettings) -> Limits:
    """The limits of an upload."""
    return Limits(
        rows=settings.upload_max_rows,
        memory_bytes=settings.upload_memory_bytes,
        timeout_s=settings.upload_timeout_s,
    )


def spool_of(settings: ApiSettings) -> Path:
    """Where uploads wait while they are read; made on first use."""
    spool = settings.data_dir / "spool"
    spool.mkdir(mode=0o700, parents=True, exist_ok=True)
    return spool


def read_upload(file: BinaryIO, *, filename: str, limits: Limits, spool: Path) -> Intake:
    """Read a traffic file; a bad one raises what it deserves (`NoUsableRows`, ...)."""
    frames = _run(["read", f"--filename={_plain(filename)}"], file, limits, spool)
    facts = _facts(next(frames, b""), limits)
    return Intake(
        report=read(json.dumps(facts["report"]), TraceReport),
        summary=read(json.dumps(facts["summary"]), TrafficSummary),
        digest=facts["digest"],
        requests=facts["requests"],
        chunks=tuple(frames),
    )


def count_tokens(
    chunks: Sequence[bytes], vocabulary: Vocabulary, *, limits: Limits, spool: Path
) -> Counted:
    """Tokenise stored requests."""
    with tempfile.TemporaryFile(dir=spool) as given:
        settings = {"special": dict(vocabulary.special), "template": vocabulary.chat_template}
        write_frame(given, json.dumps(settings).encode())
        write_frame(given, vocabulary.tokenizer_json)
        for chunk in chunks:
            write_frame(given, chunk)
        given.seek(0)
        frames = _run(["tokens"], given, limits, spool)
        facts = _facts(next(frames, b""), limits)
        return Counted(
            tokenizer_digest=facts["tokenizer_digest"],
            template_digest=facts["template_digest"],
            summary=read(json.dumps(facts["summary"]), TrafficSummary),
            body=next(frames),
        )


def _plain(filename: str) -> str:
    """A file name as an argument: what does not print is left out."""
    return "".join(letter for letter in filename if letter.isprintable())[:200] or "upload"


def _run(options: Sequence[str], given: BinaryIO, limits: Limits, spool: Path) -> Iterator[bytes]:
    bounds = ["--rows", str(limits.rows), "--memory", str(limits.memory_bytes)]
    bounds += ["--seconds", str(int(limits.timeout_s) + 1)]
    argv = [sys.executable, "-m", "api.reader", *options, *bounds]
    with tempfile.TemporaryFile(dir=spool) as answer:
        try:
            subprocess.run(
                argv,
                stdin=given,
                stdout=answer,
                stderr=subprocess.DEVNULL,  # a traceback would quote the file
                env=child_environment(),
                timeout=limits.timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise UploadTooLarge("reading takes too long", f"{limits.timeout_s:.0f} s") from None
        answer.seek(0)
        yield from read_frames(answer)


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
    match refused["kind"]:
        case "NoUsableRows":
            return NoUsableRows(refused["reason"], refused["found"], refused["accepted"])
        case "UnreadableFile":
            return UnreadableFile(refused["reason"], refused["remedy"])
        case "InvalidInput":
            return InvalidInput(refused["field"], refused["message"])
        case "TooLarge":
            return _too_large(refused["rows"], limits)
        case kind:
            log.error("reader: %s %s\n%s", kind, refused.get("error"), refused.get("at"))
            raise ReaderFault(kind)
