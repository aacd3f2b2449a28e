"""Which runs identify the step time of an engine (handbook 14.2).

A run submits `batch` equal requests at once, with lengths forced, and is timed from the first send
to the last end. Prompts must share no cache block with any other. Runs that differ in
`draft_tokens` need an engine of their own, so that they are listed in that order.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from advisor.errors import InvalidInput

PROMPT_TOKENS = 32
OUTPUT_TOKENS = (16, 80)
_LEAST_LENGTH = 128
_MOST_BATCH = 256
_SMALL = 16  # up to so many requests batches double, beyond they grow by 4
_CONTEXT_BATCH = 32
_CONTEXTS = (256, 2048, 8192)
_PROMPTS = (64, 512, 2048, 8192)
_MANY, _MANY_PROMPT = 8, 512
_CACHE_SHARE = 0.9  # of the KV cache, so that nothing waits or is preempted


class RunKind(StrEnum):
    """What a run is for. DECODE, CONTEXT and VERIFY come in pairs of output lengths."""

    DECODE = "decode"
    CONTEXT = "context"
    PREFILL = "prefill"
    VERIFY = "verify"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRun:
    """One run to time. `draft_tokens` is what the engine drafts, all of which is refused.

    VERIFY needs drafts of which none is accepted, so that every step yields one token.
    """

    kind: RunKind
    batch: int
    prompt_tokens: int
    output_tokens: int
    draft_tokens: int = 0

    def __post_init__(self) -> None:
        if min(self.batch, self.prompt_tokens, self.output_tokens) < 1 or self.draft_tokens < 0:
            raise InvalidInput("run", "batch and lengths are at least 1, drafts not negative")
        if (self.kind is RunKind.VERIFY) is not (self.draft_tokens > 0):
            raise InvalidInput("run.draft_tokens", "are what a verification run has, and no other")

    @property
    def tokens(self) -> int:
        """Tokens in the cache at the end of the run."""
        return self.batch * (self.prompt_tokens + self.output_tokens)


def step_plan(
    max_num_seqs: int,
    max_model_len: int,
    *,
    kv_cache_tokens: int | None = None,
    draft_tokens: tuple[int, ...] = (1, 3, 5),
) -> tuple[StepRun, ...]:
    """Runs for the engine's limits; those that do not fit its cache are left out.

    `draft_tokens` are the draft lengths to verify, one engine start each; empty: none. An engine of
    fewer than 128 tokens per request raises `InvalidInput`.
    """
    if max_num_seqs < 1 or max_model_len < _LEAST_LENGTH:
        raise InvalidInput("max_model_len", f"{max_model_len} is below {_LEAST_LENGTH}")
    batches = _batches(min(max_num_seqs, _MOST_BATCH))
    room = None if kv_cache_tokens is None else int(_CACHE_SHARE * kv_cache_tokens)
    runs = (
        *_decodes(batches),
        *_contexts(batches, max_model_len, room),
        *_prefills(max_num_seqs, max_model_len),
        *_verifications(batches, draft_tokens),
    )
    return tuple(dict.fromkeys(run for run in runs if room is None or run.tokens <= room))


def _batches(top: int) -> tuple[int, ...]:
    found, batch = [], 1
    while batch < top:
        found.append(batch)
        batch *= 2 if top <= _SMALL else 4
    return (*found, top)


def _decodes(batches: tuple[int, ...]) -> Iterator[StepRun]:
    for batch in batches:
        for output in OUTPUT_TOKENS:
            yield StepRun(
                kind=RunKind.DECODE,
                batch=batch,
                prompt_tokens=PROMPT_TOKENS,
                output_tokens=output,
            )


def _contexts(batches: tuple[int, ...], max_model_len: int, room: int | None) -> Iterator[StepRun]:
    """One batch at several contexts, as large a batch as holds at least two of them."""
    last = OUTPUT_TOKENS[-1]
    longest = max_model_len - last
    contexts = tuple(size for size in _CONTEXTS if size <= longest) or (longest,)
    if longest > 2 * contexts[-1]:
        contexts = (*contexts, longest)
    sizes = [batch for batch in batches if batch <= _CONTEXT_BATCH]
    second = contexts[min(1, len(contexts) - 1)] + last
    fitting = [batch for batch in sizes if room is None or batch * second <= room]
    batch = max(fitting, default=1)
    for context in contexts:
        for output in OUTPUT_TOKENS:
            yield StepRun(
                kind=RunKind.CONTEXT,
                batch=batch,
                prompt_tokens=context,
                output_tokens=output,
            )


def _prefills(max_num_seqs: int, max_model_len: int) -> Iterator[StepRun]:
    for prompt in _PROMPTS:
        if prompt >= max_model_len:
            continue
        counts = (1, min(_MANY, max_num_seqs)) if prompt <= _MANY_PROMPT else (1,)
        for count in dict.fromkeys(counts):
            yield StepRun(kind=RunKind.PREFILL, batch=count, prompt_tokens=prompt, output_tokens=1)


def _verifications(batches: tuple[int, ...], draft_tokens: tuple[int, ...]) -> Iterator[StepRun]:
    """The smallest, a middle and the largest batch."""
    chosen = dict.fromkeys((batches[0], batches[len(batches) // 2], batches[-1]))
    for drafted in draft_tokens:
        for batch in chosen:
            for output in OUTPUT_TOKENS:
                yield StepRun(
                    kind=RunKind.VERIFY,
                    batch=batch,
                    prompt_tokens=PROMPT_TOKENS,
                    output_tokens=output,
                    draft_tokens=drafted,
                )
