"""A batch of equal requests served offline, as stretches of steps: what batch benchmarks time.

Prompts go first, whole, as many as the token budget takes; then all decode. Where the KV cache
ends, requests that have not started wait, and the youngest running one is put back and computed
again (vLLM's recompute; V0 scheduler of 0.4 to 0.6, chunked prefill off).
"""

from collections import Counter
from dataclasses import dataclass

from advisor.errors import InvalidInput
from advisor.roofline.calibration.stretches import Stretch
from advisor.roofline.step.batch import Prefill

_WATERMARK = 0.01  # share of blocks that a prompt may not take while others run


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits:
    """`prefill_tokens` per prompt step, `cache_tokens` of KV cache, requests at once."""

    prefill_tokens: int
    cache_tokens: float
    block_tokens: int = 16
    max_num_seqs: int = 256

    def __post_init__(self) -> None:
        if min(self.prefill_tokens, self.cache_tokens, self.block_tokens, self.max_num_seqs) < 1:
            raise InvalidInput("limits", "are at least 1")


@dataclass(slots=True)
class _Request:
    """`tokens` that its next step attends to, or computes again; `left` still to be sampled."""

    tokens: int
    left: int


def offline_batch(
    requests: int, prompt_tokens: int, output_tokens: int, limits: BatchLimits
) -> tuple[Stretch, ...]:
    """All steps of a batch of equal requests that arrive together.

    A request whose prompt and output exceed the whole cache raises `InvalidInput`.
    """
    if min(requests, prompt_tokens, output_tokens) < 1:
        raise InvalidInput("batch", "has requests, prompts and outputs of at least one token")
    blocks = int(limits.cache_tokens // limits.block_tokens)
    if _blocks(prompt_tokens + output_tokens, limits) > blocks:
        raise InvalidInput("batch", f"one request exceeds the cache of {limits.cache_tokens:.0f}")
    waiting = [_Request(prompt_tokens, output_tokens) for _ in range(requests)]
    running: list[_Request] = []
    found: list[Stretch] = []
    while waiting or running:
        started = _start(waiting, running, blocks, limits)
        if started:
            found.append(Stretch(prefills=tuple(Prefill(new_tokens=r.tokens) for r in started)))
            for request in started:
                request.tokens += 1
                request.left -= 1
            running += [request for request in started if request.left > 0]
        else:
            found += _decode(waiting, running, blocks, limits)
    return tuple(found)


def _start(
    waiting: list[_Request], running: list[_Request], blocks: int, limits: BatchLimits
) -> list[_Request]:
    """Takes from the front of `waiting` what one prompt step computes."""
    used = sum(_blocks(request.tokens, limits) for request in running)
    started: list[_Request] = []
    budget = limits.prefill_tokens
    while waiting and len(running) + len(started) < limits.max_num_seqs:
        need = _blocks(waiting[0].tokens, limits)
        alone = not running and not started
        room = blocks - used - need
        if room < (0 if alone else _WATERMARK * blocks):
            break
        # A prompt above the budget still runs, alone in its step.
        if waiting[0].tokens > budget and started:
            break
        budget -= waiting[0].tokens
        used += need
        started.append(waiting.pop(0))
    return started


def _decode(
    waiting: list[_Request], running: list[_Request], blocks: int, limits: BatchLimits
) -> list[Stretch]:
    """Decodes until a request ends or the cache does; in the latter case puts the youngest back."""
    steps = _steps_that_fit(running, blocks, limits)
    if not steps:
        waiting.insert(0, running.pop())
        return []
    kept = Stretch(
        steps=steps,
        decodes=len(running),
        context_tokens=sum(request.tokens for request in running) / len(running),
    )
    for request in running:
        request.tokens += steps
        request.left -= steps
    running[:] = [request for request in running if request.left > 0]
    return [kept]


def _steps_that_fit(running: list[_Request], blocks: int, limits: BatchLimits) -> int:
    counts = Counter(request.tokens for request in running)
    low, high = 0, min(request.left for request in running)
    while low < high:
        middle = (low + high + 1) // 2
        needed = sum(n * _blocks(tokens + middle - 1, limits) for tokens, n in counts.items())
        low, high = (middle, high) if needed <= blocks else (low, middle - 1)
    return low


def _blocks(tokens: int, limits: BatchLimits) -> int:
    return -(-tokens // limits.block_tokens)
