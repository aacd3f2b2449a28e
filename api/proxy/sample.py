"""A traffic sample that is written while it happens: rows of our upload format, one per request."""

import errno
import fcntl
import json
import os
import stat
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from advisor.canonical import Json
from advisor.errors import InvalidInput, Unavailable
from advisor.traffic.formats.chat_jsonl import draft_of
from advisor.traffic.formats.fields import BadField
from advisor.traffic.formats.row import Notes
from advisor.traffic.privacy.redaction import Redactor
from advisor.traffic.trace import RequestKind
from api.proxy.frames import Usage, choice_text, choices_in, usage_in

KEPT = ("tools", "response_format", "max_tokens", "max_completion_tokens", "temperature", "top_p")
OTHERS = 0o077


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """What an upstream answered: text of the first choice, counts where it gave some."""

    text: str
    usage: Usage | None
    finish_reason: str | None

    @classmethod
    def of(cls, bodies: Sequence[Mapping[str, object]]) -> "Answered":
        """From the frames of a stream, or from the one body of a plain answer."""
        usage = [found for body in bodies if (found := usage_in(body)) is not None]
        first = [
            choice for body in bodies for choice in choices_in(body) if choice.get("index", 0) == 0
        ]
        ends = [str(choice["finish_reason"]) for choice in first if choice.get("finish_reason")]
        return cls(
            text="".join(choice_text(choice) for choice in first),
            usage=usage[-1] if usage else None,
            finish_reason=ends[-1] if ends else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """When a request came (seconds since 1970), how long it took, and whose session it is."""

    started_s: float
    latency_s: float
    ttft_s: float | None
    session: str | None


def row_of(
    asked: Mapping[str, Json], answered: Answered, moment: Moment, redactor: Redactor | None
) -> bytes:
    """One line of the sample with its end of line.

    Raises `BadField` of the reader of uploads for a request that it would refuse: pictures, token
    ids, several prompts at once. Its reason quotes nothing.
    """
    row: dict[str, Json] = {"timestamp": round(moment.started_s, 6)}
    row |= {"messages": asked["messages"]} if "messages" in asked else _prompt(asked)
    row |= {name: asked[name] for name in KEPT if asked.get(name) is not None}
    row["response"] = answered.text
    if answered.usage is not None and asked.get("n") in {None, 1}:  # else it counts all choices
        row["usage"] = {
            "prompt_tokens": answered.usage.prompt_tokens,
            "completion_tokens": answered.usage.completion_tokens,
        }
    if moment.session:
        row["session_id"] = moment.session
    held = redactor.value(row) if redactor is not None else row
    row = held if isinstance(held, dict) else row
    row |= {
        "model": asked.get("model"),
        "stream": asked.get("stream") is True,
        "finish_reason": answered.finish_reason,
        "latency_s": round(moment.latency_s, 6),
        "ttft_s": None if moment.ttft_s is None else round(moment.ttft_s, 6),
    }
    draft = draft_of(row, 1, Notes())
    if draft.kind is RequestKind.LENGTHS:
        raise BadField("prompt", "neither messages nor a prompt")
    if draft.fields.get("images"):
        raise BadField("messages", "holds pictures, sound or files; only text can be replayed")
    # Escaped, so that no character of a text can end the line, and half a character stays JSON.
    return json.dumps(row, allow_nan=False).encode() + b"\n"


def _prompt(asked: Mapping[str, Json]) -> dict[str, Json]:
    """The prompt; a list of one text is that text."""
    prompt = asked.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str):
        prompt = prompt[0]
    return {"prompt": prompt}


@dataclass(slots=True)
class SampleFile:
    """A file that only its owner can read, written in whole lines; one writer at a time."""

    path: Path
    max_bytes: int | None = None
    _descriptor: int = -1
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def open(self) -> None:
        """Create it (0600) or go on after its last line.

        Raises `InvalidInput` for a file that others may read or whose last line has no end,
        `Unavailable` when another recorder writes it.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            self._descriptor = os.open(self.path, flags, 0o600)
        except OSError as error:
            raise InvalidInput("out", f"cannot be written ({error.strerror})") from None
        try:
            self._check(os.fstat(self._descriptor))
        except BaseException:
            self.close()
            raise

    def _check(self, found: os.stat_result) -> None:
        if not stat.S_ISREG(found.st_mode):
            raise InvalidInput("out", "is no regular file")
        if found.st_mode & OTHERS:
            raise InvalidInput("out", "others may read it, and prompts go into it: chmod 600 it")
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Unavailable(
                "another recorder writes this file", "name another file with --out"
            ) from None
        if found.st_size and os.pread(self._descriptor, 1, found.st_size - 1) != b"\n":
            raise InvalidInput("out", "ends in the middle of a line: mend it, or name another file")

    def append(self, line: bytes) -> bool:
        """Write a whole line, or nothing: False when the file would grow above its limit.

        Raises `OSError` when there is no room; what was written of the line is taken back.
        """
        with self._lock:
            before = os.fstat(self._descriptor).st_size
            if self.max_bytes is not None and before + len(line) > self.max_bytes:
                return False
            written = os.write(self._descriptor, line)
            if written < len(line):
                os.ftruncate(self._descriptor, before)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return True

    def close(self) -> None:
        """Give up the file and its lock."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
