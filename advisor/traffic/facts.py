"""What statistics need of every request, without its text: numbers in columns."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from advisor.errors import InvalidInput
from advisor.traffic.text import NOTHING, Text, read_text, with_ids
from advisor.traffic.trace import Request, RequestKind, TokenColumns

UNKNOWN = -1
MISSING, REPORTED, ESTIMATED = 0, 1, 2
# `Facts.kind` is the place of the kind in here.
KINDS = (RequestKind.CHAT, RequestKind.COMPLETION, RequestKind.LENGTHS)

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Codes = NDArray[np.int32]
Flags = NDArray[np.int8]
Hashes = NDArray[np.uint64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Facts:
    """One row a request, in order of arrival (stable), about 120 bytes each.

    Floats are NaN where not known, token counts and codes -1. `prompt_source` and `output_source`
    are MISSING, REPORTED or ESTIMATED (by a tokenizer). `label` indexes `labels` (sorted),
    `session` numbers the sessions of the file, `model` indexes `models`, `language` indexes
    `languages`, `kind` indexes `KINDS`. `turns` counts messages of a user, `tool_turns` results of
    tools, `tools` the tools that are offered; these, `images` and `structured` (0 or 1) are -1
    where there is no text.
    `content` hashes the whole prompt and `head` what stands before the first message of a user
    (the system prompt; of a plain completion its first 256 characters), 0 where there is none;
    `answer` hashes the recorded answer. Where a file names blocks and holds no text, `content`
    hashes them and `head` the first of them.
    `code` is the share of the last message of a user that stands in code blocks or reads as code,
    NaN unread. `clustered` says that the labels are classes that we found, not the file's own.
    """

    arrival_s: Floats
    prompt_tokens: Integers
    output_tokens: Integers
    prompt_source: Flags
    output_source: Flags
    max_tokens: Integers
    temperature: Floats
    duration_s: Floats
    label: Codes
    session: Codes
    model: Codes
    kind: Flags
    turns: Codes
    tools: Codes
    tool_turns: Codes
    images: Codes
    structured: Flags
    language: Codes
    code: Floats
    text_chars: Integers
    content: Hashes
    head: Hashes
    answer: Hashes
    labels: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    languages: tuple[str, ...] = ()
    clustered: bool = False

    def __len__(self) -> int:
        return len(self.arrival_s)

    @property
    def has_text(self) -> NDArray[np.bool_]:
        """Which requests can be replayed as text."""
        found: NDArray[np.bool_] = self.kind != KINDS.index(RequestKind.LENGTHS)
        return found

    def take(self, places: Integers | Sequence[int]) -> "Facts":
        """The rows at `places`, in that order."""
        chosen = np.asarray(places, dtype=np.int64)
        columns = {
            item.name: getattr(self, item.name)[chosen]
            for item in fields(self)
            if item.name not in NAMES
        }
        return replace(self, **columns)


NAMES = frozenset({"labels", "models", "languages", "clustered"})
# Column of codes, and the names that it indexes.
_CODED = (("label", "labels"), ("model", "models"), ("language", "languages"))


def facts_of(
    requests: Sequence[Request],
    tokens: TokenColumns | None,
    *,
    sessions: dict[str, int] | None = None,
) -> Facts:
    """The columns of requests in order of arrival; `tokens` belong to them one by one.

    A prompt or an answer counts as many tokens as `tokens` say, else as the file reports.
    `sessions` numbers the sessions of a file: parts of one file share it (it grows).
    """
    if tokens is not None and len(tokens.prompts) != len(requests):
        raise InvalidInput("tokens", "not the token columns of these requests")
    numbers = {} if sessions is None else sessions
    for request in requests:
        if request.session is not None:
            numbers.setdefault(request.session, len(numbers))
    texts = [read_text(item) if item.has_text else _lengths_only(item) for item in requests]
    contents, answers = _hashes(requests, texts, tokens)
    prompts = _counts(requests, tokens, prompt=True)
    outputs = _counts(requests, tokens, prompt=False)
    label, labels = _coded([item.class_name for item in requests])
    model, models = _coded([item.model for item in requests])
    named = any(item.label is not None for item in requests)
    return Facts(
        arrival_s=_floats([item.arrival_s for item in requests]),
        prompt_tokens=prompts[0],
        output_tokens=outputs[0],
        prompt_source=prompts[1],
        output_source=outputs[1],
        max_tokens=_integers([item.max_tokens for item in requests]),
        temperature=_floats([item.temperature for item in requests]),
        duration_s=_floats([item.duration_s for item in requests]),
        label=label,
        session=np.array(
            [UNKNOWN if item.session is None else numbers[item.session] for item in requests],
            dtype=np.int32,
        ),
        model=model,
        kind=np.array([KINDS.index(item.kind) for item in requests], dtype=np.int8),
        turns=np.array([item.turns for item in texts], dtype=np.int32),
        tools=np.array([item.tools for item in texts], dtype=np.int32),
        tool_turns=np.array([item.tool_turns for item in texts], dtype=np.int32),
        images=np.array(
            [item.images if item.has_text else UNKNOWN for item in requests], dtype=np.int32
        ),
        structured=np.array([item.structured for item in texts], dtype=np.int8),
        language=np.full(len(requests), UNKNOWN, dtype=np.int32),
        code=_floats([item.code for item in texts]),
        text_chars=np.array([item.chars for item in texts], dtype=np.int64),
        content=contents,
        head=np.array([item.head for item in texts], dtype=np.uint64),
        answer=answers,
        labels=labels,
        models=models,
        clustered=bool(labels) and not named,
    )


def join_facts(parts: Sequence[Facts]) -> Facts:
    """The rows of parts of one file, one after another; their sessions are numbered together.

    The names that codes index are sorted, so equal rows give equal codes however they were cut.
    """
    if not parts:
        return facts_of((), None)
    if len(parts) == 1:
        return parts[0]
    columns = {
        item.name: np.concatenate([getattr(part, item.name) for part in parts])
        for item in fields(Facts)
        if item.name not in NAMES and item.name not in {column for column, _ in _CODED}
    }
    names: dict[str, tuple[str, ...]] = {}
    for column, held in _CODED:
        known = tuple(sorted({name for part in parts for name in getattr(part, held)}))
        place = {name: at for at, name in enumerate(known)}
        columns[column] = np.concatenate(
            [
                _recoded(getattr(part, column), [place[name] for name in getattr(part, held)])
                for part in parts
            ]
        )
        names[held] = known
    return Facts(
        **columns,
        labels=names["labels"],
        models=names["models"],
        languages=names["languages"],
        clustered=any(part.clustered for part in parts)
        and not any(part.labels and not part.clustered for part in parts),
    )


def content_order(facts: Facts) -> Integers:
    """Places in order of arrival, where rows of one time come in an order of their own content.

    So the order in which a log wrote simultaneous requests changes nothing. Rows without a time
    come last, as they are.
    """
    times = facts.arrival_s
    timed = np.flatnonzero(~np.isnan(times))
    order = timed[np.argsort(times[timed], kind="stable")]
    same = np.diff(times[order]) == 0
    tied = np.zeros(len(order), dtype=bool)
    tied[:-1] |= same
    tied[1:] |= same
    group = order[tied]
    # The last key counts most. Numbers of sessions depend on the order of the rows: they only
    # decide where all else is equal.
    keys = (
        facts.session,
        facts.duration_s,
        facts.structured,
        facts.temperature,
        facts.max_tokens,
        facts.label,
        facts.output_tokens,
        facts.prompt_tokens,
        facts.answer,
        facts.content,
        times,
    )
    order[tied] = group[np.lexsort([key[group] for key in keys])]
    return np.concatenate([order, np.flatnonzero(np.isnan(times))]).astype(np.int64)


def _lengths_only(request: Request) -> Text:
    return NOTHING if request.block_ids is None else NOTHING.of_blocks(request.block_ids)


def _floats(values: Sequence[float | None]) -> Floats:
    return np.array(values, dtype=np.float64)  # None becomes NaN


def _integers(values: Sequence[int | None]) -> Integers:
    return np.array([UNKNOWN if value is None else value for value in values], dtype=np.int64)


def _coded(values: Sequence[str | None]) -> tuple[Codes, tuple[str, ...]]:
    """Codes into the sorted names."""
    names = tuple(sorted({value for value in values if value is not None}))
    place = {name: at for at, name in enumerate(names)}
    codes = [UNKNOWN if value is None else place[value] for value in values]
    return np.array(codes, dtype=np.int32), names


def _recoded(codes: Codes, new: Sequence[int]) -> Codes:
    """Codes that index other names; unknown stays unknown."""
    return np.array([*new, UNKNOWN], dtype=np.int32)[codes]


def _counts(
    requests: Sequence[Request], tokens: TokenColumns | None, *, prompt: bool
) -> tuple[Integers, Flags]:
    """Counts and where they come from; ids of the very run are as good as a reported count."""
    reported = _integers(
        [item.prompt_tokens if prompt else item.output_tokens for item in requests]
    )
    source = np.where(reported >= 0, REPORTED, MISSING).astype(np.int8)
    if tokens is None:
        return reported, source
    own = (tokens.prompts if prompt else tokens.outputs).lengths
    recorded = np.array(
        [(item.prompt_ids if prompt else item.output_ids) is not None for item in requests],
        dtype=bool,
    )
    source = np.where(own >= 0, np.where(recorded, REPORTED, ESTIMATED), source).astype(np.int8)
    return np.where(own >= 0, own, reported), source


def _hashes(
    requests: Sequence[Request], texts: Sequence[Text], tokens: TokenColumns | None
) -> tuple[Hashes, Hashes]:
    """Hashes of prompts and answers, with their token ids where there are any."""
    contents = np.array([item.content for item in texts], dtype=np.uint64)
    answers = np.array([item.answer for item in texts], dtype=np.uint64)
    if tokens is None:
        return contents, answers
    for place in range(len(requests)):
        contents[place] = with_ids(int(contents[place]), tokens.prompts.array(place))
        answers[place] = with_ids(int(answers[place]), tokens.outputs.array(place))
    return contents, answers
