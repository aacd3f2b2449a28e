"""The requests that a measurement sends: read from the user's file, dealt out to loads."""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from advisor.canonical import digest
from advisor.errors import InvalidInput
from advisor.measurement.fitting import Fitting, split_fitting
from advisor.traffic.formats.options import ReadOptions
from advisor.traffic.model_folder import ModelFolder, read_folder
from advisor.traffic.reading.reader import open_trace
from advisor.traffic.tokens import token_columns
from advisor.traffic.trace import Request, RequestKind, TokenColumns
from probes.load.plan import ReplayRule

# Ids that every vocabulary has, for traffic of lengths on a server whose vocabulary is not known.
SMALL_VOCABULARY = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """The usable requests of a file, in order of arrival, with what is known of their lengths.

    `prompt_tokens` and `output_tokens` are the tokenizer's where one was given, else the file's own
    counts; None where neither says. `vocab_size` is that of the tokenizer's model.
    """

    digest: str
    requests: tuple[Request, ...]
    prompt_tokens: tuple[int | None, ...]
    output_tokens: tuple[int | None, ...]
    vocab_size: int = SMALL_VOCABULARY

    @property
    def conversations(self) -> bool:
        """Whether some session has more than one turn."""
        sessions = [request.session for request in self.requests if request.session is not None]
        return len(set(sessions)) < len(sessions)

    @property
    def arrivals_s(self) -> tuple[float, ...] | None:
        """When the requests arrived; None where the file does not say of all."""
        times = [request.arrival_s for request in self.requests]
        known = [time for time in times if time is not None]
        return tuple(known) if known and len(known) == len(times) else None

    def at(self, places: Sequence[int]) -> "Workload":
        """Only the requests at these places, in this order."""
        return replace(
            self,
            requests=tuple(self.requests[place] for place in places),
            prompt_tokens=tuple(self.prompt_tokens[place] for place in places),
            output_tokens=tuple(self.output_tokens[place] for place in places),
        )

    def fitting(self, rule: ReplayRule, max_model_len: int) -> tuple["Workload", Fitting]:
        """The requests that fit the server's length, and the share that does not (case T-18)."""
        wanted = [
            rule.limit(request, tokens)
            for request, tokens in zip(self.requests, self.output_tokens, strict=True)
        ]
        split = split_fitting(self.prompt_tokens, wanted, max_model_len=max_model_len)
        if not split.fitting:
            raise InvalidInput(
                "workload", f"no request fits the server's length of {max_model_len} tokens"
            )
        return self.at(split.fitting), split


def read_workload(
    file: Path,
    options: ReadOptions,
    *,
    tokenizer: Path | None = None,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> Workload:
    """Read a traffic file of any known format; `tokenizer` is a model folder to count tokens by.

    `progress` hears how many bytes of how many were read. Raises what the reader raises for a bad
    file, and `InvalidInput` where nothing in it can be sent.
    """
    folder = None if tokenizer is None else _folder(tokenizer)
    size = file.stat().st_size
    with file.open("rb") as stream, tempfile.TemporaryFile() as spool:
        opened = open_trace(
            stream,
            filename=file.name,
            spool=spool,
            options=options,
            progress=lambda done: progress(done, size),
        )
        requests = tuple(request for part in opened.batches() for request in part)
    requests = tuple(request for request in requests if _sendable(request))
    if not requests:
        raise InvalidInput("workload", "no request has a text or a length that could be sent")
    columns = _columns(requests, folder)
    return Workload(
        digest=digest([_named(request) for request in requests]),
        requests=requests,
        prompt_tokens=_counts(columns, requests, prompts=True),
        output_tokens=_counts(columns, requests, prompts=False),
        vocab_size=SMALL_VOCABULARY if folder is None else folder.shape.vocab_size,
    )


def _sendable(request: Request) -> bool:
    return request.kind is not RequestKind.LENGTHS or request.prompt_tokens is not None


def _named(request: Request) -> list[object]:
    """What makes a request another one for a load; its text is hashed, never kept."""
    text = request.messages or request.prompt or ""
    lengths = (request.prompt_tokens, request.output_tokens, request.max_tokens)
    sampling = (request.temperature, request.top_p, request.response_format, request.tools)
    return [text, *lengths, *sampling, request.session, request.arrival_s]


def _folder(path: Path) -> ModelFolder:
    def read(name: str) -> bytes | None:
        file = path / name
        return file.read_bytes() if file.is_file() else None

    return read_folder(read, shape_only=True)


def _columns(requests: Sequence[Request], folder: ModelFolder | None) -> TokenColumns | None:
    tokenizer = None if folder is None else folder.counting()
    return None if tokenizer is None else token_columns(requests, tokenizer)


def _counts(
    columns: TokenColumns | None, requests: Sequence[Request], *, prompts: bool
) -> tuple[int | None, ...]:
    own = [request.prompt_tokens if prompts else request.output_tokens for request in requests]
    if columns is None:
        return tuple(own)
    lengths = (columns.prompts if prompts else columns.outputs).lengths.tolist()
    return tuple(
        stated if counted < 0 else int(counted)
        for counted, stated in zip(lengths, own, strict=True)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Deal:
    """The requests of one load.

    `laps[i]` says how often request i came before in this load: where a load needs more requests
    than there are, all come again. `again`: some were sent before, in another load.
    """

    workload: Workload
    laps: tuple[int, ...]
    again: bool


@dataclass
class Dealer:
    """Deals the requests of a workload out to loads.

    Drawn by chance once, sessions whole and their turns in order; a load that is paced as recorded
    gets neighbours in time instead, and no request twice. With `repeats` every load begins with the
    same requests, so that loads differ by nothing else; without it each load goes on where the last
    one ended.
    """

    workload: Workload
    seed: int
    repeats: bool
    recorded: bool = False
    _next: int = 0
    _sent: int = 0

    def __post_init__(self) -> None:
        self._order = self._drawn()

    def deal(self, count: int) -> Deal:
        """The requests of one load; fewer than `count` only where they are paced as recorded."""
        many = len(self._order)
        count = min(count, many) if self.recorded else count
        start = 0 if self.repeats else self._next
        places = [self._order[(start + step) % many] for step in range(count)]
        laps = tuple(step // many for step in range(count))
        again = self._sent > 0 if self.repeats else self._sent > 0 and self._sent + count > many
        self._next = (start + count) % many
        self._sent += count
        if self.recorded:
            places.sort()
        chosen = self.workload.at(places)
        requests = tuple(
            _copy(request, lap, many) for request, lap in zip(chosen.requests, laps, strict=True)
        )
        return Deal(workload=replace(chosen, requests=requests), laps=laps, again=again)

    def _drawn(self) -> list[int]:
        requests = self.workload.requests
        if self.recorded:
            return list(range(len(requests)))
        units: dict[tuple[str, str | int], list[int]] = {}
        for place, request in enumerate(requests):
            alone = request.session is None
            key = ("request", place) if alone else ("session", str(request.session))
            units.setdefault(key, []).append(place)
        members = list(units.values())
        order = np.random.default_rng(self.seed).permutation(len(members))
        return [place for unit in order for place in members[unit]]


def _copy(request: Request, lap: int, many: int) -> Request:
    """The request under a name of its own for each lap, and so its conversation."""
    if lap == 0:
        return request
    return replace(
        request,
        id=f"{request.id}#{lap}",
        index=request.index + lap * many,
        session=None if request.session is None else f"{request.session}#{lap}",
    )
